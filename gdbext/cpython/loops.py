"""The loops of a function's bytecode: whether an instruction is in one, and whether a loop only repeats one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .codes import instructions, opcodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .frames import Code


def loops_over(code: Code, offset: int) -> bool:
    """Whether the instruction at this offset is in a loop."""
    spans: list[tuple[int, int]] = code.rt.target.cached(f"loops of {code.address:#x}", lambda: list(_loops(code)))
    return any(start <= offset <= end for start, end in spans)


def _loops(code: Code) -> Iterator[tuple[int, int]]:
    """(first instruction, the one that jumps back to it) of each loop."""
    known, high = opcodes(code.rt.version), 0
    for at, opcode, argument in instructions(code):
        argument |= high
        high = argument << 8 if opcode == known["extended_arg"] else 0
        if opcode in known["back"]:
            behind = at + 2 + 2 * known["caches"].get(str(opcode), 0)
            yield argument * known["absolute"] if known["absolute"] else behind - 2 * argument, at


def only_again(code: Code, offset: int) -> bool:
    """Whether a function will only repeat one call: the one of the instruction at this offset. The call is in a loop without an
    exit, and the loop calls nothing else and stores nothing."""
    known = opcodes(code.rt.version)
    around = [(end - start, start, end) for start, end in _loops(code) if start <= offset <= end]
    if not around:
        return False
    _, start, end = min(around)
    inside = [opcode for at, opcode, _ in instructions(code) if start <= at <= end]
    awaits, plain = known["awaits"], known["plain"]
    names = ["" if opcode in awaits else plain.get(str(opcode), "JUMP") for opcode in inside[:-1]]
    leaves = any("JUMP" in name or name.startswith(("RETURN", "STORE")) for name in names)
    return inside[-1] in known["again"] and not leaves and sum(name.startswith("CALL") for name in names) == 1
