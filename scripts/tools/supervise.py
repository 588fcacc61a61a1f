"""Runs one command and, when told to stop, ends every process that came of it: children, orphans, those with sessions of their
own.

    supervise.py COMMAND [ARGUMENT ...]

Being the subreaper of all that the command starts, it stays their ancestor whatever they do to titles, sessions or parents
(prctl(2), PR_SET_CHILD_SUBREAPER). It stops when its standard input closes, which also happens when the one who started it is
killed, or on SIGTERM, SIGINT, SIGHUP, or when the command ends. First line on standard output: the command's pid, and in words
what share of the machine GDBEXT_ENGINE_SHARE left to others (share.py).
Exit status: the command's; 0 when it was told to stop.
"""

import ctypes
import os
import select
import signal
import subprocess
import sys
import time

PR_SET_CHILD_SUBREAPER = 36
PATIENCE = float(os.environ.get("GDBEXT_SUPERVISE_PATIENCE", "3"))  # seconds that processes have to end by themselves


def _stat(pid):
    """(parent, state) of a process; state "Z" is one that has ended already."""
    with open(f"/proc/{pid}/stat", "rb") as f:
        fields = f.read().rpartition(b")")[2].split()
    return int(fields[1]), fields[0].decode()


def descendants(root):
    """Pids of the living processes that come of `root`, without itself."""
    children = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                parent, state = _stat(name)
            except (OSError, ValueError, IndexError):
                continue  # it has ended meanwhile
            children.setdefault(parent, []).append((int(name), state))
    found, todo = [], [root]
    while todo:
        for pid, state in children.get(todo.pop(), ()):
            todo.append(pid)
            if state != "Z":
                found.append(pid)
    return found


def _is_tracker(pid):
    """multiprocessing's resource tracker: it removes shared memory when the others are gone, then ends by itself."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            return b"multiprocessing.resource_tracker" in f.read()
    except OSError:
        return False


def _reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _signal(pids, *signals):
    for pid in pids:
        for number in signals:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                break


def _gone(wanted, seconds):
    """Wait until no descendant for which `wanted` holds lives. -> those that still do."""
    end = time.monotonic() + seconds
    while True:
        _reap()
        left = [p for p in descendants(os.getpid()) if wanted(p)]
        if not left or time.monotonic() > end:
            return left
        time.sleep(0.05)


def shared_memory(pids):
    """Files of /dev/shm that these processes have mapped. Engines leave some behind when they are ended (vLLM its
    vllm_dist_*)."""
    found = set()
    for pid in pids:
        try:
            with open(f"/proc/{pid}/maps", errors="surrogateescape") as f:
                found.update(line.rstrip("\n").split(None, 5)[-1] for line in f if " /dev/shm/" in line)
        except OSError:
            continue
    return {path for path in found if not path.endswith(" (deleted)")}


def end_all(started):
    """End every descendant, then remove the shared memory that they made since `started` (seconds since the epoch) and left."""

    def worker(pid):
        return not _is_tracker(pid)

    left = shared_memory(descendants(os.getpid()))
    # SIGCONT too: a stopped process does not see SIGTERM
    _signal(filter(worker, descendants(os.getpid())), signal.SIGTERM, signal.SIGCONT)
    if _gone(worker, PATIENCE):
        for _ in range(100):  # one may fork while the others are killed: until none is left
            _signal(filter(worker, descendants(os.getpid())), signal.SIGKILL)
            if not _gone(worker, 0.2):
                break
    if _gone(lambda pid: True, 2.0):
        _signal(descendants(os.getpid()), signal.SIGKILL)
        _gone(lambda pid: True, 2.0)
    for path in left:
        try:
            if os.stat(path).st_ctime >= started:
                os.unlink(path)
        except FileNotFoundError:
            pass


def main(argv):
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(waker)
    told = []
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda n, frame: told.append(n))
    signal.signal(signal.SIGCHLD, lambda n, frame: None)
    group, share = "", ""
    if os.environ.get("GDBEXT_ENGINE_SHARE"):  # only the engines' supervisor is asked for it
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        import share as shares

        group, share = shares.take(os.environ["GDBEXT_ENGINE_SHARE"])
    started = time.time() - 1  # file times may lag by a clock tick
    child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=2)
    print(child.pid, share, flush=True)
    status = None
    while not told and status is None:
        ready, _, _ = select.select([0, wake], [], [], 1.0)
        if 0 in ready and not os.read(0, 4096):
            told.append(0)
        if wake in ready:
            os.read(wake, 4096)
        status = child.poll()
    end_all(started)
    if group:
        shares.remove(group)
    return 0 if status is None else status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
