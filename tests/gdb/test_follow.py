"""From `gdb --args`: children are followed through fork and exec, and the Python breakpoints reach them."""

import os
import platform
import re
import signal
import sys
import time

import pexpect
import pytest
from harness.gdb_run import INIT, run_gdb
from harness.subjects import PYTHONS, SUBJECTS

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")
FILE = os.path.join(SUBJECTS, "family.py")
LINE = ["-nx", "-q"]
for setting in ("debuginfod enabled off", "auto-load off", "style enabled off", "width 0"):
    LINE += ["-iex", f"set {setting}"]

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


@pytest.mark.parametrize(
    "python", [p for p in PYTHONS if "python3.1" not in os.path.basename(p)][-2:] or [sys.executable], ids=os.path.basename
)
def test_children_by_fork_and_by_spawn_get_what_was_set_before_the_start(python, gdb_path, tmp_path):
    with open(FILE) as f:
        line = next(i for i, text in enumerate(f, 1) if "LINE step" in text)
    script = tmp_path / "follow.py"
    script.write_text(SCRIPT.format(line=line))
    said = run_gdb(gdb_path, [f"file {python}", f"set args {FILE}", f"source {script}"], timeout=300)
    found = re.findall(rf"^[\d:.]+ (\d+) family\.py:{line}  (\d+) (\d+) (\d+)$", said.text, re.M)
    assert "parent done 99" in said.text, said.text[-3000:]
    by_process = {}
    for tid, *values in found:
        by_process.setdefault(tid, []).append([int(v) for v in values])
    children = sorted(v for v in by_process.values() if len(v) == 3)
    assert children == sorted([[n, i, n * 10 + i] for i in range(3)] for n in (1, 2)), said.text[-3000:]
    assert [[9, 9, 99]] in by_process.values() and "will detach the child of a fork is on" in said.outputs[-1]


def test_a_breakpoint_set_before_run_waits_for_the_process(gdb_path):
    commands = [
        f"file {sys.executable}",
        f"set args {FILE}",
        "pybreak step if i == 9",
        "run",
        "pyprint n, i",
        "pybreak -json",
        "kill",
    ]
    said = run_gdb(gdb_path, commands, timeout=60)
    assert "pending" in said.outputs[2] and said.outputs[4] == "(9, 9)" and said.json(5)["breakpoints"][0]["hits"] == 1


def until(tells, limit=120):
    """Waits until `tells()` is true."""
    deadline = time.monotonic() + limit
    while not tells():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.05)


@pytest.mark.parametrize("stands", [1, 2], ids=["forked", "spawned"])
def test_non_stop_one_rank_stands_while_the_others_run(stands, gdb_path, tmp_path):
    """As at a terminal: what stops is one child's main thread; the other child counts on, and so does this one once it is
    continued."""
    end = tmp_path / "end"

    def count(n):
        at = tmp_path / f"end.{n}"
        return int(at.read_text()) if at.exists() else -1

    gdb = pexpect.spawn(
        gdb_path,
        [*LINE, "--args", sys.executable, os.path.join(SUBJECTS, "two_children.py"), str(end)],
        encoding="utf-8",
        timeout=180,
        env={**os.environ, "TERM": "dumb"},
        dimensions=(50, 200),
    )

    def ask(command, *wanted):
        gdb.sendline(command)
        for pattern in wanted:
            gdb.expect(pattern)

    try:
        ask(f"source {INIT}", r"\(gdb\) ")
        ask("llm-follow on -non-stop", "following, non-stop", r"\(gdb\) ")
        ask(f"pybreak step if n == {stands} and i > 3", "pending", r"\(gdb\) ")
        ask("run", r"pybreak 1: step at .*two_children.py:\d+, thread \d+ .*, hit 1")
        other = 3 - stands
        until(lambda: count(other) > 3)
        here, there = count(stands), count(other)
        until(lambda: count(other) > there + 5)
        assert count(stands) == here == 3
        ask("llm-follow", r"(\d+) +\d+ +stopped")
        number = gdb.match.group(1)
        ask("info threads", r"\(gdb\) ")
        ask(f"thread {number}.1", r"\(gdb\) ")
        ask("pyprint n, i", rf"\({stands}, 4\)", r"\(gdb\) ")
        ask("llm-follow on -non-stop", "following, non-stop", r"\(gdb\) ")
        ask("delete 1", r"\(gdb\) ")
        ask("continue &", r"\(gdb\) ")
        until(lambda: count(stands) > 6)
        end.write_text("")
        gdb.expect("parent done")
    finally:
        end.write_text("")
        gdb.kill(signal.SIGKILL)
        gdb.wait()
        gdb.close()
