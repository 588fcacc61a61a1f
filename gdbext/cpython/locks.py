"""The locks that a frame holds: from the `with` blocks around its instruction, and from the `.acquire()` calls of its source.

A plain lock keeps no owner. But a frame inside `with lock:` keeps the lock's `__exit__` on its value stack. The code's exception
table gives its depth for each instruction (3.11 and later; Objects/exception_handling_notes.txt); in 3.9 and 3.10 the frame's
block stack does. So the holder of a lock in a `with` block is read, not guessed.
"""

from __future__ import annotations

import re

from .. import log
from ..errors import FaultError, GdbextError, NotFoundError
from .bytecode import exception_entries
from .expressions import evaluate
from .frames import PyFrame
from .objects import Object
from .runtime import Runtime

_LEAVE = ("__exit__", "__aexit__")
MAX_DEPTH = 4096
MAX_BLOCKS = 20  # CO_MAXBLOCKS


# ---- the value stack of a frame --------------------------------------------------------------------------------------
def handler_depth(table: bytes, lasti: int) -> int:
    """How many values certainly lie on the stack at byte offset `lasti`: the depth to which the covering handler unwinds, 0 where
    none covers it."""
    return max((depth for start, end, _, depth, _ in exception_entries(table) if start <= lasti < end), default=0)


def _sure_values(frame: PyFrame) -> list[int]:
    """The words on a frame's value stack that are surely alive, outermost first."""
    rt, code = frame.rt, frame.code
    L, t = rt.layout, rt.target
    if "frameobj.f_iblock" in L:
        count = t.i32(frame.address + L["frameobj.f_iblock"])
        if not 0 <= count <= MAX_BLOCKS:
            return []
        size, level = L["tryblock.__size"], L["tryblock.b_level"]
        at = frame.address + L["frameobj.f_blockstack"]
        depth = max((t.i32(at + i * size + level) for i in range(count)), default=0)
        base = t.u64(frame.address + L["frameobj.f_valuestack"])
    elif "code.co_exceptiontable" in L and frame.raw.lasti is not None:
        depth = t.cached(("handler depth", code.address, frame.raw.lasti), lambda: _depth(frame))
        base = frame.address + L["iframe.localsplus"] + 8 * t.i32(code.address + L["code.co_nlocalsplus"])
    else:
        return []
    if not 0 < depth <= MAX_DEPTH or not base:
        return []
    return [rt.dialect.untag(word) for word in t.words(base, depth)]


def _depth(frame: PyFrame) -> int:
    rt, code = frame.rt, frame.code
    table = rt.object(rt.target.u64(code.address + rt.layout["code.co_exceptiontable"])).raw_bytes(1 << 20)
    return handler_depth(table, frame.raw.lasti)


def entered(frame: PyFrame) -> list[Object]:
    """The context managers in whose `with` block a `PyFrame` is: `[Object]`, outermost first."""
    rt = frame.rt
    L, t = rt.layout, rt.target
    try:
        values = _sure_values(frame)
    except GdbextError as e:
        log.passed_over(e)
        return []
    found = []
    for i, address in enumerate(values):
        if not address:
            continue
        try:
            obj = rt.object(address)
            kind, manager = obj.type.builtin_name, 0
            if kind == "builtin_function_or_method":
                name = t.cstring(t.u64(t.u64(address + L["cfunc.m_ml"])), 20).decode("latin-1")
                manager = t.u64(address + L["cfunc.m_self"]) if name in _LEAVE else 0
            elif kind == "method":
                if _function_name(rt, t.u64(address + L["method.im_func"])) in _LEAVE:
                    manager = t.u64(address + L["method.im_self"])
            elif kind in ("function", "method_descriptor") and i + 1 < len(values):  # 3.14 and later: function, then self
                if _function_name(rt, address) in _LEAVE:
                    manager = values[i + 1]
            if manager:
                rt.object(manager).type  # noqa: B018  (an object stands there)
                found.append(rt.object(manager))
        except GdbextError as e:
            log.passed_over(e)
            continue
    return found


def _function_name(rt: Runtime, address: int) -> str:
    obj, L = rt.object(address), rt.layout
    key = {"function": "func.func_name", "method_descriptor": "descr.d_name"}.get(obj.type.builtin_name)
    return rt.object(rt.target.u64(address + L[key])).string(100) if key else ""


