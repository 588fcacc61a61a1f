"""Checks of a process before gdb attaches to it, and a way out of an attach that does not end."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import sys
import threading
import time
from typing import Any, Iterator

from .. import log
from ..access import namespaces, ptrace
from ..access.background import background_thread
from ..access.cgroups import frozen_by
from ..access.in_root import is_of_who_opens, open_in_root
from ..access.loaded import library_names
from ..access.permission import permission_hint
from ..access.proc import ProcTarget, process_root
from ..access.procfs import read_or_empty, read_proc, state_of
from ..errors import GdbextError, NotFoundError

D_LOOKS, D_PAUSE = 5, 0.02  # a thread in D at each of so many checks, so many seconds apart, will not leave it soon
SHOWN = 4  # threads by name
DELETED = " (deleted)"  # the kernel appends it to the path of a deleted file


def check(pid: int, force: bool = False) -> bool:
    """Raises `GdbextError` (one line: the reason, and the remedy) for a process that cannot be attached. Returns whether it is in
    a group-stop. `force`: threads in uninterruptible sleep, FIFOs and devices are accepted."""
    namespaces.need_own_numbers()
    state = ptrace.status(pid)
    if state is None:
        raise NotFoundError(f"process {pid} does not exist (any more): llm-ranks lists those that do")
    if state["state"] in "ZX":
        if state_of(pid) not in ("", "Z", "X"):
            raise GdbextError(
                f"the main thread of process {pid} has ended (pthread_exit) while others run, and gdb cannot attach that: "
                f"llm-stacks {pid}, llm-hang {pid} and pybt -all -on {pid} read it, llm-snapshot {pid} makes a core"
            )
        raise GdbextError(f"process {pid} is a zombie: it has ended, and its parent has not reaped it")
    if state["tgid"] != pid:
        raise GdbextError(f"{pid} is a thread of process {state['tgid']}: attach that")
    if state["kthread"]:
        raise GdbextError(f"process {pid} is a kernel thread: there is nothing to attach to")
    if pid == os.getpid():
        raise GdbextError(f"process {pid} is this gdb")
    for tracer in ptrace.tracers(pid):
        if tracer == os.getpid():
            raise GdbextError(f"process {pid} is attached in this gdb already: see info inferiors")
        raise GdbextError(f"process {pid} is already traced by {process_name(tracer)}: end that first")
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))
    except PermissionError:
        raise GdbextError(f"process {pid}: no permission to attach; {permission_hint(pid)}") from None
    except OSError as e:
        raise NotFoundError(f"process {pid}: {e.strerror}") from None
    _refuse_frozen(pid)
    if not force:
        _refuse_uninterruptible(pid)
    _refuse_odd_files(pid, force)
    return ptrace.is_stopped(pid)


def process_name(pid: int) -> str:
    """A process in words: its pid and its own name."""
    return f"process {pid} ({_proc_text(pid, 'comm')})"


def _proc_text(pid: int, name: str) -> str:
    return ascii(read_or_empty(pid, name).decode("utf-8", "replace").strip())[1:-1] or "?"


def uninterruptible(pid: int) -> list[int]:
    """tids of the threads in uninterruptible sleep (D) that stay in it: vfork, a driver's call, a file server that is gone."""
    found = ptrace.tids(pid)
    for look in range(D_LOOKS):
        states = {tid: ptrace.status(pid, tid) for tid in found}
        found = [tid for tid, s in states.items() if s is not None and s["state"] == "D"]
        if not found:
            return []
        if look < D_LOOKS - 1:
            time.sleep(D_PAUSE)
    return found


def _refuse_frozen(pid: int) -> None:
    frozen = frozen_by(pid)
    if frozen:
        raise GdbextError(
            f"process {pid}: frozen by {frozen}: gdb would wait for its thaw (docker unpause); llm-stacks and llm-hang read it "
            "without waiting"
        )


