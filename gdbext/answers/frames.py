"""Python, native and kernel frames as the JSON `frame`, and their lines of text."""

from __future__ import annotations

import os
from typing import AbstractSet, Any

from .. import log
from ..access.base import Target
from ..access.model import NativeFrame, Thread
from ..cpython.frames import PyFrame
from ..cpython.reprs import Limits
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from ..kernels.watched import LAUNCHES
from ..render import names
from ..render.jsonline import Address
from ..render.text import Style, escape
from . import sources
from .shapes import FRAME, SELECTED
from .variables import variables_of


def python_frame(frame: PyFrame, private: AbstractSet[str] | None = None, limits: Limits | None = None) -> dict[str, Any]:
    """A `PyFrame` as the JSON `frame`; with its variables where `private` (names to hide) is given."""
    anchor = Address(frame.anchor) if frame.anchor else None
    place = {"function": escape(frame.function), "file": escape(frame.file), "line": frame.line}
    data = FRAME.of(level=frame.level, kind="python", **place, sp=anchor, library=None, locals=[])
    cell = sources.cell_of(frame)
    if cell:
        data["cell"] = cell
    if private is not None:
        try:
            data["locals"] = variables_of(frame, private, limits)
        except GdbextError as e:
            data["reliable"], data["locals_error"] = False, str(e)
            frame.rt.target.unsettled |= not frame.rt.target.is_stopped
    return data


def frame_place(frame: PyFrame) -> dict[str, Any]:
    """Where a Python frame is, as the JSON `frame` of the commands that select or name one."""
    return SELECTED.of(index=frame.level, function=escape(frame.function), file=escape(frame.file), line=frame.line)


def native_frame(frame: NativeFrame, level: int) -> dict[str, Any]:
    """A `NativeFrame` as the JSON `frame`."""
    return FRAME.of(
        level=level,
        kind="native",
        function=escape(names.demangle(frame.function)) if frame.function else "",
        file=frame.file,
        line=frame.line,
        pc=Address(frame.pc),
        sp=Address(frame.sp),
        library=escape(frame.library),
        reliable=frame.reliable,
        doubt=escape(frame.doubt),
        locals=[],
    )


def launched_kernel(
    target: Target, thread: Thread | None, native: list[NativeFrame], rt: Runtime | None = None
) -> dict[str, Any] | None:
    """The kernel that a thread is about to launch, as a frame of its own; None where it launches none. `rt`: of the process's
    Python, whose Triton knows the names of kernels that the driver launches."""
    if not native or not target.is_stopped or thread is None:
        return None
    entry = native[0].function
    if "LaunchKernel" not in entry and "LaunchCooperative" not in entry and (target.pid, native[0].pc) not in LAUNCHES:
        return None
    from ..kernels import launch as launches
    from ..kernels import triton

    own = None
    try:
        found = launches.launch_at(target, target.registers(thread))
        if found is not None and rt is not None and launches.is_driver(found.entry):
            own = triton.compiled(rt).get(found.function)
    except GdbextError as e:
        log.passed_over(e)
        return None  # its frames are complete; llm-launch names the unread arguments
    if found is None:
        return None
    name, at = escape(found.name if own is None else own.name), Address(found.function)
    place = {"device": None, "grid": found.grid, "block": found.block, "thread": None}
    return FRAME.of(level=0, kind="kernel", function=name, pc=at, **place, locals=[])


def device_kernel(kernel: Any) -> dict[str, Any]:
    """A kernel on the device, as cuda-gdb sees it, as a frame."""
    place = {"device": kernel.device, "grid": kernel.grid, "block": kernel.block, "thread": None}
    own = {"number": kernel.id, "current": kernel.current}
    return FRAME.of(level=0, kind="kernel", function=escape(kernel.name), **place, **own, locals=[])


def python_frame_line(frame: dict[str, Any], style: Style) -> str:
    """`#0  function (file:line)`"""
    where = (frame.get("cell") or style.path(frame["file"])) + (f":{frame['line']}" if frame["line"] is not None else "")
    if frame.get("column") is not None and frame["line"] is not None:
        end = frame["end_column"] if frame["end_line"] == frame["line"] else f"{frame['end_line']}:{frame['end_column']}"
        where += f":{frame['column']}-{end}"
    calls = style.dim(f" calls {frame['calls']}") if frame.get("calls") else ""
    return f"#{frame['level']:<2} {style.name(frame['function'])} ({style.source(frame['file'], where)}){calls}"


def native_frame_line(frame: dict[str, Any], style: Style) -> str:
    """The line of a native frame: function, library, and whether it is vouched for."""
    name = names.short(frame["function"]) if frame["function"] else "??"
    where = os.path.basename(frame["library"]) or hex(frame["pc"])
    if not frame["function"]:
        where += f" {hex(frame['pc'])}" if frame["library"] else ""
    doubt = style.dim(f"  ({frame.get('doubt')})") if frame.get("doubt") else ""
    if not frame["reliable"]:
        doubt = style.bad("  (not vouched for" + (f": {frame.get('doubt')})" if frame.get("doubt") else ")"))
    return f"#{frame['level']:<2} {escape(name)} ({style.dim(where)}){doubt}"


def kernel_frame_line(frame: dict[str, Any], style: Style) -> str:
    """The line of a kernel that is about to be launched."""
    where = "grid ({},{},{}) block ({},{},{})".format(*frame["grid"], *frame["block"])
    return f"#{frame['level']:<2} {names.short(frame['function']) or hex(frame['pc'])} " + style.dim(
        f"<kernel, about to be launched: {where}>"
    )


def device_kernel_lines(running: list[dict[str, Any]], style: Style) -> list[str]:
    """One line for each kernel that runs on the device."""
    lines = [style.title("Kernels on the device") + style.dim(" (cuda-gdb does not say which thread launched each)")]
    for k in running:
        where = "device {} grid ({},{},{}) block ({},{},{})".format(k["device"], *k["grid"], *k["block"])
        lines.append(
            f"{'*' if k['current'] else ' '} kernel {k['number']}  {names.short(k['function'])} " + style.dim(f"<{where}>")
        )
    return lines


def frame_text(frame: dict[str, Any], style: Style) -> str:
    """The line of a JSON `frame` of any kind: `#0  function (file:line)`."""
    lines = {"python": python_frame_line, "native": native_frame_line, "kernel": kernel_frame_line}
    return lines[frame["kind"]](frame, style)
