"""What a debug register watches, and gdb's breakpoint that has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import gdb

from ..access import perf_breakpoints
from .gdb_state import FRONT_END

if TYPE_CHECKING:
    from .hw_breakpoints import HardwareBreakpoint


class Register(gdb.Breakpoint):
    """gdb's own breakpoint, by which a `HardwareBreakpoint` has a debug register."""

    def __init__(self, of: HardwareBreakpoint, spec: str, kind: int, wp_class: int) -> None:
        self.of = of
        super().__init__(spec, type=kind, wp_class=wp_class, internal=True)
        self.silent = not FRONT_END

    def stop(self) -> bool:
        return self.of.stop()


class Spot(NamedTuple):
    """What a debug register watches: an address, how many bytes, which access (perf_breakpoints)."""

    address: int
    size: int
    access: int

    def register(self) -> tuple[str, int, int]:
        """gdb's expression, kind and class of a breakpoint for it."""
        if self.access == perf_breakpoints.EXECUTE:
            return f"*{self.address:#x}", gdb.BP_HARDWARE_BREAKPOINT, gdb.WP_WRITE
        kind = {2: "short", 4: "int", 8: "long"}[self.size]
        access = gdb.WP_ACCESS if self.access == perf_breakpoints.READ_WRITE else gdb.WP_WRITE
        return f"*({kind} *) {self.address:#x}", gdb.BP_WATCHPOINT, access
