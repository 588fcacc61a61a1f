"""Which /tmp/perf-PID.map of a process is believed, and what it says."""

import contextlib
import os
import subprocess

import pytest

from gdbext.access import made_code

LINES = b"1000 10 first\n1010 8 py::second:/a b.py\nhalf\n1000 4 again\nzz 1 no\n2000 0 empty\n"


def test_names_are_those_of_the_last_line_that_has_an_address():
    found = made_code.PerfMap("/tmp/perf-7.map", LINES + b"3000 1 " + b"x" * 900)
    assert [found.at(pc) for pc in (0x1000, 0x1003, 0x1004, 0x100F, 0x1010, 0x1017, 0x1018, 0x2000, 0xFFF)] == [
        "again",
        "again",
        "first",
        "first",
        "py::second:/a b.py",
        "py::second:/a b.py",
        "",
        "",
        "",
    ]
    assert found.at(0x3000) == "x" * made_code.MAX_NAME


@pytest.fixture
def process():
    with subprocess.Popen(["sleep", "600"]) as process:
        path = f"/tmp/perf-{process.pid}.map"
        try:
            yield process.pid, path
        finally:
            process.kill()
            with contextlib.suppress(OSError):
                os.unlink(path)


def written(path):
    with open(path, "wb") as f:
        f.write(LINES)
    os.chmod(path, 0o644)


def linked(path):
    written(path + ".other")
    os.rename(path + ".other", path)
    os.link(path, path + ".link")


def symbolic(path):
    os.symlink("/proc/self/maps", path)


def everybody(path):
    written(path)
    os.chmod(path, 0o646)


def old(path):
    written(path)
    os.utime(path, (1, 1))


def foreign(path):
    written(path)
    try:
        os.chown(path, 54321, 54321)
    except PermissionError:
        pytest.skip("only root gives a file to another user")


@pytest.mark.parametrize("make", [linked, symbolic, everybody, old, foreign, os.mkfifo, os.mkdir])
def test_a_map_that_may_be_of_others_is_not_read(make, process):
    pid, path = process
    try:
        make(path)
        assert made_code._read(pid) is None
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path + ".link")
        with contextlib.suppress(OSError):
            os.rmdir(path)


def test_the_map_of_a_process_is_read(process):
    pid, path = process
    assert made_code._read(pid) is None and made_code._read(None) is None
    written(path)
    found = made_code._read(pid)
    assert (found.path, found.at(0x1011)) == (path, "py::second:/a b.py")
