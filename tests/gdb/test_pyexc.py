"""Exceptions in flight, as `traceback` in the process itself tells them, for all versions here; live and on cores; also of a
dying process."""

import json
import os
import re
import subprocess
import sys

import pytest
from harness.gdb_run import run_gdb
from harness.subjects import PYTHONS, SUBJECTS, Damaged, running

from gdbext.commands.pyexc import PyExc
from gdbext.cpython import exceptions
from gdbext.cpython.runtime import open_runtime
from gdbext.render.text import Style
from gdbext.session.session import Session


def answer(pid, line=""):
    return PyExc().answer(Session(), PyExc.parse(f"-on {pid} {line}"))


@pytest.fixture(scope="module", params=PYTHONS, ids=os.path.basename)
def subject(request):
    with running(request.param, "exceptions.py") as (target, said):
        by_name = {e["name"]: e for e in json.loads(answer(target.pid).json("pyexc"))["exceptions"] if e["name"]}
        yield target, said["truth"], by_name


def test_the_class_alone_of_what_a_thread_handles(subject):
    target, truth, by_name = subject
    rt = open_runtime(target)
    told = {rt.thread_name(thread): exceptions.handled_type(rt, thread) for thread in rt.threads()}
    assert {name: told[f"park {name}"].rpartition(".")[2] for name in truth} == {n: e["error"]["type"] for n, e in truth.items()}
    assert len(truth) >= 23 and not told["park idle"] and not told["MainThread"]


def differences(found, wanted, where=""):
    """What differs between an exception of ours and what the process says of it, as lines."""
    wrong = []
    if found["type"].rpartition(".")[2] != wanted["type"].rpartition(".")[2]:
        wrong.append(f"{where}: type {found['type']}, not {wanted['type']}")
    if int(found["address"], 16) != wanted["address"]:
        wrong.append(f"{where}: another object")
    coded = wanted["type"] == "Coded"
    if not coded and found["message"] != wanted["str"].replace("\x1b", "\\x1b").replace("\t", "\\t"):
        wrong.append(f"{where}: message {found['message']!r}, not {wanted['str']!r}")
    if coded and (found["message"] is not None or found["args"] != "('x',)"):
        wrong.append(f"{where}: a text that only code could make: {found['message']!r} {found['args']}")
    ours = [[f["name"], f["file"], f["line"]] for f in reversed(found["frames"])]
    if not found["again"] and ours != wanted["entries"]:
        wrong.append(f"{where}: frames {ours}, not {wanted['entries']}")
    if "suppress" not in wanted or found["again"]:
        return wrong
    if found["suppress_context"] != wanted["suppress"] or found["notes"] != wanted["notes"]:
        wrong.append(f"{where}: suppress_context {found['suppress_context']} notes {found['notes']}")
    if len(found["members"]) != len(wanted["members"]):
        wrong.append(f"{where}: {len(found['members'])} members, not {len(wanted['members'])}")
    pairs = [(found[k], wanted[k], k) for k in ("cause", "context")] + list(
        zip(found["members"], wanted["members"], ["member"] * 99)
    )
    for ours, theirs, name in pairs:
        if (ours is None) != (theirs is None):
            wrong.append(f"{where}.{name}: {ours} {theirs}")
        elif ours is not None:
            wrong += differences(ours, theirs, f"{where}.{name}")
    return wrong


def test_every_parked_exception_is_as_the_process_says(subject):
    _, truth, found = subject
    assert len(truth) >= 23
    wrong = []
    for label, each in truth.items():
        ours = found.get("park " + label)
        wrong += differences(ours, each["error"], label) if ours else [f"{label}: not found"]
    assert not wrong, "\n".join(wrong)


def test_a_thread_that_is_done_with_its_exception_has_none(subject):
    assert "park idle" not in subject[2] and "MainThread" not in subject[2]


def test_text_is_worded_as_python_prints_it(subject):
    target, truth, _ = subject
    text = answer(target.pid).to_text(Style(full_paths=True))
    parts = {re.match(r'Thread \d+ "park (.*?)":', p).group(1): p.split("\n", 1)[1] for p in re.split(r"\n\n(?=Thread )", text)}
    wrong = []
    for label in (
        "dict",
        "file",
        "chained",
        "caused",
        "hushed",
        "deep",
        "two",
        "none",
        "other",
        "decode",
        "nested",
        "missing",
        "finally",
    ):
        wanted = [line for line in truth[label]["text"].strip("\n").split("\n") if not re.match(r"^\s*[~^]+\s*$", line)]
        ours = re.sub(r"\n\((partial: |read while).*\)$", "", parts[label]).split("\n")
        if ours != [line.replace("__main__.", "") for line in wanted]:
            wrong.append("\n".join([label, *ours, "--- not ---", *wanted]))
    assert not wrong, "\n".join(wrong)
    assert "\x1b" not in text


