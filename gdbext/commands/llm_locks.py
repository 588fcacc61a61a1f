"""llm-locks: who waits for whom."""

from __future__ import annotations

from typing import Any

from ..answers.locks import ANSWER, edge_data, edge_lines, lock_chains, merged_edges, merged_lines, untold_lines
from ..answers.places import closing, node_text, nodes_of, place
from ..api import choosing
from ..api.waits import Look
from ..render.text import Style, escape
from ..session.command import Answer, Args, Command
from ..session.session import Session
from ..stacks import snapshots, waits


class LlmLocks(Command):
    """Show which thread waits for which lock and who has it: the GIL, pthread mutexes, Python's locks and queues.

    asyncio tasks are waiters and owners like threads. Python Lock, RLock, Condition, Semaphore, Event, Barrier, Queue,
    Thread.join, futures, the import lock and logging's locks are known by the frames and the address that a thread waits on. A
    plain Lock keeps no owner: it is found by the frame that is inside its `with`, or between its acquire and its release;
    else the threads that can reach it are listed. A cycle is said as a sentence, and so is an owner that does not exist in this
    process, as after a fork.

      (gdb) llm-locks TP0
      TP0 thread 4242 (MainThread)  waits for the Lock self.cache_lock in Cache.put (cache.py:88)
        held by TP0 thread 4260 (evictor), inside its with in Cache.evict (cache.py:120)
      TP0 thread 4260 (evictor)  waits for the RLock self.pool_lock in Pool.free (pool.py:31)
        held by TP0 thread 4242 (MainThread)
      CYCLE: TP0 thread 4242 (MainThread) waits for …; TP0 thread 4260 (evictor) waits for …: none of them can go on.

    Native code: a mutex names its owner, a rwlock the thread that has it for writing; a barrier, a pthread_once, the guard of a
    C++ static and System V's objects name none. What else native code waits for is named by its function.

    A lock between processes (a mutex in shared memory, multiprocessing's, a locked file) has an owner here where its process is
    among those looked at. WHAT as for llm-stacks; every process is copied in a pause of milliseconds and runs on.
    The locks of several machines (ssh:A ssh:B, pods/NS/app=x, slurm:JOB, ray:) are one answer."""

    name = "llm-locks"
    tool = "locks"
    copies = 1
    group = "hang"
    operand = "[WHAT...]"
    completion = "what"
    takes_target = False
    standalone = True
    fields = ANSWER

    def run(self, session: Session, args: Args) -> Answer:
        taken = snapshots.take_snapshots(choosing.resolve_processes(session, args.operand_text, routers=True), session.targets)
        views, partial, failed = snapshots.read_all(taken)
        look = Look(views)
        partial += look.partial
        edges = look.edges
        untold = [{**place(view, th), "function": escape(what)} for view, th, what in look.untold]
        nodes = nodes_of(views)
        cycles = waits.cycles(edges)
        data: dict[str, Any] = {
            "edges": [edge_data(e, nodes) for e in edges],
            "cycles": [
                {"edges": [edge_data(e, nodes) for e in c], "sentence": waits.sentence(c, lambda n: node_text(n, nodes))}
                for c in cycles
            ],
            "chains": lock_chains(look.states, nodes),
            "untold": untold,
            "asleep": look.asleep,
            "ranks_read": len(views),
            "ranks_total": len(taken),
            "pauses": snapshots.pauses(taken),
            "failed": failed,
        }
        names = {view.pid: view.name for view in views if view.pid is not None}

        def text(style: Style) -> str:
            return "\n".join(_lines(data, edge_lines(edges, nodes, style), partial, style) + closing(data, names, style))

        return Answer(data, text, partial)

    def merge(self, args: Args, answers: list[tuple[str, Any]], failed: list[dict[str, Any]]) -> Answer:
        """The locks of several machines (session/nodes.py), `(node, answer)` each: none is of two machines."""
        data, partial = merged_edges(answers, failed)

        def text(style: Style) -> str:
            return "\n".join(_lines(data, merged_lines(data, style), partial, style) + closing(data, {}, style))

        return Answer(data, text, partial)


def _lines(data: dict[str, Any], edges: list[str], partial: list[str], style: Style) -> list[str]:
    found = edges + [style.bad("CYCLE: ") + c["sentence"] for c in data["cycles"]] + untold_lines(data["untold"], style)
    if found:
        return found
    if data["asleep"]:
        many = "1 native thread sleeps" if data["asleep"] == 1 else f"{data['asleep']} native threads sleep"
        return [f"no thread is seen to wait for a lock; {many} in a futex, for what is not known"]
    return ["no thread that could be read waits for a lock" if partial or data["failed"] else "no thread waits for a lock"]
