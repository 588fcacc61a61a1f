"""The threads of a process as facts: their stacks in the copy, and what they did in the window."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Iterable, Sequence

from .. import log
from ..access.procfs import wait_channel
from ..cpython import primitive_states
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from ..observe.system_calls import Call, children_of
from ..observe.window import LEAST
from ..primitives import table
from ..stacks import kept, permits, ray_actors
from ..stacks.async_waits import AsyncState, TaskState
from ..stacks.references import references_of
from ..stacks.threads import ProcessView
from ..stacks.waits import Edge
from . import patterns
from .facts import ProcessState, ThreadState
from .nodes import givers_at
from .words import AWAITED

if TYPE_CHECKING:
    from ..torch.collectives import Count

MIN_GIL_LOOKS = 6
MAX_FRAMES = 8
KEY_BYTES = 32  # of multiprocessing's key
PEERS = {"send": "dst", "recv": "src"}  # functions of distributed_c10d.py: the variable that is a rank of the whole job


def threads_of(view: ProcessView, unread: int | None = None, ended: bool = False) -> list[ThreadState]:
    """The threads of a copy, with their stacks. `unread`: the tid of a main thread that is not in the copy. No other thread is in
    its place. It has `ended` (pthread_exit), or did not come to its stop in time and wants a CPU."""
    found = [
        ThreadState(
            (view.name, th.tid),
            th.name,
            th is view.main,
            th.frames,
            bool(th.python),
            th.idle,
            native=[n.function for n in th.native],
            handles=th.handles,
        )
        for th in view.threads
    ]
    if unread is not None:
        for t in found:
            t.main = False
        name, state = ("main thread", "Z") if ended else ("main thread, not read", "R")
        found.insert(0, ThreadState((view.name, unread), name, True, python=False, idle=ended, state=state))
    return found


def family_of(rt: Runtime) -> str:
    """A digest of the key that a process shares with all that multiprocessing has started from it, and with no other; '' for
    others. Source: Lib/multiprocessing/process.py (`_config["authkey"]`, os.urandom(32))."""
    try:
        scope = rt.module("multiprocessing.process")
        key = scope.item("_current_process").attr("_config").item("authkey").raw_bytes(KEY_BYTES) if scope is not None else b""
        return hashlib.sha256(key).hexdigest()[:32] if len(key) == KEY_BYTES else ""
    except (GdbextError, AttributeError) as e:
        log.passed_over(e)
        return ""


def meet(view: ProcessView, threads: Sequence[ThreadState], counts: Sequence[Count]) -> None:
    """Fills in the group in which each thread waits for others, and the one rank that it waits for, from the variables of its
    innermost frame of torch.distributed."""
    for t, th in zip(threads[-len(view.threads) :], view.threads):
        for frame in th.python if t.collective and counts else ():
            if frame.file.replace("\\", "/").endswith(patterns.TORCH_FILES):
                try:
                    own = dict(frame.locals())
                    pg, rank = own["group"], own.get(PEERS.get(frame.function, ""))
                    at = pg.address if pg is not None and not pg.is_none() else None
                    t.group = next((c.group for c in counts if c.address == at or at is None and c.default), "")
                    t.peer = int(rank.integer()) if rank is not None and not rank.is_none() else None
                except (GdbextError, KeyError) as e:
                    log.passed_over(e)
                break


def name_tasks(edges: Iterable[Edge], tasks: Iterable[TaskState]) -> None:
    """Sets the owner of each edge that waits for an asyncio task."""
    nodes = {task.address: task.node for task in tasks}
    for edge in edges:
        edge.owner = nodes.get(edge.task, edge.owner)


def follow_actors(seen: Sequence[ProcessState]) -> None:
    """Replaces, among those that may give an actor's answer, the thread that runs an actor's event loop by the loop's tasks."""
    for edge in [edge for s in seen for edge in s.edges if edge.kind == ray_actors.KIND and edge.candidates]:
        nodes: list[object] = []
        for node in edge.candidates:
            s = next(s for s in seen if s.name == node[0])
            loop = s.loop_of(node[1])
            nodes += [node] if loop is None else [task.node for task in s.tasks if task.loop == loop.address]
        edge.candidates, edge.every, edge.doubted = nodes, len(nodes) > 0, len(nodes) > 1
        edge.note = edge.note if nodes else "its actor runs no method: its result is on its way, or lost"


def places_in_kernel(s: ProcessState) -> None:
    """Fills in where in the kernel threads are blocked; of a vfork, which child it waits for: the youngest of the thread."""
    for tid, thread in s.window.threads.items():
        blocked = thread.after is not None and thread.after.state == "D"
        thread.kernel = wait_channel(s.pid, tid) if blocked else ""
        if thread.kernel in AWAITED:
            thread.call = Call("wait", peers=children_of(s.pid, tid)[-1:])


