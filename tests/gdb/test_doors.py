"""Each door that writes a file keeps the same promise: a new file, or with -force one's own; nothing else is touched. And the
doors are listed: a command that comes with another one is found missing here."""

import os
import signal
import subprocess
import sys
import time

import pytest
from harness.answers import run
from harness.gdb_run import ROOT
from harness.subjects import spawned

from gdbext.access.snapshot import is_snapshot
from gdbext.agents import skill
from gdbext.commands import table
from gdbext.errors import GdbextError
from gdbext.kvcache import plot
from gdbext.session.session import Session
from gdbext.torch import layer_records

SUBJECT = """
import time, torch
weight = torch.arange(6.0)
print("ready", flush=True)
time.sleep(900)
"""
# {(command, option): (the line, how the file's name ends)}; {P} the process, {F} the file, {R} a recording
DOORS = {
    ("llm-snapshot", "o"): ("llm-snapshot {P} -max-bytes 0 -o {F}", ""),
    ("llm-report", "F.html"): ("llm-report {F} {P} -wait 0", ".html"),
    ("llm-report", "o"): ("llm-report {P} -wait 0 -o {F}", ""),
    ("llm-stacks", "o"): ("llm-stacks {P} -o {F}", ".html"),
    ("llm-stacks", "html"): ("llm-stacks {P} -html {F}", ""),
    ("llm-stacks", "folded"): ("llm-stacks {P} -folded {F}", ""),
    ("llm-record", "o"): ("llm-record {P} -for 0.05 -o {F}", ".html"),
    ("llm-record", "o .record"): ("llm-record -read {R} -o {F}", ".record"),
    ("llm-record", "o .json"): ("llm-record -read {R} -o {F}", ".json"),
    ("llm-record", "o .collapsed"): ("llm-record -read {R} -o {F}", ".collapsed"),
    ("llm-record", "diff"): ("llm-record -diff {R} {R} -o {F}", ".html"),
    ("pyheap", "save"): ("pyheap -on {P} -save {F}", ""),
    ("pytensors", "save"): ("pytensors -on {P} -save {F}", ""),
    ("pytensor", "save"): ("pytensor weight -on {P} -save {F}", ".npy"),
    ("pytensor", "save .pt"): ("pytensor weight -on {P} -save {F}", ".pt"),
    ("pytensor", "save .safetensors"): ("pytensor weight -on {P} -save {F}", ".safetensors"),
    ("pytensor", "plot"): ("pytensor weight -on {P} -plot {F}", ".png"),
}


def _layers(path, force):
    layer_records.write(path, {"root": "x"}, [], force)


def _values(path, force):
    values = layer_records.Values(path, force)
    values.write()


def _plot(path, force):
    plot.plot(path, [{"pool": "x", "cells": "..##", "legend": {}}], force)


# Doors whose commands want gdb or an engine, by the function that writes for them.
BY_FUNCTION = {
    ("llm-layers", "o"): (_layers, ""),
    ("llm-layers", "save"): (_values, ".safetensors"),
    ("llm-kv", "plot"): (_plot, ".png"),
}
ELSEWHERE = {
    ("llm-bundle", "o"): "two files through the same door, the second one its page: tests/unit/test_bundles.py",
    ("llm-watch", "o"): "a folder (tests/unit/test_access_files.py), files of new names through the same door",
    ("llm-watch", "events"): "appended to, no link is followed: tests/unit/test_watch_words.py",
    ("llm-watch", "textfile"): "replaced whole at each turn, as a collector wants it: tests/unit/test_watch_words.py",
    ("llm-watch", "share"): "a folder of several watches, each with folders of its own there: tests/unit/test_watch_moments.py",
    ("llm-memory", "o"): "render/files.py's write, of a process with a GPU: tests/gdb/test_cuda_blocks.py",
    ("llm-save", "o"): "torch/files.py's save, as pytensor -save",
    ("llm-profile", "o"): "the engine writes it",
    ("llm-record", "read"): "read",
    ("pyheap", "diff"): "read",
    ("pytensors", "diff"): "read",
    ("llm-stacks", "merge"): "read",
}
NAMES = {"events", "textfile", "o", "save", "html", "folded", "plot", "diff", "read", "merge", "share"}


def test_the_doors_are_listed():
    offered = {(c.name, o.name) for c in table.load_all() for o in c.options if o.name in NAMES}
    offered |= {(c.name, c.operand.split()[0].strip("[]")) for c in table.load_all() if c.operand.lstrip("[").startswith("F.")}
    listed = {(name, option.split()[0]) for name, option in DOORS} | set(BY_FUNCTION) | set(ELSEWHERE)
    assert offered == listed
    files = {
        (c.name, o.name) for c in table.load_all() for o in c.options if o.metavar in ("FILE", "F", "DIR") and o.kind == "str"
    }
    assert files <= listed


@pytest.fixture(scope="module")
def process(torch_python):
    with spawned([torch_python, "-c", SUBJECT], ready="ready") as one:
        yield one


@pytest.fixture(scope="module")
def recording(process, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("recording") / "a.record")
    run(f"llm-record {process.pid} -for 0.1 -o {path}")
    return path


def evil(folder, end):
    """{what stands at a name: the name}"""
    (folder / "kept").write_text("kept")
    made = {name: folder / (name + end) for name in ("link", "fifo", "folder", "core")}
    made["link"].symlink_to(folder / "kept")
    os.mkfifo(made["fifo"])
    made["folder"].mkdir()
    made["core"].write_bytes(b"\x7fELF\2\1\1" + bytes(2000))
    if os.geteuid() == 0:
        made.update(device=folder / ("device" + end), theirs=folder / ("theirs" + end))
        os.mknod(made["device"], 0o20666, os.makedev(1, 3))
        made["theirs"].write_text("theirs")
        os.chown(made["theirs"], 4711, 4711)
    return made


