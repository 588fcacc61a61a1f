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
from ..engines.rank import STATES
from ..errors import GdbextError
from ..render.fields import LEFT_OUT, NUMBER, Field, Fields, each
from ..render.text import Style, escape
from ..stacks.threads import ThreadView
from .frames import launched_kernel, native_frame, python_frame
from .greenlets import GREENLET
from .shapes import END, FRAME

UNTOLD = "a garbage collection is under way, in an unknown thread"
THREAD = Fields(
    *each(NUMBER, "tid pid"),
    *each(str, "label name"),
    Field("state", str, "as in /proc/PID/stat"),
    Field("gil", str, "`holds`, `waits`, `none`, `unknown` or `disabled` (a build without one)"),
    Field("frames", [FRAME], "innermost first"),
    Field("folded", int, "native frames of the interpreter that are left out"),
    Field("collects", bool, "garbage: by its native frames, a call of `gc.collect`, or (3.15) the frame that was interrupted"),
    Field("missing", bool, "Python's, and none of the process: it has ended, or was the parent's when C code called fork()"),
    Field("interpreters", [int], "the ids of those that its Python frames belong to, innermost first; 0: the main one"),
    Field("python", str, "whose it is, where several CPythons work in the process"),
    Field("error", str),
)
ANSWER = Fields(
    Field("threads", [THREAD], "of `pybt` with Python frames only"),
    Field("collecting", bool, "a garbage collection is under way"),
    Field("greenlets", [GREENLET], "of `pybt`: its threads'; with -all also those whose thread cannot be told"),
    Field("ends", [END], "of `llm-bt`"),
    Field("kernels", [FRAME], "of `llm-bt` in cuda-gdb: those on the device"),
)


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
    data = THREAD.of(
        tid=view.tid,
        pid=target.pid,
        label=target.label,
        name=escape(view.name),
        state=view.state,
        gil=view.gil,
        frames=thread_frames(view, private, whole, kernel),
        folded=0 if whole else view.folded,
        collects=view.collects,
        missing=view.thread is None and _lists_threads(target),
        error=view.error or LEFT_OUT,
    )
    if view.python and view.py is not None:
        numbers: list[int] = [f.rt.interpreter_number(f.interp) for f in view.python if f.interp]
        data["interpreters"] = list(dict.fromkeys(numbers))
        if len(runtimes.all_runtimes(target)) > 1:
            data["python"] = escape(view.py.rt.name)
    for frame, one in _python_frames(data, view):
        frame["calls"] = escape(callee(one))
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
    """`Thread 4123 "MainThread" (sleeping, holds the GIL)`"""
    state = "" if thread["state"] == "t" else STATES.get(thread["state"], escape(thread["state"]))  # t: gdb itself holds it
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
