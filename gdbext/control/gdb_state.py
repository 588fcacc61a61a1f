"""Changes of the pack to gdb itself while it works: settings, the selected inferior and thread, inferiors, Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from typing import Any, Iterator

import gdb

from ..access import libraries
from ..access.cli_gdb import command
from ..render.columns import wrapped

# Settings that a command of ours changes while it works, and puts back before it returns; those a gdb does not know are left out.
QUIET = {
    "confirm": "off",
    "pagination": "off",
    "suppress-cli-notifications": "on",
    "print inferior-events": "off",
    "print thread-events": "off",
    "debuginfod enabled": "off",
    "exec-file-mismatch": "off",
}


AUTO = ("breakpoint pending",)  # settings of on, off and auto: gdb gives Python None for auto, as it does for unlimited


class _State:
    quiet = 0  # `QuietGdb` blocks that are open


def is_quiet() -> bool:
    """Whether a `QuietGdb` block is active: gdb's events of resumption then mean nothing."""
    return _State.quiet > 0


def _has_front_end() -> bool:
    """Whether an editor drives this gdb, by MI or DAP: a silent stop would reach it without thread and reason."""
    with open("/proc/self/cmdline", "rb") as f:
        words = f.read().split(b"\0")
    for i, word in enumerate(words):
        found = re.match(rb"--?i(?:nterpreter)?(?:=(.*))?$", word)
        if found and (found.group(1) if found.group(1) is not None else b"".join(words[i + 1 : i + 2])).startswith(
            (b"mi", b"dap")
        ):
            return True
    return False


FRONT_END = _has_front_end()


def columns() -> int:
    """The columns of the terminal at which lines are broken; 0 where gdb's output goes elsewhere, or `set width` is unlimited."""
    return 0 if FRONT_END or not os.isatty(1) else int(gdb.parameter("width") or 0)


def say(text: str) -> None:
    """Prints lines, as wide as the terminal."""
    gdb.write(wrapped(text, columns()) + "\n")


def setting(name: str) -> str | None:
    """The present value of a setting, as text that `set NAME` accepts; None where this gdb has no such setting."""
    try:
        value = gdb.parameter(name)
    except RuntimeError:
        return None
    if isinstance(value, bool):
        return "on" if value else "off"
    if name in AUTO and not isinstance(value, (int, str)):
        return "auto"
    return str(value) if isinstance(value, (int, str)) else "unlimited"  # not "is None": the None of cuda-gdb 11.8 is another


class QuietGdb:
    """A `with` block in which gdb asks no questions and prints nothing, and after which its focus is as before."""

    def __init__(self, keep_focus: bool = True) -> None:
        self.keep_focus = keep_focus

    def __enter__(self) -> QuietGdb:
        self.saved: dict[str, str] = {}
        _State.quiet += 1
        for name, value in QUIET.items():
            old = setting(name)
            if old is not None and old != value:
                self.saved[name] = old
                gdb.execute(command("set {} {}", name, value), to_string=True)
        self.inferior, self.thread = gdb.selected_inferior(), gdb.selected_thread()
        self.frame = libraries.selected_frame()
        return self

    def __exit__(self, *_: Any) -> None:
        try:
            if self.keep_focus:
                self._focus()
        finally:
            _State.quiet -= 1
            for name, value in self.saved.items():
                gdb.execute(command("set {} {}", name, value), to_string=True)

    def _focus(self) -> None:
        if self.inferior.is_valid() and gdb.selected_inferior().num != self.inferior.num:
            select(self.inferior.num)
        if self.thread and self.thread.is_valid():
            self.thread.switch()
            try:
                if self.frame and self.frame.is_valid():
                    self.frame.select()
            except gdb.error:
                pass  # the thread runs by now, or its stack is another: there is no frame to go back to


@contextlib.contextmanager
def every_thread_runs() -> Iterator[None]:
    """A `with` block in which a resumed process runs with all its threads, whatever the setting of scheduler-locking."""
    locking = str(gdb.parameter("scheduler-locking"))
    try:
        if locking != "off":
            gdb.execute("set scheduler-locking off", to_string=True)
        yield
    finally:
        if locking != "off":
            with contextlib.suppress(gdb.error):  # gdb takes it while a process lives only
                gdb.execute(command("set scheduler-locking {}", locking), to_string=True)


def handling(name: str) -> str:
    """How gdb treats a signal, as the words that `handle NAME` takes."""
    words = gdb.execute(command("info signals {}", name), to_string=True).splitlines()[-1].split()
    return " ".join(w if said == "Yes" else "no" + w for w, said in zip(("stop", "print", "pass"), words[1:4]))


class BlockSigint:
    """A `with` block that holds Ctrl-C back: while gdb waits for a process to stop, it would pass SIGINT on to that process and
    kill it."""

    def __enter__(self) -> None:
        self.before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})

    def __exit__(self, *_: Any) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self.before)


def select(number: int) -> None:
    """Makes inferior `number` the selected one."""
    gdb.execute(command("inferior {}", number), to_string=True)


def add_inferior() -> int:
    """Makes an inferior without process and program; -> its number."""
    before = {i.num for i in gdb.inferiors()}
    gdb.execute("add-inferior -no-connection", to_string=True)
    return next(i.num for i in gdb.inferiors() if i.num not in before)


def remove_inferior(number: int) -> None:
    """Takes an inferior away, unless it is the only one."""
    if all(i.num != number for i in gdb.inferiors()):
        return
    if gdb.selected_inferior().num == number:
        others = [i.num for i in gdb.inferiors() if i.num != number]
        if not others:
            return
        select(others[0])
    gdb.execute(command("remove-inferiors {}", number), to_string=True)
