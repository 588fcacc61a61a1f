"""Control groups of our own, of version 1 or 2, as containers have them: made for a test, removed with all that is in them."""

import contextlib
import os
import signal
import tempfile
import time

import pytest

V2 = ("/sys/fs/cgroup/unified", "/sys/fs/cgroup")  # beside version 1, or alone


def unified():
    """The folder of version 2's hierarchy, or None."""
    return next((path for path in V2 if os.path.exists(path + "/cgroup.controllers")), None)


def hierarchy(controller):
    """The folder below which a group with the files of a controller can be made: version 1's, or version 2's; None."""
    own = f"/sys/fs/cgroup/{controller}"
    if os.path.exists(own + "/cgroup.procs"):
        return own
    top = unified()
    with contextlib.suppress(OSError, TypeError), open(f"{top}/cgroup.subtree_control") as f:
        if controller in f.read().split():
            return top
    return None


def write(path, text):
    with open(path, "w") as f:
        f.write(str(text))


def pids(folder):
    with contextlib.suppress(OSError), open(folder + "/cgroup.procs") as f:
        return [int(word) for word in f.read().split()]
    return []


@contextlib.contextmanager
def made(top, below=""):
    """-> the folder of a new group below `top`; skips where it cannot be made."""
    if top is None:
        pytest.skip("no such control groups here")
    try:  # a pid may be another worker's too, in another pid namespace
        folder = tempfile.mkdtemp(prefix="gdbext-test-", dir=below or top)
    except OSError as e:
        pytest.skip(f"no control group can be made here: {e}")
    try:
        yield folder
    finally:
        thaw(folder)
        deadline = time.monotonic() + 20
        while pids(folder) and time.monotonic() < deadline:
            for pid in pids(folder):
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        with contextlib.suppress(OSError):
            os.rmdir(folder)


def join(folder, pid):
    """Puts a process into a group."""
    write(folder + "/cgroup.procs", pid)


def joining(folder):
    """For Popen's `preexec_fn`: into a group, as the memory killer's choice like any other."""

    def joins():
        join(folder, os.getpid())
        write("/proc/self/oom_score_adj", 0)

    return joins


def end(folder):
    """Ends all processes of a group of version 2 at once, as the end of a container does."""
    write(folder + "/cgroup.kill", 1)


def freeze(folder):
    """Freezes a group of either version."""
    if os.path.exists(folder + "/freezer.state"):
        write(folder + "/freezer.state", "FROZEN")
    else:
        write(folder + "/cgroup.freeze", 1)


def thaw(folder):
    """Thaws it."""
    for name, word in (("freezer.state", "THAWED"), ("cgroup.freeze", 0)):
        with contextlib.suppress(OSError):
            if os.path.exists(f"{folder}/{name}"):
                write(f"{folder}/{name}", word)


def limit(folder, size):
    """Gives a group `size` bytes of memory and no swap."""
    if os.path.exists(folder + "/memory.limit_in_bytes"):
        write(folder + "/memory.limit_in_bytes", size)
        write(folder + "/memory.swappiness", 0)
    else:
        write(folder + "/memory.max", size)
        with contextlib.suppress(OSError):
            write(folder + "/memory.swap.max", 0)


def used(folder):
    """Bytes that count in a group."""
    for name in ("memory.usage_in_bytes", "memory.current"):
        with contextlib.suppress(OSError), open(f"{folder}/{name}") as f:
            return int(f.read())
    return 0
