"""Setting one llm-break: finding its kernels in a process, and breakpoints where they are launched."""

from __future__ import annotations

import functools
import os
import re
from typing import Callable

import gdb

from ..access import live_gdb
from ..access.base import Target
from ..access.cli_gdb import silently
from ..errors import GdbextError
from ..kernels import catalogue, in_use, launch, triton
from . import kernel_breakpoints
from .kernel_breakpoints import KernelBreakpoint
from .launch_breakpoints import DeviceBreakpoint
from .launch_conditions import word_of

MAX_DEVICE = 256  # breakpoints in device code, one for each template instance
SHOWN = 4  # libraries that could not be read, by name


def place(breakpoint: KernelBreakpoint, shape_of: Callable[[], tuple[int, str] | None] | None = None) -> list[str]:
    """Sets `breakpoint` in its inferior, where that has a process, and for libraries that are loaded later. Returns reasons for
    `partial`.

    `shape_of` is given for a breakpoint in the kernel itself, which cuda-gdb allows: -> (head size, dtype) of the KV cache, None
    where they are not known. `GdbextError` where nothing can be stopped."""
    inferior = breakpoint.inferior
    partial: list[str] = []
    rows: list[catalogue.Row] = []
    with live_gdb.selected(inferior):
        if inferior.pid:
            target = breakpoint.target
            if not target.is_live:
                raise GdbextError(
                    f"{target.describe()} does not run: nothing can be stopped in it (llm-launch decodes the launch at "
                    "which a thread stopped)"
                )
            breakpoint.rt = kernel_breakpoints.runtime_or_none(target)
            rows, entries, partial = _search(breakpoint, target)
            if shape_of is None:
                breakpoint.place(rows, entries)
                breakpoint.wait_for_libraries()
        if shape_of is not None:
            _place_in_device(breakpoint, rows, shape_of)
    kernel_breakpoints.add(breakpoint)
    if not inferior.pid and not gdb.parameter("auto-solib-add"):
        partial.append("auto-solib-add is off: gdb knows no library of a process that does not run yet; repeat this at main")
    driver = shape_of is None and any(r.kernel.launch == "driver" for r in breakpoint.kernels)
    if driver and not any(launch.is_driver(one.entry) for one in breakpoint.numbered):
        partial.append("no driver is loaded yet: kernels launched by it are waited for")
    return partial


def _place_in_device(
    breakpoint: KernelBreakpoint, rows: list[catalogue.Row], shape_of: Callable[[], tuple[int, str] | None]
) -> None:
    """Sets a breakpoint in each kernel itself, by the host side's names of the instances; of paged-attention only in those that
    are in use."""
    found = [r for r in catalogue.chosen(rows, breakpoint.name) if r.kernel.launch != "cpu" and r.kernel.role != "launcher"]
    if breakpoint.name == catalogue.PAGED:
        loaded = list(triton.compiled(breakpoint.rt).values()) if breakpoint.rt is not None else []
        found = in_use.in_use(found, {one.name for one in loaded})
    shape = shape_of() if len(_device_names(found)) > MAX_DEVICE else None
    if shape is not None:
        found = in_use.serving(found, *shape)
    names = _device_names(found)
    if len(names) > MAX_DEVICE:
        raise GdbextError(
            f"{breakpoint.name} is {len(names)} kernels, more than {MAX_DEVICE} breakpoints: name the instance (llm-kernels "
            f"-instances {breakpoint.name}), or stop at the launch: llm-break -host {breakpoint.name}; or at every kernel: set "
            "cuda break_on_launch application"
        )
    breakpoint.kernels = found
    for name, library in names or [(breakpoint.name, "")]:
        breakpoint.device.append(silently(functools.partial(DeviceBreakpoint, breakpoint, name, library)))


def _device_names(rows: list[catalogue.Row]) -> dict[tuple[str, str], None]:
    """{(kernel's whole name, library)} of the kernels to stop at on the device, in order."""
    names = dict.fromkeys((p.signature.text, r.library) for r in rows for p in r.sites)
    names.update(dict.fromkeys((r.name, r.library) for r in rows if not r.sites))
    return names


def _search(breakpoint: KernelBreakpoint, target: Target) -> tuple[list[catalogue.Row], list[tuple[str, int, str]], list[str]]:
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
