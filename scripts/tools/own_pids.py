"""Runs a program that sees no process but those it starts: in a pid namespace with a /proc of its own.

    own_pids.py PROGRAM [ARGUMENT ...]

The first process of the namespace reaps orphans and hands signals on; whatever the program leaves behind ends with it. Root makes
the namespace at once, another user inside a user namespace. Where neither is allowed the program runs as it is, and sees all of
the machine. Exit status: the program's; 128 and the signal where one ended it. Linux: pid_namespaces(7), user_namespaces(7).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Sequence

INSIDE = "GDBEXT_TEST_OWN_PIDS"  # set to "1" for the program where it sees only its own processes
NEWNS, NEWUSER, NEWPID = 0x20000, 0x10000000, 0x20000000  # linux/sched.h
PRIVATE = 1 << 18 | 1 << 14  # MS_PRIVATE | MS_REC, linux/mount.h
NOSUID, NODEV, NOEXEC = 2, 4, 8
PR_SET_PDEATHSIG = 1
HANDED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
libc = ctypes.CDLL(None, use_errno=True)


def _done(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _write(path: str, text: str) -> None:
    with open(path, "w") as f:
        f.write(text)


def enter(user: bool) -> None:
    """Puts this process's children into a new pid namespace, with `user` inside a new user namespace in which it keeps its ids.
    OSError where that is not allowed."""
    uid, gid = os.getuid(), os.getgid()
    _done(libc.unshare(NEWPID | NEWNS | (NEWUSER if user else 0)))
    if user:
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")


def own_proc() -> None:
    """Mounts /proc anew, in the first process of a pid namespace."""
    _done(libc.mount(b"none", b"/", None, PRIVATE, None))
    _done(libc.mount(b"proc", b"/proc", b"proc", NOSUID | NODEV | NOEXEC, None))


def _try(user: bool) -> None:
    enter(user)
    first = os.fork()
    if not first:
        try:
            own_proc()
        except OSError:
            os._exit(1)
        os._exit(0)
    if os.waitpid(first, 0)[1]:
        raise PermissionError("no /proc of its own")


def way() -> bool | None:
    """How a namespace can be made here: False at once, True inside a user namespace, None not at all."""
    for user in (False, True):
        child = os.fork()
        if not child:
            try:
                _try(user)
            except OSError:
                os._exit(1)
            os._exit(0)
        if not os.waitpid(child, 0)[1]:
            return user
    return None


def wait(child: int) -> int:
    """Reaps what ends and hands signals on until `child` has ended. -> its exit status. The signals are blocked.

    What a terminal sends reaches every process of its group by itself: only what a process has sent is handed on.
    """
    while True:
        got = signal.sigwaitinfo({signal.SIGCHLD, *HANDED_ON})
        if got.si_signo != signal.SIGCHLD:
            if got.si_code <= 0:
                os.kill(child, got.si_signo)
            continue
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == child:
                return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            if not pid:
                break


def orphans() -> set[int]:
    """Pids of the processes of this namespace whose parent has ended; of none where this is the machine's own."""
    found = set()
    for name in os.listdir("/proc") if os.environ.get(INSIDE) else ():
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as f:
                if f.read().rpartition(b")")[2].split()[1] == b"1" and int(name) != os.getpid():
                    found.add(int(name))
        except (OSError, IndexError):
            continue  # it has ended meanwhile
    return found


def _program(words: Sequence[str]) -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, *HANDED_ON})
    try:
        os.execvp(words[0], list(words))
    except OSError as e:
        print(f"{words[0]}: {e.strerror}", file=sys.stderr)
        os._exit(127)


def _first(words: Sequence[str]) -> int:
    """The first process of the namespace. -> the program's exit status"""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    own_proc()
    os.environ[INSIDE] = "1"
    child = os.fork()
    if not child:
        _program(words)
    return wait(child)


def main(words: Sequence[str]) -> int:
    user = way()
    if user is None:
        os.environ.pop(INSIDE, None)
        os.execvp(words[0], list(words))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, *HANDED_ON})
    enter(user)
    first = os.fork()
    if not first:
        os._exit(_first(words))
    return wait(first)


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
