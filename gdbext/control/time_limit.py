"""A limit to the time that a process runs while gdb waits for it: gdb sends Ctrl-C to itself. Also stops that gdb does not
report."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Iterator

import gdb

from ..access.background import background_thread
from .gdb_state import FRONT_END


class Limit:
    """`expired`: whether the time was over before the block was left."""

    def __init__(self) -> None:
        self.expired = False
        self.ended = threading.Event()


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[Limit]:
    """A `with` block in which gdb gets SIGINT, as by Ctrl-C, after so many seconds (0: never)."""
    limit = Limit()

    def wait() -> None:
        if not limit.ended.wait(seconds):
            limit.expired = True
            os.kill(os.getpid(), signal.SIGINT)

    if seconds:
        background_thread(wait)
    try:
        yield limit
    finally:
        limit.ended.set()


@contextlib.contextmanager
def unreported_stop() -> Iterator[None]:
    """Keeps gdb from printing a stop inside the block ("Program received signal SIGINT", a frame). The command reports the stop
    in its own words.

    Neither `to_string` nor the log catches such a report. So gdb's standard output leads to /dev/null meanwhile. Where a front
    end reads its records there (MI, DAP), or the TUI draws on it, the report stays.
    """
    if FRONT_END or "not active" not in gdb.execute("info win", to_string=True):
        yield
        return
    gdb.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        gdb.flush()
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
