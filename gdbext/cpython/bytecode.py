"""A code object's instructions, alike for all minors: one name for each kind, arguments without what a minor packs into them.

Source: Python/bytecodes.c, Lib/dis.py and Include/opcode.h of each minor; layouts/opcodes.json has the names, `minors` the rest.
"""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple

from ..errors import LayoutError
from . import codes
from .frames import Code
from .minors import Minor
from .objects import Object
from .types import STR

MAX_INSTRUCTIONS = 20000
MAX_NAMES = 65536
VARIADIC, GENERATOR, COROUTINE = 0x04 | 0x08, 0x20 | 0x200, 0x80  # flags of a code object (Include/cpython/code.h)
ORDER = "Lt LtE Eq NotEq Gt GtE".split()  # COMPARE_OP's arguments
BINARY = "Add BitAnd FloorDiv LShift MatMult Mult Mod BitOr Pow RShift Sub Div BitXor".split()  # BINARY_OP's arguments 0 to 12
IN_PLACE, SUBSCRIPT = 13, 26
_BEFORE_311 = "ADD AND FLOOR_DIVIDE LSHIFT MATRIX_MULTIPLY MULTIPLY MODULO OR POWER RSHIFT SUBTRACT TRUE_DIVIDE XOR".split()
_BLOCKS = ("SETUP_FINALLY", "SETUP_WITH", "SETUP_ASYNC_WITH")
_AS = {
    "LOAD_FAST_CHECK": "LOAD_FAST",
    "LOAD_FAST_BORROW": "LOAD_FAST",
    "LOAD_FAST_AND_CLEAR": "LOAD_FAST",
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": "LOAD_FAST_LOAD_FAST",
    "LOAD_CLASSDEREF": "LOAD_DEREF",
}
_WITH = {
    "DUP_TOP": ("COPY", 1),
    "ROT_TWO": ("SWAP", 2),
    "BINARY_SUBSCR": ("BINARY_OP", SUBSCRIPT),
    **{f"BINARY_{name}": ("BINARY_OP", n) for n, name in enumerate(_BEFORE_311)},
    **{f"INPLACE_{name}": ("BINARY_OP", n + IN_PLACE) for n, name in enumerate(_BEFORE_311)},
}


class _Form(NamedTuple):
    """An opcode in one minor. `told`: its entry of `effects` in layouts/opcodes.json; `size`: bytes, with its caches; `argument`:
    the one that it always has, None for its own, shifted right by `shift`; `beside`: the bits of its own that say whether a place
    is left beside what it pushes; `cell`: its argument is the number of a cell."""

    told: Any
    size: int
    name: str
    argument: int | None = None
    shift: int = 0
    beside: int = 0
    cell: bool = False


def _form(told: Any, size: int, minor: Minor) -> _Form:
    name = told[0]
    if name in _WITH:
        return _Form(told, size, *_WITH[name])
    if name == "COMPARE_OP":
        return _Form(told, size, name, shift=minor.order_shift)
    if name == "LOAD_GLOBAL" and minor.marks_globals or name == "LOAD_ATTR" and minor.marks_methods:
        return _Form(told, size, name, shift=1, beside=1)
    if name == "LOAD_SUPER_ATTR":
        return _Form(told, size, name, shift=2, beside=1)
    if name == "LOAD_METHOD":
        return _Form(told, size, "LOAD_ATTR", beside=-1)
    if name.startswith("POP_JUMP_"):
        return _Form(told, size, name.replace("FORWARD_", "").replace("BACKWARD_", ""))
    return _Form(told, size, _AS.get(name, name), cell=minor.cells_apart and name.endswith("DEREF"))


