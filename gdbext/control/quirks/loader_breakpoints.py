"""Takes gdb's own breakpoints in the dynamic loader out of running processes, while no command needs news of libraries.

gdb plants one wherever a process reports that it loads a library (or makes code), for as long as the process runs. It has no
command to leave it out. The breakpoint ends with gdb. If gdb and its guard end at the same moment (their container is removed),
it would stay, and kill the process at its next dlopen.

So its original bytes are written back as soon as the process runs. At the next stop gdb writes the same bytes. gdb's list of
libraries is read anew on demand.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from typing import Any, Callable

import gdb

from ...access import ptrace, recovery
from ...access.background import background_thread
from ..events import listen
from ..gdb_state import setting

ROW = re.compile(r"^-\d+\s+(?:shlib|jit) events\s+\w+\s+y\s+(0x[0-9a-f]+).*?\binf (\d+)", re.M)
CATCH_LOAD = re.compile(r"^\d+\s+catchpoint .*\b(?:load|unload) of library", re.M)
SOON, EVERY, LONG = 0.01, 0.2, 2.0  # seconds between two checks: for LONG seconds after a process went on, and later


class _Watched:
    """The places of one process: `[(address, original bytes)]`. The open file belongs to the memory of one program: after an exec
    nothing is written to the old one."""

    def __init__(self, pid: int, places: list[tuple[int, bytes]]) -> None:
        self.pid, self.places = pid, places
        self.memory = os.open(f"/proc/{pid}/mem", os.O_RDWR)

    def take_out(self, trap: bytes) -> None:
        for address, original in self.places:
            with contextlib.suppress(OSError):  # it has ended
                if os.pread(self.memory, len(trap), address) == trap:
                    os.pwrite(self.memory, original, address)


class LoaderBreakpoints:
    """The loader breakpoints of the processes that `pids()` gives, from `start` to `end`."""

    def __init__(self, pids: Callable[[], set[int]]) -> None:
        self._pids = pids
        self._watched: dict[int, _Watched] = {}
        self._asked: set[int] = set()  # the processes whose places were looked for
        self._lock, self._done, self._resumed = threading.Lock(), threading.Event(), 0.0
        self._thread: threading.Thread | None = None
        self._stale = True

    def start(self) -> None:
        """Takes them out from now on, each time that a process goes on."""
        if ptrace.MACHINE not in recovery.BREAKPOINTS or "cuda" in gdb.VERSION.lower() or hasattr(gdb, "cuda"):
            return  # cuda-gdb learns by them of the driver's library
        listen(cont=self._on_continue, breakpoint_created=self._changed, breakpoint_modified=self._changed)
        listen(breakpoint_deleted=self._changed, new_objfile=self._changed)
        self._stale = True
        if self._thread is None:
            self._done.clear()
            self._thread = background_thread(self._watch)

    def end(self) -> None:
        """No longer."""
        if self._thread is not None:
            self._done.set()
            self._thread.join()
            self._thread = None
        self._take([])

    def _changed(self, _: Any) -> None:
        self._stale = True

    def _on_continue(self, _: Any) -> None:
        if self._thread is None:
            return
        if self._stale or self._asked != self._pids():  # the event comes for each thread
            self._stale, self._asked = False, self._pids()
            self._take([] if wanted() else _places(self._pids()))
        self._resumed = time.monotonic()

    def _take(self, found: list[tuple[int, list[tuple[int, bytes]]]]) -> None:
        with self._lock:
            for one in self._watched.values():
                os.close(one.memory)
            self._watched = {}
            for pid, places in found:
                with contextlib.suppress(OSError):
                    self._watched[pid] = _Watched(pid, places)

    def _watch(self) -> None:
        trap = recovery.BREAKPOINTS[ptrace.MACHINE]
        while not self._done.wait(SOON if time.monotonic() - self._resumed < LONG else EVERY):
            with self._lock:
                for one in self._watched.values():
                    one.take_out(trap)


def wanted() -> bool:
    """Whether gdb needs news of libraries as they are loaded: for a setting, a catchpoint, a breakpoint that waits for one."""
    if setting("stop-on-solib-events") not in ("0", None, "") or gdb.parameter("auto-solib-add"):
        return True
    if any(getattr(b, "pending", False) for b in gdb.breakpoints() or ()):
        return True
    return bool(CATCH_LOAD.search(gdb.execute("info breakpoints", to_string=True)))


def _places(pids: set[int]) -> list[tuple[int, list[tuple[int, bytes]]]]:
    """`[(pid, [(address, bytes without gdb's breakpoint)])]`, without addresses at which the user has a breakpoint too."""
    text = gdb.execute("maint info breakpoints", to_string=True)
    inferiors = {i.num: i for i in gdb.inferiors() if i.pid in pids}
    size = len(recovery.BREAKPOINTS[ptrace.MACHINE])
    found: dict[int, list[tuple[int, bytes]]] = {}
    for address, number in ROW.findall(text):
        inferior = inferiors.get(int(number))
        others = [line for line in text.splitlines() if address in line and " events " not in line and not _part(line, text)]
        if inferior is not None and not others:
            with contextlib.suppress(gdb.error):
                original = bytes(inferior.read_memory(int(address, 16), size))
                found.setdefault(inferior.pid, []).append((int(address, 16), original))
    return list(found.items())


def _part(line: str, text: str) -> bool:
    """Whether a line is a location of one of gdb's own breakpoints of this kind."""
    number = line.split(".")[0]
    return bool(re.search(rf"^{re.escape(number)}\s+(?:shlib|jit) events ", text, re.M))
