"""situations.py [SEED [COUNT]]: draws COUNT situations (tests/gdb/subjects/situations.py) from SEED, asks llm-hang about each and
prints what it said against what is true: each that is not right, then the matrix as the table that docs/verdicts.md shows. Exit
status 1 where one was sure and wrong."""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, os.path.join(ROOT, "tests")]

from harness import situations  # noqa: E402


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    found = []
    for one in situations.run(
        range(seed * 100000, seed * 100000 + count), processes=int(os.environ.get("SITUATIONS_AT_ONCE", "4"))
    ):
        found.append(one)
        if one.how != "right":
            print(
                f"{one.how}: {one.seed} {one.drawn}: said {one.verdict} {one.culprits}, true {one.right} {one.true}", flush=True
            )
            if one.how == "WRONG" or "-v" in sys.argv:
                print("    " + "\n    ".join(one.evidence[:5]), flush=True)
    print("\n".join(situations.matrix(found)))
    return any(one.how == "WRONG" for one in found)


if __name__ == "__main__":
    sys.exit(main())
