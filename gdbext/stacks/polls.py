"""The waits of threads and tasks that ask over and over (`cpython.poll_loops`), as edges of the wait-for graph."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any, Callable, Sequence

from .. import log
from ..cpython.poll_loops import Poll
from ..cpython.poll_values import Ask
from ..cpython.primitive_states import Wait, end_of, last_part, path_of
from ..cpython.task_waits import Futures, is_task
from ..errors import GdbextError
from . import ipc_locks
from .givers import may_end
from .python_waits import edge_of, number, text
from .references import Reachable, References, references_of
from .waits import Edge

ANYBODY = ("File", "Value", "Flag")  # what code may change without an object that leads there


def edge(node: Any, poll: Poll) -> Edge:
    """The edge of a loop that only asks, for the first thing that it asks for; who could give it is not looked for here. It is
    made once, while its process can be read."""
    made: Edge = poll.edge or _edge(node, poll)
    poll.edge = made
    return replace(made, waiter=node)


def _edge(node: Any, poll: Poll) -> Edge:
    frame, ask = poll.where, poll.asks[0]
    rt, references = frame.rt, references_of(frame.rt)
    where = f"{frame.function} ({os.path.basename(frame.file)}:{frame.line})"
    found = _of_ask(node, ask, rt, references, frame, where)
    more = [one for one in poll.asks[1:] if one.kind != ask.kind or one.key != ask.key]
    if more:
        found.lock += "".join(f", or {_words(one, references, frame)}" for one in more[:3])
    found.polls, found.limit, found.where, found.ended = True, poll.limit, where, _ended(frame, references)
    return found


def _ended(frame: Any, references: References) -> list[str]:
    """The names of threads and tasks that have ended and that a frame can name."""
    found: dict[int, str] = {}
    for reach in references.reaches(frame):
        for _, obj in reach.named:
            try:
                if is_task(obj):
                    if Futures(obj.rt).state_of(obj) != "PENDING":
                        found[obj.address] = Futures(obj.rt).name_of(obj)
                elif obj.type.is_heap and "Thread" in map(last_part, obj.mro_names()):
                    ident = number(obj, "_ident")
                    if isinstance(ident, int) and getattr(obj.rt.registered_threads().get(ident), "address", 0) != obj.address:
                        found[obj.address] = text(obj, "_name")
            except GdbextError as e:
                log.passed_over(e)
    return list(found.values())


def _of_ask(node: Any, ask: Ask, rt: Any, references: References, frame: Any, where: str) -> Edge:
    address = ask.object.address if ask.object is not None else 0
    if ask.way is not None and ask.way.ready and ask.kind not in ("Lock", "RLock"):
        name = references.name_of(frame, address) or hex(address)
        found = edge_of(node, Wait(ask.row, ask.way, rt.object(address), frame), name, where)
        found.open = ""  # the loop looks at it itself
        return found
    shared = ask.kind == "SemLock"
    found = Edge(node, _words(ask, references, frame), "Lock" if shared else ask.kind, address=address, where=where)
    found.pid = ask.number if ask.kind == "Process" else 0
    found.shared = ("semaphore", ipc_locks.of_semlock(rt, address)) if shared else None
    if ask.kind == "File":
        found.note = "any process may make it"
    return found


def _words(ask: Ask, references: References, frame: Any) -> str:
    try:
        name = references.name_of(frame, ask.object.address) if ask.object is not None else ""
        if ask.kind == "Thread":
            return f"the end of thread {text(ask.object, '_name')}"
        if ask.kind == "Process":
            return end_of(ask.object) if ask.object is not None else f"the end of process {ask.number}"
        if ask.kind in ("Lock", "RLock"):
            return f"the {ask.kind} {name or hex(ask.object.address)}"
        if ask.kind == "SemLock":
            return f"the semaphore {name or hex(ask.object.address)}, in memory shared between processes"
        if ask.kind == "Flag":
            owner = name + "." if name and ask.object.type.builtin_name != "dict" else ""
            return f"a change of {owner}{ask.name}"
        if ask.kind == "Items":
            return f"a member of the {ask.object.type_name} {name or hex(ask.object.address)}"
    except GdbextError as e:
        log.passed_over(e)
    return ask.text or f"the {ask.kind} {hex(ask.object.address) if ask.object is not None else ''}".strip()


def offer(found: Edge, poll: Poll, agent: Any, others: Sequence[Any], reachable: Reachable, node: Callable[[Any], Any]) -> None:
    """Sets the candidates of a loop that only asks: the agents that can reach what it asks for, and whose code names it. If none
    does, and what it asks for may be changed without an object that leads there, all `others` may."""
    references = reachable.references
    able: dict[int, Any] = {}
    for ask in poll.asks:
        for one in _able(ask, others, reachable):
            if one is not agent and one in others:
                able[id(one)] = one
    found.doubted = any(ask.kind in (*ANYBODY, "Items") for ask in poll.asks)
    bystanders = [one for one in able.values() if not any(_names(references, one, found, ask) for ask in poll.asks)]
    if not able and any(ask.kind in ANYBODY for ask in poll.asks):
        able = {id(one): one for one in others if one is not agent}
    found.candidates, found.bystanders = [node(one) for one in able.values()], [node(one) for one in bystanders]


def _able(ask: Ask, others: Sequence[Any], reachable: Reachable) -> list[Any]:
    if ask.object is None:
        return []
    if ask.kind == "Flag" and ask.object.type.builtin_name == "dict":
        return [one for one in others if any(_globals(frame) == ask.object.address for frame in one.python)]
    return reachable.agents_of(ask.object.address, lambda agent: False)


def _globals(frame: Any) -> int:
    try:
        return int(frame.globals().address)
    except GdbextError as e:
        log.passed_over(e)
        return 0


def _names(references: References, agent: Any, found: Edge, ask: Ask) -> bool:
    """Whether an agent's code may give what is asked for."""
    if ask.kind != "Flag":
        return may_end(references, agent.python, found)
    return any(ask.name in references.names(frame) for frame in agent.python if not path_of(frame).endswith("threading.py"))
