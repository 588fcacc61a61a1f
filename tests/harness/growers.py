"""Planted growers and healthy programs (subjects/growers.py), and what `llm-memory -grow` says of them.

`python3 tests/harness/growers.py SECONDS SEED...` prints the table of all of them for each seed, with samples of page faults and
without."""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

import pytest

from gdbext.access.page_faults import PageFaults
from gdbext.errors import GdbextError

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SUBJECTS = os.path.join(ROOT, "tests", "gdb", "subjects")
GROWERS = "mmap_hook arena pinned shm dictionary tensors file_map threads brk huge".split()
PARTS = "part_of_heap part_of_arena part_of_pools".split()  # another line touches what they keep
HEALTHY = "warms_up fades churns lru preallocates sawtooth compiles breathes short_threads ring".split()
WAYS = {"perf": [], "denied": ["-no-perf"]}
RIGHT, FUNCTION, WRONG, UNKNOWN, SILENT = "named", "its function", "wrong", "no place", "nothing"


def perf_or_skip():
    """Skips the test where the kernel gives no samples."""
    try:
        PageFaults(os.getpid(), [os.getpid()]).close()
    except GdbextError as e:
        pytest.skip(str(e))


def perf_is_there():
    """Whether the kernel gives samples."""
    try:
        perf_or_skip()
    except pytest.skip.Exception:
        return False
    return True


def build(folder):
    """Builds the libraries that take memory."""
    source = os.path.join(SUBJECTS, "growers.c")
    for name, more in (("hook", ["-DHOOK"]), ("pump", ["-L" + folder, "-lhook", "-Wl,-rpath,$ORIGIN"])):
        subprocess.run(
            ["gcc", "-O1", "-shared", "-fPIC", "-o", os.path.join(folder, f"lib{name}.so"), source, *more], check=True, timeout=60
        )


@contextlib.contextmanager
def growing(python, name, seed, folder):
    """-> (pid, what is true)."""
    words = [python, os.path.join(SUBJECTS, "growers.py"), name, str(seed), folder]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process.pid, json.loads(process.stdout.readline())
        finally:
            process.kill()
            with contextlib.suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, f"map-{process.pid}"))


def watch(pid, seconds, *more):
    """The command over a process, begun."""
    words = [sys.executable, "-m", "gdbext", "llm-memory", "-grow", str(seconds), *more, "-json", str(pid)]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def told(command):
    """Its answer about the one process."""
    answer = json.loads(command.communicate(timeout=600)[0])
    assert not answer["failed"] and not answer["partial"], answer
    return answer["grow"][0]


def verdict(truth, answer):
    """How right the fastest row is."""
    if not answer["grows"]:
        return SILENT
    row = answer["grows"][0]
    ours = (row["file"] or "").endswith("growers.py")
    if row["library"] in truth["libraries"] or ours and row["line"] in truth["lines"]:
        return RIGHT
    if ours and row["function"] in truth["functions"]:
        return FUNCTION
    return WRONG if row["library"] or row["file"] else UNKNOWN


def matrix(seed, seconds, python=sys.executable, together=2, names=(*GROWERS, *HEALTHY)):
    """Yields (name, way, verdict, row, what the watch took in CPU s) for each program and way."""
    with tempfile.TemporaryDirectory() as folder:
        build(folder)
        names = list(names)
        while names:
            some, names = names[:together], names[together:]
            with contextlib.ExitStack() as stack:
                subjects = [(name, *stack.enter_context(growing(python, name, seed, folder))) for name in some]
                begun = [
                    (name, truth, way, watch(pid, seconds, *more)) for name, pid, truth in subjects for way, more in WAYS.items()
                ]
                for name, truth, way, command in begun:
                    answer = told(command)
                    yield name, way, verdict(truth, answer), (answer["grows"] or [{}])[0], answer["cpu_seconds"]


if __name__ == "__main__":
    for number in map(int, sys.argv[2:]):
        began = time.monotonic()
        for name, way, how, row, spent in matrix(number, float(sys.argv[1]), together=4):
            place = {k: row.get(k) for k in ("kind", "library", "function", "line", "source", "bytes_per_minute")}
            print(number, name, way, how, place, f"{spent:.2f}", flush=True)
        print(f"seed {number}: {time.monotonic() - began:.0f} s", flush=True)
