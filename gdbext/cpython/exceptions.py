"""Exceptions of a process: those in flight in its threads, with tracebacks, causes, contexts, notes and the members of groups.

Sources: PyErr_Occurred and _PyErr_GetTopmostException of each minor (Python/errors.c), PyTracebackObject
(Include/cpython/traceback.h), the exception structures (Include/cpython/pyerrors.h), and for the texts the `__str__` of
Objects/exceptions.c and traceback.py.
"""

from __future__ import annotations

from typing import Iterator

from .. import log
from ..errors import GdbextError, LayoutError
from .dialects import RawFrame
from .frames import Code, PyFrame
from .objects import Object
from .reprs import NORMAL, Repr
from .runtime import PyThread, Runtime
from .types import EXCEPTION, LONG, STR, TUPLE, TypeInfo

MAX_HANDLED = 1000  # exceptions that one thread can be handling: an `except` in each of its frames
MAX_TRACEBACK = 20000  # frames of one traceback
MAX_EXCEPTIONS = 1000  # causes, contexts and members of one exception, all together
MAX_DEPTH = 100  # how deep they nest
MAX_MEMBERS = 100
MAX_NOTES = 50

RAISED, HANDLED, UNHANDLED = "raised", "handled", "unhandled"


class TraceFrame:
    """One entry of a traceback: `function` (co_name, as Python prints it), `qualname`, `file`, `line` (None: unknown)."""

    __slots__ = ("rt", "frame", "code", "line")

    def __init__(self, rt: Runtime, frame: int, code: Code, line: int | None) -> None:
        self.rt, self.frame, self.code, self.line = rt, frame, code, line

    @property
    def function(self) -> str:
        return self.code.name

    @property
    def qualname(self) -> str:
        return self.code.qualname

    @property
    def file(self) -> str:
        return self.code.file

    def python_frame(self, level: int) -> PyFrame:
        """A `PyFrame` with the variables that the frame held when it was left; they live as long as the traceback does."""
        return PyFrame(self.rt, RawFrame(frame_of_object(self.rt, self.frame), self.code.address, -1, 0, 0), level)


class Raised:
    """One exception.

    - `type`: the class as Python prints it ("OSError", "queue.Empty").
    - `message`: the text of `str()`; None where only the class's own Python code could make it. Then `args` has its arguments.
    - `frames`: `[TraceFrame]`, innermost first.
    - `cause`, `context`: `Raised` or None; `members`: those of an exception group.
    - `again`: it stands further up in the same answer, so its parts are not repeated.
    - `cut`: reasons why it is incomplete.
    """

    def __init__(self, address: int, type_name: str) -> None:
        self.address, self.type, self.args = address, type_name, ""
        self.message: str | None = None
        self.frames: list[TraceFrame] = []
        self.cause: Raised | None = None
        self.context: Raised | None = None
        self.members: list[Raised] = []
        self.notes: list[str] = []
        self.cut: list[str] = []
        self.suppress_context = self.again = False


class InFlight:
    """An exception and where it was found. `thread`: `PyThread` or None.

    `state`: "raised" (on its way up), "handled" (its `except`, `finally` or `__exit__` runs) or "unhandled" (the last one that
    ended a program or thread: `sys.last_exc`).
    """

    def __init__(self, thread: PyThread | None, state: str, exception: Raised) -> None:
        self.thread, self.state, self.exception = thread, state, exception


def in_flight(rt: Runtime, thread: PyThread) -> list[InFlight]:
    """`[InFlight]` of a `PyThread`: the raised one first, then those being handled, innermost first. Each exception appears
    once."""
    found, seen = [], set()
    raised = _raised(rt, thread.address)
    if raised is not None:
        seen.add(raised.address)
        found.append(InFlight(thread, RAISED, raised))
    for value in _handled(rt, thread.address):
        if value not in seen:
            seen.add(value)
            found.append(InFlight(thread, HANDLED, read(rt, value)))
    return found


def handled_type(rt: Runtime, thread: PyThread) -> str:
    """The class of the exception whose `except`, `finally` or `__exit__` a thread runs, the innermost; '' where it runs none."""
    value = handled(rt, thread)
    return class_name(value.type) if value is not None else ""


def handled(rt: Runtime, thread: PyThread) -> Object | None:
    """The exception itself, None where there is none."""
    value = next(_handled(rt, thread.address), 0)
    return rt.object(value) if value else None


