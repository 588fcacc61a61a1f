"""Places where a look is hard, each a context manager that makes it: pages that do not come, files that are not answered for, a
debugger that holds the process, no room in its memory group, a root that is read-only, a full disk, a frozen group. They skip
where they cannot be made."""

import contextlib
import os
import subprocess
import sys

import pytest

from . import cgroups
from .gdb_run import ROOT
from .heartbeats import eventually
from .subjects import SUBJECTS, spawned

IDLE = "import threading, time\ndef rests(): time.sleep(900)\nthreading.Thread(target=rests, daemon=True).start()\n"
UP = IDLE + "print('up', flush=True)\nrests()"
HOLD = "import sys; from gdbext.access import ptrace\nwith ptrace.Stopped(int(sys.argv[1])): print('on', flush=True); input()"
FILLED = "import os\nkept = [os.urandom(1000) for _ in range(100000)]\n"  # 100 MB
# No folder that a temporary file could lie in may be written: words before a command.
READ_ONLY = """
mount --make-rprivate / || exit 99
for at in /tmp /var/tmp /usr/tmp /dev/shm "$HOME"; do
    if [ -d $at ]; then mount --rbind $at $at && mount -o remount,ro,bind $at || exit 99; fi
done
cd /proc && exec "$@"
"""


def program(code):
    """A process of `code`, which prints "up"."""
    return spawned([sys.executable, "-c", code], ready="up")


def library(folder):
    """The library that subjects/absent_page.py wants, compiled in `folder`; -> its path."""
    path, source = os.path.join(folder, "absent.so"), os.path.join(SUBJECTS, "absent_page.c")
    words = ["gcc", "-O1", "-fno-omit-frame-pointer", "-shared", "-fPIC", source, "-lpthread", "-o", path]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"it cannot be compiled here: {done.stderr.strip().splitlines()[-1]}")
    return path


@contextlib.contextmanager
def absent(path, kind, folder):
    """-> Popen of a process, a thread of which has pages on its stack that do not come. `path`: of `library`; `kind`: "fuse" or
    "uffd"; `folder`: where to mount."""
    if os.geteuid():
        pytest.skip("no permission to mount a file system, or to serve page faults")
    os.mkdir(folder)
    words = [sys.executable, os.path.join(SUBJECTS, "absent_page.py"), path, kind, folder]
    try:
        with spawned(words, ready="") as process:
            if process.said != "ready":
                pytest.skip(f"no {kind} here")
            try:
                yield process
            finally:  # answers those that wait for a page: a thread that does cannot be ended
                subprocess.run(["umount", "-f", folder], capture_output=True, check=False)
    finally:
        subprocess.run(["umount", "-l", folder], capture_output=True, check=False)


@contextlib.contextmanager
def silent(folder):
    """-> Popen of the file server of `folder`, in which every name is an empty file. After its `quiet()` it answers nothing;
    once it is killed, those that wait for it go on with an error."""
    if os.geteuid():
        pytest.skip("no permission to mount a file system")
    os.mkdir(folder)
    with spawned([sys.executable, os.path.join(SUBJECTS, "silent_files.py"), folder], ready="") as server:
        if server.said != "ready":
            pytest.skip("no fuse here")

        def quiet():
            print(file=server.stdin, flush=True)
            assert server.stdout.readline() == "silent\n"

        server.quiet = quiet
        try:
            yield server
        finally:
            server.kill()
            subprocess.run(["umount", "-l", folder], capture_output=True, check=False)


@contextlib.contextmanager
def held(pid):
    """-> Popen of another tracer, which has stopped a process."""
    with spawned([sys.executable, "-c", HOLD, str(pid)], ready="on", cwd=ROOT) as tracer:
        yield tracer


def read_only():
    """The words before a command that has a read-only root and no folder for temporary files."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace of our own here")
    return ["unshare", "-m", "bash", "-c", READ_ONLY, "bash"]


@contextlib.contextmanager
def full_disk(folder):
    """Makes `folder`, where nothing can be written."""
    os.mkdir(folder)
    words = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", folder]
    if subprocess.run(words, capture_output=True, check=False).returncode:
        pytest.skip("no permission to mount a file system")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=False)


@contextlib.contextmanager
def crowded(room, above=False):
    """-> (an engine of 100 MB in a memory group, the group, which has `room` bytes to spare; `above`: the one above it has)"""
    with cgroups.made(cgroups.hierarchy("memory")) as outer, cgroups.made(outer, outer) as inner:
        group = inner if above else outer
        more = {"ready": "up", "preexec_fn": cgroups.joining(group)}
        with spawned([sys.executable, "-c", FILLED + UP], **more) as engine:
            cgroups.limit(outer, cgroups.used(outer) + room)
            yield engine, group


@contextlib.contextmanager
def frozen():
    """-> Popen of a process in a frozen group."""
    from gdbext.access.cgroups import frozen_by

    with cgroups.made(cgroups.unified()) as group, program(UP) as process:
        cgroups.join(group, process.pid)
        cgroups.freeze(group)
        eventually(lambda: frozen_by(process.pid), "the freeze")
        try:
            yield process
        finally:
            cgroups.thaw(group)
