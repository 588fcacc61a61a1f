"""Setting one llm-break: finding its kernels in a process, and breakpoints where they are launched."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import gdb

from ..access import live_gdb
from ..errors import GdbextError
from ..kernels import catalogue, launch
from . import kernel_breakpoints
from .launch_conditions import word_of

if TYPE_CHECKING:
    from ..access.base import Target
    from .kernel_breakpoints import KernelBreakpoint

SHOWN = 4  # libraries that could not be read, by name


def place(breakpoint: KernelBreakpoint, in_device: bool = False) -> list[str]:
    """Sets `breakpoint` in its inferior, where that has a process, and for libraries that come; returns reasons for `partial`.

    `in_device`: in the kernel itself, as cuda-gdb can. Raises `GdbextError` where nothing can be stopped."""
    inferior, partial, rows = breakpoint.inferior, [], []
    with live_gdb.selected(inferior):
        if inferior.pid:
            target = breakpoint.target
            if not target.is_live:
                raise GdbextError(
                    f"{target.describe()} does not run: nothing can be stopped in it (llm-launch decodes a launch that its "
                    "threads "
                    "stood at)"
                )
            breakpoint.rt = kernel_breakpoints.runtime_or_none(target)
            rows, entries, partial = _search(breakpoint, target)
            if not in_device:
                breakpoint.place(rows, entries)
                breakpoint.wait_for_libraries()
        if in_device:
            breakpoint.place_in_device(rows)
    kernel_breakpoints.add(breakpoint)
    if not inferior.pid and not gdb.parameter("auto-solib-add"):
        partial.append(
            "auto-solib-add is off: gdb tells of no library of a process that does not run yet; give this again once it stands "
            "at main"
        )
    driver = any(r.kernel.launch == "driver" for r in breakpoint.kernels)
    if driver and not any(launch.is_driver(one.entry) for one in breakpoint.numbered):
        partial.append("no driver is loaded yet: kernels launched by it are waited for")
    return partial


def _search(breakpoint: KernelBreakpoint, target: Target) -> tuple[list, list, list[str]]:
    """(the catalogue's rows, launch functions, reasons for `partial`) of a process."""
    name = breakpoint.name
    rows, entries, unread = catalogue.search(target, None, breakpoint.rt, word_of(name))
    if not catalogue.chosen(rows, name):  # a kernel that the catalogue does not know
        try:
            rows = catalogue.search(target, re.compile(name), None)[0]
        except re.error:
            pass
    if not unread:
        return rows, entries, []
    names = ", ".join(sorted(map(os.path.basename, unread))[:SHOWN])
    return rows, entries, [f"{len(unread)} libraries could not be read: {names}"]
