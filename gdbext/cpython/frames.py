"""Code objects and Python frames: function, file, line, and the variables with their cells followed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

from .. import log
from ..errors import FaultError, GdbextError, LayoutError, NotFoundError
from . import linetable
from .dialects import RawFrame
from .objects import Object

if TYPE_CHECKING:
    from .runtime import Runtime

CO_FAST_HIDDEN, CO_FAST_LOCAL, CO_FAST_CELL, CO_FAST_FREE = 0x10, 0x20, 0x40, 0x80
CO_OPTIMIZED = 1
MAX_VARIABLES = 65536
MAX_TABLE = 1 << 24  # bytes of a line table: a function of a million lines has less


class Code:
    """A code object, read once per stop: `name`, `qualname`, `file`, `first` line."""

    def __init__(self, rt: Runtime, address: int) -> None:
        L, t = rt.layout, rt.target
        self.rt, self.address = rt, address
        if rt.object(address).type.builtin_name != "code":
            raise LayoutError(f"no code object at {address:#x}")
        self.name = self._text("code.co_name")
        self.qualname = self._text("code.co_qualname") if "code.co_qualname" in L else self.name
        self.file = self._text("code.co_filename")
        self.first = t.i32(address + L["code.co_firstlineno"])
        self.flags = t.i32(address + L["code.co_flags"])
        self._table: bytes | None = None
        self._lines: dict[int, int | None] = {}  # by offset of the instruction
        self._variables: list[tuple[str, int]] | None = None

    def _pointer(self, key: str) -> int:
        return self.rt.target.u64(self.address + self.rt.layout[key])

    def _text(self, key: str) -> str:
        return self.rt.object(self._pointer(key)).string(4096)

    @property
    def table(self) -> bytes:
        """The line table's bytes, in the encoding of the version."""
        if self._table is None:
            table = self.rt.object(self._pointer(self.rt.dialect.table_key))
            if table.len() > MAX_TABLE:
                raise LayoutError(f"the code object at {self.address:#x} claims a line table of {table.len()} bytes")
            self._table = table.raw_bytes()
        return self._table

    def line(self, lasti: int) -> int | None:
        """The source line of the instruction at byte `lasti`; None where it has none."""
        if lasti not in self._lines:
            self._lines[lasti] = self.rt.dialect.line(self.table, self.first, lasti)
        return self._lines[lasti]

    def columns(self, lasti: int) -> tuple[int | None, int | None, int | None]:
        """(end line, column, end column) of the instruction at byte `lasti`. Columns are in bytes from 0, as in `co_positions`.
        Each is None before 3.11, and where the table omits it (-X no_debug_ranges)."""
        if not self.rt.minor.tells_columns or lasti < 0:
            return None, None, None
        spans = linetable.positions(self.table, self.first)
        return next((where for start, end, _, where in spans if start <= lasti < end), (None, None, None))

    def _names(self, key: str) -> list[str]:
        return [self.rt.object(a).string(1000) for a in self.rt.object(self._pointer(key)).element_addresses(MAX_VARIABLES)]

    @property
    def variables(self) -> list[tuple[str, int]]:
        """`[(name, kind bits)]` in the order of the frame's `localsplus`."""
        if self._variables is None:
            self._variables = self._read_variables()
        return self._variables

    def _read_variables(self) -> list[tuple[str, int]]:
        if "code.co_localsplusnames" in self.rt.layout:
            kinds = self.rt.object(self._pointer("code.co_localspluskinds")).raw_bytes(MAX_VARIABLES)
            return list(zip(self._names("code.co_localsplusnames"), kinds))
        found = [(n, CO_FAST_LOCAL) for n in self._names("code.co_varnames")]
        found += [(n, CO_FAST_CELL) for n in self._names("code.co_cellvars")]
        return found + [(n, CO_FAST_FREE) for n in self._names("code.co_freevars")]


