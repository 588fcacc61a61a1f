"""Python frames in gdb's own backtrace, and so in every front end that asks gdb for one.

The frame of each interpreter activation gives way to the Python frames it runs: the innermost bears its number, the others stand
indented below it, since gdb and its MI know one entry to a number. The interpreter's other frames are left out, as in llm-bt (`bt
-no-filters` has them). Whatever fails here costs the Python frames, never the backtrace.
"""

from __future__ import annotations

import sys
from typing import Any, Iterable, Iterator

import gdb
from gdb.FrameDecorator import FrameDecorator

from .. import log
from ..access import model
from ..access.base import Target
from ..answers.variables import variables_of
from ..engines import sensitive_names
from ..errors import GdbextError, NotFoundError
from ..render.text import escape
from ..session.gdb_session import session
from ..stacks import merge

_STACK_POINTER = {"x86-64": "rsp"}  # gdb's own "sp" is no register there on every gdb


class Entry(FrameDecorator):
    """One entry of the backtrace; `others`: entries that stand indented below it."""

    def __init__(self, below: Any, others: Any = ()) -> None:
        super().__init__(below)
        self.others = list(others)

    def elided(self) -> Any:
        return iter(self.others) if self.others else None

    def function(self) -> Any:
        found = super().function()  # a name or an address, for which gdb writes nothing or "???" where it has no name
        return found if self.inferior_frame().name() or isinstance(found, str) and found.strip("?") else "??"


class PythonFrame(Entry):
    """A Python frame in place of the gdb frame of the activation that runs it."""

    def __init__(self, below: Any, frame: Any, others: Any = ()) -> None:
        super().__init__(below, others)
        self.python = frame

    def function(self) -> str:
        return escape(self.python.function)

    def filename(self) -> str:
        return escape(self.python.file)

    def line(self) -> int | None:
        line: int | None = self.python.line
        return line

    def address(self) -> int | None:
        return super().address() if _flat() else None  # the activation's own; DAP wants one

    def frame_args(self) -> None:
        return None

    def frame_locals(self) -> Any:
        try:
            return [Variable(v["name"], v["text"]) for v in variables_of(self.python, sensitive_names.names_for(self.python.rt))]
        except (GdbextError, gdb.error) as e:
            return [Variable("error", str(e))]


class Name(str):
    """A variable's name where gdb's DAP server asks for a symbol's."""

    @property
    def print_name(self) -> str:
        return str(self)


class Variable:
    """gdb's protocol for one variable: a name and a value."""

    def __init__(self, name: str, text: str) -> None:
        self.name, self.text = Name(name), text

    def symbol(self) -> Name:
        return self.name

    def value(self) -> str:
        return self.text


class _Native(model.NativeFrame):
    """What the merge needs to know of one of gdb's frames."""

    __slots__ = ("decorator",)

    def __init__(self, target: Target, decorator: Any) -> None:
        frame = decorator.inferior_frame()
        module = target.module_at(frame.pc())
        sp = int(frame.read_register(_STACK_POINTER.get(target.arch, "sp"))) & (1 << 64) - 1
        library = module.path if module is not None else ""
        super().__init__(0, frame.pc(), sp, _function(frame), library=library, inline=frame.type() == gdb.INLINE_FRAME)
        self.decorator = decorator


def _function(frame: Any) -> Any:
    """The name of the function that the machine code belongs to, whatever was inlined there."""
    while frame.type() == gdb.INLINE_FRAME:
        frame = frame.older()
    return frame.name() or ""


def merged(frames: Iterable[Any]) -> Iterator[Any]:
    """gdb's decorators -> the same with Python frames; walked as far as they are asked for, and one frame further."""
    taken, frames = [], map(Entry, frames)
    try:
        taken += [next(frames)]
        rt, python = _python_frames(taken[0].inferior_frame())
        if python:
            yield from _walk(rt, python, taken, frames)
    except StopIteration:
        return
    except NotFoundError as e:
        log.passed_over(e)  # no CPython here, or none on this thread: nothing to say
    except Exception as e:  # whatever it is: a backtrace without Python frames is better than none
        gdb.write(f"gdbext-python: no Python frames from here on: {' '.join(str(e).split()) or type(e).__name__}\n", gdb.STDERR)
    yield from taken
    yield from frames


def _python_frames(frame: Any) -> tuple[Any, ...]:
    """-> (`Runtime`, [PyFrame] of the selected thread that gdb's `frame` and its callers run)."""
    rt = session.runtime()
    thread = rt.thread(session.tid() or 0)
    found = rt.frames(thread) if thread is not None else []
    if found and frame.newer() is not None:  # what frames called by this one run is not asked for
        called = [frame]
        while called[0].newer() is not None:
            called.insert(0, called[0].newer())
        found = merge.outward(rt, found, [_Native(rt.target, FrameDecorator(f)) for f in called])
    return rt, found


def _walk(rt: Any, python: Any, taken: Any, frames: Any) -> Iterator[Any]:
    """Takes decorators from `taken`, then from `frames`; `taken` always holds those that are taken and not given out."""
    start, held = taken[0], []

    def native() -> Iterator[Any]:
        yield _Native(rt.target, start)
        for decorator in frames:
            taken.append(decorator)
            yield _Native(rt.target, decorator)

    ready: Any = (
        None  # the entries for taken[0], given out one frame late: below the last one may stand Python frames that no frame holds
    )
    for entry in merge.merged(rt, python, native(), []):
        if entry.python is not None:
            held.append(entry.python)
            continue
        if ready is not None:
            del taken[0]
            yield from ready
        below = entry.native.decorator  # type: ignore[union-attr]
        asked = (
            below is start and start.inferior_frame().newer() is not None
        )  # a front end wants the variables of this very frame
        ready = _group(below, held) + ([below] if not entry.interpreter_frame or asked and not held else [])
        held = []
    del taken[0]
    if ready and held and not _flat():
        ready[-1].others += [PythonFrame(below, frame) for frame in held]
    else:
        ready += _group(below, held)
    yield from ready


def _group(below: Any, frames: Any) -> list[Any]:
    """The entries for the Python frames of one activation."""
    if _flat() or not frames:
        return [PythonFrame(below, frame) for frame in frames]
    return [PythonFrame(below, frames[0], [PythonFrame(below, frame) for frame in frames[1:]])]


def _flat() -> bool:
    """gdb's own DAP server numbers entries itself and passes over indented ones."""
    return "gdb.dap" in sys.modules
