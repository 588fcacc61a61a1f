"""The threads whose own code could end a wait. A thread that can reach an object need not give anything to those that wait for
it.

Example: a thread that sleeps for an hour between two rounds of its work can reach everything that hangs on its `self`. It starves
others only in two cases. Its code names the call that ends the wait (`put`, `set`, `notify`), or it has the very object at hand
and may pass it on.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Iterable

from ..primitives.model import Primitive
from ..primitives.table import ASYNCIO, LIBRARY, enders
from . import permits
from .holders import BY_SOURCE, WITH, Holders
from .python_waits import find, path_of
from .references import Reachable, References
from .waits import Edge


class Givers:
    """Sets who may end waits at primitives; who is free to is asked once for all that wait alike. `node(agent)`: the node of a
    thread or task; `library`: the files in which these wait."""

    def __init__(self, reachable: Reachable, holders: Holders, node: Callable[[Any], Any], library: tuple[str, ...]) -> None:
        self.reachable, self.holders, self.node, self.library = reachable, holders, node, library
        self._free: dict[tuple[int, str], tuple[list[Any], list[Any]]] = {}

    def set(self, edge: Edge, row: Primitive, waiter: Any) -> None:
        """Sets the owner of an object that has one, else its candidates."""
        if row.lends:
            others = [one for one in self.reachable.agents if one is not waiter]
            permits.set_holders(edge, row, self.reachable.references.rt.object(edge.address), others, self.node)
            return
        if row.held and self.holders.set_owner(edge, waiter, self.node, (WITH, BY_SOURCE) if row.is_async else (WITH,)):
            if edge.owner is not None and "value" in row.state:  # one of the others may have another permit, and give it back
                edge.doubted = any(self.node(one) not in (edge.owner, edge.waiter) for one in self._able(edge)[0])
        else:
            self.offer(edge, waiter)

    def offer(self, edge: Edge, waiter: Any) -> None:
        """Sets the candidates: those that can reach the object, are not idle helpers and do not wait for it themselves."""
        edge.candidates, edge.bystanders = ([self.node(one) for one in ones if one is not waiter] for ones in self._able(edge))

    def _able(self, edge: Edge) -> tuple[list[Any], list[Any]]:
        key = edge.address, edge.how
        if key not in self._free:
            able = self.reachable.agents_of(edge.address, lambda one: waits_for(one, edge.address, self.library))
            self._free[key] = able, [one for one in able if not may_end(self.reachable.references, one.python, edge)]
        return self._free[key]


def may_end(references: References, frames: Iterable[Any], edge: Edge) -> bool:
    """Whether code of one of the frames may end the wait of `edge`, which is not for a lock. The code must reach the object. It
    must also name a call that ends such a wait, or at least not only ask for the object's state. Methods that the code names
    count as its own, where they belong to an object that leads there: a class around a queue has its calls and attributes."""
    ends, asks = enders(edge.kind, edge.how)
    if not ends:
        return True
    for frame in frames:
        if path_of(frame).endswith((*LIBRARY, *ASYNCIO)):
            continue
        path = references.name_of(frame, edge.address)
        if path and _may_end(references, frame, path, ends, asks):
            return True
    return False


def _may_end(references: References, frame: Any, path: str, ends: set[str], asks: set[str]) -> bool:
    steps = re.findall(r"\.(\w+)", path)
    between = [
        obj for name, obj in references.of_frame(frame) if len(name) < len(path) and path.startswith((name + ".", name + "["))
    ]
    methods = [references.methods(obj) for obj in between]
    named, pending = set(references.names(frame)), list(references.names(frame))
    while pending:
        name = pending.pop()
        new = {used for known in methods for used in known.get(name, ())} - named
        named |= new
        pending += new
    if named.issuperset(steps):
        return bool(named & ends or not named & asks)
    if path.startswith("self.") or not named.issuperset(steps[:-1]) or named & asks:
        return False
    # it has one at hand that wraps the very object, and may pass that on
    return any(steps[-1] in used and used & ends for used in methods[-1].values()) if methods else False


def waits_for(agent: Any, address: int, library: tuple[str, ...]) -> bool:
    """Whether a thread or task is itself in a wait for this very object, in a file of `library`."""
    wait = find(agent.python[:6], library)
    return wait is not None and wait.object.address == address
