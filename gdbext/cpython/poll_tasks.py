"""Calls of asyncio that only ask, up to a time limit: `wait` and `wait_for`, and the coroutines that are given to `wait_for`.

Source: Lib/asyncio/tasks.py, queues.py, locks.py of each minor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import GdbextError
from .objects import Object
from .poll_values import UNKNOWN, Ask, Awaitable, Value, kinds_of, plain
from .task_waits import Futures

if TYPE_CHECKING:
    from collections.abc import Callable

FILE, LIMITED = "asyncio/tasks.py", ("wait", "wait_for")
MAX_FUTURES = 64
_FUTURES = ("_asyncio.Future", "asyncio.futures.Future")


def _pending(held: Any) -> tuple[Ask, ...]:
    if isinstance(held, Awaitable):
        return held.asks
    if not isinstance(held, Object) or not any(kind in _FUTURES for kind in kinds_of(held)):
        raise GdbextError("it waits for what is not known")
    if Futures(held.rt).state_of(held) != "PENDING":
        raise GdbextError("what it waits for is done")
    return (Ask("asyncio.Future", held),)


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


def _waits(kind: str, done: Callable[[Object], bool]) -> Callable[..., Value]:
    def begun(obj: Object, arguments: list[Value], named: dict[str, Value]) -> Value:
        if done(obj):
            raise GdbextError("what it waits for is there")
        return Value(Awaitable((Ask(kind, obj),)))

    return begun


METHODS: dict[tuple[str, str], Callable[..., Value]] = {
    ("asyncio.queues.Queue", "get"): _waits("asyncio.Queue", lambda obj: dict(obj.fields())["_queue"].len() > 0),
    ("asyncio.locks.Event", "wait"): _waits("asyncio.Event", lambda obj: bool(obj.attr("_value").boolean())),
}