def failure(rt: Runtime, tstate: int) -> tuple[str, bool]:
    """-> (the class of the exception that a thread's state raises, else of that which it handles; whether it handles it)"""
    kind = current(rt, tstate)[1]
    value = 0 if kind else next(_handled(rt, tstate), 0)
    return (class_name(rt.type(kind) if kind else rt.object(value).type) if kind or value else ""), bool(value)


def _handled(rt: Runtime, tstate: int) -> Iterator[int]:
    """The addresses of the exceptions that a thread handles, innermost first."""
    L, t = rt.layout, rt.target
    item = t.u64(tstate + L["tstate.exc_info"])
    steps: set[int] = set()
    while item and item not in steps and len(steps) < MAX_HANDLED:
        steps.add(item)
        value = t.u64(item + L["excstack.exc_value"])
        if value and rt.object(value).type.flags & EXCEPTION:
            yield value
        item = t.u64(item + L["excstack.previous_item"])


def last_unhandled(rt: Runtime) -> list[InFlight]:
    """`[InFlight]` with the exception that `sys.last_exc` (before 3.12: `sys.last_value`) names, or []."""
    contents = rt.module("sys")
    if contents is None:
        return []
    for name in ("last_exc", "last_value"):
        try:
            value = contents.item(name)
            if value.type.flags & EXCEPTION:
                return [InFlight(None, UNHANDLED, read(rt, value.address))]
        except GdbextError as e:
            log.passed_over(e)
            continue
    return []


def current(rt: Runtime, tstate: int) -> tuple[int, int, int]:
    """-> (value, class, traceback): addresses of the exception on its way up in a thread, each 0 where it is missing. Before 3.12
    the value need not be an instance."""
    L, t = rt.layout, rt.target
    if "tstate.current_exception" in L:
        value = t.u64(tstate + L["tstate.current_exception"])
        return (value, t.u64(value + L["object.ob_type"]), t.u64(value + L["exc.traceback"])) if value else (0, 0, 0)
    names = ("tstate.curexc_value", "tstate.curexc_type", "tstate.curexc_traceback")
    value, kind, trace = (t.u64(tstate + L[name]) for name in names)
    return value, kind, trace


def current_message(rt: Runtime, kind: int, value: int) -> str | None:
    """The text of the exception that `current` gives; None where only Python code could make it."""
    held = rt.object(value) if value else None
    if held is not None and held.type.flags & EXCEPTION:
        return message(held)[0]
    if held is None or held.is_none():
        return ""
    bases = list(rt.type(kind).bases())
    if any("__str__" in base.namespace for base in bases if base.is_heap and "." not in base.raw_name):
        return None
    members = held.elements(2) if held.type.flags & TUPLE else [held]
    if len(members) != 1:
        return Repr(NORMAL)(held) if members else ""
    return Repr(NORMAL)(members[0]) if any(base.builtin_name == "KeyError" for base in bases) else _text(members[0])


def _raised(rt: Runtime, tstate: int) -> Raised | None:
    """The exception on its way up in a thread as a `Raised`, or None."""
    value, kind, trace = current(rt, tstate)
    if not kind:
        return None
    if value and rt.object(value).type.flags & EXCEPTION:
        found = read(rt, value)
    else:  # before 3.12 C code raises a class and a value; the instance is made only when it is caught
        found = Raised(0, class_name(rt.type(kind)))
        found.message = current_message(rt, kind, value)
    if trace and not found.frames:
        _fill_frames(rt, found, trace)
    return found


def read(rt: Runtime, address: int) -> Raised:
    """The exception object at `address`, with everything that hangs on it, as a `Raised`."""
    return _Reader(rt).read(address)


