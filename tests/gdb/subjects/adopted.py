"""An engine's core, by its title, whose parent is no engine's: `adopted.py HOW`. It prints a JSON line: the pid of the `core`,
that of its `parent`, and whether who started it has ended (`lost`). The core waits for a lock that it holds itself. All end
with the input.

HOW: `spawn`, `fork`, `forkserver`, a child of multiprocessing; `program`, `session`, a program of its own, in the session of its
parent or in one of its own. After `killed-`: who started it was killed, and a subreaper has adopted it; of a `program` that one
has another session.
"""

import ctypes
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading

PR_SET_NAME, PR_SET_CHILD_SUBREAPER = 15, 36  # linux/prctl.h
TITLE = b"VLLM::EngineCore"
libc = ctypes.CDLL(None)


def core(fifo, *_):
    """Titles itself over its own command line, as setproctitle does, and is larger than what starts an engine."""
    with open("/proc/self/stat") as f:
        fields = f.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # arg_start, arg_end
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, TITLE, len(TITLE))
    libc.prctl(PR_SET_NAME, TITLE[:15], 0, 0, 0)
    held, lock = bytearray(b"x" * (96 << 20)), threading.Lock()
    with lock:
        with open(fifo, "w") as f:
            f.write(f"{os.getpid()}\n")
        lock.acquire()
    return held


def starts(how, fifo):
    """Whoever starts the core, and stays."""
    if how in ("program", "session"):
        subprocess.Popen([sys.executable, __file__, "core", fifo, " " * 50], start_new_session=how == "session")
    else:
        multiprocessing.get_context(how).Process(target=core, args=(fifo,)).start()
    signal.pause()


def main(how):
    lost, _, kind = how.rpartition("-")
    fifo = os.path.join(tempfile.mkdtemp(), "fifo")
    os.mkfifo(fifo)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    middle = subprocess.Popen([sys.executable, __file__, "starts", kind, fifo], start_new_session=how == "killed-program")
    with open(fifo) as f:
        pid = int(f.readline())
    if lost:
        middle.kill()
        middle.wait()
    with open(f"/proc/{pid}/stat") as f:
        parent = int(f.read().rpartition(")")[2].split()[1])
    print(json.dumps({"core": pid, "parent": parent, "lost": bool(lost)}), flush=True)
    sys.stdin.read()
    os.kill(pid, signal.SIGKILL)
    if not lost:
        middle.kill()
        middle.wait()


if __name__ == "__main__":
    {"core": core, "starts": starts}.get(sys.argv[1], lambda: main(sys.argv[1]))(*sys.argv[2:])
