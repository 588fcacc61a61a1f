"""What a log names does no harm to who reads it: no file acts by it, and a look costs little."""

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys

import pytest
from harness.subjects import spawned

from gdbext import log
from gdbext.observe import log_sources, logs

CANARY = "canary4711"


def traceback_of(path, line=1, function="dump", error="ValueError"):
    return f'Traceback (most recent call last):\n  File "{path}", line {line}, in {function}\n{error}: {CANARY}\n'


@pytest.fixture
def tail(tmp_path):
    path = tmp_path / "engine.log"
    path.touch()
    with contextlib.closing(logs.Tail(str(path), os.getpid())) as one:
        one.path = path
        yield one


def said(tail, text):
    with open(tail.path, "a") as f:
        f.write(text)
    return tail.look()


# ---- files that a log names ------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "named",
    [
        "/proc/kmsg", "/proc/self/status", "/sys/kernel/tracing/trace_pipe", "/etc/passwd", f"{json.__file__}\0{CANARY}.py",
        f"{os.path.dirname(json.__file__)}/{CANARY}/../__init__.py", "/proc/self/root" + json.__file__, "__init__.py",
    ],
)  # fmt: skip
def test_no_file_but_a_source_is_opened_for_a_log(tail, monkeypatch, named):
    opened = []
    monkeypatch.setattr(log_sources, "opened", lambda found, *_: opened.append(found) or os.close(found))
    found = said(tail, traceback_of(named) + traceback_of(named, function="<module>"))
    assert not found.tracebacks and not opened


@pytest.mark.parametrize("what", ["proc", "fifo", "folder", "lease"])
def test_a_name_of_a_source_that_is_none_is_not_read_or_waited_for(tail, what):
    path = str(tail.path) + ".py"
    with contextlib.ExitStack() as stack:
        if what == "proc":
            os.symlink("/proc/self/status", path)
        elif what == "fifo":
            os.mkfifo(path)
        elif what == "folder":
            os.mkdir(path)
        else:  # who opens it waits until the holder lets it go
            held = stack.enter_context(open(path, "w"))
            print("def dump(): pass", file=held, flush=True)
            signal.signal(signal.SIGIO, signal.SIG_IGN)
            fcntl.fcntl(held, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        found = said(tail, "INFO\n" + traceback_of(path) + traceback_of(path, function="<module>") + traceback_of(json.__file__))
    assert found.levels == {"INFO": 1} and [one.frames for one in found.tracebacks] == [("dump (__init__.py:1)",)]


def test_nothing_is_mounted_because_a_log_names_it(tail, monkeypatch):
    mounts = b"1 0 8:1 / / rw - ext4 d rw\n2 1 0:5 / /net rw - autofs d rw\n3 2 8:2 / /net/here rw - nfs d rw\n"
    monkeypatch.setattr(log_sources, "read_or_empty", lambda pid, name: mounts if name == "mountinfo" else b"")
    asked = []
    monkeypatch.setattr(log_sources, "open_beneath", lambda root, path, how: asked.append(path) or os.open(os.devnull, how))
    with contextlib.closing(log_sources.Sources(os.getpid())) as sources:
        sources.begin()
        for path in ("/net/there/x.py", "/net//there/x.py", "/net/here/x.py", "/netto/x.py"):
            assert not sources.has(path, 1, "f")
    assert asked == ["/net/here/x.py", "/netto/x.py"]


def test_the_file_that_a_program_was_started_with_is_a_source(tmp_path):
    script, text = tmp_path / "serve", "import sys\nprint('up', flush=True)\nsys.stdin.read()\n"
    script.write_text(text)
    (tmp_path / "other").write_text(text)
    with spawned([sys.executable, script], ready="up") as process:
        with contextlib.closing(log_sources.Sources(process.pid)) as sources:
            sources.begin()
            assert sources.has(str(script), 2, "<module>") and not sources.has(str(tmp_path / "other"), 2, "<module>")
            process.kill()
            process.wait()
            assert sources.has(json.__file__, 1, "dump") and not sources.has(json.__file__, 1, CANARY)


def test_a_line_that_its_file_does_not_have_is_no_frame(tail):
    with open(json.__file__, encoding="utf-8") as f:
        lines = len(f.readlines())
    found = said(tail, "".join(traceback_of(json.__file__, line) for line in (0, 1, lines, lines + 2, 5551234)))
    assert [one.frames for one in found.tracebacks] == [(f"dump (__init__.py:{line})",) for line in (1, lines)]


def test_what_a_log_names_stands_in_no_log_of_ours(tail, monkeypatch, capfd):
    monkeypatch.setitem(log._state, "on", True)
    said(tail, traceback_of(f"/home/{CANARY}.py") + traceback_of(f"/{CANARY}\0.py") + traceback_of(f"{tail.path}/{CANARY}.py"))
    log.note("it is on")
    heard = capfd.readouterr().err
    assert "it is on" in heard and CANARY not in heard


# ---- what a look costs -----------------------------------------------------------------------------------------------
def test_a_file_is_read_once_whatever_is_looked_for_in_it(tail, monkeypatch):
    opened, door = [], log_sources.opened
    monkeypatch.setattr(log_sources, "opened", lambda *how: opened.append(how) or door(*how))
    for first in (0, 1000):
        found = said(tail, "".join(traceback_of(json.__file__, 1, f"f{n}") for n in range(first, first + 1000)))
        assert not found.tracebacks
    assert said(tail, traceback_of(json.__file__)).tracebacks and len(opened) == 1


def test_what_was_written_last_is_looked_up_first_in_bounded_time(tail, monkeypatch, tmp_path):
    """Of many sources two have the function: that of the first line is found at a later look. What a look has no time for is not
    remembered as missing."""
    names = [tmp_path / f"of{number}.py" for number in range(40)]
    for name in names:
        name.write_text("def dump(): pass\n" if name in (names[0], names[-1]) else "def other(): pass\n")
    opened, door = [], log_sources.opened
    monkeypatch.setattr(log_sources, "opened", lambda *how: opened.append(how) or door(*how))
    monkeypatch.setattr(log_sources.time, "monotonic", lambda: log_sources.PAUSE / 15 * len(opened))
    text = "".join(traceback_of(name) for name in names)
    found = [[one.frames for one in said(tail, text).tracebacks] for _ in range(3)]
    last, first = ("dump (of39.py:1)",), ("dump (of0.py:1)",)
    assert found == [[last], [last], [first, last]] and len(opened) == len(names)


def test_a_traceback_without_an_end_takes_no_more_room(tail):
    said(tail, traceback_of(json.__file__).partition("ValueError")[0])
    for _ in range(3):
        said(tail, f'  File "{json.__file__}", line 1, in loads\n' * 1000)
    assert len(tail._open) == logs.UNPROVED
    (found,) = said(tail, "ValueError: x\n").tracebacks
    assert found.frames == ("loads (__init__.py:1)",) * logs.FRAMES


def test_what_is_remembered_of_sources_is_bounded(tail, monkeypatch):
    monkeypatch.setattr(log_sources, "FILES", 5)
    monkeypatch.setattr(log_sources, "CPU", 60.0)
    monkeypatch.setattr(log_sources, "PAUSE", 60.0)
    said(tail, "".join(traceback_of(f"/home/{n}.py") for n in range(100)))
    assert len(tail._sources._known) <= 5
    monkeypatch.setattr(log_sources, "NAMES", 30)
    assert said(tail, traceback_of(json.__file__) + traceback_of(subprocess.__file__)).tracebacks
    assert tail._sources._names <= 30 + len(tail._sources._known[json.__file__].names)