class _Reader:
    """Reads one exception and everything that it refers to. Each object is read once; all of it is bounded."""

    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self.seen: set[int] = set()

    def read(self, address: int) -> Raised:
        first = self._one(address)
        waiting = [(first, 0)]  # a list, not recursion: chains of contexts get long
        while waiting:
            here, depth = waiting.pop()
            if depth >= MAX_DEPTH:
                here.cut.append(f"exceptions nest more than {MAX_DEPTH} deep: what led to it is left out")
                continue
            here.cause, here.context = self._linked(here, "cause"), self._linked(here, "context")
            here.members = self._members(here)
            waiting += [(other, depth + 1) for other in [here.context, here.cause] + here.members[::-1] if other is not None]
        return first

    def _one(self, address: int) -> Raised:
        rt, obj = self.rt, self.rt.object(address)
        if not obj.type.flags & EXCEPTION:
            raise LayoutError(f"no exception at {address:#x}: a {obj.type_name}")
        found = Raised(address, class_name(obj.type))
        found.again = address in self.seen
        self.seen.add(address)
        try:
            found.message, found.args = message(obj)
        except GdbextError as e:
            found.cut.append(str(e))
        if not found.again:
            L, t = rt.layout, rt.target
            found.suppress_context = bool(t.u8(address + L["exc.suppress_context"]))
            trace = t.u64(address + L["exc.traceback"])
            if trace:
                _fill_frames(rt, found, trace)
            found.notes = self._notes(obj, found)
        return found

    def _linked(self, here: Raised, name: str) -> Raised | None:
        if here.again or not here.address:
            return None
        try:
            pointer = self.rt.target.u64(here.address + self.rt.layout["exc." + name])
            return self._next(here, pointer, name)
        except GdbextError as e:
            here.cut.append(f"its {name} cannot be read: {e}")
            return None

    def _next(self, here: Raised, pointer: int, name: str) -> Raised | None:
        if not pointer:
            return None
        if len(self.seen) >= MAX_EXCEPTIONS:
            here.cut.append(f"more than {MAX_EXCEPTIONS} exceptions hang together: its {name} is left out")
            return None
        return self._one(pointer)

    def _members(self, here: Raised) -> list[Raised]:
        if here.again or not here.address or not self.rt.object(here.address).isa("BaseExceptionGroup"):
            return []
        found = []
        try:
            held = self.rt.object(self.rt.target.u64(here.address + self.rt.layout["exceptiongroup.excs"]))
            for address in held.element_addresses(MAX_MEMBERS):
                member = self._next(here, address, "member")
                if member is not None:
                    found.append(member)
            if held.len() > MAX_MEMBERS:
                here.cut.append(f"{held.len()} members, {MAX_MEMBERS} shown")
        except GdbextError as e:
            here.cut.append(f"its members cannot be read: {e}")
        return found

    def _notes(self, obj: Object, found: Raised) -> list[str]:
        """`__notes__`: a list in the instance's dict from 3.11 on; any code may set it on older ones too."""
        try:
            own = dict(obj.instance_entries())
            if "__notes__" not in own:
                return []
            return [_text(o) for o in self.rt.object(own["__notes__"]).elements(MAX_NOTES)]
        except GdbextError as e:
            found.cut.append(f"its notes cannot be read: {e}")
            return []


# ---- tracebacks ------------------------------------------------------------------------------------------------------
def _fill_frames(rt: Runtime, found: Raised, trace: int) -> None:
    try:
        found.frames = traceback(rt, trace)
    except GdbextError as e:
        found.cut.append(f"its traceback cannot be read: {e}")


def traceback(rt: Runtime, address: int) -> list[TraceFrame]:
    """`[TraceFrame]` of the traceback object at `address`, innermost first."""
    L, t, found = rt.layout, rt.target, []
    seen: set[int] = set()
    while address and address not in seen and len(seen) < MAX_TRACEBACK:
        seen.add(address)
        obj = rt.object(address)
        if obj.type.builtin_name == "NoneType":
            break
        if obj.type.builtin_name != "traceback":
            raise LayoutError(f"no traceback at {address:#x}: a {obj.type_name}")
        frame = t.u64(address + L["tb.tb_frame"])
        code = rt.code(code_of_object(rt, frame))
        line: int | None = t.i32(address + L["tb.tb_lineno"])
        if line is None or line <= 0:  # 3.12 and later compute it on demand
            line = code.line(t.i32(address + L["tb.tb_lasti"]))
        found.append(TraceFrame(rt, frame, code, line))
        address = t.u64(address + L["tb.tb_next"])
    return found[::-1]


def frame_of_object(rt: Runtime, frame: int) -> int:
    """The address at which a frame object keeps its variables: its own up to 3.10, later that of its interpreter frame."""
    L = rt.layout
    return frame if "frameobj.f_code" in L else rt.target.u64(frame + L["frameobj.f_frame"])


def code_of_object(rt: Runtime, frame: int) -> int:
    """The address of the code object of a frame object."""
    L, t = rt.layout, rt.target
    if rt.object(frame).type.builtin_name != "frame":
        raise LayoutError(f"no frame object at {frame:#x}")
    if "frameobj.f_code" in L:
        return t.u64(frame + L["frameobj.f_code"])
    return t.u64(t.u64(frame + L["frameobj.f_frame"]) + L.frame_code) & ~rt.dialect.tag_mask


# ---- texts -----------------------------------------------------------------------------------------------------------
def class_name(info: TypeInfo) -> str:
    """A class as a traceback names it: without a module where that is builtins or __main__."""
    module = info.module
    return info.qualname if module in ("", "builtins", "__main__") else f"{module}.{info.qualname}"


