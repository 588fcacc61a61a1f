"""The threads whose own code could end a wait. A thread that can reach an object need not give anything to those that wait for
it.

Example: a thread that sleeps for an hour between two rounds of its work can reach everything that hangs on its `self`. It starves
others only in two cases. Its code names the call that ends the wait (`put`, `set`, `notify`), or it has the very object at hand
and may pass it on.
"""

from __future__ import annotations

import re
from typing import Any, Iterable

from ..primitives.table import ASYNCIO, LIBRARY, enders
from .python_waits import find, path_of
from .references import References
from .waits import Edge


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
