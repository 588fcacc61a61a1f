"""What threads wait for, at one moment: the wait of each thread, and the end of its chain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Sequence

from .. import log
from ..errors import GdbextError
from ..render import html
from ..stacks import async_waits, ipc_locks, locks, native_waits
from ..stacks.threads import ProcessView, ThreadView
from ..stacks.waits import Edge
from ..verdict import from_samples
from ..verdict.facts import Facts, Node, ProcessState
from ..verdict.graph import step
from ..verdict.states import End as Last
from ..verdict.walk import chain_of

if TYPE_CHECKING:
    from .processes import Thread
    from .values import Object


class Look:
    """The waits of several processes as one look at their copies shows them.

    * `edges`: what threads and asyncio tasks wait for
    * `states`: the processes as facts; `facts`: all of them
    * `partial`: why that is not everything
    * `untold`: `[(view, thread, function)]` of native code that waits for what cannot be told; `asleep`: threads that sleep in a
      futex, for what is not known"""

    def __init__(self, views: Sequence[ProcessView]) -> None:
        self.edges: list[Edge] = []
        self.states: list[ProcessState] = []
        self.partial: list[str] = []
        self.untold: list[tuple[ProcessView, ThreadView, str]] = []
        self.asleep = 0
        for view in views:
            self._add(view)
        ipc_locks.resolve(views, self.edges)
        self.facts = Facts(self.states)

    def _add(self, view: ProcessView) -> None:
        found, why = locks.find(view)
        tasks = async_waits.read(view.name, view.rt, view.threads) if view.rt is not None else async_waits.AsyncState()
        self.states.append(from_samples.at_one_look(view, found, tasks))
        self.edges += found + [task.edge for task in tasks.tasks if task.edge is not None]
        self.partial += [
            f"{view.name} thread {tid}: {reason}" if tid else f"{view.name}: {reason}" for tid, reason in why.items()
        ]
        self.partial += [f"{view.name}: {reason}" for reason in tasks.partial]
        unknown, sleeping = native_waits.untold(view, {e.waiter[1] for e in found})
        self.untold += [(view, thread, what) for thread, what in unknown]
        self.asleep += sleeping


class Wait:
    """What one thread waits for, as one look shows it. A sleep, and a wait for input from outside, are none."""

    def __init__(
        self, look: Look, thread: Thread, node: Node, at: Callable[[Node], Thread | None], made: Callable[[int], Object | None]
    ) -> None:
        self.thread, self._look, self._node, self._at, self._made = thread, look, node, at, made
        facts = look.facts.thread(node)
        self._edge: Edge | None = facts.edge if facts is not None else None
        self._step = step(look.facts, node)

    @property
    def waits_for(self) -> str:
        """In words: "the Lock self.cache_lock"; '' where it waits for nothing that is known."""
        return self._edge.lock if self._edge is not None else self._step.waits_for

    @property
    def kind(self) -> str:
        """ "Lock", "RLock", "Queue", "GIL", "mutex", "condition" ...; '' where it is none of those that are known."""
        return self._edge.kind if self._edge is not None else ""

    @property
    def where(self) -> str:
        """The place in the code: "Cache.put (cache.py:88)"; '' where it is not known."""
        return self._edge.where if self._edge is not None else ""

    @property
    def object(self) -> Object | None:
        """The Python object that it waits for; None for a native one, and where it is not known."""
        return self._made(self._edge.address) if self._edge is not None and self._edge.address else None

    @property
    def owner(self) -> Thread | None:
        """The thread that has the lock; None where there is none, or it is not known."""
        return self._at(self._edge.owner) if self._edge is not None and self._edge.owner is not None else None

    @property
    def givers(self) -> list[Thread]:
        """The threads that could end the wait: any one of them, or where `every` is true all have to act. Empty where none is
        known."""
        nodes = list(self._step.nodes) or (self._edge.candidates if self._edge is not None else [])
        return [thread for thread in map(self._at, nodes) if thread is not None]

    @property
    def every(self) -> bool:
        """Whether all `givers` have to act."""
        return self._step.every

    @property
    def limit(self) -> bool:
        """Whether the wait ends by itself after a time."""
        return self._edge is not None and bool(self._edge.limit)

    @property
    def note(self) -> str:
        """What more is known of it, in a sentence; ''."""
        return self._edge.note if self._edge is not None else ""

    def end(self) -> End:
        """Where the chain of waits ends: the thread that all before it wait for, or why there is none."""
        chain = chain_of(self._look.facts, self._node)
        return End(chain.end, self._at, [text for _, text in chain.through])

    def __repr__(self) -> str:
        return f"<Wait for {self.waits_for}{f' in {self.where}' if self.where else ''}>"

    def _repr_html_(self) -> str:
        """The wait and its end, for a notebook."""
        rows = [("waits for", self.waits_for), ("in", self.where), ("end", str(self.end()))]
        return html.table(("", ""), rows)


class End:
    """The end of a chain of waits.

    * `state`: `"sleeps"`, `"runs"`, `"moves"`, `"ring"` (it comes back to an earlier one), `"nobody"`, `"unknown"` ...: as
      `chains[].end.state` of llm-hang (docs/json.md)
    * `thread`: the last thread, None where there is none, or it is no thread here
    * `why`: in words
    * `through`: what the threads in between wait for, in words
    * `any_of`: the several ends, where any of them could end the wait"""

    def __init__(self, last: Last, at: Callable[[Node], Thread | None], through: Sequence[str] = ()) -> None:
        self.state, self.why, self.through = last.state, last.why, list(through)
        self.thread = at(last.node) if last.node is not None else None
        self.any_of = [End(one, at) for one in last.any_of]

    def __repr__(self) -> str:
        who = f" {self.thread!r}" if self.thread is not None else ""
        return f"<End {self.state}{who}{': ' + self.why if self.why else ''}>"


def wait_of(
    look: Look, thread: Thread, node: Node, at: Callable[[Node], Thread | None], made: Callable[[int], Any]
) -> Wait | None:
    """The wait of a thread; None where it waits for nothing that another has to do."""

    def object_at(address: int) -> Any:
        try:
            found = made(address)
            return found if found is not None and found.type_name else None
        except GdbextError as e:
            log.passed_over(e)
            return None

    wait = Wait(look, thread, node, at, object_at)
    return wait if wait.waits_for else None
