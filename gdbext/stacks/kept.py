"""Who has a lock when no frame of a thread or task shows it: a suspended generator or coroutine that is inside its `with`, or the
frame of a function that an exception has ended before its release. Both are found on the heap.

Source: Objects/genobject.c, Include/cpython/traceback.h; both kinds are objects of the garbage collector.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator, Sequence

from .. import log
from ..cpython import bytecode, exceptions, gc
from ..cpython.dialects import RawFrame
from ..cpython.frames import PyFrame
from ..cpython.runtime import Runtime
from ..cpython.tasks import frame_of
from ..errors import GdbextError
from ..primitives.table import LOCKS
from .holders import BY_SOURCE, WITH, Holders
from .references import Reachable, references_of
from .waits import Edge

MAX_WALKED, MAX_KEPT = 3_000_000, 20_000  # objects of the heap; frames among them
SUSPENDED = "suspended"  # how the owner is known
_GENERATORS = ("generator", "coroutine", "async_generator")


@dataclass(eq=False)
class Kept:
    """Frames that no thread and no task runs, or those of a thread (`node`). `address`: of their generator; `ended`: what ended
    them, '' for nothing."""

    address: int
    python: list[Any] = field(default_factory=list)
    ended: str = ""
    node: Any = None

    @property
    def words(self) -> str:
        frame = self.python[0]
        place = f"{frame.function} ({os.path.basename(frame.file)}:{frame.line})"
        return f"{place}, which {self.ended} has ended" if self.ended else f"the suspended {place}"


def set_owners(edges: Sequence[Edge], rt: Runtime, agents: Sequence[Any], node: Callable[[Any], Any]) -> None:
    """Sets who may give back the locks of `edges` that nobody is known to have. `rt`: of the running process; `agents`: its
    threads and tasks, those that have a name for a suspended generator may go on with it."""
    wanted = [edge for edge in edges if edge.kind in LOCKS and edge.owner is None and edge.address and not edge.shared]
    wanted = [edge for edge in wanted if not edge.open and not edge.orphan and not edge.pids]
    if not wanted:
        return
    running = {frame.address for agent in agents for frame in agent.python}
    tasks = [agent for agent in agents if hasattr(agent, "node")]  # a thread may wait for what a task has
    holders = Holders([*tasks, *(one for one in _on_heap(rt) if one.python[0].address not in running)])
    reachable = Reachable(references_of(rt), list(agents))
    for edge in wanted:
        with log.passing_over(GdbextError):
            found = [one for one in holders.of(WITH, edge.address) if not getattr(one[0], "ended", "")]  # its exit has run
            found = found or [one for one in holders.of(BY_SOURCE, edge.address) if not _released(one[0])]
            if len({id(one) for one, _ in found}) == 1 and found[0][0] in tasks:
                edge.owner, edge.how, edge.note = node(found[0][0]), WITH, f"held in {found[0][1]}"
            elif len({id(one) for one, _ in found}) == 1:
                _set(edge, found[0][0], reachable, node)


def _released(agent: Any) -> bool:
    """Whether code of a frame that an exception has ended ran after that: a handler, or what stands under finally."""
    if not getattr(agent, "ended", ""):
        return False
    frame = agent.python[0]
    return bytecode.of(frame.code).handles(frame.raw.lasti)


def _set(edge: Edge, one: Kept, reachable: Reachable, node: Callable[[Any], Any]) -> None:
    edge.candidates, edge.bystanders, edge.note = [], [], f"held in {one.words}"
    if one.ended:
        edge.orphan, edge.note = True, f"{edge.note} before it released it"
        return
    edge.how = SUSPENDED
    able = [node(agent) for agent in reachable.agents_of(one.address, lambda agent: False)]
    others = [other for other in able if other != edge.waiter] or able
    if len(others) == 1:
        edge.owner, edge.note = others[0], f"{edge.note}, which it has at hand"
    elif others:
        edge.candidates, edge.doubted = others, True
    else:
        edge.note += "; no frame of this process names it"


def _on_heap(rt: Runtime) -> Iterator[Kept]:
    kinds: dict[int, str] = {}
    known = 0
    with log.passing_over(GdbextError):  # a free-threaded build has no lists to walk
        for count, (address, kind) in enumerate(gc.tracked(rt)):
            if kind not in kinds:
                kinds[kind] = _kind(rt, kind)
            if kinds[kind]:
                with log.passing_over(GdbextError):
                    found = _ended(rt, address) if kinds[kind] == "traceback" else _suspended(rt, address)
                    if found is not None:
                        known += 1
                        yield found
            if count >= MAX_WALKED or known >= MAX_KEPT:
                return


def _kind(rt: Runtime, address: int) -> str:
    with log.passing_over(GdbextError):
        name = rt.type(address).builtin_name
        return name if name in (*_GENERATORS, "traceback") else ""
    return ""


def _suspended(rt: Runtime, address: int) -> Kept | None:
    step, state = frame_of(rt, address)
    if step is None or state not in ("suspended", "awaiting"):
        return None
    return Kept(address, [PyFrame(rt, step, 0)])


def _ended(rt: Runtime, address: int) -> Kept:
    """The frame of one entry of a traceback, as it was left."""
    L, t = rt.layout, rt.target
    frame = t.u64(address + L["tb.tb_frame"])
    code = exceptions.code_of_object(rt, frame)
    raw = RawFrame(exceptions.frame_of_object(rt, frame), code, t.i32(address + L["tb.tb_lasti"]), 0, 0)
    return Kept(address, [PyFrame(rt, raw, 0)], "an exception")
