"""pybt: the Python stack of a thread or of all threads."""

from ..errors import GdbextError
from ..lazy import lazy_module
from ..render.jsonline import Address
from ..render.text import escape
from ..session.command import CONTENT, Answer, Command, Option

reprs = lazy_module("cpython.reprs")


def variables(found, private, limits=None):
    """`[(name, Object or None)]` -> the contract's `locals`; a variable that is not set is left out, private content only counted."""
    shown = []
    for name, value in found:
        if value is None:
            continue
        try:
            kind = value.type_name
        except GdbextError:
            kind = "?"
        shown.append(
            {
                "name": escape(name),
                "type": escape(kind),
                "address": Address(value.address),
                "text": escape(reprs.Repr(limits or reprs.SHORT, private).named(name, value)),
            }
        )
    return shown


def frame_data(frame, private=None, limits=None):
    """A `PyFrame` as the contract's frame; with its variables where `private` (names to hide) is given."""
    data = {
        "level": frame.level,
        "kind": "python",
        "function": escape(frame.function),
        "file": escape(frame.file),
        "line": frame.line,
        "pc": None,
        "sp": Address(frame.anchor) if frame.anchor else None,
        "library": None,
        "reliable": True,
        "locals": [],
    }
    if private is not None:
        try:
            data["locals"] = variables(frame.locals(), private, limits)
        except GdbextError as e:
            data["reliable"], data["locals_error"] = False, str(e)
    return data


def frame_line(frame, style):
    """`#0  function (file:line)`"""
    where = frame["file"] + (f":{frame['line']}" if frame["line"] is not None else "")
    return f"#{frame['level']:<3}{style.name(frame['function'])} ({style.file(where)})"


def variable_lines(found, style, indent="      "):
    """Text of `variables`; a module's own `__machinery__` stays out (JSON has it)."""
    found = [v for v in found if not (v["name"].startswith("__") and v["name"].endswith("__"))]
    lines = [f"{indent}{style.value(v['name'])} = {v['text']}" for v in found]
    return lines or [indent + style.dim("(no variables)")]


def thread_head(thread, style):
    """`Thread 4123 "MainThread" (S, holds the GIL)`"""
    state = "" if thread["state"] == "t" else thread["state"]  # t: gdb itself holds it
    notes = [n for n in (state, {"holds": "holds the GIL"}.get(thread["gil"], "")) if n]
    name = f' "{thread["name"]}"' if thread["name"] else ""
    return style.title(f"Thread {thread['tid'] or '?'}{name}") + (f" ({', '.join(notes)})" if notes else "")


def thread_data(rt, thread, label, system, private=None):
    """A `PyThread` as the contract's thread, its Python frames in it; `private` as in `frame_data`."""
    known = system.get(thread.tid)
    try:
        frames, error = [frame_data(f, private) for f in rt.frames(thread)], None
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


class PyBt(Command):
    """Show the Python stack of the selected thread, innermost frame first.

    Read from memory alone: no symbols, no call into the process; works on a live process, a core, and with -on on a process that
    is not attached (then nothing stops).

      (gdb) pybt
      Thread 4123 "MainThread" (S, holds the GIL)
      #0  Scheduler.schedule (/usr/lib/…/vllm/v1/core/sched/scheduler.py:412)
      #1  EngineCore.step (/usr/lib/…/vllm/v1/engine/core.py:380)

    `pyframe 1` selects a frame for pylist, pylocals and pyprint."""

    name = "pybt"
    group = "python"
    options = (
        Option("all", help="every Python thread"),
        Option("locals", help="with the variables of each frame"),
        CONTENT,
    )

    def run(self, session, args):
        rt = session.runtime(args.on)
        threads = rt.threads() if args.all else [session.python_thread(args.on)]
        try:
            system = {th.tid: th for th in rt.target.threads()}
        except GdbextError:
            system = {}
        private = session.private(rt, args) if args.locals else None
        found = [thread_data(rt, th, rt.target.label, system, private) for th in threads]
        partial = session.partial(rt.target) + [f"thread {th['tid']}: {th['error']}" for th in found if "error" in th]
        here = None if args.all else session.level(args.on)

        def text(style):
            lines = []
            for thread in found:
                lines.append(thread_head(thread, style))
                for frame in thread["frames"]:
                    lines.append(("=> " if frame["level"] == here and here else "") + frame_line(frame, style))
                    if args.locals:
                        lines += variable_lines(frame["locals"], style)
                if not thread["frames"]:
                    lines.append(style.dim("(no Python frame: it is between two calls, or in native code only)"))
            return "\n".join(lines)

        return Answer({"threads": found}, text, partial)
