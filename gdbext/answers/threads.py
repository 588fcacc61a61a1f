"""A thread as the JSON `thread`, and its heading."""

from __future__ import annotations

from ..errors import GdbextError
from ..render.text import escape
from .frames import python_frame


def thread_data(rt, thread, label, system, private=None):
    """A `PyThread` as the contract's thread, its Python frames in it; `private` as in `python_frame`."""
    known = system.get(thread.tid)
    try:
        frames, error = [python_frame(f, private) for f in rt.frames(thread)], None
    except GdbextError as e:
        frames, error = [], str(e)
    name = rt.thread_name(thread) or (known.name if known else "")
    data = {
        "tid": thread.tid,
        "pid": rt.target.pid,
        "label": label,
        "name": escape(name),
        "state": known.state if known else "",
        "gil": rt.gil_state(thread),
        "frames": frames,
    }
    if error:
        data["error"] = error
    return data


def thread_head(thread, style):
    """`Thread 4123 "MainThread" (S, holds the GIL)`"""
    state = "" if thread["state"] == "t" else thread["state"]  # t: gdb itself holds it
    notes = [n for n in (state, {"holds": "holds the GIL"}.get(thread["gil"], "")) if n]
    name = f' "{thread["name"]}"' if thread["name"] else ""
    return style.title(f"Thread {thread['tid'] or '?'}{name}") + (f" ({', '.join(notes)})" if notes else "")
