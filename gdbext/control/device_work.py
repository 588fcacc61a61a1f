"""Whether a GPU's work has ended, as far as cuda-gdb knows. Until then its memory may not yet hold the program's results.

A launch returns before its kernel has run, unless the process began with CUDA_LAUNCH_BLOCKING=1."""

from __future__ import annotations

import re

import gdb

from .. import log
from ..access.base import Target
from ..access.device_memory import STOP_BYTES, STOP_SECONDS, DeviceMemory
from ..errors import FaultError, GdbextError
from ..render.text import escape
from . import cudagdb

WAITS = re.compile(r"^(cu(da)?(Stream|Event|Ctx|Device)Synchronize)\b")
MAX_NAMES = 3
ADVICE = "CUDA_LAUNCH_BLOCKING=1 in its environment, from its start on, makes each launch wait for its end"


def blocks(target: Target) -> bool:
    """Whether each launch of the process waits until its kernel has ended."""
    try:
        return target.environ().get("CUDA_LAUNCH_BLOCKING", "").strip() not in ("", "0")
    except GdbextError as e:
        log.passed_over(e)
        return False


def of_stopped(target: Target) -> DeviceMemory:
    """The GPU's memory of a process that is stopped at gdb's prompt."""
    return DeviceMemory(cudagdb.device().read, lambda: _unfinished(target))


def _unfinished(target: Target) -> str:
    running = cudagdb.device().kernels()
    if running:
        names = ", ".join(escape(kernel.name) for kernel in running[:MAX_NAMES]) + (", …" if running[MAX_NAMES:] else "")
        what = f"{len(running)} kernel{'s are' if running[1:] else ' is'} on the device ({names})"
        return f"{what}: what {'they compute' if running[1:] else 'it computes'} may not be there yet"
    return "" if blocks(target) else _waiting(target)


def _waiting(target: Target) -> str:
    """A thread that waits for the device, in words, or ''. It matters where no kernel is there: its work waits too, as for an
    event of another stream."""
    for thread in target.threads():
        try:
            for frame in target.unwind(thread):
                found = WAITS.match(frame.function)
                if found:
                    return f"thread {thread.tid} is in {found.group(1)}: what it waits for has not ended"
        except GdbextError as e:
            log.passed_over(e)
    return ""


def begin_stop(target: Target) -> None:
    """To be called when a breakpoint's stop() begins that reads values each time."""
    if target.device_memory is not None:
        target.device_memory.begin(STOP_BYTES, STOP_SECONDS)


def of_stops(target: Target) -> DeviceMemory | None:
    """The memory of a process's GPU during a breakpoint's stop(), where gdb runs no command; None in a gdb that sees no GPU. The
    launched work has ended only if launches block."""
    if not cudagdb.is_cuda_gdb():
        return None
    reader = cudagdb.free_reader()
    if reader is None:
        return DeviceMemory(cudagdb.CudaGdb().read, lambda: "this cuda-gdb reads it at its prompt alone; CUDA 13's reads it here")

    def read(address: int, size: int) -> bytes:
        if gdb.selected_inferior().pid != target.pid:
            raise FaultError(address, size, "another process is selected, and cuda-gdb would read its GPU memory")
        return reader(address, size)

    return DeviceMemory(read, lambda: "" if blocks(target) else f"its kernels may not have ended; {ADVICE}")
