"""From `gdb --args`: children are followed through fork and exec, and the Python breakpoints reach them."""

import os
import platform
import re
import sys

import pytest

from gdbrun import run_gdb
from pysubjects import PYTHONS, SUBJECTS

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")
FILE = os.path.join(SUBJECTS, "family.py")

# gdb stops everything when one process ends; at a terminal llm-follow goes on by itself, a script does it like this.
SCRIPT = """
import gdb
gdb.execute("llm-follow on")
gdb.execute('pylog family.py:{line} "{{n}} {{i}} {{value}}"')
gdb.execute("run")
from gdbext.control import follow
for turn in range(40):
    try:
        if not follow.go_on():
            break
    except gdb.error as e:
        print("again:", e)
gdb.execute("llm-follow off")
gdb.execute("show detach-on-fork")
"""


@pytest.mark.parametrize("python", [p for p in PYTHONS if "python3.1" not in os.path.basename(p)][-2:] or [sys.executable], ids=os.path.basename)
def test_children_by_fork_and_by_spawn_get_what_was_set_before_the_start(python, gdb_path, tmp_path):
    with open(FILE) as f:
        line = next(i for i, text in enumerate(f, 1) if "LINE step" in text)
    script = tmp_path / "follow.py"
    script.write_text(SCRIPT.format(line=line))
    said = run_gdb(gdb_path, [f"file {python}", f"set args {FILE}", f"source {script}"], timeout=40)
    found = re.findall(rf"^(\d+) family\.py:{line}  (\d+) (\d+) (\d+)$", said.text, re.M)
    assert "parent done 99" in said.text, said.text[-3000:]
    by_process = {}
    for tid, *values in found:
        by_process.setdefault(tid, []).append([int(v) for v in values])
    children = sorted(v for v in by_process.values() if len(v) == 3)
    assert children == sorted([[n, i, n * 10 + i] for i in range(3)] for n in (1, 2)), said.text[-3000:]
    assert [[9, 9, 99]] in by_process.values() and "will detach the child of a fork is on" in said.outputs[-1]


def test_a_breakpoint_set_before_run_waits_for_the_process(gdb_path):
    commands = [f"file {sys.executable}", f"set args {FILE}", "pybreak step if i == 9", "run", "pyprint n, i", "pybreak -json", "kill"]
    said = run_gdb(gdb_path, commands, timeout=60)
    assert "pending" in said.outputs[2] and said.outputs[4] == "(9, 9)" and said.json(5)["breakpoints"][0]["hits"] == 1
