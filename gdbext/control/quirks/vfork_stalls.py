"""Tells of a fault of gdb that stops gdb itself, and all that it follows, for ever.

In all-stop mode gdb stops all processes at each event, and waits for each. A process that waits for its vfork child (subprocess,
multiprocessing's spawn) stops only once the child has started its program; gdb has stopped the child, so neither goes on. Seen in
gdb 13.1 and 18.1 (linux-nat.c, stop_wait_callback): gdb's main thread is in sigsuspend, the parent in vfork in state D with a
SIGSTOP pending, the child in a tracing stop. No other thread can resume what gdb traces: only the end of gdb is a way out."""

from __future__ import annotations

import os
import threading
from typing import Callable, Iterable

from ... import log
from ...access import ptrace
from ...access.background import background_thread
from ...access.procfs import read_proc, task_ids
from ...errors import GdbextError

EVERY = 1.0  # seconds
LOOKS = 5  # so often the same pair is seen: gdb is through with any other stop by then
SAYS = (
    "\ngdb waits for ever: it has stopped process {1}, a vfork child of process {0}, before its program began, and waits for {0} "
    "to stop too (a fault of gdb's all-stop mode). End gdb: kill -9 {2}. llm-follow on -non-stop does not have this fault\n"
)


def stalled(pids: Iterable[int], tracer: int) -> tuple[int, int] | None:
    """(process, its vfork child) where the process cannot stop because `tracer` has stopped the child; None where none is."""
    for pid in pids:
        try:
            for tid in task_ids(pid):
                parent = ptrace.status(pid, tid)
                if parent is None or (parent["state"], parent["tracer"]) != ("D", tracer):
                    continue
                for child in map(int, read_proc(pid, f"task/{tid}/children").split()):
                    status = ptrace.status(child)
                    if status is not None and (status["state"], status["tracer"]) == ("t", tracer):
                        return pid, child
        except (GdbextError, OSError) as e:
            log.passed_over(e)
    return None


def watch(pids: Callable[[], Iterable[int]]) -> threading.Event:
    """Looks each second whether gdb stands in that fault with one of `pids()`, and says so once. -> what ends the watch"""
    over = threading.Event()

    def look() -> None:
        seen, times = None, 0
        while not over.wait(EVERY):
            found = stalled(pids(), os.getpid())
            times = times + 1 if found is not None and found == seen else 0
            seen = found
            if found is not None and times == LOOKS:
                os.write(2, SAYS.format(*found, os.getpid()).encode())  # gdb's own streams are its main thread's

    background_thread(look)
    return over
