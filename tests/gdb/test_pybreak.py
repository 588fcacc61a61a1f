"""Python breakpoints, logs and traces on real processes of all versions here; the subject counts its passes itself."""

import json
import os
import platform
import re
import subprocess
import sys
import time

import pytest
from harness.breakpoints import LINES, OFF, events_here, started
from harness.gdb_run import ROOT, run_gdb
from harness.subjects import PYTHONS, SUBJECTS, spawned

from gdbext.access.proc import ProcTarget
from gdbext.cpython import codes
from gdbext.cpython.runtime import open_runtime

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")


def logged(text, line):
    """The texts that `pylog` printed for a line."""
    return re.findall(rf"^[\d:.]+ \d+ \w+\.py:{line}  (.*)$", text, re.M)


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_every_pass_is_seen_once_and_a_later_import_too(python, session):
    said, tally = session(
        [
            f'pylog breakpoints.py:{LINES["work"]} "{{number}} {{step}}"',
            f'pylog breakpoints.py:{LINES["loop"]} "{{number}} {{each}}"',
            f'pylog breakpoints.py:{LINES["closure"]} "{{number}} {{add}}"',
            "pybreak finished",
            "@run",
            "continue",
            "pybt -json",
            "delete 1 2 3",
            "pybreak late_module.py:7 if number == 3",
            "@late",
            "continue",  # the end of the first run: its tally is written after it
            "pyprint number, doubled",
            "pybreak -json",
            "delete",
        ],
        python,
    )
    first = said.outputs[5]
    assert logged(first, LINES["work"]) == [f"{n} {n + 1}" for n in range(300)]
    assert logged(first, LINES["loop"]) == [f"{n} {each}" for n in range(300) for each in range(3)]
    assert logged(first, LINES["closure"]) == [f"{n} {add}" for n in range(300) for add in (1, 10)]
    assert re.search(r"^pybreak 4: finished at .*breakpoints\.py:\d+, thread \d+.*, hit 1$", first, re.M), first
    frames = said.json(6)["threads"][0]["frames"]
    assert frames[0]["function"] == "finished" and frames[1]["function"] in ("main", "<module>")
    assert "pending" in said.outputs[8] and "late_module.py is imported now, set at line 7" in said.outputs[10]
    assert said.outputs[11] == "(3, 6)"
    listed = {b["number"]: b for b in said.json(12)["breakpoints"]}
    assert sorted(listed) == [4, 5] and (listed[5]["hits"], listed[5]["pending"], listed[5]["line"]) == (1, False, 7)
    assert tally == {"run": 300, "decorated": 300, "closure": 600, "catches": 300, "generator": 300}


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_calls_are_traced_with_arguments_and_results(python, session):
    said, _ = session(["pytrace Machine.two", "pybreak finished", "@run", "continue"], python)
    lines = re.findall(r"^[\d:.]+ \d+ breakpoints\.py:\d+  (.*)$", said.outputs[3], re.M)
    calls = [re.search(r"number=(\d+)\)$", line).group(1) for line in lines if line.startswith("-> ")]
    results = [re.search(r"= (.*)  \([\d.]+ \w+\)$", line).group(1) for line in lines if line.startswith("<- ")]
    assert calls == [str(n) for n in range(300)]
    assert results == [repr(("a" if n % 3 else "b", n)) for n in range(300)]


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_instructions_are_told_apart_from_cache_entries(python, tmp_path):
    with started(python, tmp_path) as subject:
        with open(subject.go + ".new", "w") as f:
            f.write("run")  # afterwards the instructions are specialised
        os.rename(subject.go + ".new", subject.go)
        subject.tally()
        rt = open_runtime(ProcTarget(subject.pid))
        for name, wanted in subject.said["offsets"].items():
            (place,) = codes.at_function(rt, "", {"two": "Machine.two"}.get(name, name))
            assert [at for at, _, _ in codes.instructions(place.code)] == wanted, name


def test_every_thread_stops_also_one_that_starts_later(session):
    said, _ = session([f'pylog breakpoints.py:{LINES["threaded"]} "{{text}}"', "pybreak finished", "@run", "continue"])
    assert sorted(logged(said.outputs[3], LINES["threaded"])) == sorted(repr(f"t{t} {n}") for t in range(3) for n in range(20))


def test_condition_count_and_the_function_behind_its_decorators(session):
    said, _ = session(
        [
            "pybreak -count 3 decorated if number % 7 == 0",
            "@run",
            "continue",
            "pyprint number, key",
            "delete 1",
            f"pybreak breakpoints.py:{LINES['kind']} if kind == 'even' and number > 20",
            "continue",
            "pyprint number",
            "delete 2",
            "pybreak generator",
            "continue",
            "pyprint limit",
            "pylocals -json",
        ]
    )
    assert said.outputs[3] == "(14, 1)" and said.outputs[7] == "22" and said.outputs[11] == "300"
    assert [v["name"] for v in said.json(12)["locals"]] == ["limit"]


