"""Runs a Python subject of tests/gdb/subjects under some interpreter and hands over what it says is true of itself.

A subject prints one line of JSON, its truth, then sleeps until it is ended.
"""

import contextlib
import functools
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from gdbext.access.proc import ProcTarget
from gdbext.access.snapshot import CoreFileTarget
from gdbext.cpython.runtime import open_runtime

SUBJECTS = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "gdb", "subjects")
PYTHONS = [p for p in os.environ.get("GDBEXT_TEST_PYTHONS", "").split(":") if p] or [sys.executable]
GREEN = [p for p in os.environ.get("GDBEXT_TEST_GREENLET_PYTHONS", "").split(":") if p]
CORES = bool(os.environ.get("GDBEXT_TEST_CORES"))  # the interpreters are another architecture's, and run under qemu's user mode


@functools.lru_cache(maxsize=None)
def minor(python):
    """N of an interpreter of CPython 3.N; as its name says where it runs under qemu alone."""
    if CORES:
        return int(re.search(r"3\.(\d+)", os.path.basename(python)).group(1))
    said = subprocess.run([python, "-c", "import sys; print(sys.version_info[1])"], stdout=subprocess.PIPE, check=True)
    return int(said.stdout)


def unlimited_core(filter_bits="0x33"):
    """For Popen's `preexec_fn`: the kernel writes a core, of the memory that coredump_filter names."""
    resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    with open("/proc/self/coredump_filter", "w") as f:
        f.write(filter_bits)


def kernel_core(process, folder):
    """Aborts a process that runs in `folder`: the path of the core that the kernel wrote there; None, and nothing done, where it
    writes none."""
    with open("/proc/sys/kernel/core_pattern") as f:
        if not re.fullmatch(r"core(\.%p)?\s*", f.read()):
            return None
    process.send_signal(signal.SIGABRT)
    process.wait(60)
    return next((os.path.join(str(folder), name) for name in os.listdir(folder) if name.startswith("core")), None)


def qemu_core(process, folder):
    """Aborts a process that qemu's user mode runs in `folder`: the path of the core that qemu wrote there of the program. It was
    started with `program_core`."""
    asleep = 0
    while asleep < 5:  # what it does until it waits
        with open(f"/proc/{process.pid}/stat") as f:
            asleep = asleep + 1 if f.read().rpartition(") ")[2][0] == "S" else 0
        time.sleep(0.02)
    process.send_signal(signal.SIGABRT)
    process.wait(60)
    return next(os.path.join(folder, name) for name in os.listdir(folder) if name.startswith("qemu_"))


def ready_core(words, folder, ready="{"):
    """-> (CoreFileTarget, line) of a program that qemu's user mode runs in `folder`, once it has written a line that begins with
    `ready` and is still."""
    with spawned(words, ready=ready, cwd=folder, preexec_fn=program_core) as process:
        return CoreFileTarget(qemu_core(process, folder)), process.said


def program_core():
    """For Popen's `preexec_fn`: qemu writes a core of the program; of qemu itself the kernel writes no memory."""
    unlimited_core("0")


class Damaged(ProcTarget):
    """A process whose words at the addresses in `bad` read as other values."""

    bad = {}

    def _read(self, at, size):
        raw = bytearray(super()._read(at, size))
        for place, value in self.bad.items():
            if at <= place and place + 8 <= at + size:
                raw[place - at : place - at + 8] = value.to_bytes(8, "little")
        return bytes(raw)


def copy(python, folder, name="", strip=False):
    """-> (argv, more environment, path of the copy) that run an interpreter with a copy of the file that holds it, under
    `name`."""
    code = "import sys; print(sys.base_prefix, flush=True); input()"
    with subprocess.Popen([python, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        prefix = process.stdout.readline().strip()
        target = ProcTarget(process.pid)
        argv, env, held = target.argv()[:-2], target.environ(), open_runtime(target).library.path
        target.close()
        process.kill()
    path = os.path.join(str(folder), name or os.path.basename(held))
    if strip:
        subprocess.run(["strip", "-s", "-o", path, held], check=True)
        os.chmod(path, 0o755)
    else:
        shutil.copy(held, path)
    if ".so" in os.path.basename(held):  # the loader takes a library that is there already for the one of the same SONAME
        return argv, {"LD_PRELOAD": path}, path
    argv = [path if os.path.realpath(word) == held else word for word in argv]
    return argv, {"PYTHONHOME": env.get("PYTHONHOME", prefix)}, path


def ready_line(process, ready, seconds):
    """The first line of a process's output that begins with `ready`; a process that is not so far in time is ended."""
    late, seen = threading.Timer(seconds, process.kill), []
    late.start()
    try:
        for line in process.stdout:
            if line.startswith(ready):
                return line.rstrip("\n")
            seen.append(line)
    finally:
        late.cancel()
    raise AssertionError(
        f"{process.args} ended with {process.wait(20)} before it was ready, and had said: {''.join(seen[-20:])!r}"
    )


@contextlib.contextmanager
def spawned(words, ready=None, seconds=900, **more):
    """-> Popen of a process that has written a line that begins with `ready` (None: it is not waited for), which is its attribute
    `said`. On the way out it is killed and reaped, and with `start_new_session` what it has started too. `more`: for Popen; text
    pipes for its input and, where it is to be ready, its output are the default."""
    pipes = {"stdin": subprocess.PIPE, "stdout": None if ready is None else subprocess.PIPE, "text": True}
    with subprocess.Popen([os.fspath(word) for word in words], **{**pipes, **more}) as process:
        try:
            process.said = None if ready is None else ready_line(process, ready, seconds)
            yield process
        finally:
            if more.get("start_new_session"):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            process.kill()


@contextlib.contextmanager
def running(python, name, *arguments, env=None, **more):
    """-> (Target, truth) of a subject that has said its truth and is now still: a ProcTarget, or with `CORES` that of its core.
    `python`: an interpreter or words that start one; `more`: for Popen, whose object is the target's `process`."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    words = [*([python] if isinstance(python, str) else python), os.path.join(SUBJECTS, name), *arguments]
    with contextlib.ExitStack() as stack:
        if CORES:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gdbext-arm-"))
            more.update(cwd=folder, preexec_fn=program_core)
        process = stack.enter_context(spawned(words, ready="{", env={**clean, **(env or {})}, **more))
        target = CoreFileTarget(qemu_core(process, folder)) if CORES else ProcTarget(process.pid)
        target.process = process
        if not CORES:
            stack.callback(target.close)
        yield target, json.loads(process.said)
