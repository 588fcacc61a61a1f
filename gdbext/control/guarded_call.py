"""Calling a C function in a process that gdb holds, so that nothing leaves the call half-way.

A call that a signal, a breakpoint or Ctrl-C interrupts leaves gdb's dummy frame on the thread's stack: if gdb detaches then, the
thread returns to an address where nothing is, and the process dies. Unwinding the frame (`set unwindonsignal on`) is no better
here: the interpreter, or malloc, would be left in the middle of what it did. So signals are passed on without a stop, breakpoints
are out of use for as long as the call takes, and an interrupted call is continued until it has returned.
"""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import gdb

from ..access.cli_gdb import command
from ..errors import GdbextError
from . import attached_processes

if TYPE_CHECKING:
    from typing import Any, Iterator

# A fault of the called code: it stops where it happened, as it would without the call.
FAULTS = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT")
MAX_FRAMES = 10_000


def check_calls() -> None:
    """Raises `GdbextError` where this gdb must not call functions on this machine."""
    if not gdb.parameter("may-call-functions"):
        raise GdbextError("set may-call-functions is off: gdb may not call the function that this needs")
    found = re.search(r"\d+", gdb.VERSION)
    major = int(found.group()) if found else 0
    with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as f:
        if "amx_tile" in f.read() and major < 16:
            raise GdbextError(
                f"gdb {gdb.VERSION} cannot call functions on a CPU with AMX (the failed call would break a thread's system "
                "call): "
                "use gdb 16 or later"
            )


def call(inferior: Any, thread: Any, function: int, argument: int) -> int | None:
    """Calls `function(argument)` in `thread` of `inferior`, which stands still; -> what it returned, None where it was
    interrupted on its way and the value is lost. All threads run meanwhile. Raises `GdbextError` where it did not return."""
    with _undisturbed():
        try:
            return int(gdb.parse_and_eval(f"((unsigned long (*)(unsigned long)) {function:#x})({argument:#x})"))
        except (gdb.error, gdb.MemoryError, KeyboardInterrupt) as e:
            if not inferior.is_valid() or not inferior.pid:
                raise GdbextError("the process ended in the call") from None
            if not half_way(thread):
                raise GdbextError(
                    f"process {inferior.pid}: the call failed: {(str(e) or 'interrupted').splitlines()[0]}"
                ) from None
        if _finish(inferior, thread):
            return None
    reason = (
        f"process {inferior.pid}: the call is half-way, and the process would die of being detached now: continue until it has "
        "returned, then detach"
    )
    attached_processes.keep(inferior.pid, reason, lambda: half_way(thread))
    raise GdbextError(reason)


def half_way(thread: Any) -> bool:
    """Whether a thread's stack holds a call that gdb made and that has not returned."""
    if not thread.is_valid():
        return False
    was = gdb.selected_thread()
    try:
        thread.switch()
        frame = gdb.newest_frame()
        for _ in range(MAX_FRAMES):
            if frame is None:
                return False
            if frame.type() == gdb.DUMMY_FRAME:
                return True
            frame = frame.older()
    except gdb.error:
        return False  # it runs, or its stack cannot be followed: no call of gdb's is known there
    finally:
        if was is not None and was.is_valid():
            was.switch()
    return False


def _finish(inferior: Any, thread: Any) -> bool:
    """Continues an interrupted call until it has returned: gdb takes its frame off then. -> False where Ctrl-C, or a fault, ended
    that too."""
    gdb.write("the call was interrupted and is let finish; Ctrl-C again stops waiting for it\n")
    try:
        gdb.execute("continue", to_string=True)
    except (gdb.error, KeyboardInterrupt):
        pass
    return inferior.is_valid() and bool(inferior.pid) and not half_way(thread)


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """No breakpoint and no signal stops the process; a fault and gdb's own SIGINT and SIGTRAP do."""
    locking, unwinds = gdb.parameter("scheduler-locking"), gdb.parameter("unwindonsignal")
    enabled = re.findall(r"^(\d+)\s.*?\s(?:keep|del|dis)\s+y\b", gdb.execute("info breakpoints", to_string=True), re.M)
    handled = re.findall(r"^(SIG\w+)\s+(Yes|No)\s+(Yes|No)\s+(Yes|No)\s", gdb.execute("info signals", to_string=True), re.M)
    changed = [h for h in handled if h[0] not in (*FAULTS, "SIGINT", "SIGTRAP") and h[1:] != ("No", "No", "Yes")]
    try:
        gdb.execute("set scheduler-locking off", to_string=True)
        gdb.execute("set unwindonsignal off", to_string=True)
        for number in enabled:
            gdb.execute(command("disable {}", number), to_string=True)
        for name, *_ in changed:
            gdb.execute(command("handle {} nostop noprint pass", name), to_string=True)
        yield
    finally:
        for name, *words in changed:
            wanted = [w if yes == "Yes" else "no" + w for w, yes in zip(("stop", "print", "pass"), words)]
            gdb.execute(command("handle {} {}", name, " ".join(wanted)), to_string=True)
        for number in enabled:
            with contextlib.suppress(gdb.error):  # a temporary one may be gone
                gdb.execute(command("enable {}", number), to_string=True)
        gdb.execute(command("set scheduler-locking {}", locking), to_string=True)
        gdb.execute("set unwindonsignal on" if unwinds else "set unwindonsignal off", to_string=True)
