"""Exceptions stop where they are raised, or when nobody catches them, on all versions here."""

import os
import platform
import re
import sys

import pytest
from harness.breakpoints import OFF, started
from harness.gdb_run import run_gdb
from harness.subjects import PYTHONS, SUBJECTS

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
        said = run_gdb(gdb_path, commands, ["-p", str(subject.pid)], timeout=300, before=OFF)
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


def test_a_name_that_is_nearly_one_of_pythons_own_is_refused(session):  # noqa: F811
    said, _ = session(["pycatch KeyEror", "pycatch -pending KeyEror", "pycatch socket.timeoutt", "info breakpoints"], tally=False)
    assert said.outputs[0] == (
        "pycatch: no module that is loaded has an exception class KeyEror; near it: KeyError (-pending waits for it all the same)"
    )
    assert said.outputs[1].startswith("pycatch 1: KeyEror") and said.outputs[2].startswith("pycatch 2: socket.timeoutt")


PROGRAMS = [p for p in PYTHONS if open(p, "rb").read(4) == b"\x7fELF"]  # gdb starts no script
UNCAUGHT = os.path.join(SUBJECTS, "uncaught.py")
FOLLOWED = """
import gdb
gdb.execute("llm-follow on")
gdb.execute("pycatch -uncaught")
gdb.execute("run")
gdb.execute("pyexc")
gdb.execute("kill inferiors 1 2")
"""


@pytest.mark.parametrize("where", ["main", "thread"])
@pytest.mark.parametrize("way", ["plain", "by_finally", "raised_again"])
@pytest.mark.parametrize("python", PROGRAMS[:1] + PROGRAMS[-1:], ids=os.path.basename)
@pytest.mark.drawn(4)
def test_each_way_out_of_the_program_is_uncaught_once(python, way, where, gdb_path):
    commands = [f"file {python}", f"set args {UNCAUGHT} {way} {where}", "pycatch -uncaught KeyError", "run", "pyexc", "kill"]
    said = run_gdb(gdb_path, commands, timeout=300, before=["set startup-with-shell off"])
    assert re.search(r"^pycatch 1: .*KeyError.*, hit 1", said.outputs[3], re.M), said.text
    assert "KeyError: 'plain'" in said.outputs[4] or "KeyError" in said.outputs[4]


@pytest.mark.parametrize("where", ["fork", "spawn"])
@pytest.mark.parametrize("way", ["plain", "by_finally"])
@pytest.mark.drawn(2)
def test_children_are_reached_under_follow(way, where, gdb_path, tmp_path):
    script = tmp_path / "follow.py"
    script.write_text(FOLLOWED)
    commands = [f"file {sys.executable}", f"set args {UNCAUGHT} {way} {where}", f"source {script}"]
    said = run_gdb(gdb_path, commands, timeout=300)
    assert re.search(r"^pycatch 1: KeyError: 'plain' in plain at .*uncaught\.py:10, .*thread \d+.*, hit 1", said.text, re.M), (
        said.text
    )
    assert ("pyexc shows" in said.text) == (way == "by_finally") and "KeyError: 'plain'" in said.outputs[-1].partition("hit 1")[2]


REPORTS = """
import sys
sys.path.insert(0, {subjects!r})
import uncaught
def run_scheduler_process(way):
    try:
        getattr(uncaught, way)()
    except Exception as e:
        print("reported", repr(e), flush=True)
run_scheduler_process("handled")
run_scheduler_process(sys.argv[1])
print("gone on", flush=True)
"""


