"""A process that runs and counts the functions of gdb/subjects/breakpoints.py when it is told to."""

import contextlib
import json
import os
import re
import signal
import subprocess

from gdbext.access import perf_breakpoints

from .subjects import SUBJECTS, spawned

FILE = os.path.join(SUBJECTS, "breakpoints.py")
with open(FILE) as _f:
    LINES = {m.group(1): i for i, line in enumerate(_f, 1) for m in [re.search(r"# LINE (\w+)$", line)] if m}
OFF = ["set auto-solib-add off", "set print thread-events off"]


# Whether events of the kernel served while a process ran last: `python print(any(served))`.
SERVED = (
    "python from gdbext.control import kernel_events as k; served = []; gdb.events.cont.connect(lambda e: "
    "served.append(len(k._events)))"
)


def events_here():
    """Whether the kernel gives breakpoints as events."""
    with contextlib.suppress(OSError):
        os.close(perf_breakpoints.open_at(os.getpid(), id(os) & ~7, 8, perf_breakpoints.READ_WRITE))
        return True
    return False


def places(outputs):
    """[function, line] of each answer to a step."""
    found = []
    for text in outputs:
        match = re.search(r"^(?:pybreak \d+: )?(\S+) at .*?breakpoints\.py:(\d+), thread", text, re.M)
        found.append([match.group(1).rpartition(".")[2], int(match.group(2))] if match else text)
    return found


class Subject:
    def __init__(self, process, go):
        self.process, self.go, self.said = process, go, json.loads(process.said)
        self.pid = self.said["pid"]

    def tell(self, word):
        """The gdb command that makes it run something, once it is continued."""
        return f"shell echo {word} > {self.go}.new && mv {self.go}.new {self.go}"

    def go_on(self, word):
        """Makes it run something now."""
        with open(self.go + ".new", "w") as f:
            f.write(word)
        os.rename(self.go + ".new", self.go)

    def tally(self):
        """What it counted by itself, once it is through."""
        return json.loads(self.process.stdout.readline())


@contextlib.contextmanager
def started(python, folder, **more):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    go = str(folder / "go")
    with spawned([python, FILE, go], ready="{", stdin=subprocess.DEVNULL, env=env, **more) as process:
        subject = Subject(process, go)
        try:
            yield subject
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(subject.pid, signal.SIGKILL)