def test_registers_run_out_with_a_clear_word_and_come_back(session):
    said, _ = session(
        [
            "pybreak work",
            "pybreak outer",
            "pybreak fails",
            "pybreak finished",
            "pybreak decorated",
            "pybreak",
            "delete 1 2",
            "pybreak decorated",
            "delete",
            "pybreak",
        ],
        tally=False,
    )
    assert said.outputs[4] == (
        f"pybreak decorated needs 1 of the 4 debug registers of process "
        f"{re.search(r'process ([0-9]+)', said.outputs[4]).group(1)}, "
        "0 are free (taken: pybreak 1, pybreak 2, pybreak 3, pybreak 4); delete one of those: pybreak -delete 1"
    )
    assert len(said.outputs[5].splitlines()) == 5 and said.outputs[7].startswith("pybreak 5:")
    assert said.outputs[9].startswith("no Python breakpoints")


@pytest.mark.parametrize(
    "line, wanted",
    [
        ("pybreak breakpoints.py:19", "has no code; the next line with code is"),
        ("pybreak breakpoints.py:99999", "has no code; the last line with code is"),
        ("pybreak a b c", "is no FILE:LINE, FUNCTION or MODULE:FUNCTION"),
        ("pybreak x.py:work", "after a file comes a line number"),
        ("pybreak breakpoints.py", "after a file comes a line number"),
        ("pybreak work if number ==", "cannot parse the condition"),
        ("pybreak -rank TP7 work", "TP7 is not attached"),
        ("pybreak -count 0 work", "-count is 1 or more"),
        ('pylog work "{number"', "a brace is open"),
        ("pylog work number", "takes a place and a quoted text"),
        ("pytrace breakpoints.py:25", "takes a function"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(line, wanted, session):
    said, _ = session([line, "info breakpoints"], tally=False)
    assert wanted in said.outputs[0] and "\n" not in said.outputs[0] and "No breakpoints" in said.outputs[1]


def test_an_expression_that_fails_in_the_stop_is_told_there(session):
    said, _ = session(
        ['pylog -limit 2 work "{nobody} {{}} {number}"', "pybreak finished if nothing > 3", "@run", "continue", "pyprint 1 + 1"]
    )
    texts = re.findall(r"^[\d:.]+ \d+ breakpoints\.py:\d+  (.*)$", said.outputs[3], re.M)
    assert len(texts) == 2 and all(re.match(r"<.*nobody.*> \{\} \d$", t) for t in texts), texts
    assert "its condition" in said.outputs[3] and said.outputs[4] == "2"


def test_events_as_json(session):
    said, _ = session(['pylog -json -limit 3 work "n={number}"', "pybreak finished", "@run", "continue", "pylog -json"])
    lines = [json.loads(line) for line in said.outputs[3].splitlines() if line.startswith("{")]
    assert [line["events"][0]["text"] for line in lines] == ["n=0", "n=1", "n=2"] and lines[0]["schema"] == "pylog/1"
    assert {"tid", "file", "line", "text"} <= set(lines[0]["events"][0])
    assert [e["text"] for e in said.json(4)["events"]] == ["n=0", "n=1", "n=2"]


def test_two_processes_one_breakpoint(tmp_path, gdb_path):
    (tmp_path / "a").mkdir(), (tmp_path / "b").mkdir()
    with started(sys.executable, tmp_path / "a") as one, started(sys.executable, tmp_path / "b") as two:
        commands = [f"llm-attach -libraries none {one.pid}", f"llm-attach -libraries none {two.pid}"]
        commands += ['pylog work "{number}"', f"pybreak -rank {two.pid} finished", one.tell("run"), two.tell("run")]
        commands += ["llm-continue all", "python print('in', gdb.selected_inferior().pid)", "llm-detach"]
        said = run_gdb(gdb_path, commands, timeout=60)
        assert two.tally()["run"] == one.tally()["run"] == 300
    found = re.findall(r"^[\d:.]+ (\d+) breakpoints\.py:\d+  (\d+)$", said.outputs[6], re.M)
    assert [n for tid, n in found if int(tid) == two.pid] == [str(n) for n in range(300)]
    assert {int(tid) for tid, _ in found} == {one.pid, two.pid} and f"in {two.pid}" in said.outputs[7]


def test_a_process_with_an_armed_breakpoint_outlives_gdb(gdb_path, tmp_path):
    """gdb is killed with SIGKILL while the line is armed and not reached; then it is."""
    with started(sys.executable, tmp_path) as subject:
        commands = ["source " + os.path.join(ROOT, "gdbext", "init.py"), "pybreak work", "echo armed\\n", "continue"]
        line = [gdb_path, "-nx", "-q", "-iex", "set auto-solib-add off", "-p", str(subject.pid)]
        with spawned(line + [a for c in commands for a in ("-ex", c)], ready="armed", stderr=subprocess.STDOUT):
            time.sleep(0.5)
        time.sleep(0.5)
        with open(subject.go + ".new", "w") as f:
            f.write("run")
        os.rename(subject.go + ".new", subject.go)
        assert subject.tally()["run"] == 300


def test_a_line_being_reached_does_not_kill_the_process_when_gdb_dies(gdb_path, tmp_path):
    """The kernel stops it as gdb goes, the guard clears the registers, then it runs on."""
    with started(sys.executable, tmp_path) as subject:
        commands = [
            "source " + os.path.join(ROOT, "gdbext", "init.py"),
            'pylog Machine.run "{number}"',
            subject.tell("spin"),
            "continue",
        ]
        line = [gdb_path, "-nx", "-q", "-batch", "-iex", "set auto-solib-add off", "-p", str(subject.pid)]
        words = line + [a for c in commands for a in ("-ex", c)]
        with spawned(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as gdb:
            seen = 0
            for text in gdb.stdout:
                seen += bool(re.match(r"[\d:.]+ \d+ breakpoints\.py:\d+  1$", text))
                if seen == 20:
                    break
            assert seen == 20
            time.sleep(0.02)  # between two passes
        deadline = time.monotonic() + 10
        state = ""
        while time.monotonic() < deadline and state not in ("S", "R"):
            assert subject.process.poll() is None, "it died with its debugger"
            time.sleep(0.2)
            with open(f"/proc/{subject.pid}/stat") as f:
                state = f.read().rpartition(")")[2].split()[0]
        assert state in ("S", "R")
        subject.tally()
        with open(subject.go + ".new", "w") as f:
            f.write("run")
        os.rename(subject.go + ".new", subject.go)
        assert subject.tally()["run"] >= 300


def test_a_slip_of_the_pen_is_refused_with_the_nearest_names(session):
    said, _ = session(
        [
            "pybreak Machine.tow",
            "pybreak breakpionts.py:25",
            "pybreak Machin.two",
            "pybreak __main__:wrok",
            "pybreak nothing_like_this_here",
            "pybreak -pending Machine.tow",
            "pybreak other_module.py:7",
        ],
        tally=False,
    )
    out = said.outputs
    assert "Machine.two" in out[0] and "/breakpoints.py:25" in out[1] and "Machine.two" in out[2] and "work" in out[3], said.text
    assert all("-pending" in text and "\n" not in text for text in out[:4])
    assert all("pending: set when its module is imported" in text for text in out[4:7])


def test_each_command_takes_its_own_away_by_number_or_place(session):
    """What the others have set stays."""
    said, _ = session(
        [
            "pybreak finished",
            "pybreak late_module.py:7",
            'pylog finished "{1}"',
            "pycatch KeyError",
            "pybreak -delete work",
            "pytrace -delete",
            "pybreak -delete 3",
            "pybreak -json -delete finished",
            "pybreak",
            "pybreak -delete",
            "pylog -delete 3",
            "pycatch -delete KeyError",
            "pybreak",
            "info breakpoints",
            "pybreak work",
            "pybreak -delete 5",
            "pybreak finished",
            "@run",
            "continue",
        ]
    )
    out = said.outputs
    assert out[4] == "pybreak: work is not set; set are: 1 finished, 2 late_module.py:7" and out[5] == (
        "0 taken away; set are, each for -delete of its own command: pybreak 1, pybreak 2, pylog 3, pycatch 4"
    )
    assert out[6].startswith("pybreak: 3 is not set") and said.json(7)["deleted"] == [1]
    assert re.findall(r"^ *(\d)  +(\w+)", out[8], re.M) == [("2", "pybreak"), ("3", "pylog"), ("4", "pycatch")]
    assert out[9:12] == ["1 taken away"] * 3 and "no Python breakpoints" in out[12] and "pybreak" not in out[13]
    assert "pybreak 6: finished at" in out[18] and "pybreak 5" not in out[18]


@pytest.mark.parametrize("blocks", [(), ("blocks",)], ids=["events", "registers"])
def test_each_short_threads_pass_is_seen_however_the_place_is_watched(gdb_path, tmp_path, blocks):
    """A thread's memory is a later thread's; where the events' signal is blocked, debug registers take their place."""
    go = tmp_path / "go"
    os.mkfifo(go)
    asked = "python from gdbext.control import kernel_events; print(len(kernel_events._events) > 0)"
    with spawned(
        [sys.executable, f"{SUBJECTS}/short_threads.py", "30", *blocks], ready="", stdin=os.open(go, os.O_RDWR)
    ) as process:
        lines = ['pylog step "n {number}"', "pybreak finished", asked, f"shell echo > {go}", "continue"]
        said = run_gdb(gdb_path, lines, ["-p", process.said.strip()], before=OFF)
    assert sorted(map(int, re.findall(r"  n (\d+)$", said.outputs[4], re.M))) == list(range(30)), said.text
    assert "pybreak 2: finished at" in said.outputs[4]
    assert said.outputs[2] == str(not blocks and events_here()), said.text
