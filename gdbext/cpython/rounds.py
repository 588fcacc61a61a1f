"""Loops without a way out: a thread or task that goes round for ever waits for no result there, whatever it does in each round.

A way out is what leads out of the loop but an error: a `break`, a `return`, a condition, a `raise`, a handler in the loop that
leaves it, a call of what ends the process. A `for` is left when its items end, so it waits for nothing; then the loop round it
counts, or that of the caller."""

from __future__ import annotations

from typing import NamedTuple, Sequence

from .. import log
from ..errors import GdbextError
from ..primitives.table import ASYNCIO, LIBRARY
from . import bytecode
from .bytecode import Bytecode
from .frames import Code, PyFrame
from .primitive_states import path_of

MAX_FRAMES = 12  # innermost, of which one may have the loop
MAX_STEPS = 4000  # instructions of a function
ENDS_ALL = {"exit", "_exit", "quit", "abort", "interrupt_main"}  # names by which a loop ends its program
_RUNS_OTHERS = ("asyncio/base_events.py", "asyncio/runners.py", "asyncio/events.py")


class Loop(NamedTuple):
    """`steps`: the offsets of its instructions; `leaves`: whether it has a way out; `counts`: only the end of its items."""

    steps: frozenset[int]
    leaves: bool
    counts: bool


def goes_round(frames: Sequence[PyFrame]) -> bool:
    """Whether the innermost loop round the code that waits has no way out. `frames`: of a thread or task, innermost first."""
    own = [f for f in frames[:MAX_FRAMES] if not path_of(f).endswith((*LIBRARY, *ASYNCIO))]
    try:
        for frame in own:
            if path_of(frame).endswith(_RUNS_OTHERS):
                return False
            for loop in _loops_of(frame.code):
                if _step_at(frame) in loop.steps and (loop.leaves or not loop.counts):
                    return not loop.leaves
    except (GdbextError, IndexError) as e:
        log.passed_over(e, "whether a loop has a way out")
    return False


def _step_at(frame: PyFrame) -> int:
    """The offset of the instruction that a frame is in: of a call it may have the place of one of its caches."""
    return max((at for at in bytecode.of(frame.code).steps if at <= frame.raw.lasti), default=0)


def _loops_of(code: Code) -> list[Loop]:
    """The loops of a function, the innermost first."""
    found: list[Loop] = code.rt.target.cached(("rounds", code.address, code.first), lambda: _find(bytecode.of(code)))
    return found


def _find(known: Bytecode) -> list[Loop]:
    steps, spans = known.steps, known.guards()
    if len(steps) > MAX_STEPS:
        return []
    follows = {at: _follows(known, at) for at in steps}
    after = {at: follows[at] + [handler for start, end, handler in spans if start <= at < end] for at in steps}
    before: dict[int, list[int]] = {at: [] for at in steps}
    for at, ways in after.items():
        for way in ways:
            before.setdefault(way, []).append(at)
    backs: dict[int, list[int]] = {}
    for head, back in known.loops():
        backs.setdefault(_past(known, head), []).append(back)
    first, found = min(steps, default=0), []
    for head, ends in backs.items():
        reached = _reach(after, [first], head)
        ends = [back for back in ends if back not in reached]  # else it only goes on behind what it jumps over
        if ends:
            found.append(_loop(known, head, ends, _reach(before, ends, head) | {head}, follows, spans))
    return sorted(found, key=lambda loop: len(loop.steps))


def _follows(known: Bytecode, at: int) -> list[int]:
    step = known.steps[at]
    ways = [] if step.ends else [step.behind]
    ways += [step.target] if step.target is not None else []
    return [_past(known, way) for way in ways if way in known.steps]


def _past(known: Bytecode, at: int) -> int:
    """The first instruction from here on that does anything: a `continue` jumps to another NOP than the end of the loop."""
    while known.steps[at].name == "NOP" and known.steps[at].behind in known.steps:
        at = known.steps[at].behind
    return at


def _reach(ways: dict[int, list[int]], start: Sequence[int], without: int) -> set[int]:
    """What is reached from some instructions by ways that do not lead over one."""
    found, todo = set(), [at for at in start if at != without]
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            todo += [way for way in ways.get(at, ()) if way != without]
    return found


def _loop(
    known: Bytecode,
    head: int,
    ends: Sequence[int],
    inside: set[int],
    follows: dict[int, list[int]],
    spans: Sequence[tuple[int, int, int]],
) -> Loop:
    steps, leaves, counts = known.steps, False, False
    round_it = {handler for start, end, handler in spans if start <= head and all(start <= back < end for back in ends)}
    for at in inside:
        step = steps[at]
        out = [way for way in follows[at] if way not in inside and _goes_on(known, way, follows)]
        if out and step.name.startswith("FOR_ITER") and step.target in out:
            counts = True
            out.remove(step.target)
        caught = [handler for start, end, handler in spans if start <= at < end and handler not in inside | round_it]
        leaves = leaves or bool(out) or step.name == "RAISE_VARARGS" or any(_goes_on(known, h, follows) for h in caught)
        named = step.name in ("LOAD_GLOBAL", "LOAD_ATTR", "LOAD_NAME") and known.name(step.argument) in ENDS_ALL
        leaves = leaves or named or step.name.startswith("RETURN") and step.name != "RETURN_GENERATOR"
    return Loop(frozenset(inside), leaves, counts)


def _goes_on(known: Bytecode, start: int, follows: dict[int, list[int]]) -> bool:
    """Whether code does anything but raise again: it returns, or goes round another loop."""
    reached = _reach(follows, [start], -1)
    return any(known.steps[at].name.startswith("RETURN") or any(way <= at for way in follows[at]) for at in reached)
