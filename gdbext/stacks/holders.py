"""The owners of locks that note no owner, found by frames inside the lock's `with`, or between its acquire and its release."""

from __future__ import annotations

import os
from typing import Any, Callable, Sequence

from .. import log
from ..cpython import locks, managers
from ..cpython.objects import Object
from ..errors import GdbextError
from .python_waits import path_of
from .waits import Edge

WITH, BY_SOURCE = "with", "between acquire and release"


class Holders:
    """The agents that are inside the `with` of a lock, or between its acquire and its release. It is an index by the lock's
    address over all frames of `agents`, built at its first use. An agent is a thread or an asyncio task: anything with `python`
    frames."""

    def __init__(self, agents: list[Any]) -> None:
        self.agents = agents
        self._index: dict[str, dict[int, list[tuple[Any, str]]]] = {}

    def of(self, how: str, address: int) -> list[tuple[Any, str]]:
        """`[(agent, where)]`; `how`: `WITH` or `BY_SOURCE`."""
        if how not in self._index:
            self._index[how] = {}
            for agent in self.agents:
                for inner, frame in zip([None, *agent.python], agent.python):
                    for obj, where in self._held(how, frame, inner):
                        if not self._waits_on(agent, obj):
                            for one in {obj.address, inner_lock(obj)} - {0}:
                                self._index[how].setdefault(one, []).append((agent, where))
        found: dict[int, tuple[Any, str]] = {}
        for agent, where in self._index[how].get(address, []):
            found.setdefault(id(agent), (agent, where))
        return list(found.values())

    def set_owner(self, edge: Edge, waiter: Any, node: Callable[[Any], Any], hows: Sequence[str] = (WITH, BY_SOURCE)) -> bool:
        """Sets the owner of an edge's lock, or those one of which holds it. Whether there are any."""
        for how in hows:
            found = self.of(how, edge.address)
            found = [one for one in found if one[0] is not waiter] or found
            if len(found) == 1:
                edge.owner, edge.how, edge.note = node(found[0][0]), how, f"held in {found[0][1]}"
            elif found:
                edge.candidates = [node(agent) for agent, _ in found]
                edge.note = "one of them holds it: " + "; ".join(where for _, where in found[:4])
            if found:
                return True
        return False

    def _held(self, how: str, frame: Any, inner: Any) -> list[tuple[Any, str]]:
        """`inner`: the frame that `frame` has called."""
        held: list[tuple[Any, str]] = []
        entered = [managers.behind(obj) for obj in locks.entered(frame) if not _enters(inner, obj)]
        if how == WITH:
            held = [(obj, f"{_place(frame)})") for objects, _ in entered for obj in objects]
        else:
            for one in [frame, *(generator for _, generators in entered for generator in generators)]:
                for _, obj, taken, given in locks.acquired(one):
                    if not _enters(inner, obj):
                        held.append((obj, f"{_place(one)}, acquired at line {taken}, released at {given})"))
                for obj, taken, given in managers.acquired_by_methods(one):
                    held.append((obj, f"{_place(one)}, taken at line {taken}, given back at {given})"))
        return held

    def _waits_on(self, agent: Any, manager: Any) -> bool:
        """Whether the agent is in the `wait` of this Condition, which has released its lock meanwhile."""
        inner = None
        for frame in agent.python:
            if path_of(frame).endswith(("threading.py", "asyncio/locks.py")) and frame.function in ("Condition.wait", "wait"):
                me = dict(frame.locals()).get("self")
                if inner is None:
                    inner = inner_lock(manager)
                if me is not None and (me.address == manager.address or inner and inner_lock(me) == inner):
                    return True
        return False


def _place(frame: Any) -> str:
    return f"{frame.function} ({os.path.basename(frame.file)}:{frame.line}"


def _enters(frame: Any, manager: Any) -> bool:
    """Whether a frame is this manager's `__enter__` or `__aenter__`: its caller still waits to enter the `with`."""
    if frame is None or str(frame.function).rpartition(".")[2] not in ("__enter__", "__aenter__"):
        return False
    me = dict(frame.locals()).get("self")
    return me is not None and bool(me.address == manager.address)


def inner_lock(obj: Any) -> int:
    """The address of the lock inside a Condition, or inside an object with the same attribute; 0 for others."""
    if not obj.type.is_heap:
        return 0
    try:
        inner = obj.attr("_lock")
        return inner.address if isinstance(inner, Object) else 0
    except GdbextError as e:
        log.passed_over(e)
        return 0
