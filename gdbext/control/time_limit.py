"""A limit to the time that a process runs while gdb waits for it. Also stops that gdb does not report.

gdb's own way to stop a process is to pass SIGINT on to it. If gdb is killed before it has waited for that signal, the process
gets it, and a Python program ends. A process that has not asked for SIGWINCH ignores it; one that has looks at the size of its
terminal.

Source: signal(7); Linux, kernel/signal.c (sig_ignored: a tracer learns of ignored signals too)."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
from typing import Callable, Iterator

import gdb

from .. import log
from ..access import live_gdb, ptrace
from ..access.background import background_thread
from ..access.cli_gdb import command
from .gdb_state import FRONT_END

STOP = signal.SIGWINCH
_OWN_STOP = re.compile(r"\n?(?:\[Switching to [^\n]*\]\n)?\n?(?:Program|Thread [^\n]*) received signal SIG(?:WINCH|INT), ")
_NO_SOURCE = re.compile(r"^\d+\t.*: No such file or directory\.\n?", re.M)  # instead of the line at which it stopped


@contextlib.contextmanager
def stopper() -> Iterator[Callable[[], None]]:
    """A `with` block in which the function that it gives stops the process of the selected inferior, which gdb lets run. Another
    thread may call it. Where no thread can take `STOP`, it may not be sent, or the process is on another machine, gdb gets
    SIGINT, as by Ctrl-C."""
    inferior = gdb.selected_inferior()
    pid = inferior.pid if inferior.pid and live_gdb.is_local(inferior) else 0

    def stop() -> None:
        states = [ptrace.status(pid, tid) for tid in ptrace.tids(pid)] if pid else []
        takes = any(s and s["state"] not in "tTZX" and not s["blocked"] & 1 << STOP - 1 for s in states)
        try:
            if takes:
                os.kill(pid, STOP)
                return
        except OSError as e:  # it has ended, or this user may trace it and not signal it
            log.passed_over(e)
        os.kill(os.getpid(), signal.SIGINT)

    words = gdb.execute(command("info signals {}", STOP.name), to_string=True).splitlines()[-1].split()[1:4]
    gdb.execute(command("handle {} stop print pass", STOP.name), to_string=True)
    try:
        yield stop
    finally:
        before = " ".join(("" if yes == "Yes" else "no") + what for what, yes in zip(("stop", "print", "pass"), words))
        gdb.execute(command("handle {} {}", STOP.name, before), to_string=True)


class Limit:
    """`expired`: whether the time was over before the block was left."""

    def __init__(self) -> None:
        self.expired = False
        self.ended = threading.Event()


@contextlib.contextmanager
def interrupted_after(seconds: float, unreported: bool = False) -> Iterator[Limit]:
    """A `with` block in which the process of the selected inferior is stopped after so many seconds (0: never). `unreported`: gdb
    does not print that stop, which the command reports in its own words; any other one is printed as ever."""
    limit = Limit()
    if not seconds:
        yield limit
        return
    report = _Report() if unreported and _has_terminal() else None
    with stopper() as stop:

        def wait() -> None:
            if not limit.ended.wait(seconds):
                limit.expired = True
                if report is not None:
                    report.begin()
                stop()

        background_thread(wait)
        try:
            yield limit
        finally:
            limit.ended.set()
            if report is not None:
                report.end()


def _has_terminal() -> bool:
    """Whether gdb's standard output is what a person reads: no front end reads its records there, no TUI draws on it."""
    return not FRONT_END and "not active" in gdb.execute("info win", to_string=True)


class _Report:
    """What gdb prints from the moment on at which the time is over. Our own stop is left out of it: neither `to_string` nor the
    log catches what gdb says of one, so its standard output and error lead into files meanwhile."""

    def __init__(self) -> None:
        self._lock, self._over = threading.Lock(), False
        self._kept: list[int] = []
        self._files = [os.memfd_create(f"gdbext-report-{number}") for number in (1, 2)]

    def begin(self) -> None:
        """Called by another thread."""
        with self._lock:
            if not self._over:
                self._kept = [os.dup(number) for number in (1, 2)]
                for number, file in enumerate(self._files, 1):
                    os.dup2(file, number)

    def end(self) -> None:
        """Prints what is not about our own stop."""
        with self._lock:
            self._over = True
            if self._kept:
                gdb.flush()
                gdb.flush(gdb.STDERR)
            for number, kept in enumerate(self._kept, 1):
                os.dup2(kept, number)
                os.close(kept)
        texts = []
        for file in self._files:
            os.lseek(file, 0, os.SEEK_SET)
            with open(file, "rb") as f:
                texts.append(f.read().decode("utf-8", "replace"))
        said, errors = without_own_stop(*texts)
        gdb.write(said)
        gdb.write(errors, gdb.STDERR)


def without_own_stop(said: str, errors: str) -> tuple[str, str]:
    """What gdb printed to its standard output and error, without its report of a stop by `STOP`, or by SIGINT in its place."""
    found = _OWN_STOP.search(said)
    return (said, errors) if found is None else (said[: found.start()], _NO_SOURCE.sub("", errors))


@contextlib.contextmanager
def unreported_stop() -> Iterator[None]:
    """Keeps gdb from printing a stop inside the block ("Program received signal", a frame). The command reports the stop
    in its own words.

    Neither `to_string` nor the log catches such a report. So gdb's standard output leads to /dev/null meanwhile. Where a front
    end reads its records there (MI, DAP), or the TUI draws on it, the report stays.
    """
    if not _has_terminal():
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
