"""In which frame an expression is evaluated: the selected one; outward with -any, with -on, from a function with -frame; and the
answer names it."""

import json

import pytest
from harness.gdb_run import run_gdb
from harness.subjects import running

from gdbext.commands import table
from gdbext.session.session import Session
from gdbext.setup import outside


@pytest.fixture(scope="module")
def pid():
    import sys

    with running(sys.executable, "outward.py") as (target, truth):
        yield truth["pid"]


def ask(line):
    name, _, rest = line.partition(" ")
    status, out, err = outside.perform(table.load(name), rest + " -json", Session())
    return json.loads(out)


@pytest.mark.parametrize(
    "expression,text,function",
    [
        ("self.scheduler.running[0]", "'req-1'", "EngineCore.loop"),
        ("self.running", "['req-1', 'req-2']", "Scheduler.schedule"),
        ("self.name", "'log'", "Logger.flush"),
        ("(beyond, 1)", "('outer', 1)", "EngineCore.loop"),
        ("1 + 1", "2", None),
    ],
)
def test_on_takes_the_nearest_frame_in_which_the_whole_resolves(pid, expression, text, function):
    found = ask(f"pyprint {expression} -on {pid}")
    assert found["repr"] == text
    assert (found["frame"] or {}).get("function") == function


def test_a_frame_is_chosen_by_its_function(pid):
    found = ask(f"pyprint -frame Scheduler.schedule rank -on {pid}")
    assert (found["repr"], found["frame"]["function"]) == ("3", "Scheduler.schedule")
    assert ask(f"pyprint rank -on {pid}")["repr"] == "None"
    assert ask(f"pyframe schedule -on {pid}")["frame"]["function"] == "Scheduler.schedule"
    error = ask(f"pyprint -frame shedule rank -on {pid}")["error"]
    assert "no frame of this thread runs shedule" in error and "Scheduler.schedule" in error


def test_no_frame_will_do(pid):
    error = ask(f"pyprint self.scheduler.nope -on {pid}")["error"]
    assert "EngineCore.loop" in error and "nope" in error


def test_in_gdb_the_selected_frame_counts_and_any_goes_outward(pid, gdb_path):
    commands = ["pyprint self.running", "pyprint -any self.running", "pyframe schedule", "pyprint step", "pyprint self.running"]
    plain, outward, _, step, selected = run_gdb(gdb_path, commands, ["-p", str(pid)]).outputs
    assert plain.startswith("pyprint:") and "running" in plain
    assert outward.splitlines()[0] == "['req-1', 'req-2']" and "Scheduler.schedule" in outward
    assert step == "17" and selected == "['req-1', 'req-2']"
