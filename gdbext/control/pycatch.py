"""Stop where a Python exception is raised: a hardware breakpoint on PyTraceBack_Here, which the interpreter calls for each frame that an
exception leaves or is handled in (Python/ceval.c, `error:`), the frame that raised it first.
"""

from ..cpython import codes, exceptions
from ..errors import FaultError, GdbextError, LayoutError
from ..render.text import escape
from . import hw_breakpoints, pybreak
from .hw_breakpoints import FunctionBreakpoint

# What catches everything only to print it: an exception that gets there was not handled by the program.
OUTERMOST = (
    "/threading.py",
    "/multiprocessing/process.py",
    "/multiprocessing/spawn.py",
    "/multiprocessing/forkserver.py",
    "/runpy.py",
    "/concurrent/futures/process.py",
)


class Catchpoint(pybreak.PyBreakpoint):
    """A `pycatch`. It has no place; its breakpoints are on C functions."""

    def __init__(self, kind, uncaught, condition, count, rank):
        super().__init__("pycatch", _Anywhere(kind, uncaught), condition, count, rank)
        self.kind, self.uncaught = kind, uncaught

    @property
    def pending(self):
        return False

    def data(self):
        return {
            **super().data(),
            "file": "",
            "line": None,
            "function": self.kind or "any exception",
            "uncaught": self.uncaught,
            "places": len(self.hw_breakpoints),
        }

    def set_in(self, processes):
        """Takes a number and sets its breakpoints; takes all back where that fails."""
        functions = ["PyTraceBack_Here"] + (["PyErr_Display"] if self.uncaught else [])
        for process in processes:
            process.need(len(functions), f"pycatch {self.where.text}".strip())
        self.register(
            " ".join(["pycatch"] + [w for w in (self.where.text, "if " + self.condition if self.condition else "") if w])
        )
        try:
            for process in processes:
                for name in functions:
                    hit = self.passes if name == "PyTraceBack_Here" else self.printed
                    self.hw_breakpoints.append(
                        FunctionBreakpoint(process, name, self.title, lambda one, two, p=process, hit=hit: hit(p, one, two))
                    )
        except BaseException:
            self.placeholder.delete()
            hw_breakpoints.sweep()
            raise

    # ---- inside stop() -------------------------------------------------------------------------------------------
    def passes(self, process, frame_object, _):
        """An exception passes a frame: whether to stop."""
        rt = process.rt
        stop = process.current_stop()
        if stop is None:
            return False
        value, kind, trace = _current(rt, stop.tstate)
        if not kind or not self.wanted(rt, kind):
            return False
        if self.uncaught:
            if not self.last_frame(stop):
                return False
        elif trace:
            return False  # told already, where it was raised
        return self.report(stop, kind, value)

    def printed(self, process, _, value):
        """sys.excepthook shows an exception: nobody caught it."""
        rt = process.rt
        stop = process.current_stop()
        kind = rt.target.u64(value + rt.layout["object.ob_type"]) if value else 0
        if not kind or not self.wanted(rt, kind):
            return False
        text = escape(exceptions.class_name(rt.type(kind)))
        self.hits += 1
        where = f"thread {stop.tid}" if stop else "a thread that has left its last Python frame"
        self.last = f"{self.title}: {text} was caught by nobody, {where}, hit {self.hits}; pyprint {value:#x} shows it"
        return self.hits >= self.count

    def wanted(self, rt, kind):
        if not self.kind:
            return True
        info = rt.type(kind)
        return any(self.kind in (base.name, exceptions.class_name(base)) for base in info.bases())

    def last_frame(self, stop):
        """Whether no frame is left that could handle it, but those that catch everything to print it."""
        rt = stop.process.rt
        steps = list(rt.dialect.walk(rt, stop.tstate))
        if not all(_outermost(rt.code(s.code).file) for s in steps[1:]):
            return False
        return _outermost(rt.code(steps[0].code).file) is False and not handled_here(rt, steps[0])

    def report(self, stop, kind, value):
        rt = stop.process.rt
        if self.condition and not self.holds(stop):
            return False
        self.hits += 1
        if self.hits < self.count:
            return False
        text = exceptions.class_name(rt.type(kind))
        try:
            message, _ = exceptions.message(rt.object(value)) if value else ("", "")
        except GdbextError:
            message = ""
        text = escape(text + (": " + message if message else ""))
        frame = stop.frame
        thread = f"thread {stop.tid}" + (f' "{escape(stop.thread.name)}"' if stop.thread.name else "")
        self.last = (
            f"{self.title}: {text} in {escape(frame.function)} at {escape(frame.file)}:{frame.line}, {thread}, hit {self.hits}"
        )
        return True


class _Anywhere:
    """What a `Where` is for a place, for a point that has none."""

    def __init__(self, kind, uncaught):
        self.text = " ".join((["-uncaught"] if uncaught else []) + ([kind] if kind else []))
        self.file, self.line, self.function = "", None, kind or "any exception"

    def places(self, rt, code=None):
        return []


def _outermost(file):
    return file.startswith("<frozen ") or file.endswith(OUTERMOST)


def _current(rt, tstate):
    """-> (instance or 0, class, traceback or 0) of the exception on its way up in a thread."""
    L, t = rt.layout, rt.target
    if "tstate.current_exception" in L:
        value = t.u64(tstate + L["tstate.current_exception"])
        if not value:
            return 0, 0, 0
        return value, t.u64(value + L["object.ob_type"]), t.u64(value + L["exc.traceback"])
    kind = t.u64(tstate + L["tstate.curexc_type"])
    value, trace = t.u64(tstate + L["tstate.curexc_value"]), t.u64(tstate + L["tstate.curexc_traceback"])
    is_instance = value and rt.object(value).type.flags & exceptions.EXCEPTION
    return value if is_instance else 0, kind, trace


def handled_here(rt, step):
    """Whether a handler of the frame's own covers the instruction it is at (3.11+: the exception table, Objects/exception_handling_notes.txt;
    before: the block stack)."""
    L, t = rt.layout, rt.target
    try:
        if "code.co_exceptiontable" in L:
            table = rt.object(t.u64(step.code + L["code.co_exceptiontable"])).raw_bytes()
            return any(start <= step.lasti < end for start, end in codes.handlers(table))
        return t.i32(step.address + L["frameobj.f_iblock"]) > 0
    except (FaultError, LayoutError):
        return False
