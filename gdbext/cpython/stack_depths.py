"""The values on a Python frame's value stack before an instruction, from the code alone.

In a compiled function the stack has the same depth at an instruction, whichever path led there. The compiler computes it so
(Python/compile.c, flowgraph.c), from each instruction's effect, which layouts/opcodes.json has from `dis.stack_effect`. This
module also says which instruction wrote each value, where that is certain. `LayoutError` where the code contradicts itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import LayoutError
from . import codes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .frames import Code

    Writers = tuple[int, ...]  # by depth, the offset of the instruction that wrote a value; UNKNOWN where uncertain

UNKNOWN = -1
MAX_INSTRUCTIONS = 20000
GENERATES = 0x20 | 0x80 | 0x200  # CO_GENERATOR, CO_COROUTINE, CO_ASYNC_GENERATOR
# do not change the values below those that they take
_KEEP = ("NOP", "RESUME", "PRECALL", "KW_NAMES", "EXTENDED_ARG", "NOT_TAKEN", "POP_TOP", "PUSH_NULL", "CACHE", "STORE_FAST")
_KEEP_PREFIXES = ("LOAD_FAST", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_SMALL_INT", "POP_JUMP_")
_MOVES = ("ROT_", "SWAP")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = data[at] & 63
    while data[at] & 64:
        at += 1
        value = value << 6 | data[at] & 63
    return value, at + 1


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


class Step:
    """One instruction: `offset`, its base `name`, `argument` with its extensions."""

    __slots__ = ("offset", "name", "argument", "_told", "behind")

    def __init__(self, offset: int, argument: int, told: Any, behind: int) -> None:
        self.offset, self.argument, self._told, self.behind = offset, argument, told, behind
        self.name: str = told[0]

    def effect(self, jump: bool = False) -> int:
        """The change of the stack's depth."""
        told = self._told[2 if jump else 1]
        if isinstance(told, dict):
            return int(told["base"] + told["step"] * self.argument)
        return int(told[self.argument % len(told)] if isinstance(told, list) else told)

    @property
    def ends(self) -> bool:
        return bool(self._told[4])

    def target(self, absolute: int) -> int | None:
        """The offset to which it may jump, None where it does not jump. `absolute`: the bytes of one unit of an absolute jump."""
        way = self._told[3]
        if not way:
            return None
        unit = absolute or 2
        return self.argument * unit if way == "absolute" else self.behind + self.argument * (-unit if way == "backward" else unit)


def steps(code: Code) -> dict[int, Step]:
    """`{offset: Step}` of a code object. `LayoutError` where it has too many instructions, or one whose effect is unknown (a
    JIT's, a monitored line's)."""
    known = codes.opcodes(code.rt.version)
    found, high = {}, 0
    raw = codes.instructions(code)
    if len(raw) > MAX_INSTRUCTIONS:
        raise LayoutError(f"{code.qualname} has {len(raw)} instructions: its stack depth is not computed")
    for offset, opcode, argument in raw:
        told = known["effects"].get(str(opcode))
        if told is None:
            raise LayoutError(f"{code.qualname} has the instruction {opcode} at {offset}, whose effect is not known")
        argument |= high
        high = argument << 8 if told[0] == "EXTENDED_ARG" else 0
        found[offset] = Step(offset, argument, told, offset + 2 + 2 * known["caches"].get(str(opcode), 0))
    return found


def writers(code: Code) -> tuple[dict[int, Step], dict[int, Writers]]:
    """-> (`steps`, `{offset: Writers}` of the stack before each instruction that can be reached)."""
    return code.rt.target.cached(("stack depths", code.address, code.first), lambda: _writers(code))


def _writers(code: Code) -> tuple[dict[int, Step], dict[int, Writers]]:
    rt = code.rt
    every, absolute = steps(code), codes.opcodes(rt.version)["absolute"]
    largest = rt.target.i32(code.address + rt.layout["code.co_stacksize"]) + 1
    begin = (UNKNOWN,) if code.flags & GENERATES and (3, 10) <= rt.version < (3, 13) else ()
    before: dict[int, Writers] = {}
    todo: list[tuple[int, Writers]] = [(0, begin)]
    if "code.co_exceptiontable" in rt.layout:
        table = rt.object(rt.target.u64(code.address + rt.layout["code.co_exceptiontable"])).raw_bytes(1 << 20)
        todo += [(target, (UNKNOWN,) * (depth + 1 + lasti)) for _, _, target, depth, lasti in exception_entries(table)]
    while todo:
        offset, stack = todo.pop()
        step = every.get(offset)
        if step is None or len(stack) > largest:
            raise LayoutError(f"{code.qualname}: its stack cannot be reckoned at {offset}")
        known = before.get(offset)
        if known is not None:
            if len(known) != len(stack):
                raise LayoutError(f"{code.qualname} reaches {offset} with {len(known)} and {len(stack)} values")
            stack = tuple(a if a == b else UNKNOWN for a, b in zip(known, stack))
            if stack == known:
                continue
        before[offset] = stack
        to = step.target(absolute)
        if to is not None:
            todo.append((to, _after(step, stack, step.effect(jump=True))))
        if not step.ends:
            todo.append((step.behind, _after(step, stack, step.effect())))
    return every, before


def _after(step: Step, stack: Writers, effect: int) -> Writers:
    """The stack behind an instruction."""
    if len(stack) + effect < 0:
        raise LayoutError(f"the stack has {len(stack)} values before {step.name}")
    if effect > 0:
        found = stack + (step.offset,) * effect
    else:
        found = stack[: len(stack) + effect]
    if step.name.startswith(_MOVES):
        depth = max(step.argument, 4)
        return found[:-depth] + (UNKNOWN,) * min(depth, len(found))
    if step.name in ("LOAD_ATTR", "LOAD_METHOD"):  # writes over the object
        return found[: len(stack) - 1] + (step.offset,) * (effect + 1)
    kept = min(len(stack), len(found)) - 1
    if kept < 0 or step.name in _KEEP or step.name.startswith(_KEEP_PREFIXES) or effect > 0 and step.name.startswith("BUILD_"):
        return found
    return found[:kept] + (UNKNOWN,) + found[kept + 1 :]
