"""Deletes gdb's own breakpoints in the dynamic loader, while no command needs news of libraries.

gdb plants one wherever a process reports that it loads a library (or makes code), for as long as the process runs. It ends with
gdb: where gdb and its guard end at the same moment (their container is removed) it would stay, and kill the process at its next
dlopen, and so it would a child that has inherited it. gdb lists it by a negative number, which no command takes as it is, but
`delete` takes it from a convenience variable. `set sysroot`, to what it is already, has gdb set it again.

gdb's list of libraries is read anew on demand.
"""

from __future__ import annotations

import re
from typing import Any, Callable

import gdb

from ... import log
from ...access.cli_gdb import command
from ..cudagdb import has_working_none
from ..events import listen
from ..gdb_state import FRONT_END, QuietGdb, select, setting

ROW = re.compile(r"^(-\d+)\s+(?:shlib|jit) events\s+\w+\s+y\s+0x[0-9a-f]+.*?\binf (\d+)", re.M)
CATCH_LOAD = re.compile(r"^\d+\s+catchpoint .*\b(?:load|unload) of library", re.M)
NUMBER = "$_gdbext_number"


class LoaderBreakpoints:
    """The loader breakpoints of the processes that `pids()` gives, from `start` to `end`."""

    def __init__(self, pids: Callable[[], set[int]]) -> None:
        self._pids = pids
        self._without: dict[int, int] = {}  # number of an inferior: the process in it whose breakpoints are deleted
        self._on = self._stale = False

    def start(self) -> bool:
        """Deletes them, now and whenever gdb has set them again. Nothing may run. -> whether it does"""
        if "cuda" in gdb.VERSION.lower() or hasattr(gdb, "cuda") or not has_working_none():
            return False  # cuda-gdb learns by them of the driver's library; gdb walks a frame for a variable's value
        listen(breakpoint_created=self._changed, breakpoint_modified=self._changed, before_prompt=self.update)
        listen(breakpoint_deleted=self._changed, new_objfile=self._changed)
        self._on = self._stale = True
        self.update()
        return True

    def end(self) -> None:
        """No longer: no process is attached."""
        self._on, self._without = False, {}

    def _changed(self, _: Any) -> None:
        self._stale = True
        if self._on and FRONT_END:  # it types no `continue`, and sees no prompt
            gdb.post_event(self.update)

    def update(self, _: Any = None) -> None:
        """Deletes them, or has gdb set them again where they are needed by now. Not inside stop(), or while anything runs."""
        if not self._on or any(thread.is_running() for one in gdb.inferiors() for thread in one.threads()):
            return
        if wanted(self._stale):
            with log.passing_over(gdb.error), QuietGdb():
                for inferior in [one for one in gdb.inferiors() if one.pid and self._without.get(one.num) == one.pid]:
                    select(inferior.num)
                    gdb.execute(command("set sysroot {}", setting("sysroot") or ""), to_string=True)
            self._without = {}
        elif self._stale:
            self._stale = False
            inferiors = {one.num: one.pid for one in gdb.inferiors() if one.pid in self._pids()}
            for number, inferior in ROW.findall(gdb.execute("maint info breakpoints", to_string=True)):
                if int(inferior) in inferiors:
                    with log.passing_over(gdb.error):
                        gdb.execute(command("set {} = {}", NUMBER, number), to_string=True)
                        gdb.execute(command("delete {}", NUMBER), to_string=True)
                        self._without[int(inferior)] = inferiors[int(inferior)]


def wanted(changed: bool = True) -> bool:
    """Whether gdb needs news of libraries as they are loaded: for a setting or, if its breakpoints have `changed`, for one that
    waits for a library, or a catchpoint."""
    if setting("stop-on-solib-events") not in ("0", None, "") or gdb.parameter("auto-solib-add"):
        return True
    if not changed:
        return False
    if any(getattr(b, "pending", False) and not hasattr(b, "names_no_function") for b in gdb.breakpoints() or ()):
        return True
    return bool(CATCH_LOAD.search(gdb.execute("info breakpoints", to_string=True)))
