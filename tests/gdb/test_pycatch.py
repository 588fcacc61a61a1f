"""Exceptions stop where they are raised, or when nobody catches them, on all versions here."""

import os
import platform
import re

import pytest
from harness.breakpoints import OFF, started
from harness.gdb_run import run_gdb
from harness.subjects import PYTHONS

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_where_it_is_raised_and_when_nobody_catches_it(python, gdb_path, tmp_path):
    with started(python, tmp_path) as subject:
        commands = [
            "pycatch LookupError",
            "pycatch ValueError if number > 20",
            subject.tell("run"),
            "continue",
            "pyprint number",
            "pyexc -json",
        ]
        commands += ["delete", "pycatch -uncaught", subject.tell("die"), "continue", "pyprint mine", "continue", "pyexc -json"]
        said = run_gdb(gdb_path, commands, ["-p", str(subject.pid)], timeout=40, before=OFF)
    assert re.search(
        r"^pycatch 2: ValueError: number 30 in fails at .*breakpoints\.py:\d+, thread \d+.*, hit 1$", said.outputs[3], re.M
    )
    assert said.outputs[4] == "30" and said.json(5)["exceptions"][0]["state"] == "raised"
    assert re.search(r"^pycatch 3: KeyError.* in caught_by_nobody at", said.outputs[9], re.M) or "KeyError" in said.outputs[9], (
        said.outputs[9]
    )
    assert "ValueError" not in said.outputs[9] and "KeyError" in said.outputs[11]


def test_a_caught_exception_is_none_of_uncaught(session):  # noqa: F811
    said, _ = session(["pycatch -uncaught ValueError", "pybreak finished", "@run", "continue", "pybreak -json"])
    assert "finished at" in said.outputs[3] and {b["number"]: b["hits"] for b in said.json(4)["breakpoints"]} == {1: 0, 2: 1}


def test_registers_and_words_are_checked(session):  # noqa: F811
    said, _ = session(
        ["pybreak work", "pybreak finished", "pybreak fails", "pycatch -uncaught", "pycatch 1+", "pycatch if"], tally=False
    )
    assert "needs 2 of the 4 debug registers" in said.outputs[3] and "name of an exception class" in said.outputs[4]
    assert all("\n" not in o for o in said.outputs[3:6])
