"""Who has the permits of a limiter, the connections of a pool: the tasks that it notes, or the threads and tasks that have one of
them at hand.

A search of its own: what leads to a connection is deeper than what `references` follows, and must not lead through the pool.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Iterator, Sequence

from .. import log
from ..cpython import locks, managers, primitive_states
from ..cpython.objects import Object
from ..cpython.poll_values import kinds_of
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from ..primitives.model import Primitive
from ..primitives.table import ASYNCIO, LIBRARY
from .python_waits import path_of
from .waits import Edge

MAX_LENT, MAX_OBJECTS, DEPTH = 4096, 600, 5  # permits of a limiter; objects behind one frame, and how far
_LEAVES = re.compile(r"EventLoop$|Task$|Future$|Thread$")  # lead to what others have
_ENDS = ("module", "type", "function", "code", "frame", "traceback", "dict_keys")


def set_holders(edge: Edge, row: Primitive, obj: Object, agents: Sequence[Any], node: Callable[[Any], Any]) -> None:
    """Sets those that have what `edge` waits for. Where they have all of it, no other can end the wait."""
    lent = _lent(obj, row)
    found = [one for one in agents if getattr(one, "address", 0) in lent]
    if not found:
        found = [one for one in agents if not _waits(one, row) and (_inside(one, row, obj) or _has(one, row, obj, lent))]
    nodes = [node(one) for one in found]
    bound = 1 if row.owner else primitive_states.bound(obj, row)
    if len(nodes) == 1 and bound == 1:
        edge.owner = nodes[0]
    elif nodes:
        edge.candidates, edge.pool = nodes, len(nodes) == bound
    if bound > 1:
        known = "" if len(nodes) == bound else f", {len(nodes)} known"
        edge.lock += f" ({bound} in all, each is taken{known})" if nodes else f" ({bound} in all)"
    noted = bool(found) and not row.permit[0]
    edge.note = "it is noted there" if noted else "they have one at hand" if nodes else "no frame that was read has one at hand"


def set_all(edges: Sequence[Edge], rt: Runtime, agents: Sequence[Any]) -> None:
    """As `set_holders`, for the edges of a running process; each agent has a `node`."""
    for edge in edges:
        with log.passing_over(GdbextError):
            obj = rt.object(edge.address)
            row = primitive_states.row_of(obj)
            if row is not None:
                edge.lock = re.sub(r" \(\d+ in all.*", "", edge.lock)
                set_holders(edge, row, obj, [one for one in agents if one.node != edge.waiter], lambda one: one.node)


def _lent(obj: Object, row: Primitive) -> set[int]:
    """The addresses of the owner, or of the borrowers that a limiter notes."""
    if row.owner:
        owner = obj.attr(row.owner)
        return {owner.address} if isinstance(owner, Object) and not owner.is_none() else set()
    if not row.permits:
        return set()
    return {one.address for one in primitive_states.held(obj, row.permits).elements(MAX_LENT)}


def _inside(agent: Any, row: Primitive, obj: Object) -> bool:
    """Whether an agent is in a function of the pool's that waits for one, past its wait."""
    inner = agent.python[: primitive_states.FRAMES]
    wait = primitive_states.find(inner, (row.file, *LIBRARY, *ASYNCIO)) if inner else None
    if wait is not None and wait.object.address == obj.address or _waits(agent, row):
        return False
    for frame in agent.python:
        if row.way_of(path_of(frame), str(frame.function)) is not None:
            with log.passing_over(GdbextError):
                me = dict(frame.locals()).get("self")
                if isinstance(me, Object) and me.address == obj.address:
                    return True
    return False


def _waits(agent: Any, row: Primitive) -> bool:
    edge = getattr(agent, "edge", None)
    return edge is not None and edge.kind == row.kind


def _has(agent: Any, row: Primitive, obj: Object, lent: set[int]) -> bool:
    """Whether a frame of an agent leads to something that the pool lends, other than through the pool."""
    name, back = row.permit
    if not name and not lent:
        return False
    own = [frame for frame in agent.python if not path_of(frame).endswith((*LIBRARY, *ASYNCIO))]
    behind = (one for frame in own for one in _behind(frame, obj.address))
    return any(one.address in lent or _is_lent(one, name, back, obj) for one in behind)


def _is_lent(one: Object, name: str, back: str, obj: Object) -> bool:
    with log.passing_over(GdbextError):
        if one.type.is_heap and name in kinds_of(one):
            pool = one.attr(back)
            return isinstance(pool, Object) and pool.address == obj.address
    return False


def _behind(frame: Any, pool: int) -> Iterator[Object]:
    level: list[Object] = []
    with log.passing_over(GdbextError):
        level = [value for _, value in frame.locals() if isinstance(value, Object)]
        for manager in locks.entered(frame):
            objects, frames = managers.behind(manager)
            level += objects + [value for one in frames for _, value in one.locals() if isinstance(value, Object)]
    seen = {pool}
    for _ in range(DEPTH):
        following: list[Object] = []
        for one in level:
            if one.address in seen or len(seen) > MAX_OBJECTS:
                continue
            seen.add(one.address)
            with log.passing_over(GdbextError):
                if one.isa(*_ENDS) or _LEAVES.search(one.type_name):
                    continue
                yield one
                if one.type.is_heap:
                    following += [value for _, value in one.fields()[:64] if isinstance(value, Object)]
                if one.isa("dict"):
                    following += [value for pair in one.items(32) for value in pair if isinstance(value, Object)]
                elif one.isa("list", "tuple"):
                    following += list(one.elements(32))
        level = following
