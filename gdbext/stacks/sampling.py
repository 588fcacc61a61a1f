"""What several processes do during a sampling window of about a second: CPU clocks, states, Python stacks, system calls, tasks
and counters are read without stopping anything; then one snapshot of each process gives every stack whole, and where that is not
enough it is looked on. `verdict.from_samples` turns the samples into the facts that the rules judge."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import log
from ..access.cgroups import frozen_by
from ..access.proc import process_clock
from ..access.procfs import cpu_of, state_of, wait_channel
from ..access.proctable import ProcTable
from ..access.ptrace import lasting_stops
from ..access.retry import settled_counts
from ..access.snapshot import CoreFileTarget
from ..cpython import event_loops
from ..cpython.runtime import open_runtime
from ..engines import shm_rings
from ..errors import GdbextError
from ..observe import system_calls
from ..observe.clocks import ancestors, descendants, ended_children, handled_signals, how_ended
from ..observe.observer import Observer, repeatedly
from ..observe.stack_keys import stack_key
from ..observe.window import Window
from ..torch import collectives
from . import async_waits, ipc_locks, locks, snapshots, threads
from .python_waits import path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..cpython.runtime import Runtime
    from ..engines.targets import Targets

MAX_QUEUES = 256  # whose counts are compared
MAX_TURNS = 1 << 20  # items through a queue between two readings of its count, one after the other
TICKS, TICK = 4, 0.003  # times, seconds


@dataclass
class Counter:
    """Something that progress changes, at two looks: `what` in words, `before`, `after` (numbers, or text)."""

    label: str
    pid: int
    what: str
    before: Any
    after: Any

    @property
    def moved(self) -> bool:
        return bool(self.before != self.after)


@dataclass(eq=False)
class ProcessSamples:
    """One process during the window."""

    snapshot: Any  # its copy (`snapshots.ProcessSnapshot`)
    view: Any = None  # of the copy (`threads.ProcessView`); None: `why`
    why: str = ""
    window: Window = field(default_factory=Window)  # what its threads did
    edges: list[Any] = field(default_factory=list)  # what its threads wait for
    state: str = ""  # the letter of proc(5)
    world: tuple[int, int] | None = None  # (rank, size) of its torch.distributed group
    links: set[Any] | None = None  # connections of a rank that is no engine's; None: not known
    partial: list[str] = field(default_factory=list)  # why this is not all
    ended: str = ""  # how it has ended
    frozen: str = ""  # the control group that holds it, in words
    ended_children: list[tuple[int, str]] = field(default_factory=list)  # [(pid, what)] that it has not asked about
    rings: list[Any] = field(default_factory=list)
    counts: list[Any] = field(default_factory=list)  # of collectives
    calls: dict[int, system_calls.Call] = field(default_factory=dict)  # {tid: the system call that it is in}
    tasks: async_waits.AsyncState = field(default_factory=async_waits.AsyncState)  # at the last sample
    moved_tasks: set[Any] = field(default_factory=set)
    counters: list[Counter] = field(default_factory=list)  # of progress
    children: dict[int, float] = field(default_factory=dict)  # {pid of a descendant: seconds that it ran in the window}
    ancestors: set[int] = field(default_factory=set)  # pids
    died: tuple[int, str] | None = None  # of a core: (tid, the signal) of the thread whose error ended it
    holders: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)  # {inode: [(pid that has it, whether it writes)]}
    clients: int = 0  # connections to its event loops
    unread: int = 0  # of these and of its listeners those on which something waited to be read or accepted in both samples
    signals: list[str] = field(default_factory=list)  # that it has handlers of its own for
    kernel: dict[int, str] = field(default_factory=dict)  # {tid: the function of the kernel it is in} of those in state D
    first: dict[str, Any] = field(default_factory=dict)  # what was counted at the first sample, and what its loops had to do

    @property
    def pid(self) -> int:
        return int(self.snapshot.pid or 0)

    @property
    def rank(self) -> Any:
        return self.snapshot.rank

    @property
    def name(self) -> str:
        return str(self.view.name if self.view is not None else self.snapshot.name)


class Sampling:
    """What `resolve_processes` returned, while it is sampled: `watch` without stopping it, then `copy` in a stop of milliseconds
    each; after that `go_on` adds to the same samples, and there may be another `copy`. `seen`: `[ProcessSamples]`; `words` as for
    `snapshots.take_snapshots`. The first `copy` is to be in a `with` block."""

    def __init__(self, found: Sequence[Any], targets: Targets, words: Sequence[str] = ()) -> None:
        self.found, self.targets, self.words = found, targets, words
        table = ProcTable()
        self.seen = [ProcessSamples(snap) for snap in snapshots.snapshots_of(found)]
        attached = [one.pid is None or targets.attached(one) is not None for one in found]
        self.live = [s for s, kept in zip(self.seen, attached) if not kept]
        runtimes = _open(self.live, targets, table)
        self.began = time.monotonic()
        self.families = {s.pid: descendants(table, s.pid) for s in self.live}
        self.spent = {pid: cpu_of(pid) for pids in self.families.values() for pid in pids}
        self.held = snapshots.Held([s.snapshot for s in self.live if not s.ended], words)
        self.watches = [_Watch(s, runtimes.get(s.pid)) for s in self.live]

    def __enter__(self) -> Sampling:
        return self

    def __exit__(self, *_: object) -> None:
        self.held.end()

    def watch(self, seconds: float) -> None:
        """The looks that stop nothing."""
        repeatedly([watch.sample for watch in self.watches], seconds)
        for s, watch in zip(self.live, self.watches):
            watch.end()
            s.children = {p: cpu_of(p) - self.spent[p] for p in self.families[s.pid] if state_of(p) not in ("", "Z", "X")}

    def go_on(self, seconds: float) -> None:
        """More of these looks, after a copy."""
        for watch in self.watches:
            watch.go_on()
        self.watch(seconds)
        self._settle()

    def copy(self) -> None:
        """Copies each process and reads the copy."""
        running = {s.pid for s in self.live}

        def then(number: int, snap: Any) -> None:
            _read_copy(self.seen[number], snap, snap.pid in running)

        taken = snapshots.take_snapshots(self.found, self.targets, self.words, then, self.held)
        for s, snap in zip(self.seen, taken):
            if s.snapshot is not snap:  # it was read where it is
                _read_copy(s, snap, False)
        self._settle()
        views = [s.view for s in self.seen if s.view is not None]
        ipc_locks.resolve(views, [e for s in self.seen for e in s.edges])

    def _settle(self) -> None:
        """The states in the end, and who has the other ends of what is waited for."""
        stops = lasting_stops({s.pid for s in self.live})
        for s, watch in zip(self.live, self.watches):
            _last_state(s, s.pid in stops)
            s.kernel = {tid: wait_channel(s.pid, tid) for tid, clock in s.window.after.items() if clock.state == "D"}
            if watch.rt is not None:
                _read_calls(s, watch.rt, [tid for tid in (e.waiter[1] for e in s.edges) if tid in s.window.after])
            if s.rank is None and (s.world or s.counts):
                s.links = system_calls.connections(s.pid)
        wanted = {s.pid: _inodes(s) for s in self.live}
        holders = system_calls.holders_of({inode for inodes in wanted.values() for inode in inodes})
        for s in self.live:
            s.holders = {inode: holders[inode] for inode in wanted[s.pid] if inode in holders}


def _inodes(s: ProcessSamples) -> set[int]:
    """Of the pipes and the other ends of the sockets that a process waits for."""
    calls = [call for call in (*s.calls.values(), *(t.call for t in s.tasks.tasks)) if call is not None]
    sources = [source for call in calls for source in call.sources]
    return {source.inode for source in sources if source.kind == "pipe"} | {p for source in sources for p in source.peers if p}


def _open(live: list[ProcessSamples], targets: Targets, table: ProcTable) -> dict[int, Runtime]:
    found = {}
    for s in live:
        s.state = state_of(s.pid)
        process = table.processes.get(s.pid)
        if s.state in ("", "Z", "X"):
            s.ended = how_ended(process.exit_status) if process is not None and process.exit_status else ""
            continue
        s.ancestors, s.signals = ancestors(table, s.pid), handled_signals(s.pid)
        s.ended_children = ended_children(table, s.pid)
        try:
            found[s.pid] = rt = open_runtime(targets.of(s.snapshot.ref))
            s.snapshot.label = s.snapshot.label or threads.distributed_label(rt)  # the name that its copy will have
        except GdbextError as e:
            log.passed_over(e)  # no Python that can be read: clocks and native stacks are left
    return found


class _Watch:
    """The samples of one process, and what it counts; `rt`: None where it runs no Python that can be read."""

    def __init__(self, s: ProcessSamples, rt: Runtime | None) -> None:
        self.s, self.rt, self.observer = s, rt, Observer(s.pid, rt)
        s.window = self.observer.window

    def go_on(self) -> None:
        """After a copy: where each thread was then counts."""
        threads = self.s.view.threads if self.s.view is not None else ()
        self.observer.resume((th.tid, th.python) for th in threads)

    def sample(self) -> None:
        """Takes a sample."""
        s, rt = self.s, self.rt
        self.observer.sample()
        if rt is None:
            return
        if not s.first:
            s.first = {"counts": self._counted(rt), "taken": event_loops.callbacks_taken(rt)}
        if s.first.get("tasks") is None:  # as they are at the first sample in which they can be listed
            rt.target.invalidate()
            s.first["tasks"] = async_waits.keys(rt)
            if s.first["tasks"]:
                s.first["unread"] = _unread(system_calls.Files(s.pid).watched())

    def end(self) -> None:
        """The last sample."""
        if self.rt is not None:
            self.rt.target.invalidate()
            stands = self.observer.stands
            _last_look(self.s, self.rt, self.s.first["counts"] if stands else _settled(self.rt))
        self.observer.end()

    def _counted(self, rt: Runtime) -> dict[Any, int]:
        """What it counts: one reading does where it stands meanwhile."""
        ran = process_clock(self.s.pid)
        rt.target.drop_pages()
        counts = _counts(rt)
        return counts if self.observer.stands_since(ran) else _settled(rt)


def _last_look(s: ProcessSamples, rt: Runtime, counted: dict[Any, int]) -> None:
    """What is compared with the first look (`counted`), and what tells what threads and tasks wait for."""
    s.counters = []
    for key, before in s.first["counts"].items():
        if key in counted:
            s.counters.append(Counter(s.name, s.pid, key[0] if isinstance(key, tuple) else str(key), before, counted[key]))
    try:
        tids = [th.tid for th in rt.target.threads()]
        s.calls = system_calls.read(rt.target, tids)
        light = threads.read_threads(rt.target, rt, [], native=False) if async_waits.used(rt) else []
        s.tasks = async_waits.read(s.name, rt, light, time.monotonic())
        _read_calls(s, rt, [loop.tid for loop in s.tasks.loops if loop.tid])
        for loop in s.tasks.loops:
            taken = s.first.get("taken", {}).get(loop.address)
            if taken is not None and loop.taken is not None:
                loop.turned = loop.taken >= taken + 2  # a callback counts two
        files = system_calls.Files(s.pid)
        for task in s.tasks.tasks:
            if task.descriptor >= 0:
                task.call = system_calls.Call("recv", [files.source(task.descriptor)])
        if s.tasks.loops:
            watched = files.watched()
            s.clients = len({source.inode for source in watched if source.kind == "served" and source.tcp})
            s.unread = len(_unread(watched) & s.first.get("unread", set()))
    except GdbextError as e:
        s.partial.append(str(e))
        s.tasks = async_waits.AsyncState()
        return
    before, now = s.first.get("tasks"), s.tasks.keys()
    if before is None or now is None:  # nothing is known of their progress: nobody is said to stand
        s.moved_tasks = {t.node for t in s.tasks.tasks}
        return
    kept = {loop.address for loop in s.tasks.loops if loop.turned is False}  # what runs there has not come to its end
    stays = {t.address for t in s.tasks.tasks if t.loop in kept}
    changed = {address for address, key in now.items() if before.get(address) != key} - stays
    slept = {t.address for t in s.tasks.tasks if t.kind == "sleep"}  # a sleep ends by itself: no progress
    gone = sum(address not in now for address in before)
    s.moved_tasks = {t.node for t in s.tasks.tasks if t.address in changed}
    if before or now:
        s.counters.append(Counter(s.name, s.pid, "asyncio tasks that went on or ended", 0, len(changed - slept) + gone))


def _read_calls(s: ProcessSamples, rt: Runtime, tids: Sequence[int]) -> None:
    """The calls of threads that wait: one that had just woken, to look at its timers or because its wait has a time limit, is
    soon where it waits."""
    for _ in range(TICKS):
        woken = [tid for tid in tids if tid not in s.calls]
        if not woken:
            break
        time.sleep(TICK)
        s.calls.update(system_calls.read(rt.target, woken))


def _unread(watched: Sequence[system_calls.Source]) -> set[int]:
    """The inodes of those on which something waits."""
    return {source.inode for source in watched if source.unread}


def _settled(rt: Runtime) -> dict[Any, int]:
    return settled_counts(rt.target, lambda: _counts(rt), MAX_TURNS)


def _counts(rt: Runtime) -> dict[Any, int]:
    """{(what, address): count} of the queues that threads stand at, of collectives and of rings: each end of a deque that changes
    counts."""
    found: dict[Any, int] = {}
    try:
        for py in rt.threads()[:MAX_QUEUES]:
            for frame in rt.frames(py)[:8]:
                if path_of(frame).endswith("queue.py"):
                    me = dict(frame.locals()).get("self")
                    turns = event_loops.deque_turns(me.attr("queue")) if me is not None else None
                    if me is not None and turns is not None:
                        found[f"items through the {me.type_name} at {me.address:#x}", me.address] = turns
        for count in collectives.find(rt):
            for operation, begun in count.begun.items():
                found[f"collectives begun in {count.group}" + (f" ({operation})" if operation else ""), count.group] = begun
        for ring in shm_rings.find(rt):
            end = "written" if ring.reader is None else "read"
            found[f"place that is {end} next in ring {ring.name}", ring.name, ring.reader] = ring.index
    except (GdbextError, AttributeError) as e:
        log.passed_over(e)  # it changed while it was read: what was counted by then counts
    return found


def _last_state(s: ProcessSamples, stopped: bool) -> None:
    """`stopped`: something holds it for longer than another reader would."""
    now = state_of(s.pid) or "X"  # it was there when we began
    s.frozen = frozen_by(s.pid)
    s.state = "S" if now in ("T", "t") and not stopped else now


def _read_copy(s: ProcessSamples, snap: Any, live: bool) -> None:
    """Takes in what the copy of a process says."""
    s.snapshot = snap
    if snap.target is None:
        s.why = snap.reason
        return
    try:
        s.view = threads.view_of(snap)
        if not live and isinstance(snap.target, CoreFileTarget):
            s.died = snap.target.fatal_signal()
        s.edges, why = locks.find(s.view)
        s.partial += s.view.partial + snap.partial
        if s.view.rt is not None:
            s.rings, s.counts = shm_rings.find(s.view.rt), collectives.find(s.view.rt)
            s.world = threads.world(s.view.rt)
            if s.world is None and s.rank is None:  # an engine's default group may span many engines
                s.world = next(((c.rank, c.size) for c in s.counts if c.default and c.rank is not None), None)
            if not live:
                s.tasks = async_waits.read(s.name, s.view.rt, s.view.threads)
        for th in s.view.threads:
            if th.python and s.window.thread(th.tid).stacks:
                s.window.thread(th.tid).stacks.append(stack_key(th.python))
        # of a thread that gets on it is no matter where it would have waited at that moment
        s.partial += [
            f"thread {tid}: {reason}" if tid else reason for tid, reason in why.items() if not s.window.thread(tid).moved
        ]
    except GdbextError as e:
        s.why = str(e)
