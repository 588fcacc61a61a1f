"""Makes gdb look again for an event that it has.

Where several processes are attached, an event of one that comes while all are being stopped waits in gdb. At the next resume gdb
chooses a process at random to ask for events. If that one has none, and the only thread that it resumed is the one whose event
waits, gdb hears that nothing runs, ignores that, and waits for ever (gdb 13.1: infrun.c, do_target_wait, handle_no_resumed). A
SIGCHLD makes it ask again."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Iterator

import gdb

from ...access.background import background_thread

EVERY = 0.25  # seconds


@contextlib.contextmanager
def asked_again() -> Iterator[None]:
    """A `with` block in which gdb asks again and again for events, where it has more than one process."""
    if sum(bool(inferior.pid) for inferior in gdb.inferiors()) < 2:
        yield
        return
    over = threading.Event()

    def ask() -> None:
        while not over.wait(EVERY):
            os.kill(os.getpid(), signal.SIGCHLD)

    background_thread(ask)
    try:
        yield
    finally:
        over.set()
