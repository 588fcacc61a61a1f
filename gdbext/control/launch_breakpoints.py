"""gdb's own breakpoints that a `KernelBreakpoint` is made of.

Their stop() never calls gdb.execute: gdb 13 loses its event loop by that.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Callable

import gdb

from ..errors import GdbextError
from . import inferior_breakpoints
from .gdb_state import say

if TYPE_CHECKING:
    from .kernel_breakpoints import KernelBreakpoint


class InternalBreakpoint(gdb.Breakpoint):
    """A breakpoint that gdb does not list. A hit calls `work()`; the process does not stop."""

    def __init__(self, address: int, work: Callable[[], Any]) -> None:
        self.work = work
        super().__init__(f"*{address:#x}", internal=True)
        self.silent = True
        inferior_breakpoints.pin(self)

    def stop(self) -> bool:
        self.work()
        return False


class LaunchBreakpoint(gdb.Breakpoint):
    """The breakpoint with a number: on a launch function, or on a plain function that is a kernel itself."""

    def __init__(self, owner: KernelBreakpoint, entry: str, address: int, library: str, symbol: str = "") -> None:
        self.owner, self.entry, self.library, self.symbol = owner, entry, library, symbol
        super().__init__(f"*{address:#x}")
        inferior_breakpoints.pin(self)

    def open(self, wanted: bool) -> None:
        """Enables or disables the breakpoint. Its number stays in the list, and stays enabled where gdb (13 and later) can
        disable the location alone."""
        places = inferior_breakpoints.locations_of(self)
        if places is None:
            self.enabled = wanted
        for place in places or ():
            place.enabled = wanted

    def stop(self) -> bool:
        start = time.perf_counter()
        try:
            return self.owner.reached(self, start)
        except (GdbextError, gdb.error) as e:
            say(f"llm-break: {str(e).strip()}; stopped to show it")
            return True
        finally:
            self.owner.spent += time.perf_counter() - start


class DeviceBreakpoint(gdb.Breakpoint):
    """cuda-gdb's own breakpoint in a kernel, by its whole name; it waits for the module that has it."""

    def __init__(self, owner: KernelBreakpoint, name: str, library: str) -> None:
        self.owner, self.name, self.library = owner, name, library
        super().__init__(name)