@pytest.mark.parametrize("python", PROGRAMS[:1] + PROGRAMS[-1:], ids=os.path.basename)
@pytest.mark.parametrize("way", ["plain", "by_finally", "raised_again"])
@pytest.mark.parametrize("place,stops", [("sglang/srt/managers", True), ("other", False)])
@pytest.mark.drawn(4)
def test_what_an_engine_catches_to_log_it_is_uncaught(python, way, place, stops, gdb_path, tmp_path):
    """The twin is the same function in another file: whatever it does with an exception, it has handled it."""
    script = tmp_path / place / "scheduler.py"
    script.parent.mkdir(parents=True)
    script.write_text(REPORTS.format(subjects=SUBJECTS))
    commands = [f"file {python}", f"set args {script} {way}", "pycatch -uncaught", "run", "pyexc", "continue"]
    said = run_gdb(gdb_path, commands, timeout=60, before=["set startup-with-shell off"])
    found = re.findall(r"^pycatch 1: KeyError: 'plain' in plain at .*uncaught\.py:10, .*hit (\d)", said.text, re.M)
    assert ("1" in found) == stops and "gone on" in said.text, said.text
    assert "2" not in found and ("KeyError: 'plain'" in said.outputs[4]) == stops, said.text


QUOTES = """
import sys, types
def begin():
    pass
if sys.argv[1] == "engine":
    sys.modules["vllm"] = types.ModuleType("vllm")
asked = "what is the capital of France"
for again in (1, 2):
    begin()
    for action in ("{}[asked]", "int(asked)", "asked.nothing", "[][1]"):
        try:
            eval(action)
        except Exception:
            pass
"""


@pytest.mark.parametrize("process", ["engine", "other"])
@pytest.mark.parametrize("python", PROGRAMS[:1] + PROGRAMS[-1:], ids=os.path.basename)
def test_a_stop_says_of_a_message_what_pyexc_says(python, process, gdb_path, tmp_path):
    """The interpreter's own messages quote names of code; others may quote a user, in a process of an engine."""
    script = tmp_path / "quotes.py"
    script.write_text(QUOTES)
    commands = [
        f"file {python}",
        f"set args {script} {process}",
        "pybreak begin",
        "run",
        "pycatch LookupError",
        "pycatch ValueError",
    ]
    commands += ["pybreak -delete begin", "pycatch AttributeError", *["continue", "pyexc"] * 4]
    commands += ["pycatch -delete", "pycatch -show-content KeyError", "continue"]
    said = run_gdb(gdb_path, commands, timeout=60, before=["set startup-with-shell off"])
    stops = [re.search(r"pycatch \d+: (\w+: .*) in <module>", said.outputs[i]) for i in (8, 10, 12, 14)]
    assert all(stops), said.text
    told = [stop.group(1) for stop in stops]
    assert all(text in said.outputs[i] for text, i in zip(told, (9, 11, 13, 15))), said.text
    assert [text.partition(":")[0] for text in told] == ["KeyError", "ValueError", "AttributeError", "IndexError"]
    assert ["France" in text for text in told] == [process == "other"] * 2 + [False] * 2
    assert "no attribute 'nothing'" in told[2] and "list index out of range" in told[3]
    assert said.outputs[6] == "1 taken away" and said.outputs[16] == "3 taken away"
    assert "KeyError: 'what is the capital of France' in" in said.outputs[18], said.text


@pytest.mark.parametrize("place,stops", [("multiprocessing", False), ("other", True)])
def test_the_end_of_a_spawned_child_is_no_uncaught_exception(place, stops, gdb_path, tmp_path):
    """multiprocessing starts one by `python -c` and ends it by an exception, SystemExit."""
    (tmp_path / place).mkdir()
    (tmp_path / place / "spawn.py").write_text("import sys\ndef end():\n    sys.exit(3)\n")
    code = f"__import__('sys').path.insert(0,'{tmp_path / place}');__import__('spawn').end()"
    commands = [f"file {PROGRAMS[0]}", f"set args -c {code}", "pycatch -uncaught SystemExit", "run"]
    said = run_gdb(gdb_path, commands, timeout=60, before=["set startup-with-shell off"])
    assert ("hit 1" in said.outputs[3]) == stops and ("exited with code 03" in said.outputs[3]) != stops, said.text
