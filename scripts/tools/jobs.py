"""jobs.py [-v] [SEED [COUNT]]: draws COUNT situations of gloo jobs over two machines (tests/harness/jobs.py) from SEED, asks
llm-hang about each and prints each job of which it did not say what is true, then the matrix. Root, and GDBEXT_TEST_TORCH_PYTHON,
an interpreter with torch. Without SEED it is the number of the commit. Exit status 1 where one was sure and wrong."""

import os
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, os.path.join(ROOT, "scripts"), os.path.join(ROOT, "tests")]

from harness import jobs  # noqa: E402

from tools.situations import from_commit  # noqa: E402


def main():
    words = [word for word in sys.argv[1:] if word != "-v"]
    seed = int(words[0]) if words else from_commit()
    count = int(words[1]) if len(words) > 1 else 30
    found, began = [], time.monotonic()
    print(f"seed {seed}, {count} situations", flush=True)
    for number, one in enumerate(jobs.run(range(seed * 1000, seed * 1000 + count), os.environ["GDBEXT_TEST_TORCH_PYTHON"])):
        found.append(one)
        for job, kinds, how, evidence in one[1]:
            if how != "right" or "-v" in sys.argv:
                print(
                    f"{seed * 1000 + number}. {how}: {one[0].words()}\n    of {job.kind} at {job.at} it said {kinds}", flush=True
                )
                print("    " + "\n    ".join(evidence[:8]), flush=True)
    print("\n".join(jobs.matrix(found)))
    print(f"{time.monotonic() - began:.0f} s")
    return any(how == "WRONG" for _, each in found for _, _, how, _ in each)


if __name__ == "__main__":
    sys.exit(main())