# ---- acquire and release ---------------------------------------------------------------------------------------------
_METHOD = re.compile(r"([A-Za-z_][\w.]*)\.(\w+)\(")
_STATEMENT = re.compile(r"\s*([A-Za-z_][\w.]*)\.(\w+)\(")  # nothing decides whether it is run
MAX_CALLS = 32  # of a function's source, before its line and after it
_ACQUIRE = re.compile(r"([A-Za-z_][\w.]*)\.acquire\(")


def acquired(frame: PyFrame) -> list[tuple[str, Object, int, int]]:
    """`[(path, Object, line acquired, line released)]` of what the frame's source takes with `.acquire()` before its current line
    and gives back with `.release()` after it. [] where the source is not here."""
    line = frame.line
    if line is None:
        return []
    found = []
    for path, taken, given in frame.rt.target.cached(("acquired", frame.code.address, line), lambda: _kept(frame, line)):
        try:
            value = evaluate(frame.rt, path, frame)
        except GdbextError as e:
            log.passed_over(e)
            continue
        if isinstance(value, Object):
            found.append((path, value, taken, given))
    return found


def _kept(frame: PyFrame, line: int) -> list[tuple[str, int, int]]:
    """`[(path, line acquired, line released)]` by the source of a frame that is at `line`."""
    source, found = _source(frame) or {}, []
    for number, taken in source.items():  # `line` of a torn frame may be any number
        for path in _ACQUIRE.findall(taken) if number < line else ():
            given = [n for n, text in source.items() if n > number and f"{path}.release(" in text]
            after = [n for n in given if n >= line]
            if after and len(after) == len(given):
                found.append((path, number, after[0]))
    return found


def method_pairs(frame: PyFrame) -> list[tuple[str, str, int, str, int]]:
    """`[(path, a method called before the frame's line, that line, one called at or after it, that line)]` of the calls on one
    object in its source: the first may take what the second gives back."""
    line = frame.line
    if line is None:
        return []

    def found() -> list[tuple[str, str, int, str, int]]:
        source = _source(frame) or {}
        calls = [(n, path, method) for n, text in source.items() for path, method in _METHOD.findall(text) if n >= line]
        after = calls[:MAX_CALLS]
        whole = [(n, _STATEMENT.match(source[n])) for n in _before(source, line)]
        before = [(n, one[1], one[2]) for n, one in whole if one is not None and one[2] != "acquire"][-MAX_CALLS:]
        later = {method for _, _, method in after}
        return [
            (path, method, n, last, given)
            for n, path, method in before
            for given, other, last in after
            if other == path and last != method and method not in later
        ]

    pairs: list[tuple[str, str, int, str, int]] = frame.rt.target.cached(("method pairs", frame.code.address, line), found)
    return pairs


def _before(source: dict[int, str], line: int) -> list[int]:
    """The lines whose statements were run before the one at `line`: nothing from there to it stands further out."""
    found: list[int] = []
    least = _indent(source.get(line, ""))
    for n in sorted((n for n in source if n < line and source[n].strip()), reverse=True):
        if _indent(source[n]) <= least:
            least = _indent(source[n])
            found.append(n)
    return found[::-1]


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def line_of(frame: PyFrame) -> str:
    """The text of a frame's line; '' where its source is not here."""
    return (_source(frame) or {}).get(frame.line or 0, "")


def _source(frame: PyFrame) -> dict[int, str] | None:
    """`{line: text}` of a frame's function from its file here; None where that is not to be had."""
    import inspect

    path = frame.file
    try:
        every = frame.rt.target.source_lines(path)
    except NotFoundError as e:
        log.passed_over(e)
        return None
    start = frame.code.first - 1
    if not 0 <= start < len(every):
        return None

    def numbered() -> dict[int, str] | None:
        try:
            block = every if frame.code.name == "<module>" else inspect.getblock([line + "\n" for line in every[start:]])
        except (SyntaxError, IndentationError, FaultError) as e:
            log.passed_over(e)
            return None
        return {start + 1 + i: text.split("#")[0] for i, text in enumerate(block)}

    return frame.rt.target.cached(("source block", path, start), numbered)
