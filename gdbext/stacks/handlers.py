"""What callbacks of an event loop and handlers of signals tell something: an event that they set, a future that they end."""

from __future__ import annotations

from typing import Any

from .. import log
from ..cpython import signals
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from ..primitives.table import ASYNC_ENDS, ENDS

MAX_NAMES, MAX_CELLS = 1000, 100


def told(rt: Runtime, handle: Any) -> list[int]:
    """The addresses of the objects that a loop's callback tells something: its arguments, as the future of loop.sock_recv, and of
    a method its own, of a function, whose code names a call that ends waits, those that it closes over."""
    held = handle.attr("_callback")
    if held.isa("method"):
        own = [rt.target.u64(held.address + rt.layout["method.im_self"])]
    elif held.isa("function") and _names(rt, held) & ASYNC_ENDS:
        own = _cells(rt, held)
    else:
        return []
    return own + [argument.address for argument in handle.attr("_args").elements(MAX_CELLS)]


def signalled(rt: Runtime) -> dict[int, int]:
    """{an object that a handler of a signal tells: the signal}: those that a function closes over or finds by name, and what its
    `self` has by a name of its code."""
    found: dict[int, int] = {}
    with log.passing_over(GdbextError):
        for number, address in signals.handlers(rt):
            with log.passing_over(GdbextError, AttributeError):
                found.update(dict.fromkeys(_of_handler(rt, rt.object(address)), number))
    return found


def _of_handler(rt: Runtime, handler: Any) -> list[int]:
    if handler.isa("method"):
        owner = rt.object(rt.target.u64(handler.address + rt.layout["method.im_self"]))
        handler = rt.object(rt.target.u64(handler.address + rt.layout["method.im_func"]))
        known = dict(owner.fields())
    elif handler.isa("function"):
        scope = rt.object(rt.target.u64(handler.address + rt.layout["func.func_globals"]))
        known = {name.string(200): value for name, value in scope.items(MAX_NAMES) if name.isa("str")}
    else:
        return []
    names = _names(rt, handler)
    return _cells(rt, handler) + [known[name].address for name in names if name in known] if names & ENDS else []


def _names(rt: Runtime, function: Any) -> set[str]:
    code = rt.target.u64(function.address + rt.layout["func.func_code"])
    return {o.string(200) for o in rt.object(rt.target.u64(code + rt.layout["code.co_names"])).elements(MAX_NAMES)}


def _cells(rt: Runtime, function: Any) -> list[int]:
    """What a function closes over."""
    cells = rt.target.u64(function.address + rt.layout["func.func_closure"])
    held = rt.object(cells).elements(MAX_CELLS) if cells else []
    return [rt.target.u64(cell.address + rt.layout["cell.ob_ref"]) for cell in held]
