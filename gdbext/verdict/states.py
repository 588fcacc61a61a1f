"""The words of the graph of waits: one step of it, the end of a chain, and how a wait turns out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Sequence

from ..observe.system_calls import Call
from ..stacks.waits import Edge
from .facts import Facts, Node
from .words import name_of

# What the last node of a chain does.
MOVES, RUNS, SPINS = "moves", "runs", "spins"
SLEEPS, BLOCKED, STOPPED, ENDED = "sleeps", "blocked", "stopped", "ended"
INPUT, THERE, NOBODY, RING, SEVERAL, UNKNOWN = "input", "there", "nobody", "ring", "several", "unknown"
STATES = {
    MOVES: "it makes progress",
    RUNS: "it runs; whether it makes progress is not known",
    SPINS: "it runs but makes no progress",
    SLEEPS: "it sleeps",
    BLOCKED: "it is blocked in the kernel, where no signal reaches it",
    STOPPED: "it is stopped, or its control group is frozen",
    ENDED: "it has ended",
    INPUT: "it waits for input from outside, which no process here owes",
    THERE: "what it waits for is there, and it was not woken",
    NOBODY: "nothing that was read can end the wait: it is proven, not only that no frame leads to it",
    RING: "it waits for an earlier one in the chain, and only those could end these waits",
    SEVERAL: "any of several could end the wait, and they do not do the same",
    UNKNOWN: "what it waits for, or what could end that, is not known",
}
# How a wait turns out (`walk.Outlook`), from good to bad:
# "moves": it makes progress
# "rests": it waits for input from outside that nothing owes
# "ticks": it wakes from time to time and does nothing else, so the object it waits for is not known
# "works": it runs, and what it should change is not known
# "unknown": also of one that is to go on when its sleep ends
# "answer": a process that was not sampled owes an answer
# "spins": it runs and changes nothing
# "sleeps": it sleeps and never does anything else, or has a lock meanwhile
# "blocked": it is in the kernel, uninterruptibly
# "dead": the thread that should end the wait has ended
# "nobody": no thread that could end the wait was found
ORDER = ("moves", "rests", "ticks", "works", "unknown", "answer", "spins", "sleeps", "blocked", "dead", "nobody")
_OUTLOOKS = {MOVES: "moves", RUNS: "works", SPINS: "spins", BLOCKED: "blocked", INPUT: "rests", NOBODY: "nobody"}


@dataclass
class End:
    """The end of a chain: its `node` (None: there is none, or it is not known), `state` of `STATES`, `why` in words; `pid`: of a
    process that was not sampled; `any_of`: the several ends; `kind`: of `ORDER`, '' where `state` says it."""

    node: Node
    state: str
    why: str = ""
    pid: int = 0
    any_of: list[End] = field(default_factory=list)
    kind: str = ""

    @property
    def outlook(self) -> str:
        return self.kind or _OUTLOOKS.get(self.state, "unknown")


@dataclass
class Step:
    """`waits_for` in words, '' where the node waits for nothing that others give: then `end` says what it does.

    * `nodes`: those that could end the wait, any of them, or `every` one must; `maybe`: those whose own code does not end it
    * `end`: the chain ends here
    * `owned`: the object itself names the `nodes`, so no other can end the wait
    * `unread`: pids of processes that could end it too and were not read; `pids`: of all processes that could
    * `edge`, `call`: what the wait is known by
    * `kind`: of `ORDER`, how it turns out whatever the `nodes` do; '' where that follows from them
    """

    waits_for: str
    nodes: Sequence[Node] = ()
    end: End | None = None
    every: bool = False
    owned: bool = False
    unread: Sequence[int] = ()
    maybe: Sequence[Node] = ()
    pids: Sequence[int] = ()
    edge: Edge | None = None
    call: Call | None = None
    kind: str = ""


def short(facts: Facts, end: End) -> str:
    """An end in words."""
    who = name_of(facts, end.node) if end.node is not None else f"process {end.pid}" if end.pid else ""
    return f"{who}: {end.state}" if who else end.state