def message(obj: Object) -> tuple[str | None, str]:
    """-> (`str()` of an exception, repr of its arguments). The first is None where only Python code could give it."""
    L, t, rt = obj.rt.layout, obj.rt.target, obj.rt
    held = rt.object(t.u64(obj.address + L["exc.args"]))
    args = Repr(NORMAL)(held)
    for base in obj.type.bases():
        if "__str__" in base.namespace and base.is_heap and "." not in base.raw_name:
            return None, args
        if not base.is_heap or "." in base.raw_name:
            break
    for name, show in _MESSAGES:
        if obj.isa(name):
            text = show(obj)
            if text is not None:
                return text, args
    members = held.elements(2)
    if not members:
        return "", args
    if len(members) > 1:
        return args, args
    return (Repr(NORMAL)(members[0]) if obj.isa("KeyError") else _text(members[0])), args


def _text(obj: Object) -> str:
    """`str()` of an argument: of a str itself, of anything else its repr."""
    if obj.type.flags & STR:
        return obj.string(NORMAL.total)
    if obj.type.flags & EXCEPTION:
        inner, args = message(obj)
        return f"{obj.type.name}{args}" if inner is None else inner
    return Repr(NORMAL)(obj)


def _field(obj: Object, key: str) -> Object | None:
    """The object in a field of an exception's structure; None where the field is empty or holds None."""
    pointer = obj.rt.target.u64(obj.address + obj.rt.layout[key])
    found = obj.rt.object(pointer) if pointer else None
    return None if found is None or found.is_none() else found


def _os_error(obj: Object) -> str | None:
    number, text = _field(obj, "oserror.myerrno"), _field(obj, "oserror.strerror")
    if number is None or text is None:
        return None
    one, two = _field(obj, "oserror.filename"), _field(obj, "oserror.filename2")
    shown = f"[Errno {_text(number)}] {_text(text)}"
    if one is not None:
        shown += ": " + Repr(NORMAL)(one) + (" -> " + Repr(NORMAL)(two) if two is not None else "")
    return shown


def _group(obj: Object) -> str | None:
    text, members = _field(obj, "exceptiongroup.msg"), _field(obj, "exceptiongroup.excs")
    if text is None or members is None:
        return None
    count = members.len()
    return f"{_text(text)} ({count} sub-exception{'s' if count != 1 else ''})"


def _import_error(obj: Object) -> str | None:
    text = _field(obj, "importerror.msg")
    return _text(text) if text is not None and text.type.flags & STR else None


def _syntax_error(obj: Object) -> str:
    text, file, line = (_field(obj, "syntaxerror." + k) for k in ("msg", "filename", "lineno"))
    shown = "None" if text is None else _text(text)
    place = _text(file).rpartition("/")[2] if file is not None and file.type.flags & STR else None
    number = line.integer() if line is not None and line.type.flags & LONG else None
    if place and number is not None:
        return f"{shown} ({place}, line {number})"
    return f"{shown} ({place})" if place else f"{shown} (line {number})" if number is not None else shown


def _unicode_error(obj: Object) -> str | None:
    parts = [_field(obj, "unicodeerror." + k) for k in ("object", "encoding", "reason")]
    t, L = obj.rt.target, obj.rt.layout
    start, end = t.i64(obj.address + L["unicodeerror.start"]), t.i64(obj.address + L["unicodeerror.end"])
    if parts[0] is None or parts[2] is None:
        return None
    whole, encoding, reason = parts[0], "" if parts[1] is None else _text(parts[1]), _text(parts[2])
    one = start < whole.len() and end == start + 1 and 0 <= start
    if obj.isa("UnicodeDecodeError"):
        if one:
            return f"'{encoding}' codec can't decode byte 0x{whole.raw_bytes(end)[start]:02x} in position {start}: {reason}"
        return f"'{encoding}' codec can't decode bytes in position {start}-{end - 1}: {reason}"
    act = f"'{encoding}' codec can't encode" if obj.isa("UnicodeEncodeError") else "can't translate"
    if one:
        code = ord(whole.string(end)[start])
        shown = f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
        return f"{act} character '{shown}' in position {start}: {reason}"
    return f"{act} characters in position {start}-{end - 1}: {reason}"


_MESSAGES = [
    ("BaseExceptionGroup", _group),
    ("OSError", _os_error),
    ("ImportError", _import_error),
    ("SyntaxError", _syntax_error),
    (
        "UnicodeError",
        lambda obj: _unicode_error(obj) if obj.isa("UnicodeEncodeError", "UnicodeDecodeError", "UnicodeTranslateError") else None,
    ),
]
