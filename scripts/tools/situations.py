"""situations.py [-v] [-field | -gates | -held | -trio | -permits | -healthy] [-quota] [SEED [COUNT]]: draws COUNT situations from
SEED (tests/gdb/subjects/situations.py), with -field of the second family, -gates of the third, -held of the fourth, with -trio
between its tasks, with -permits for limiters and pools (SITUATIONS_PYTHON has these libraries), with -healthy of programs that
are mostly well, with -quota under a fifth of a processor for all of them. Asks llm-hang about each and prints what it said
against what is true: each that is not right or whose chain does not end where it truly does, then the matrix as the table that
docs/verdicts.md shows. Without SEED it is the number of the commit: nobody has looked at its situations. Exit status 1 where one
was sure and wrong."""

import os
import resource
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, os.path.join(ROOT, "tests")]

from harness import situations  # noqa: E402

from scripts.tools import share  # noqa: E402

FAMILIES = {"-field": "f", "-gates": "g", "-held": "h", "-trio": "t", "-permits": "l", "-healthy": "p"}


def from_commit():
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return int(head[:7], 16)


def limited():
    """In the process that lives the situations: they share a fifth of a processor."""
    if not share.quota(0.2)[0]:
        os.write(2, b"no control group with a quota can be made here\n")
        os._exit(2)


def main():
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    family = next((letter for word, letter in FAMILIES.items() if word in sys.argv[1:]), "")
    seed = int(words[0]) if words else from_commit()
    count = int(words[1]) if len(words) > 1 else 60
    print(f"seed {seed}, {count} situations", flush=True)
    found, began = [], time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what lives the situations ends too
    try:
        drawn = [f"{family}{number}" for number in range(seed * 100000, seed * 100000 + count)]
        at_once = int(os.environ.get("SITUATIONS_AT_ONCE", "4"))
        python = os.environ.get("SITUATIONS_PYTHON", sys.executable)
        begin = limited if "-quota" in sys.argv[1:] else None
        for one in situations.run(drawn, processes=at_once, python=python, begin=begin):
            found.append(one)
            if one.how != "right" or one.hung and one.end != "named":
                end = f", end {one.end or 'not named'}" if one.hung else ""
                said = f"said {one.verdict} {one.culprits}, true {one.right} {one.true}{end}"
                print(f"{len(found)}. {one.how}: {one.words} {one.drawn}: {said}", flush=True)
            if one.how in ("WRONG", "left out") or "-v" in sys.argv and (one.how != "right" or one.hung and one.end != "named"):
                print("    " + "\n    ".join(one.evidence[:5]), flush=True)
    except KeyboardInterrupt:
        print(f"interrupted after {len(found)}")
    print("\n".join(situations.matrix(found)))
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(one.ru_utime + one.ru_stime for one in spent)
    print(f"{time.monotonic() - began:.0f} s, {cpu:.0f} s of CPU")
    return any(one.how == "WRONG" for one in found)


if __name__ == "__main__":
    sys.exit(main())