def holds(door, end, folder):
    """Asks a door, `door(path, force)`, for a new file, for each name that is taken, and for its own file again."""
    made = evil(folder, end)
    before = {name: os.lstat(path) for name, path in made.items()}
    for name, path in made.items():
        for force in (False, True):
            if name == "folder" and door.__name__ == "snapshot":
                continue  # -o names a folder there
            with pytest.raises(GdbextError) as e:
                door(str(path), force)
            assert str(path) in str(e.value) and "\n" not in str(e.value), name
            now = os.lstat(path)
            assert (now.st_mode, now.st_ino, now.st_size) == tuple(
                getattr(before[name], "st_" + k) for k in ("mode", "ino", "size")
            )
    assert (folder / "kept").read_text() == "kept"
    path = folder / ("new" + end)
    door(str(path), False)
    first = path.read_bytes()
    inode = path.stat().st_ino
    assert first and path.is_file()
    with pytest.raises(GdbextError, match="there already"):
        door(str(path), False)
    assert path.stat().st_ino == inode and path.read_bytes() == first
    door(str(path), True)
    assert path.is_file() and path.stat().st_size and path.stat().st_ino != inode
    assert {p.name for p in folder.iterdir()} == {*(p.name for p in made.values()), "kept", path.name}


@pytest.mark.parametrize("name", DOORS, ids="-".join)
@pytest.mark.drawn(6)
def test_a_door_of_a_command(process, recording, tmp_path, name):
    line, end = DOORS[name]

    def door(path, force):
        run(line.format(P=process.pid, F=path, R=recording) + (" -force" if force else ""))

    def snapshot(path, force):
        door(path, force)
        assert is_snapshot(path) and os.stat(path).st_mode & 0o777 == 0o600

    if name[0] == "llm-record":

        def record(path, force):
            answer = run(line.format(P=process.pid, F=path, R=recording) + (" -force" if force else ""))
            if answer.data.get("failed"):
                raise GdbextError(answer.data["failed"][0]["reason"])

        return holds(record, end, tmp_path)
    holds(snapshot if name[0] == "llm-snapshot" else door, end, tmp_path)


@pytest.mark.parametrize("name", [name for name in DOORS if name[0] != "llm-snapshot"], ids="-".join)
def test_a_name_that_is_taken_is_refused_before_any_process_is_read(recording, tmp_path, monkeypatch, name):
    def read(*_):
        raise AssertionError("a process is read")

    for way in ("target", "runtime", "open", "resolve"):
        monkeypatch.setattr(Session, way, read)
    line, end = DOORS[name]
    (tmp_path / ("taken" + end)).write_text("kept")
    with pytest.raises(GdbextError, match="the file is there already; -force replaces it"):
        run(line.format(P=os.getpid(), F=tmp_path / ("taken" + end), R=recording))


@pytest.mark.parametrize("name", BY_FUNCTION, ids="-".join)
def test_a_door_that_a_function_keeps(tmp_path, name):
    door, end = BY_FUNCTION[name]
    if name == ("llm-kv", "plot"):
        pytest.importorskip("matplotlib")
    holds(door, end, tmp_path)


def test_a_skill_replaces_what_a_skill_wrote_and_nothing_else(tmp_path):
    written = skill.write(str(tmp_path / "skill"))
    assert skill.write(str(tmp_path / "skill")) == written
    for name in ("link", "fifo", "mine"):
        path = written[0]
        os.unlink(path)
        {"link": lambda: os.symlink("/dev/null", path), "fifo": lambda: os.mkfifo(path), "mine": lambda: open(path, "w").close()}[
            name
        ]()
        before = os.lstat(path)
        with pytest.raises(GdbextError):
            skill.write(str(tmp_path / "skill"))
        assert os.lstat(path).st_ino == before.st_ino


BIG = "import os, time\nx = [os.urandom(1000) for _ in range(100000)]\nprint('ready', flush=True)\ntime.sleep(900)"
ENDED = [
    "llm-snapshot {P} -o {D}/x",
    "llm-report -o {D}/x {P} -wait 0",
    "llm-stacks {P} -html {D}/x",
    "pyheap -on {P} -save {D}/x",
]


@pytest.mark.parametrize("line", ENDED, ids=lambda line: line.split()[0])
@pytest.mark.drawn(2)
def test_a_command_that_is_ended_leaves_the_whole_file_or_nothing(tmp_path, line):
    with spawned([sys.executable, "-c", BIG], ready="ready") as one:
        words = [sys.executable, "-m", "gdbext", *line.format(P=one.pid, D=tmp_path).split()]
        began = time.monotonic()
        subprocess.run(words, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
        took = time.monotonic() - began
        for number, part in (
            (signal.SIGTERM, 0.6),
            (signal.SIGKILL, 0.8),
            (signal.SIGTERM, 0.95),
            (signal.SIGKILL, 0.98),
            (signal.SIGINT, 0.9),
        ):
            whole = tmp_path / "x"
            if whole.exists():
                whole.unlink()
            with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
                time.sleep(took * part)
                process.send_signal(number)
            assert os.listdir(tmp_path) in ([], ["x"])
            assert one.poll() is None
            if whole.exists() and line.startswith("llm-snapshot"):
                assert is_snapshot(str(whole))