class Step:
    """One instruction: `offset`, its `name`, its `argument`; `beside`: a call's NULL or self is pushed too; `behind`: where the
    next one begins."""

    __slots__ = ("offset", "name", "argument", "beside", "behind", "_raw", "_told", "_unit")

    def __init__(self, offset: int, raw: int, form: _Form, unit: int, cells: int) -> None:
        self.offset, self._raw, self._told, self._unit = offset, raw, form.told, unit
        self.name, self.beside, self.behind = form.name, bool(raw & form.beside or form.beside < 0), offset + form.size
        self.argument = form.argument if form.argument is not None else (raw >> form.shift) + cells * form.cell

    def effect(self, jump: bool = False) -> int:
        """The change of the stack's depth."""
        told = self._told[2 if jump else 1]
        if isinstance(told, dict):
            return int(told["base"] + told["step"] * self._raw)
        return int(told[self._raw % len(told)] if isinstance(told, list) else told)

    @property
    def ends(self) -> bool:
        """Whether the next instruction is not reached from it."""
        return bool(self._told[4])

    @property
    def target(self) -> int | None:
        """The offset to which it may jump, None where it does not jump."""
        way = self._told[3]
        return _target(way, self._raw, self.behind, self._unit) if way else None


class Bytecode:
    """The instructions of a code object, and what their arguments number. `LayoutError` where it has too many, or one that is not
    known (a JIT's, a monitored line's)."""

    def __init__(self, code: Code) -> None:
        self.code, self.rt = code, code.rt
        self.known = codes.opcodes(code.rt.version)
        self._steps: dict[int, Step] = {}
        self._raw: list[tuple[int, int, _Form]] = []
        forms, high = _forms(code), 0
        raw = codes.instructions(code)
        if len(raw) > MAX_INSTRUCTIONS:
            raise LayoutError(f"{code.qualname} has {len(raw)} instructions: they are not followed")
        for offset, opcode, argument in raw:
            form = forms.get(opcode)
            if form is None:
                raise LayoutError(f"{code.qualname} has the instruction {opcode} at {offset}, whose effect is not known")
            argument |= high
            high = argument << 8 if form.name == "EXTENDED_ARG" else 0
            self._raw.append((offset, argument, form))

    @property
    def steps(self) -> dict[int, Step]:
        """By offset."""
        if not self._steps:
            minor = self.rt.minor
            cells = self._count("co_nlocals") if minor.cells_apart else 0
            self._steps = {at: Step(at, argument, form, minor.code_unit, cells) for at, argument, form in self._raw}
        return self._steps

    def _count(self, key: str) -> int:
        return self.rt.target.i32(self.code.address + self.rt.layout[f"code.{key}"])

    def _held(self, key: str) -> list[Object]:
        held = self.rt.object(self.rt.target.u64(self.code.address + self.rt.layout[f"code.{key}"]))
        found: list[Object] = self.rt.target.cached((key, held.address), lambda: held.elements(MAX_NAMES))
        return found

    def name(self, index: int) -> str:
        """Of an attribute or a global."""
        return self._held("co_names")[index].string(1000)

    def constant(self, index: int) -> Object | None:
        """An `Object`; None for None."""
        found = self._held("co_consts")[index]
        return None if found.is_none() else found

    def texts(self) -> list[str]:
        """The short ones among its constants."""
        kept = (one for one in self._held("co_consts") if one.type.flags & STR)
        return [text for text in (one.string(16) for one in kept) if len(text) < 16]

    def variable(self, index: int) -> str:
        """Of a local variable or a cell."""
        variables = self.code.variables
        return variables[index][0] if index < len(variables) else "?"

    @property
    def parameters(self) -> list[str]:
        """The names of the positional ones."""
        return [name for name, _ in self.code.variables][: self._count("co_argcount")]

    @property
    def keywords_only(self) -> int:
        """How many parameters are given by keyword alone."""
        return self._count("co_kwonlyargcount")

    def handlers(self) -> list[tuple[int, int, int, int, bool]]:
        """As `exception_entries`, of this code; none before 3.11."""
        if "code.co_exceptiontable" not in self.rt.layout:
            return []
        pointer = self.rt.target.u64(self.code.address + self.rt.layout["code.co_exceptiontable"])
        return list(exception_entries(self.rt.object(pointer).raw_bytes(1 << 20)))

    def guards(self) -> list[tuple[int, int, int]]:
        """(first instruction, end, handler) of what handlers are for."""
        unit, spans = self.rt.minor.code_unit, [(start, end, handler) for start, end, handler, *_ in self.handlers()]
        for at, argument, form in self._raw:
            if form.name in _BLOCKS:  # before 3.11
                handler = _target(form.told[3], argument, at + form.size, unit)
                spans.append((at + form.size, handler, handler))
        return spans

    def handles(self, offset: int) -> bool:
        """Whether an exception of the instruction at this offset goes to a handler of this code."""
        return any(start <= offset < end for start, end, _ in self.guards())

    def loops(self) -> list[tuple[int, int]]:
        """(first instruction, the one that jumps back to it) of each loop; the jump back of an `await` makes none."""
        unit, found = self.rt.minor.code_unit, []
        for at, argument, form in self._raw:
            if form.told[3] in ("backward", "absolute") and not form.name.endswith("NO_INTERRUPT"):
                to = _target(form.told[3], argument, at + form.size, unit)
                if to <= at:
                    found.append((to, at))
        return found

    def stored(self) -> list[tuple[int, int, list[str]]]:
        """(first instruction, last one, the names in the namespace to which it gives values) of each outermost loop."""
        spans = self.loops()
        outermost = [one for one in spans if not any(a <= one[0] and one[1] <= b and (a, b) != one for a, b in spans)]
        steps = [(at, argument) for at, argument, form in self._raw if form.name == "STORE_NAME"]
        return [(a, b, sorted({self.name(n) for at, n in steps if a <= at <= b})) for a, b in outermost]