class PyFrame:
    """One Python frame. `level` counts from the innermost (0). `anchor` is the address on the C stack of the interpreter
    activation that runs it (0 where the version keeps none)."""

    def __init__(self, rt: Runtime, raw: RawFrame, level: int, interp: int = 0) -> None:
        self.rt, self.raw, self.level = rt, raw, level
        self.interp = interp  # the address of the interpreter that it belongs to, 0 where that is not known
        self.address, self.anchor = raw.address, raw.anchor
        self.code = rt.code(raw.code)
        self.stack = [self]  # all frames of its thread, set by Runtime.frames
        self.source: Callable[[], list[PyFrame]] | None = None  # reads anew the frames that it was found among
        self.tid: int | None = None  # of the thread that runs it, or the loop of its task
        self.is_cut = False  # frames outward of it were not read: there are too many

    @property
    def function(self) -> str:
        return self.code.qualname

    @property
    def file(self) -> str:
        return self.code.file

    @property
    def line(self) -> int | None:
        """The source line; None where the instruction has no line, or its offset is unknown."""
        found, lasti = self.code.line(self.raw.lasti), self.raw.lasti
        tells = found is not None and lasti >= 0 and found != self.code.first
        return found if tells else self._kept_line() or found

    def _kept_line(self) -> int:
        """The line that the frame object keeps, 0 where it keeps none. `PyFrame_GetLineNumber` asks for it first
        (Objects/frameobject.c). Code without instructions of its own (Nuitka's: all it has is at its first line) keeps it."""
        rt, L = self.rt, self.rt.layout
        if not rt.minor.keeps_line:
            return 0
        try:
            held = self.address if self._is_object() else rt.target.u64(self.address + L["iframe.frame_obj"])
            return max(rt.target.i32(held + L["frameobj.f_lineno"]), 0) if held else 0
        except FaultError as e:
            log.passed_over(e)
            return 0

    @property
    def columns(self) -> tuple[int | None, int | None, int | None]:
        """As `Code.columns`."""
        return self.code.columns(self.raw.lasti)

    def __repr__(self) -> str:
        return f"PyFrame({self.function} {self.file}:{self.line})"

    def _is_object(self) -> bool:
        return "iframe.localsplus" not in self.rt.layout

    def _pointer(self, name: str) -> int:
        L = self.rt.layout
        key = ("frameobj." if self._is_object() else "iframe.") + name
        return self.rt.target.u64(self.address + L[key]) & ~self.rt.dialect.tag_mask

    def globals(self) -> Object:
        """The globals dict as an `Object`."""
        return self.rt.object(self._pointer("f_globals"))

    def builtins(self) -> Object:
        return self.rt.object(self._pointer("f_builtins"))

    def namespace(self) -> Object | None:
        """The dict of a class body's or a module's own names as an `Object`, None in a function."""
        if self.code.flags & CO_OPTIMIZED:
            return None
        pointer = self._pointer("f_locals")
        return self.rt.object(pointer) if pointer else None

    def locals(self) -> list[tuple[str, Object | None]]:
        """`[(name, Object or None)]`: None where the variable is not set. Cells are followed. For a class body or module: its
        names."""
        return self.rt.target.cached(("python locals", self.address, self.code.address), self._locals)

    def locals_now(self) -> list[tuple[str, Object | None]]:
        """`locals` of a frame in a running process, as they are now; `NotFoundError` where the call has ended."""
        if self.source is None:
            return self._locals()
        for frame in self.source():
            if (frame.address, frame.code.address) == (self.address, self.code.address):
                return frame._locals()
        raise NotFoundError("it returned while its variables were read")

    def _locals(self) -> list[tuple[str, Object | None]]:
        rt, L = self.rt, self.rt.layout
        found = []
        variables = self.code.variables
        if variables:
            at = self.address + (L["frameobj.f_localsplus"] if self._is_object() else L["iframe.localsplus"])
            values = rt.target.words(at, len(variables))
            slots = {}
            for (name, kind), value in zip(variables, values):
                if kind & CO_FAST_HIDDEN and not value:
                    continue  # of a comprehension (PEP 709) that is not under way
                value = rt.dialect.untag(value)
                obj = self._value(value, kind)
                if name in slots and obj is None:
                    continue  # 3.9, 3.10: an argument that is also a cell stands twice, once empty
                slots[name] = obj
            found = list(slots.items())
        own = self.namespace()
        if own is not None:
            names = {n for n, _ in found}
            for key, held in own.items(MAX_VARIABLES):
                try:
                    name = key.string(1000)
                except GdbextError as e:
                    log.passed_over(e)
                    continue
                if name not in names:
                    found.append((name, held))
        return found

    def _value(self, value: int, kind: int) -> Object | None:
        if not value:
            return None
        obj = self.rt.object(value)
        if kind & (CO_FAST_CELL | CO_FAST_FREE):
            try:
                if obj.type.builtin_name == "cell":
                    inner = self.rt.target.u64(value + self.rt.layout["cell.ob_ref"])
                    return self.rt.object(inner) if inner else None
            except (FaultError, LayoutError) as e:
                log.passed_over(e)
        return obj
