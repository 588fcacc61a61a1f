"""A thread as the JSON `thread`, and its heading in text."""

from __future__ import annotations

from typing import AbstractSet, Any, Iterable

from .. import log
from ..access.base import Target
from ..cpython import gc
from ..cpython import runtime as runtimes
from ..cpython.callees import callee
from ..cpython.frames import PyFrame
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from ..render.text import Style, escape
from ..stacks.threads import ThreadView
from .frames import launched_kernel, native_frame, python_frame

UNTOLD = "a garbage collection is under way, in an unknown thread"


def thread_frames(
    view: ThreadView, private: AbstractSet[str] | None = None, whole: bool = False, kernel: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    """The merged stack of a thread as JSON frames, innermost first; `kernel`: the frame of the kernel that it is about to launch.

    `private`: as for `python_frame`. `whole`: includes the interpreter's own frames; those that run Python are marked as
    `activation`."""
    found = [kernel] if kernel else []
    for entry in view.entries if whole else view.merged:
        if entry.python is not None:
            data = python_frame(entry.python, private)
            data["level"], data["reliable"] = len(found), entry.reliable and data["reliable"]
        else:
            assert entry.native is not None  # it is the one or the other
            data = native_frame(entry.native, len(found))
            if whole and entry.activation:
                data["activation"] = True
        found.append(data)
    return found


def thread_data(
    target: Target,
    view: ThreadView,
    private: AbstractSet[str] | None = None,
    whole: bool = False,
    rt: Runtime | None = None,
) -> dict[str, Any]:
    """A thread with its frames as the JSON `thread`; `private` and `whole` as for `thread_frames`, `rt` as for
    `launched_kernel`."""
    kernel = launched_kernel(target, view.thread, view.native, rt)
    data: dict[str, Any] = {
        "tid": view.tid,
        "pid": target.pid,
        "label": target.label,
        "name": escape(view.name),
        "state": view.state,
        "gil": view.gil,
        "frames": thread_frames(view, private, whole, kernel),
    }
    if view.python and view.py is not None:
        numbers: list[int] = [f.rt.interpreter_number(f.interp) for f in view.python if f.interp]
        data["interpreters"] = list(dict.fromkeys(numbers))
        if len(runtimes.all_runtimes(target)) > 1:
            data["python"] = escape(view.py.rt.name)
    for frame, one in _python_frames(data, view):
        frame["calls"] = escape(callee(one))
    data["folded"] = 0 if whole else view.folded
    data["collects"] = view.collects
    data["missing"] = view.thread is None and _lists_threads(target)
    if view.error:
        data["error"] = view.error
    return data


def _lists_threads(target: Target) -> bool:
    try:
        return bool(target.threads())
    except GdbextError as e:
        log.passed_over(e)
        return False


def is_collecting(rt: Runtime | None) -> bool:
    """Whether a garbage collection is under way in a process."""
    try:
        return rt is not None and gc.collecting(rt)
    except GdbextError as e:
        log.passed_over(e)
        return False


def add_columns(thread: dict[str, Any], view: ThreadView) -> None:
    """Adds the position in its line of each Python frame of a JSON `thread`: `end_line`, `column`, `end_column`."""
    for data, frame in _python_frames(thread, view):
        data["end_line"], data["column"], data["end_column"] = frame.columns


def _python_frames(thread: dict[str, Any], view: ThreadView) -> Iterable[tuple[dict[str, Any], PyFrame]]:
    """Each Python frame of a JSON `thread` with its `PyFrame`."""
    return zip((frame for frame in thread["frames"] if frame["kind"] == "python"), view.python)


def thread_head(thread: dict[str, Any], style: Style) -> str:
    """`Thread 4123 "MainThread" (S, holds the GIL)`"""
    state = "" if thread["state"] == "t" else escape(thread["state"])  # t: gdb itself holds it
    gil = {"holds": "holds the GIL", "waits": "waits for the GIL"}.get(thread["gil"], "")
    own = [f"CPython {thread['python']}"] if "python" in thread else []
    if any(thread.get("interpreters", ())):
        own.append("interpreter " + ", ".join(map(str, thread["interpreters"])))
    if thread.get("missing"):
        own.append("no thread of this process: it has ended, or was the parent's when C code called fork()")
    if thread.get("collects"):
        own.append("collects garbage")
    notes = [n for n in (state, gil, *own) if n]
    name = f' "{thread["name"]}"' if thread["name"] else ""
    return style.title(f"Thread {thread['tid'] or '?'}{name}") + (f" ({', '.join(notes)})" if notes else "")
