"""Calls of asyncio that only ask, up to a time limit: `wait` and `wait_for`, and the coroutines that are given to `wait_for`.

Source: Lib/asyncio/tasks.py, queues.py, locks.py of each minor.
"""

from __future__ import annotations

from typing import Any

from ..errors import GdbextError
from ..primitives.table import asked_of
from .objects import Object
from .poll_values import UNKNOWN, Ask, Awaitable, Value, kinds_of, plain
from .task_waits import Futures

FILE, LIMITED = "asyncio/tasks.py", ("wait", "wait_for")
MAX_FUTURES = 64


def _pending(held: Any) -> tuple[Ask, ...]:
    if isinstance(held, Awaitable):
        return held.asks
    known = asked_of(kinds_of(held), "done") if isinstance(held, Object) else None
    if known is None or known[1] is None or known[1].ready != "pending":
        raise GdbextError("it waits for what is not known")
    if Futures(held.rt).state_of(held) != "PENDING":
        raise GdbextError("what it waits for is done")
    return (Ask(known[0].kind, held, row=known[0], way=known[1]),)


def _limit(arguments: list[Value], named: dict[str, Value], at: int) -> None:
    limit = (arguments[at] if len(arguments) > at else named.get("timeout", Value(None))).held
    if limit is None or plain(limit) is None:
        raise GdbextError("it waits in the call itself")


def wait(arguments: list[Value], named: dict[str, Value]) -> Value:
    """`asyncio.wait(fs, timeout=…)` of futures of which none is done: (no future, the rest)."""
    _limit(arguments, named, 2)
    held = arguments[0].held if arguments else None
    members = list(held.elements(MAX_FUTURES)) if isinstance(held, Object) else held
    if not isinstance(members, list):
        raise GdbextError("it waits for what is not known")
    asks = tuple(ask for one in members for ask in _pending(one))
    return Value(((), UNKNOWN), (*asks, Ask("Pause", None)))


def wait_for(arguments: list[Value], named: dict[str, Value]) -> Value:
    """`asyncio.wait_for(fut, timeout)` of what is not done."""
    _limit(arguments, named, 1)
    return Value(Awaitable(_pending(arguments[0].held if arguments else None), True), (Ask("Pause", None),))
