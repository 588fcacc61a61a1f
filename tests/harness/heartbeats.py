"""Processes that count (subjects/heartbeat.py), and what tests of attaching ask of them."""

import contextlib
import os
import re
import signal
import struct
import subprocess
import sys
import time

from gdbext.access import ptrace

from .subjects import spawned

SUBJECT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "gdb", "subjects", "heartbeat.py")
ROUNDS = int(os.environ.get("GDBEXT_TEST_KILLS", "3"))


class Heartbeat:
    """One running subject. `beats()`: the turns of each thread so far."""

    def __init__(self, folder, name, threads=4, command=(), **popen):
        self.file, self.threads = os.path.join(str(folder), name), threads
        self.process = subprocess.Popen([*command, sys.executable, SUBJECT, self.file, str(threads)], **popen)
        self.pid = self.process.pid
        eventually(self._started, "the subject to start")

    def _started(self):
        return os.path.exists(self.file) and os.path.getsize(self.file) == 4096 and min(self.beats()) > 3

    def beats(self):
        with open(self.file, "rb") as f:
            return struct.unpack(f"<{self.threads}Q", f.read(8 * self.threads))

    def runs(self, seconds=120):
        """True as soon as every thread has gone on and nobody traces or has stopped the process."""
        before = self.beats()

        def on():
            states = [ptrace.status(self.pid, t) for t in ptrace.tids(self.pid)]
            free = all(s and s["state"] in "RSD" and not s["tracer"] for s in states)
            return free and len(states) == self.threads and all(a > b for a, b in zip(self.beats(), before))

        return within(on, seconds)

    def stands(self, seconds=120):
        """True once the process is in a group-stop, untraced, and has not moved for 0.2 s (the guard looks at it once more
        meanwhile)."""

        def still():
            before = self.beats()
            for _ in range(20):
                if not ptrace.is_stopped(self.pid) or ptrace.tracers(self.pid):
                    return False
                time.sleep(0.01)
            return self.beats() == before

        return within(still, seconds)

    def end(self):
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def heartbeats(folder, count, **options):
    found = []
    try:
        for i in range(count):
            found.append(Heartbeat(folder, f"beat{i}", **options))
        yield found
    finally:
        for one in found:
            one.end()


@contextlib.contextmanager
def busy(loops=2):
    """A loaded machine: loops make it one, where other tests do not keep it at that load for a minute already."""
    loaded = os.getloadavg()[0] > loops
    with contextlib.ExitStack() as stack:
        for _ in range(0 if loaded else loops):
            stack.enter_context(spawned([sys.executable, "-c", "while True: pass"]))
        yield


def within(ask, seconds):
    end = time.monotonic() + seconds
    while not ask():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def eventually(ask, what, seconds=60):
    assert within(ask, seconds), f"waited {seconds} s for {what}"


def asleep(*pids, seconds=60):
    """Waits until every thread of the processes has slept for a while, at most so long: subjects have then come to where they
    stay. -> whether they have."""

    def switches():
        texts = []
        for pid in pids:
            for tid in ptrace.tids(pid):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{tid}/status") as f:
                    texts.append(re.findall(r"State:\t(\w)|voluntary_ctxt_switches:\t(\d+)", f.read()))
        return texts

    def still():
        before = switches()
        time.sleep(0.2)
        return switches() == before and all(one[0][0] in "ST" for one in before)

    return within(still, seconds)


def stop(process):
    os.kill(process.pid, signal.SIGSTOP)
    eventually(lambda: ptrace.is_stopped(process.pid), "the stop")