def test_chains_end(subject):
    """A cycle of causes ends where it began, a long chain at the bound, and the answer says so."""
    found = subject[2]
    again = found["park cyclic"]["cause"]["cause"]
    assert again["again"] and again["address"] == found["park cyclic"]["address"] and again["cause"] is None
    each, depth = found["park long"], 0
    while each["context"] is not None:
        each, depth = each["context"], depth + 1
    assert depth == exceptions.MAX_DEPTH
    assert any("deep" in p for p in json.loads(answer(subject[0].pid).json("pyexc"))["partial"])


def test_locals_of_the_frames_that_were_left(subject):
    data = json.loads(answer(subject[0].pid, "-locals").json("pyexc"))
    frame = next(e for e in data["exceptions"] if e["name"] == "park two")["frames"][0]
    assert {v["name"]: v["text"] for v in frame["locals"]} == {"kind": "<class '__main__.Own'>", "args": "(1, 'b')"}


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_raised_in_gdb_before_anyone_caught_it(python, gdb_path):
    with running(python, "exceptions.py", "raise") as (target, _):
        where = open_runtime(target).library.symbol(
            "PyTraceBack_Here"
        )  # each frame that an exception passes is added to its traceback there
        said = run_gdb(gdb_path, [f"break *{where:#x}", "continue", "pyexc -json"], ["-p", str(target.pid)], timeout=60)
    found = [e for e in said.json()["exceptions"] if e["state"] == "raised"]
    assert [(e["tid"], e["type"], e["message"], e["name"]) for e in found] == [
        (target.pid, "Own", "('on its way', 7)", "MainThread")
    ]


@pytest.fixture(scope="module")
def core(gdb_path, tmp_path_factory):
    """-> (process id, core of it): it called abort() inside an `except`."""
    path = str(tmp_path_factory.mktemp("core") / "core")
    line = [
        gdb_path,
        "-nx",
        "-q",
        "-batch",
        "-iex",
        "set debuginfod enabled off",
        "-iex",
        "set auto-load off",
        "-ex",
        "run",
        "-ex",
        f"gcore {path}",
    ]
    line += ["-ex", "python print('pid', gdb.selected_inferior().pid)", "-ex", "kill", "--args", sys.executable]
    done = subprocess.run(
        [*line, os.path.join(SUBJECTS, "exceptions.py"), "abort"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert "SIGABRT" in done.stdout and os.path.exists(path), done.stdout
    return int(re.search(r"^pid (\d+)", done.stdout, re.M).group(1)), path


def test_a_core_of_a_process_that_aborted_tells_the_exception(core, gdb):
    pid, path = core
    found = gdb(["pyexc -json", "pyexc"], ["-c", path], before=["set auto-solib-add off"])
    mine = next(e for e in found.json(0)["exceptions"] if e["tid"] == pid)
    assert (mine["state"], mine["type"], mine["message"]) == ("handled", "Own", "('while at it', 2)")
    assert [f["name"] for f in mine["frames"]] == ["fail", "chained", "main"]
    assert mine["context"]["type"] == "KeyError" and mine["context"]["message"] == "'req-7'"
    assert "During handling of the above exception" in found.outputs[1]


def test_live_and_core_say_the_same(gdb, gdb_path, tmp_path):
    path = str(tmp_path / "core")
    with running(sys.executable, "exceptions.py") as (target, _):
        live = gdb(["pyexc -locals -json", f"gcore {path}"], ["-p", str(target.pid)], before=["set auto-solib-add off"])
    dead = gdb(["pyexc -locals -json"], ["-c", path], before=["set auto-solib-add off"])
    assert live.json(0) == dead.json(0) and len(dead.json(0)["exceptions"]) >= 23


def test_the_last_one_that_nobody_caught(gdb):
    with running(sys.executable, "exceptions.py", "unhandled") as (target, _):
        found = []
        for _ in range(50):  # it says its truth just before it fails
            data = json.loads(answer(target.pid).json("pyexc"))
            found = [e for e in data["exceptions"] if e["type"] == "ValueError" and e["message"] == "bad set-up"]
            if found:
                break
            target.invalidate()
            subprocess.run(["sleep", "0.1"], check=True)
    assert found and found[0]["state"] in ("handled", "unhandled") and found[0]["cause"]["type"] == "FileNotFoundError"


def test_garbage_in_an_exception_costs_no_traceback(subject):
    """Every word of an exception object and of its traceback replaced in turn: an answer or one line, never anything else."""
    target, truth, _ = subject
    rt = open_runtime(target)
    address = truth["chained"]["error"]["address"]
    trace = target.u64(address + rt.layout["exc.traceback"])

    for start, size in ((address, rt.layout["exc.__size"]), (trace, rt.layout["tb.__size"])):
        for place in range(start, start + size, 8):
            for value in (0, 1, 8, (1 << 64) - 1, 0xDEAD0000, address, trace, rt.address):
                other = Damaged(target.pid)
                other.bad = {place: value}
                try:
                    exceptions.read(open_runtime(other), address)
                except exceptions.GdbextError:
                    pass
                finally:
                    other.close()
