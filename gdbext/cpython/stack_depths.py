"""The values on a Python frame's value stack before an instruction, from the code alone.

In a compiled function the stack has the same depth at an instruction, whichever path led there. The compiler computes it so
(Python/compile.c, flowgraph.c), from each instruction's effect, which layouts/opcodes.json has from `dis.stack_effect`. This
module also says which instruction wrote each value, where that is certain. `LayoutError` where the code contradicts itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import LayoutError
from . import bytecode
from .bytecode import Step
from .frames import Code

if TYPE_CHECKING:
    Writers = tuple[int, ...]  # by depth, the offset of the instruction that wrote a value; UNKNOWN where uncertain

UNKNOWN = -1
GENERATES = bytecode.GENERATOR | bytecode.COROUTINE
# do not change the values below those that they take
_KEEP = ("NOP", "RESUME", "PRECALL", "KW_NAMES", "EXTENDED_ARG", "NOT_TAKEN", "POP_TOP", "PUSH_NULL", "CACHE", "STORE_FAST")
_KEEP_PREFIXES = ("LOAD_FAST", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_SMALL_INT", "POP_JUMP_")
_MOVES = ("ROT_", "SWAP")


def writers(code: Code) -> tuple[dict[int, Step], dict[int, Writers]]:
    """-> (the steps by offset, `{offset: Writers}` of the stack before each instruction that can be reached)."""
    return code.rt.target.cached(("stack depths", code.address, code.first), lambda: _writers(code))


def _writers(code: Code) -> tuple[dict[int, Step], dict[int, Writers]]:
    rt = code.rt
    made = bytecode.of(code)
    every = made.steps
    largest = rt.target.i32(code.address + rt.layout["code.co_stacksize"]) + 1
    begin = (UNKNOWN,) if code.flags & GENERATES and rt.minor.begins_with_value else ()
    before: dict[int, Writers] = {}
    todo: list[tuple[int, Writers]] = [(0, begin)]
    todo += [(target, (UNKNOWN,) * (depth + 1 + lasti)) for _, _, target, depth, lasti in made.handlers()]
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
        if step.target is not None:
            todo.append((step.target, _after(step, stack, step.effect(jump=True))))
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
    if step.name == "LOAD_ATTR":  # writes over the object
        return found[: len(stack) - 1] + (step.offset,) * (effect + 1)
    kept = min(len(stack), len(found)) - 1
    if kept < 0 or step.name in _KEEP or step.name.startswith(_KEEP_PREFIXES) or effect > 0 and step.name.startswith("BUILD_"):
        return found
    return found[:kept] + (UNKNOWN,) + found[kept + 1 :]
