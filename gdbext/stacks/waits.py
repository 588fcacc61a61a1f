"""The wait-for graph: edges, cycles, and the end of a chain. Pure: it reads no process.

A node is any hashable value: (process name, tid) for a thread, (process name, "task NAME") for an asyncio task.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Callable, Iterable, Sequence

Node = Any  # hashable


@dataclass(eq=False)
class Edge:
    """`waiter` waits for `lock` (text) of `kind`: "GIL", "mutex", "condition", "Lock", "RLock", "Queue", "asyncio.Lock", …

    * `owner`: the node that has it, None where not known
    * `how`: how the owner is known ("" by the lock itself, "with", "between acquire and release"); for a queue "get", "put",
      "join"
    * `candidates`: nodes one of which may have it, or may wake the waiter
    * `note`: one more sentence
    * `orphan`: the owner does not exist in this process
    * `address`: of the lock, 0 for none
    * `shared`: (kind, key) of a lock that other processes may have (`ipc_locks.resolve`)
    * `outside`: processes that have it and were not read
    * `unread`: pids of processes that may have it and were not read
    * `polls`: the waiter asks again and again; `in_one_call`: native code does that for it, in one call
    * `breaks`: its own code may free what it tries to take
    * `limit`: the wait has a time limit
    * `ended`: names of threads that have ended and could have ended the wait
    * `pid`: of the process whose end it waits for; `pids`: of those one of which has to give it a result, 0 for one that is not
      known here
    * `doubted`: the lock names its one candidate, which cannot reach it; of a semaphore with an owner, others may have permits
    * `named`: the waiter's own code has a name for the object
    * `open`: why the wait should be over, by the object's own state
    * `pool`: the `candidates` take work from one queue, so no other can end the wait
    * `task`: the address of the asyncio task that has to end
    * `every`: all candidates have to act
    * `sharers`: the pids of all processes that could end the wait; [] where others could, or that is not known
    * `bystanders`: candidates whose own code does not end such a wait (`givers.may_end`)
    """

    waiter: Node
    lock: str
    kind: str
    owner: Node = None
    how: str = ""
    candidates: list[Node] = field(default_factory=list)
    note: str = ""
    orphan: bool = False
    address: int = 0
    where: str = ""
    shared: Any = None
    outside: list[str] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)
    polls: bool = False
    in_one_call: bool = False
    breaks: bool = False
    limit: bool = False
    ended: list[str] = field(default_factory=list)
    pid: int = 0
    pids: list[int] = field(default_factory=list)
    doubted: bool = False
    named: bool = True
    open: str = ""
    pool: bool = False
    task: int = 0
    every: bool = False
    sharers: list[int] = field(default_factory=list)
    bystanders: list[Node] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"Edge({self.waiter} -> {self.owner}: {self.lock})"


def tell_apart(edges: Iterable[Edge]) -> None:
    """Of locks that their waiters call the same, says where each lies: of two threads that hold each other's lock both may wait
    for "the Lock y"."""
    called: dict[str, dict[int, list[Edge]]] = {}
    for edge in edges:
        if edge.address:
            called.setdefault(edge.lock, {}).setdefault(edge.address, []).append(edge)
    for several in called.values():
        for address, waits in several.items():
            for edge in waits if len(several) > 1 else ():
                edge.lock += f" ({address:#x})"


def cycles(edges: Iterable[Edge]) -> list[list[Edge]]:
    """Every cycle once, as the edges round it, beginning with its smallest node. An edge has one owner; one that is doubted makes
    no cycle: another may end that wait. Where a node has several edges, each is followed."""
    out: dict[Node, list[Edge]] = {}
    for edge in edges:
        if edge.owner is not None and not edge.doubted:
            out.setdefault(edge.waiter, []).append(edge)
    found: list[list[Edge]] = []
    done: set[Node] = set()
    for start in sorted(out, key=repr):
        path: list[Edge] = []
        on_path, todo = {start: 0}, [(start, 0)]
        while todo:  # depth first, by hand: a chain may be longer than Python's own stack
            node, index = todo.pop()
            following = out.get(node, [])
            if index >= len(following) or node in done:
                done.add(node)
                on_path.pop(node, None)
                if path:
                    path.pop()
                continue
            todo.append((node, index + 1))
            edge = following[index]
            if edge.owner in on_path:
                found.append(_rotated([*path[on_path[edge.owner] :], edge]))
            elif edge.owner not in done:
                path.append(edge)
                on_path[edge.owner] = len(path)
                todo.append((edge.owner, 0))
    unique: dict[Any, list[Edge]] = {}
    for cycle in found:
        unique.setdefault(tuple((e.waiter, e.address, e.lock) for e in cycle), cycle)
    return list(unique.values())


def _rotated(cycle: list[Edge]) -> list[Edge]:
    first = min(range(len(cycle)), key=lambda i: repr(cycle[i].waiter))
    return cycle[first:] + cycle[:first]


def root(edges: Iterable[Edge], node: Node) -> tuple[Node, list[Edge]]:
    """The end of the chain of owners from `node`: (the last node, the edges on the way). A cycle ends it too; one that is doubted
    is followed to the first owner that is doubted, who is left out."""
    by_waiter: dict[Node, Edge] = {}
    way: list[Edge] = []
    seen: set[Node] = set()
    for edge in edges:
        by_waiter.setdefault(edge.waiter, edge)
    while node in by_waiter and node not in seen:
        seen.add(node)
        edge = by_waiter[node]
        way.append(edge)
        if edge.owner is None:
            break
        node = edge.owner
    if node in seen:
        first = next(i for i, edge in enumerate(way) if edge.waiter == node)
        doubted = next((i for i in range(first, len(way)) if way[i].doubted), None)
        if doubted is not None:
            return way[doubted].waiter, [*way[:doubted], replace(way[doubted], owner=None)]
    return node, way


def _has(edge: Edge, owner: str) -> str:
    return f"is {owner}" if edge.kind in ("Thread", "task") else f"{owner} holds"


def sentence(cycle: Sequence[Edge], name: Callable[[Node], str]) -> str:
    """A cycle as a sentence; `name(node)` gives a node's name."""
    parts = [f"{name(e.waiter)} waits for {e.lock}, which {_has(e, name(e.owner))}" for e in cycle]
    if len(cycle) == 1:
        return f"{name(cycle[0].waiter)} waits for {cycle[0].lock}, which it holds itself."
    return "; ".join(parts) + ": none of them can continue."
