"""Rings of shared memory read as files, without the process that holds them: a STAND-IN of a ring's file."""

import os
import subprocess
import sys
import time
from multiprocessing import shared_memory

import pytest

from gdbext.engines import shm_files
from gdbext.errors import GdbextError

READERS = 2


@pytest.fixture
def ring():
    size = shm_files.CHUNKS * (shm_files.MIB + 1 + READERS)
    one = shared_memory.SharedMemory(create=True, size=size)
    at = shm_files.CHUNKS * shm_files.MIB
    for chunk, flags in enumerate((b"\1\1\1", b"\1\1\0", b"\1\0\0", b"\0\0\0")):
        one.buf[at + chunk * 3 : at + chunk * 3 + 3] = flags
    yield one
    one.close()
    one.unlink()


def test_what_each_reader_has_not_read(ring, monkeypatch):
    monkeypatch.setattr(shm_files, "SECONDS", 0)
    (found,) = shm_files.of_processes([os.getpid()])[os.getpid()]
    assert found == {"name": ring.name, "readers": READERS, "unread": [1, 2], "moved": False, "mapped": True}
    assert shm_files.lines([found]) == [
        f"  ring {ring.name} (2 readers) did not move in 0 s: reader 0 has 1 unread; reader 1 has 2 unread"
    ]


def test_a_ring_moves_where_a_flag_changes(ring, monkeypatch):
    monkeypatch.setattr(shm_files.time, "sleep", lambda seconds: ring.buf.__setitem__(shm_files.CHUNKS * shm_files.MIB + 4, 0))
    (found,) = shm_files.of_processes([os.getpid()])[os.getpid()]
    assert found["moved"]


def test_where_the_maps_are_refused_the_users_files_here_are_taken(ring, monkeypatch):
    def refused(pid):
        raise GdbextError("no permission")

    monkeypatch.setattr(shm_files, "read_maps", refused)
    monkeypatch.setattr(shm_files, "SECONDS", 0)
    told = [one for one in shm_files.of_processes([os.getpid()])[os.getpid()] if one["name"] == ring.name]
    assert [one["mapped"] for one in told] == [False] and ", of its user in this /dev/shm" in shm_files.lines(told)[0]


@pytest.mark.parametrize(
    "size, readers", [(10 * ((24 << 20) + 3), 2), (10 * ((24 << 20) + 2), 1), (10 << 20, 0), (10 * (1 << 20) + 3, 0)]
)
def test_a_ring_is_known_by_its_length(size, readers):
    assert shm_files.readers_of(size) == readers


def test_what_an_earlier_process_has_left_is_not_taken(ring, monkeypatch):
    monkeypatch.setattr(shm_files, "names", lambda pid: ([ring.name], False))
    monkeypatch.setattr(shm_files, "_started", lambda pid: time.time() + 60)
    assert shm_files.of_processes([os.getpid()])[os.getpid()] == []


def test_when_a_process_began():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as one:
        assert abs(shm_files._started(one.pid) - time.time()) < 60
        assert shm_files._started(os.getpid()) < shm_files._started(one.pid)
        one.kill()


def test_other_bytes_than_flags_are_no_ring(ring, monkeypatch):
    monkeypatch.setattr(shm_files, "SECONDS", 0)
    ring.buf[shm_files.CHUNKS * shm_files.MIB] = 7
    assert shm_files.of_processes([os.getpid()])[os.getpid()] == []