def _refuse_uninterruptible(pid: int) -> None:
    tids = uninterruptible(pid)
    if tids:
        names = [f"{tid} ({_proc_text(pid, f'task/{tid}/comm')}, in {_proc_text(pid, f'task/{tid}/wchan')})" for tid in tids]
        many = ", ".join(names[:SHOWN]) + (f" and {len(tids) - SHOWN} more" if len(tids) > SHOWN else "")
        raise GdbextError(
            f"process {pid}: in uninterruptible sleep: thread{'s' if len(tids) > 1 else ''} {many}: gdb would wait for its end, "
            "with the process stopped; llm-stacks reads it without waiting, llm-attach -force attaches anyway"
        )


def _refuse_odd_files(pid: int, force: bool) -> None:
    """Refuses a process whose program or library, as it names them, is no regular file for gdb.

    gdb opens whatever lies at these paths: a FIFO would hold it, and the effect of a device is unknown. A program may load a
    library that has no name on the disk, as /proc/self/fd/7. In gdb that path is a file of gdb's own, such as a pipe that it
    would read for ever; `force` does not accept that case."""
    target = ProcTarget(pid)
    try:
        names = {target.exe(), *(os.fsdecode(name) for name in library_names(target.read, read_proc(pid, "auxv")))}
        root = process_root(pid)
    except GdbextError as e:
        log.passed_over(e)
        return  # it has ended: the attach says so
    finally:
        target.close()
    for path in sorted(names):
        path = path[: -len(DELETED)] if path.endswith(DELETED) else path
        if not path:
            continue
        which = f"process {pid}: {path!r}, which it names as its program or a library, is"
        reads = f"llm-stacks and pybt -all -on {pid} read the process without"
        here = os.path.join(os.getcwd(), path)  # gdb's folder, where it searches for relative paths
        if is_of_who_opens(here) or root and is_of_who_opens(path, root):
            raise GdbextError(f"{which} another file in each process, and gdb would open, even wait for, one of its own; {reads}")
        for mode in () if force else _modes(pid, path):
            if not stat.S_ISREG(mode):
                kind = "a FIFO" if stat.S_ISFIFO(mode) else "no regular file"
                raise GdbextError(f"{which} {kind}, and gdb would open it; {reads}, llm-attach -force attaches anyway")


def _modes(pid: int, path: str) -> Iterator[int]:
    """`st_mode` of the file at a path, as the process and as gdb sees it; gdb also follows links of /proc/PID/fd. None for a file
    that does not exist: gdb does without it."""
    with contextlib.suppress(OSError, ValueError):
        yield os.stat(path).st_mode
    with contextlib.suppress(OSError, ValueError):
        found = open_in_root(pid, path, os.O_PATH)
        try:
            yield os.fstat(found).st_mode
        finally:
            os.close(found)


class WayOut:
    """A `with` block around gdb's `attach` that holds Ctrl-C back: gdb would pass it on to the process that it attaches to, and
    kill it.

    gdb runs no Python during that wait. If the wait is longer than `PATIENCE` seconds and Ctrl-C was pressed, a line says what it
    waits for. A second Ctrl-C ends gdb, and so does SIGTERM; the guard then resumes every process."""

    PATIENCE = 1.0

    def __init__(self, pid: int) -> None:
        self.pid, self.taken = pid, 0
        self._done = threading.Event()

    def __enter__(self) -> WayOut:
        self._before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        self._thread = background_thread(self._watch)
        return self

    def __exit__(self, *_: Any) -> None:
        self._done.set()
        self._thread.join()
        if self.taken:
            os.kill(os.getpid(), signal.SIGINT)  # gdb comes to know of it now, and the attach is taken back
        signal.pthread_sigmask(signal.SIG_SETMASK, self._before)

    def _watch(self) -> None:
        if self._done.wait(self.PATIENCE):
            return
        while not self._done.is_set():
            taken = signal.sigtimedwait({signal.SIGINT, signal.SIGTERM}, 0.1)
            if taken is None:
                continue
            self.taken += 1
            if self.taken > 1 or taken.si_signo == signal.SIGTERM:
                os.kill(os.getpid(), signal.SIGKILL)
            tids = ", ".join(map(str, uninterruptible(self.pid))) or "its threads"
            print(
                f"gdb waits for {tids} of process {self.pid} and cannot be interrupted: Ctrl-C again ends gdb, and every process "
                "runs on",
                file=sys.__stderr__,
                flush=True,
            )
