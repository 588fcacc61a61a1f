"""Print and go on: `pylog` at a line, `pytrace` at a function's beginning and its returns. Nothing stops but for the moment of reading."""

import collections
import re
import time

import gdb

from ..cpython import codes
from ..cpython.expressions import evaluate
from ..errors import GdbextError
from ..render import jsonline
from ..render.text import escape
from .hw_breakpoints import READ_ERRORS, REGISTERS, BytecodeWatchpoint
from .pybreak import PyBreakpoint, text_of

KEPT = 10_000
MAX_ARGUMENTS = 12
MAX_DEPTH = 1000

events = collections.deque(maxlen=KEPT)


def record(point, stop, place, text):
    """One event: kept, and printed."""
    event = {
        "time": time.time(),
        "number": point.number,
        "pid": stop.process.pid,
        "tid": stop.tid,
        "label": escape(stop.process.label),
        "file": escape(place.code.file),
        "line": place.line,
        "function": escape(place.code.qualname),
        "text": text,
    }
    events.append(event)
    if point.as_json:
        gdb.write(jsonline.dumps({"schema": point.command + "/1", "partial": [], "events": [event]}) + "\n")
    else:
        head = f"{event['label']} " if event["label"] else ""
        gdb.write(f"{head}{stop.tid} {escape(place.code.file.rpartition('/')[2])}:{place.line}  {text}\n")


def parse_template(text):
    """`a {x.y} b` -> ["a ", ("x.y",), " b"]; `{{` and `}}` are braces. `GdbextError` where a brace stays open."""
    parts, at = [], 0
    for found in re.finditer(r"\{\{|\}\}|\{([^{}]*)\}", text):
        parts.append(text[at : found.start()])
        at = found.end()
        parts.append(found.group()[0] if found.group(1) is None else (found.group(1).strip(),))
    parts.append(text[at:])
    rest = "".join(p for p in parts[::2])
    if "{" in rest or "}" in rest or ("",) in parts:
        raise GdbextError(f"in {text!r} a brace is open or empty: write {{expression}}, and {{{{ for a brace")
    return parts


class Logpoint(PyBreakpoint):
    """A `pylog`. `limit`: it removes nothing, but says nothing more after so many lines (0: no end)."""

    def __init__(self, where, template, condition, count, rank, as_json, limit, show_content):
        super().__init__("pylog", where, condition, count, rank)
        self.template, self.parts, self.as_json, self.limit, self.show_content = (
            template,
            parse_template(template),
            as_json,
            limit,
            show_content,
        )
        self.said = 0

    def act(self, stop, place):
        if self.limit and self.said >= self.limit:
            return False
        self.said += 1
        record(self, stop, place, "".join(self._part(stop, p) for p in self.parts))
        return False

    def _part(self, stop, part):
        if not isinstance(part, tuple):
            return escape(part)
        rt = stop.process.rt
        try:
            return text_of(stop.process, part[0], evaluate(rt, part[0], stop.frame), self.show_content)
        except READ_ERRORS as e:
            return f"<{escape(str(e))}>"


class Tracepoint(PyBreakpoint):
    """A `pytrace`: a line at the call with the arguments, one at each return with the result."""

    def __init__(self, where, condition, count, rank, as_json, limit, show_content):
        super().__init__("pytrace", where, condition, count, rank)
        self.as_json, self.limit, self.show_content, self.said = as_json, limit, show_content, 0
        self.inside, self.without_results = {}, []

    def arm(self, process, places):
        super().arm(process, places)
        for place in places:
            found = codes.returns(place.code)
            free = REGISTERS - len(process.used())
            if len(found) > free:
                self.without_results.append(
                    f"{place.code.qualname} returns in {len(found)} places and {free} debug registers are free: calls are shown without results"
                )
                continue
            for there, constant in found:
                hit = lambda stop, there=there, constant=constant: self.leaves(stop, there, constant)  # noqa: E731
                self.hw_breakpoints.append(BytecodeWatchpoint(process, there, self.title, hit))

    def act(self, stop, place):
        if self.limit and self.said >= self.limit:
            return False
        self.said += 1
        frames = self.inside.setdefault((stop.process.pid, stop.tid), [])
        if len(frames) < MAX_DEPTH:
            frames.append(stop.frame.address)
        shown = []
        count = arguments(stop.frame)
        for name, value in stop.frame.locals()[: min(count, MAX_ARGUMENTS)]:
            shown.append(f"{escape(name)}=" + ("?" if value is None else text_of(stop.process, name, value, self.show_content)))
        more = ", …" if count > MAX_ARGUMENTS else ""
        record(self, stop, place, "  " * (len(frames) - 1) + f"-> {escape(place.code.qualname)}({', '.join(shown)}{more})")
        return False

    def leaves(self, stop, place, constant):
        frames = self.inside.get((stop.process.pid, stop.tid), [])
        if stop.frame.address not in frames:
            return False  # its call was not told: it began before, the condition did not hold, or the limit is reached
        while frames and frames.pop() != stop.frame.address:
            pass  # left by an exception
        try:
            text = text_of(stop.process, place.code.name, result(stop.frame, constant), self.show_content)
        except READ_ERRORS as e:
            text = f"<{escape(str(e))}>"
        record(self, stop, place, "  " * len(frames) + f"<- {escape(place.code.qualname)} = {text}")
        return False


def arguments(frame):
    """How many of a frame's first variables are arguments, * and ** included."""
    rt, code = frame.rt, frame.code
    count = rt.target.i32(code.address + rt.layout["code.co_argcount"]) + rt.target.i32(
        code.address + rt.layout["code.co_kwonlyargcount"]
    )
    return max(0, min(count + bool(code.flags & 4) + bool(code.flags & 8), 65536))


def result(frame, constant):
    """The value that a frame is about to return: a constant of its code, else the only value on its stack (Python/bytecodes.c:
    RETURN_VALUE leaves the stack empty)."""
    rt, L, t = frame.rt, frame.rt.layout, frame.rt.target
    if constant is not None:
        return rt.object(t.u64(frame.code.address + L["code.co_consts"])).item(constant)
    if "frameobj.f_valuestack" in L:
        return rt.object(t.u64(t.u64(frame.address + L["frameobj.f_valuestack"])))
    if "iframe.localsplus" not in L:  # 3.10: the stack follows the variables
        return rt.object(t.u64(frame.address + L["frameobj.f_localsplus"] + 8 * len(frame.code.variables)))
    raw = t.u64(frame.address + L["iframe.localsplus"] + 8 * t.i32(frame.code.address + L["code.co_nlocalsplus"]))
    value = rt.dialect.untag(raw)
    if not value:
        raise GdbextError("its result is a small number kept in a tagged word" if raw else "its result is not on the stack")
    return rt.object(value)