def statuses(rt: Runtime | None) -> set[int]:
    """How the children ended, as wait(2) gives it, that the main thread's frames name and that have been asked about."""
    found: set[int] = set()
    with log.passing_over(GdbextError):
        for frame in rt.frames(rt.threads()[0])[:MAX_FRAMES] if rt is not None else ():
            for _, obj in references_of(rt).of_frame(frame):
                row = primitive_states.row_of(obj) if obj.type.is_heap else None
                if row is not None and row.kind == "Process":
                    with log.passing_over(GdbextError):
                        owner = obj.attr("_popen") if "_popen" in dict(obj.fields()) else obj
                        code = owner.attr("returncode")
                        number = None if code.is_none() else int(code.integer())
                        found.update(() if number is None else (number << 8 if number >= 0 else -number,))
    return found


def find_kept(s: ProcessState, rt: Runtime | None) -> None:
    """Looks on the heap of a running process for who has the locks that nobody is known to have."""
    if rt is not None and s.view is not None:
        nodes = {**{id(th): (s.name, th.tid) for th in s.view.threads}, **{id(task): task.node for task in s.tasks}}
        with log.passing_over(GdbextError):
            edges = [t.edge for t in s.threads if t.edge is not None and not t.idle]
            edges += [task.edge for task in s.tasks if task.edge is not None]
            kept.set_owners(edges, rt, [*s.view.threads, *s.tasks], lambda agent: nodes[id(agent)])
        lent = [edge for edge in s.edges if edge.kind in table.LENDS and edge.owner is None and not edge.candidates]
        if lent:  # the copy lacks most of what leads there
            live = [kept.Kept(0, rt.frames(py), node=(s.name, py.tid)) for py in rt.threads()]
            permits.set_all(lent, rt, [*live, *s.tasks])


def lock_own_files(s: ProcessState) -> None:
    """Sets, for each lock on a file that the process itself has by another descriptor, the threads that can reach that one."""
    for t in s.threads:
        edge = t.edge
        if edge is not None and edge.shared and edge.owner is None and not edge.outside and t.call is not None:
            edge.candidates = edge.candidates or givers_at(s, t.node, t.call)
            edge.doubted = edge.doubted or bool(edge.candidates)


def at_one_look(view: ProcessView, edges: Sequence[Edge], seen: AsyncState) -> ProcessState:
    """A process as one copy shows it, with its `edges`: what its threads did before is not known."""
    name_tasks(edges, seen.tasks)
    waits = {edge.waiter: edge for edge in edges}
    found = ProcessState(view.name, pid=view.pid or 0, threads=threads_of(view), tasks=seen.tasks, loops=seen.loops)
    for t in found.threads:
        t.load, t.edge = None, waits.get(t.node)
    return found


def fill_in(s: ProcessState) -> None:
    """Fills in what the window says of the threads of a process that was copied. A process without a copy is not judged."""
    if s.view is None:
        s.tasks, s.loops, s.moved_tasks = [], [], set()
        return
    gil = s.window.gil
    for t, th in zip(s.threads[-len(s.view.threads) :], s.view.threads):
        seen = s.window.thread(th.tid)
        t.moved, t.advanced, t.futile, t.woke = seen.moved, seen.advanced, seen.futile, seen.woke
        t.alters, t.took = seen.alters, seen.took
        t.load, t.wanted = s.window.load(seen.ran), s.window.load(seen.wanted)
        t.state = seen.after.state if seen.after else th.state or "S"
        t.call, t.kernel, t.for_good, t.rounds = seen.call, seen.kernel, seen.for_good, seen.rounds
        t.polls, t.asks_anew = seen.asks is not None, seen.asks_anew(s.window.seconds)
        t.waited = s.window.waited and t.main
        t.holds = bool(gil and gil.count and gil.held.get(th.tid, 0) == gil.count and len(gil.switches) == 1)
    if s.sole is not None and s.read + s.wrote > 0:
        s.sole.futile = False  # what goes through files is in no object
    s.gil_hog = _unreleased_gil(s)
    s.free_threaded = bool(gil and gil.disabled)


def _unreleased_gil(s: ProcessState) -> tuple[object, list[object]] | None:
    """(node, waiters) where one thread held the GIL during the whole window, by the lock's own count, and others waited in at
    least half of the samples. Half is enough: a waiter asks again every 5 ms, and on a busy machine it takes some time until it
    waits again. Python makes a thread give the GIL back after 5 ms when another asks. So a thread that runs and never gives it
    back is in C code. A holder that got no CPU does not count."""
    got = s.window.gil
    if got is None or got.count < MIN_GIL_LOOKS or got.free or len(got.held) != 1 or len(got.switches) != 1:
        return None
    tid = next(iter(got.held))
    waiters = [t for t, n in got.waited.items() if n >= 0.5 * got.count and t not in got.held]
    seen = s.window.thread(tid)
    holder = next((t for t in s.threads if t.node[1] == tid), None)
    if not waiters or holder is None or holder.moved:
        return None
    if seen.after is not None and seen.after.state == "R" and (seen.ran or 0.0) < LEAST:
        return None
    return holder.node, [(s.name, t) for t in waiters]