def _target(way: str, argument: int, behind: int, unit: int) -> int:
    return argument * unit if way == "absolute" else behind + argument * (-2 if way == "backward" else unit)


def of(code: Code) -> Bytecode:
    """The `Bytecode` of a code object, once per epoch."""
    found: Bytecode = code.rt.target.cached(("bytecode", code.address, code.first), lambda: Bytecode(code))
    return found


def _forms(code: Code) -> dict[int, _Form]:
    rt = code.rt

    def make() -> dict[int, _Form]:
        known = codes.opcodes(rt.version)
        sizes = {n: 2 + 2 * known["caches"].get(n, 0) for n in known["effects"]}
        return {int(n): _form(told, sizes[n], rt.minor) for n, told in known["effects"].items()}

    found: dict[int, _Form] = rt.target.cached(("forms of opcodes", rt.version), make)
    return found


def loops_over(code: Code, offset: int) -> bool:
    """Whether the instruction at this offset is in a loop."""
    spans: list[tuple[int, int]] = code.rt.target.cached(("loops", code.address, code.first), of(code).loops)
    return any(start <= offset <= end for start, end in spans)


def stored_around(code: Code, offset: int) -> list[str]:
    """The names in its namespace that module code gives values to in the outermost loop over an instruction."""
    found: list[tuple[int, int, list[str]]] = code.rt.target.cached(("stored", code.address, code.first), of(code).stored)
    return next((names for start, end, names in found if start <= offset <= end), [])


def exception_entries(table: bytes) -> Iterator[tuple[int, int, int, int, bool]]:
    """3.11+: yields (start, end, handler, depth, whether the instruction's offset is pushed too) of an exception table. The first
    three are in bytes of code (Objects/exception_handling_notes.txt)."""
    at = 0
    while at < len(table):
        try:
            start, at = _varint(table, at)
            length, at = _varint(table, at)
            target, at = _varint(table, at)
            packed, at = _varint(table, at)
        except IndexError:
            break
        yield 2 * start, 2 * (start + length), 2 * target, packed >> 1, bool(packed & 1)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 63
    while data[at] & 64:
        at += 1
        value = value << 6 | data[at] & 63
    return value, at + 1
