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
from ..cpython import event_loops, gil
from ..cpython.runtime import open_runtime
from ..cpython.stack_keys import advanced, stack_key
from ..engines import shm_rings
from ..errors import GdbextError
from ..torch import collectives
from . import async_waits, effects, ipc_locks, locks, snapshots, system_calls, threads
from .clocks import Clock, ancestors, clocks, descendants, ended_children, handled_signals, how_ended
from .python_waits import path_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..cpython.runtime import Runtime
    from ..engines.targets import Targets

GIL_LOOKS = 12
STACK_LOOKS = 6
MAX_QUEUES = 256  # whose counts are compared
MAX_TURNS = 1 << 20  # items through a queue between two readings of its count, one after the other
TICKS, TICK = 4, 0.003  # times, seconds
SEEN_OFTEN = 2  # looks after which it is looked for what a thread changes that has not advanced
KERNEL = 0.1  # part of a thread's time: who is in the kernel for longer may change what lies there
MAX_LOOKED = 64  # threads of a process whose stacks are compared from look to look, of those that ran at all


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
    """One process during the window: `snapshot`, `view` (None: `why`), `edges`, `before` and `after` (`clocks`), `window` seconds
    between them, `stacks`: {tid: [stack at each look]}, `effects`: the same at the later looks at one that has not advanced,
    `gil`: `Samples` or None, `state` of the process, `world`: (rank, size) of its torch.distributed group or None, `calls`:
    {tid: system call}, `tasks`: its asyncio at the last look, `counters` of progress, `children`: {pid: seconds that it ran in
    the window} of its descendants, `ancestors`: pids, `ended`: how it has ended, `ended_children`: [(pid, what)] that it has not
    asked about, `links`: connections of a rank that is no engine's (None: not known), `rings`, `counts`: of collectives,
    `holders`: {inode: [(pid, writes)]}, `clients`: connections to its event loops, `unread`: of these and of its listeners
    those on which something waited to be read or accepted at both looks."""

    snapshot: Any
    view: Any = None
    why: str = ""
    edges: list[Any] = field(default_factory=list)
    before: dict[int, Clock] = field(default_factory=dict)
    after: dict[int, Clock] = field(default_factory=dict)
    window: float = 0.0
    stacks: dict[int, list[Any]] = field(default_factory=dict)
    effects: dict[int, list[effects.Effect]] = field(default_factory=dict)
    gil: Any = None
    state: str = ""
    world: tuple[int, int] | None = None
    links: set[Any] | None = None
    partial: list[str] = field(default_factory=list)
    ended: str = ""
    frozen: str = ""  # the control group that holds it, in words
    ended_children: list[tuple[int, str]] = field(default_factory=list)
    rings: list[Any] = field(default_factory=list)
    counts: list[Any] = field(default_factory=list)
    calls: dict[int, system_calls.Call] = field(default_factory=dict)
    tasks: async_waits.AsyncState = field(default_factory=async_waits.AsyncState)
    moved_tasks: set[Any] = field(default_factory=set)
    counters: list[Counter] = field(default_factory=list)
    children: dict[int, float] = field(default_factory=dict)
    ancestors: set[int] = field(default_factory=set)
    parent_gone: bool = False
    died: tuple[int, str] | None = None  # of a core: (tid, the signal) of the thread whose error ended it
    waited: bool = False  # its main thread stood at a look in a wait that others end
    holders: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)
    clients: int = 0
    unread: int = 0
    signals: list[str] = field(default_factory=list)  # that it has handlers of its own for
    kernel: dict[int, str] = field(default_factory=dict)  # {tid: the function of the kernel it is in} of those in state D
    first: dict[str, Any] = field(default_factory=dict)  # what was counted at the first look, and what its loops had to do

    @property
    def pid(self) -> int:
        return int(self.snapshot.pid or 0)

    @property
    def rank(self) -> Any:
        return self.snapshot.rank

    @property
    def name(self) -> str:
        return str(self.view.name if self.view is not None else self.snapshot.name)

    def ran(self, tid: int) -> float | None:
        """Seconds that a thread ran in the window, None where that is not known."""
        a, b = self.before.get(tid), self.after.get(tid)
        return b.run - a.run if a and b else None

    def wanted(self, tid: int) -> float | None:
        """Seconds that a thread ran or waited for a processor, None where that is not known."""
        a, b = self.before.get(tid), self.after.get(tid)
        return b.run + b.queued - a.run - a.queued if a and b else None

    @property
    def pressed(self) -> float:
        """The part of the window for which that thread waited for a processor which waited longest."""
        waited = [b.queued - self.before[tid].queued for tid, b in self.after.items() if tid in self.before]
        return max(waited, default=0.0) / self.window if self.window else 0.0

    def woke(self, tid: int) -> int:
        """How often a thread went to sleep in the window."""
        a, b = self.before.get(tid), self.after.get(tid)
        return b.sleeps - a.sleeps if a and b else 0

    def moved(self, tid: int) -> bool:
        """Whether two samples show different Python stacks of a thread."""
        return len(set(self.stacks.get(tid, ()))) > 1

    def advanced(self, tid: int) -> bool:
        """Whether variables of a thread's frames changed while its calls stayed the same: the thread makes progress in a loop."""
        return advanced(self.stacks.get(tid, ()))

    def futile(self, tid: int) -> bool:
        """Whether a thread that runs is known to change nothing: what it can reach stayed as it is, and so did the kernel's part
        of its time."""
        found = self.effects.get(tid, [])
        if len(found) < 2 or found[0].state is None or any(one.state != found[0].state for one in found):
            return False
        return found[-1].kernel - found[0].kernel <= KERNEL * (found[-1].ran - found[0].ran) > 0


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
        began = time.monotonic()
        for number in range(STACK_LOOKS):
            for watch in self.watches:
                watch.look()
            left = began + seconds * (number + 1) / STACK_LOOKS - time.monotonic()
            if left > 0:
                time.sleep(left)
        for s, watch in zip(self.live, self.watches):
            watch.end()
            s.window = time.monotonic() - self.began
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
            s.kernel = {tid: wait_channel(s.pid, tid) for tid, clock in s.after.items() if clock.state == "D"}
            if watch.rt is not None:
                _read_calls(s, watch.rt, [tid for tid in (e.waiter[1] for e in s.edges) if tid in s.after])
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
    """The looks at one process; `rt`: None where it runs no Python that can be read."""

    def __init__(self, s: ProcessSamples, rt: Runtime | None) -> None:
        self.s, self.rt = s, rt
        self.start = self.ran = process_clock(s.pid)
        self.last = s.before = clocks(s.pid)
        self.gil: gil.Samples | None = None

    def go_on(self) -> None:
        """After a copy: the stops for it woke who slept, which does not count, and where each thread stood then does."""
        s = self.s
        for tid, clock in clocks(s.pid).items():
            if tid in s.before and tid in s.after:
                s.before[tid].sleeps += clock.sleeps - s.after[tid].sleeps
        for th in s.view.threads if s.view is not None else ():
            if th.python and th.tid not in s.stacks:
                s.stacks[th.tid] = [stack_key(th.python)]

    def look(self) -> None:
        """Looks. Where no thread has run since the last look all is as it was."""
        s, rt, first = self.s, self.rt, not self.s.first
        if rt is None:
            return
        if first or not self._stands_since(self.ran):
            self.ran = self.start if first else process_clock(s.pid)
            now = s.before if first else clocks(s.pid, whole=False)  # who has not run since stands where it stood
            _python_stacks(s, rt, {tid for tid, c in now.items() if tid == s.pid or c.state == "R" or c.mark != self._mark(tid)})
            self.last = now
            s.waited = s.waited or system_calls.waits_for_others(s.pid, rt.target.arch)
            self.gil = _gil(rt)
        elif s.stacks.get(s.pid):
            s.stacks[s.pid].append(s.stacks[s.pid][-1])
        if first:
            s.first = {"counts": self._counted(rt), "taken": event_loops.callbacks_taken(rt)}
        if s.first.get("tasks") is None:  # as they are at the first look at which they can be listed
            rt.target.invalidate()
            s.first["tasks"] = async_waits.keys(rt)
            if s.first["tasks"]:
                s.first["unread"] = _unread(system_calls.Files(s.pid).watched())
        if self.gil is not None:
            s.gil = self.gil if s.gil is None else s.gil + self.gil

    def end(self) -> None:
        """The last look."""
        if self.rt is not None:
            self.rt.target.invalidate()
            stands = self._stands_since(self.start)
            _last_look(self.s, self.rt, self.s.first["counts"] if stands else _settled(self.rt))
        self.s.after = clocks(self.s.pid)

    def _stands_since(self, ran: int | None) -> bool:
        """Whether no thread has run since the process's clock stood at `ran`. That clock says nothing of a thread that is on a
        processor all the while and has not been counted yet."""
        on_a_processor = any(c.state == "R" for c in self.s.before.values())
        return ran is not None and process_clock(self.s.pid) == ran and not on_a_processor

    def _counted(self, rt: Runtime) -> dict[Any, int]:
        """What it counts: one reading does where it stands meanwhile."""
        ran = process_clock(self.s.pid)
        rt.target.drop_pages()
        counts = _counts(rt)
        return counts if self._stands_since(ran) else _settled(rt)

    def _mark(self, tid: int) -> Any:
        return self.last[tid].mark if tid in self.last else None


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
        s.edges, why = locks.find(s.view)
        s.partial += s.view.partial + snap.partial
        if s.view.rt is not None:
            s.rings, s.counts = shm_rings.find(s.view.rt), collectives.find(s.view.rt)
            s.world = threads.world(s.view.rt)
            if s.world is None and s.rank is None:  # an engine's default group may span many engines
                s.world = next(((c.rank, c.size) for c in s.counts if c.default and c.rank is not None), None)
            if not live:
                s.died = snap.target.fatal_signal() if isinstance(snap.target, CoreFileTarget) else None
                s.tasks = async_waits.read(s.name, s.view.rt, s.view.threads)
        for th in s.view.threads:
            if th.python and th.tid in s.stacks:
                s.stacks[th.tid].append(stack_key(th.python))
        # of a thread that gets on it is no matter where it would have waited at that moment
        s.partial += [f"thread {tid}: {reason}" if tid else reason for tid, reason in why.items() if not s.moved(tid)]
    except GdbextError as e:
        s.why = str(e)


def _python_stacks(s: ProcessSamples, rt: Runtime, active: set[int]) -> None:
    rt.target.invalidate()
    try:
        pythons = rt.threads()
    except GdbextError as e:
        log.passed_over(e)
        return
    for py in [py for py in pythons if py.tid in active][:MAX_LOOKED]:
        stacks = s.stacks.setdefault(py.tid, [])
        try:
            frames = rt.frames(py)
            stacks.append(stack_key(frames))
        except GdbextError as e:
            log.passed_over(e)
            stacks.append(("torn", time.monotonic()))  # it changed while it was read: it moves
            continue
        if len(stacks) > SEEN_OFTEN and not advanced(stacks):
            effect = effects.of_thread(rt, s.pid, py.tid, frames, stacks)
            if effect is not None:
                s.effects.setdefault(py.tid, []).append(effect)


def _gil(rt: Runtime) -> gil.Samples | None:
    try:
        return gil.sample(rt, GIL_LOOKS // STACK_LOOKS, 0.005)
    except GdbextError as e:
        log.passed_over(e)
        return None
