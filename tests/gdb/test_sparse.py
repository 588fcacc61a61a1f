"""Processes with terabytes of addresses that were never touched, as a sanitizer maps them: each command reads about as much as of
the same program without them, and finds what little was written there."""

import contextlib
import json
import os
import subprocess
import sys

import pytest
from harness.subjects import spawned

from gdbext.access.snapshot import CoreFileTarget

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SLACK = 256 << 20  # bytes more that a command may read or write; a word for each page of 1 TiB is 2 GiB
PROGRAM = """
import ctypes, json, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
PRIVATE, ANONYMOUS, NORESERVE = 0x02, 0x20, 0x4000
written = {}

def mapped(size, protection=3, file=-1):
    at = libc.mmap(None, size, protection, PRIVATE | NORESERVE | (ANONYMOUS if file < 0 else 0), file, 0)
    if at == ctypes.c_void_p(-1).value:
        print(os.strerror(ctypes.get_errno()), flush=True)
        sys.exit(1)
    return at

def write(at):
    text = b"written at %x" % at
    ctypes.memmove(at, text, len(text))
    written[at] = text.decode()

def waits():
    print(json.dumps(written), flush=True)
    time.sleep(900)

{maps}
waits()
"""
MAPS = {
    "none": "write(mapped(1 << 20))",
    "one of 16 TiB": "at = mapped(16 << 40)\nfor n in (0, 5 << 40, (16 << 40) - 4096): write(at + n)",
    "a thousand of 8 GiB": (
        "for n in range(1000):\n    at = mapped(8 << 30)\n    mapped(4096, 0)\n    if n % 100 == 0: write(at + (n << 20))"
    ),
    "none may be used": "mapped(16 << 40, 0)\nwrite(mapped(1 << 20))",
    "a file of 1 TiB that is a hole": (
        "file = os.memfd_create('hole')\nos.ftruncate(file, 1 << 40)\nat = mapped(1 << 40, 3, file)\nwrite(at + (1 << 39))"
    ),
}
PASSED_OVER = "not looked at"  # said where the kernel is one before 6.7
HEAP, SNAPSHOT = "pyheap -on {pid}", "llm-snapshot {pid} -o {folder}/copy"
COMMANDS = [
    "llm-stacks {pid}",
    "llm-hang -wait 0.3 {pid}",
    "llm-locks {pid}",
    "llm-memory {pid}",
    HEAP,
    SNAPSHOT,
    "llm-report {folder}/page.html {pid}",
]
# The bytes that a command and all that it starts has read: the kernel adds those of children to their parent's.
COUNTS = """
import subprocess, sys
status = subprocess.run([sys.executable, "-m", "gdbext", *sys.argv[1:]], stdin=subprocess.DEVNULL, timeout=900).returncode
with open("/proc/self/io") as f:
    print(f.readline().split()[1], file=sys.stderr)
sys.exit(status)
"""


def asked(line):
    """(the JSON of a command, bytes that it has read)"""
    env = {**os.environ, "PYTHONPATH": ROOT}
    done = subprocess.run([sys.executable, "-c", COUNTS, *line.split(), "-json"], env=env, capture_output=True, text=True)
    assert done.returncode in (0, 3) and "Traceback" not in done.stderr, done.stdout[-1000:] + done.stderr
    return json.loads(done.stdout), int(done.stderr.split()[-1])


@contextlib.contextmanager
def started(maps):
    """-> Popen of the program with such maps."""
    with spawned([sys.executable, "-c", PROGRAM.replace("{maps}", MAPS[maps])], ready="") as process:
        if not process.said.startswith("{"):
            pytest.skip(f"such addresses cannot be had here: {process.said}")
        yield process


def answers(process, folder):
    """{command: (its JSON, bytes that it has read)} of a process whose snapshot holds what it says it has written."""
    found = {command: asked(command.format(pid=process.pid, folder=folder)) for command in COMMANDS}
    copy = CoreFileTarget(os.path.join(folder, "copy"))
    if not any(PASSED_OVER in reason for reason in found[SNAPSHOT][0]["partial"]):
        for at, text in json.loads(process.said).items():
            assert copy.read(int(at), len(text)).decode() == text
    assert os.stat(copy.path).st_blocks * 512 < SLACK
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    with started("none") as process:
        return answers(process, str(tmp_path_factory.mktemp("plain")))


@pytest.mark.parametrize("maps", [name for name in MAPS if name != "none"])
@pytest.mark.drawn(2)
def test_what_was_never_touched_is_not_read(maps, plain, tmp_path):
    with started(maps) as process:
        found = answers(process, str(tmp_path))
    for command, (said, size) in found.items():
        partial = [reason for reason in said["partial"] if reason != "unstopped"]
        assert size < plain[command][1] + SLACK, command
        assert all(PASSED_OVER in reason for reason in partial), command
    functions = {f["function"] for group in found[COMMANDS[0]][0]["groups"] for f in group["frames"]}
    assert "waits" in functions
    assert sum(t["count"] for t in found[HEAP][0]["types"]) == pytest.approx(
        sum(t["count"] for t in plain[HEAP][0]["types"]), rel=0.05
    )
