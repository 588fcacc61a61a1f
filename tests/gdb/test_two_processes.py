"""Two processes attached at once, with other values at the same addresses: each is answered with its own memory, whichever is
selected."""

import ctypes
import json
import os
import sys

import pytest
from harness.gdb_run import run_gdb
from harness.heartbeats import asleep
from harness.subjects import spawned

EVERY_GDB = True
NO_RANDOM = 0x0040000  # linux/personality.h: ADDR_NO_RANDOMIZE
CODE = """
import sys, threading, time
rank = sys.argv[1]
box = {"rank": rank, "numbers": [int(rank)] * 3}
def wait():
    here = rank
    print("up", flush=True)
    time.sleep(1000)
wait()
"""


@pytest.fixture(scope="module")
def pair():
    """Two processes of one program at the same addresses, called 7 and 8."""
    libc = ctypes.CDLL(None)
    how = {"env": {"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0"}, "preexec_fn": lambda: libc.personality(NO_RANDOM)}
    words = [os.path.realpath(sys.executable), "-I", "-c", CODE]
    with spawned([*words, "7"], ready="up", **how) as seven, spawned([*words, "8"], ready="up", **how) as eight:
        assert asleep(seven.pid) and asleep(eight.pid)
        yield [seven.pid, eight.pid]


ASK = ["pyprint -any -json -on {} rank", "pyprint -any -json -on {} box", "pylocals -json -on {}", "llm-bt -json -on {}"]


def plain(data):
    """What two answers of one process must have in common."""
    return json.dumps({k: v for k, v in data.items() if k != "pauses"}, sort_keys=True)


def test_each_process_answers_for_itself(pair, gdb_path):
    alone = []
    for pid in pair:
        run = run_gdb(gdb_path, [line.format(pid) for line in ASK], ["-p", str(pid)], before=["set auto-solib-add off"])
        alone.append([run.json(i) for i in range(len(ASK))])
    assert [one[0]["repr"] for one in alone] == ["'7'", "'8'"]
    assert alone[0][1]["address"] == alone[1][1]["address"], "the two differ in their addresses: the test shows nothing"
    asked = [line.format(pid) for pid in pair for line in ASK]
    attach = [f"attach {pair[0]}", "add-inferior", "inferior 2", f"attach {pair[1]}"]
    run = run_gdb(gdb_path, [*attach, *asked, "inferior 1", *asked], before=["set auto-solib-add off"])
    for start in (len(attach), len(attach) + len(asked) + 1):  # with the second selected, then with the first
        for number, one in enumerate(alone):
            for i in range(len(ASK)):
                assert plain(run.json(start + number * len(ASK) + i)) == plain(one[i]), (start, number, ASK[i])


def test_a_breakpoint_in_the_other_process_says_one_line(pair, gdb_path):
    """gdb's `inferior N` prints where it went, also where its output is taken as text; plain `continue` resumes one process."""
    attach = [f"llm-attach {pid}" for pid in pair]
    run = run_gdb(gdb_path, [*attach, f"pybreak -rank {pair[1]} wait", "delete", "llm-detach"])
    assert "llm-continue resumes all" not in run.outputs[0] and "llm-continue resumes all" in run.outputs[1]
    assert run.outputs[2].startswith("pybreak 1: ") and run.outputs[2].count("\n") == 0, run.text
