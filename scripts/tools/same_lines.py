"""Which lines of the pack the unit tests run, all of them and what another interpreter draws of them (tests/harness/samples.py):
same_lines.py [SEED ...], in the environment of the newest Python, for it counts by sys.monitoring.

Prints for each seed how many lines the sample leaves out, and which."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
COUNTS = """
import os, sys
import pytest
pack = os.path.join(sys.argv[1], "gdbext") + os.sep
seen, m = set(), sys.monitoring

def line(code, number):
    if code.co_filename.startswith(pack):
        seen.add(f"{code.co_filename[len(pack):]}:{number}")
    return m.DISABLE

m.use_tool_id(m.COVERAGE_ID, "lines")
m.register_callback(m.COVERAGE_ID, m.events.LINE, line)
m.set_events(m.COVERAGE_ID, m.events.LINE)
status = pytest.main(["-q", "-p", "no:cacheprovider", os.path.join(sys.argv[1], "tests", "unit")])
with open(sys.argv[2], "w") as f:
    f.write("\\n".join(sorted(seen)))
sys.exit(status)
"""


def lines(**env: str) -> set[str]:
    """The lines that a run of the unit tests goes through, as FILE:NUMBER."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "lines")
        done = subprocess.run(
            [sys.executable, "-c", COUNTS, ROOT, path],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": ROOT, "GDBEXT_TEST_AGAIN": "1", **env},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        print(done.stdout.strip().splitlines()[-1])
        with open(path) as f:
            return set(f.read().split())


def main(seeds: list[str]) -> None:
    whole = lines()
    for seed in seeds:
        left: dict[str, list[str]] = {}
        for one in sorted(whole - lines(GDBEXT_TEST_SAMPLE=seed)):
            left.setdefault(one.partition(":")[0], []).append(one.partition(":")[2])
        count = sum(map(len, left.values()))
        print(f"seed {seed}: {count} of {len(whole)} lines are left out ({count / len(whole):.2%})")
        for name, numbers in sorted(left.items()):
            print(f"  {name}: {' '.join(numbers)}")


if __name__ == "__main__":
    main(sys.argv[1:] or ["1"])
