"""What several processes do during a sampling window of about a second. CPU clocks, states, Python stacks, system calls, tasks
and counters are read without stopping anything. Then one snapshot of each process gives every stack whole. Where that is not
enough, sampling goes on. All of it is filled into the facts that the rules judge (`facts.ProcessState`)."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Sequence

from .. import log
from ..access.base import Target
from ..access.cgroups import frozen_by, quotas
from ..access.permission import is_refused
from ..access.proc import ProcTarget, process_clock
from ..access.procfs import bytes_moved, is_gone, program_of, read_maps, state_of
from ..access.proctable import ProcTable
from ..access.ptrace import lasting_stops
from ..access.retry import settled_counts
from ..access.secrets import moved_environment
from ..access.snapshot import CoreFileTarget
from ..cpython import event_loops, poll_loops
from ..cpython.poll_loops import Poll
from ..cpython.runtime import PyThread, Runtime, open_runtime
from ..engines import shm_rings
from ..engines.processes import ProcessRef
from ..errors import GdbextError
from ..observe import families, outside, system_calls
from ..observe.clocks import ancestors, askers, ended_children, handled_signals, hidden_kin, how_ended
from ..observe.observer import Observer, repeatedly
from ..observe.stack_keys import stack_key
from ..primitives.table import QUEUES
from ..render.text import shorten
from ..requests.model import Counter
from ..stacks import async_waits, file_ends, ipc_locks, locks, polls, snapshots, threads, tries
from ..stacks.python_waits import path_of
from ..stacks.snapshots import ProcessSnapshot
from ..torch import collectives, gloo_peers
from . import from_samples, possessions, shortages
from .facts import ProcessState

if TYPE_CHECKING:
    from ..engines.rank import Rank
    from ..engines.targets import Targets

MAX_QUEUES = 256  # whose counts are compared
MAX_TURNS = 1 << 20  # items through a queue between two successive readings of its count
LONGEST_TEST = 120  # characters of a test's name
MAX_PROGRAMS = 64  # processes that were not read and whose programs are named
TICKS, TICK = 4, 0.003  # times, seconds
SHM = "/dev/shm/"
_PYTHON = re.compile(r"/(lib)?python[^/\n]*$", re.M)  # files that a process of Python maps

AGAIN, FEW = 2, 64  # more looks at tasks, `TICK` apart; tasks of a loop that is read anew


class Sampling:
    """The processes that `resolve_processes` returned, while they are sampled. `watch` samples without stopping them; `copy` then
    copies each in a pause of milliseconds. After that `go_on` adds to the same samples, and there may be another `copy`. `seen`:
    `[ProcessState]`; `words` as for `snapshots.take_snapshots`. `kept`: the collectors' reader where the copies are kept; all are
    then made at one moment. The first `copy` has to be in a `with` block."""

    def __init__(self, found: Sequence[Any], targets: Targets, words: Sequence[str] = (), kept: str = "") -> None:
        self.found, self.targets, self.words, self.kept = found, targets, words, kept
        table = ProcTable()
        self.seen = [_not_seen(snap) for snap in snapshots.snapshots_of(found)]
        attached = [one.pid is None or targets.attached(one) is not None for one in found]
        self.live = [s for s, kept in zip(self.seen, attached) if not kept]
        runtimes = _open(self.live, targets, table)
        self.began = time.monotonic()
        own = askers(table)
        for s in self.live:
            s.asker = own
        self.families = families.Families(table, [s.pid for s in self.live])
        shots = [s.snapshot for s in self.live if s.snapshot is not None and not s.ended]
        self.held = snapshots.Held(shots, words, kept or snapshots.READER)
        self.watches = [_Watch(s, runtimes.get(s.pid)) for s in self.live]
        self.refused = [s for s in self.live if is_refused(s.pid)]
        self.outside = outside.Machine(table) if self.refused else None
        self._by_pid = {watch.s.pid: watch for watch in self.watches if watch.rt is not None}

    def __enter__(self) -> Sampling:
        return self

    def __exit__(self, *_: object) -> None:
        self.held.end()

    def sampled(self, one: ProcessRef) -> Target:
        """The Target of a process, after a sample taken now: what is read next belongs to the same moment. For a process that is
        not sampled, as `Targets.of`."""
        watch = self._by_pid.get(one.pid or 0)
        if watch is None or watch.rt is None:
            return self.targets.of(one)
        watch.take()
        return watch.rt.target

    def watch(self, seconds: float, last: Callable[[], None] = lambda: None) -> None:
        """Takes samples without stopping anything. `last` reads more at the end, before the values are read with which the first
        sample is compared."""
        repeatedly([watch.sample for watch in self.watches], seconds)
        last()
        for watch in self.watches:
            watch.end()

    def go_on(self, seconds: float, last: Callable[[], None] = lambda: None) -> None:
        """Takes more of these samples after a copy."""
        for watch in self.watches:
            watch.go_on()
        self.watch(seconds, last)
        self._settle()

    def copy(self) -> None:
        """Copies each process and reads the copy."""
        running = {s.pid for s in self.live}

        def then(number: int, snap: Any) -> None:
            _read_copy(self.seen[number], snap, snap.pid in running)

        if self.kept:
            self.held.go(snapshots.READY)
        reader = self.kept or snapshots.READER
        taken = snapshots.take_snapshots(self.found, self.targets, self.words, then, self.held, reader)
        for s, snap in zip(self.seen, taken):
            if s.snapshot is not snap:  # it was read where it is
                _read_copy(s, snap, False)
        self._settle()
        views = [s.view for s in self.seen if s.view is not None]
        ipc_locks.resolve(views, [edge for s in self.seen for edge in s.edges])
        for watch in self.watches:
            from_samples.find_kept(watch.s, watch.rt)
        from_samples.follow_actors(self.seen)
        for s in self.live:
            from_samples.lock_own_files(s)

    def _settle(self) -> None:
        """Reads the states at the end of the window, and the processes that have the other ends of what is waited for."""
        stops = lasting_stops({s.pid for s in self.live})
        for s, watch in zip(self.live, self.watches):
            _last_state(s, s.pid in stops)
            from_samples.places_in_kernel(s)
            if watch.rt is not None:
                _read_calls(s, watch.rt, [t.node[1] for t in s.threads if t.edge is not None and t.node[1] in s.window.after])
            if s.rank is None and (s.world or s.counts):
                s.links = system_calls.connections(s.pid)
        wanted = {s.pid: _inodes(s) for s in self.live}
        sources = [source for s in self.live for call in _calls(s) for source in call.sources]
        fifos = {source.text: source.inode for source in sources if source.kind == "pipe" and source.text.startswith("/")}
        holders = system_calls.holders_of({inode for inodes in wanted.values() for inode in inodes}, names=fifos)
        ends = file_ends.wanted(call for s in self.live for call in _calls(s))
        read = {s.pid for s in self.seen}
        for s in self.live:
            s.peers = {inode: holders[inode] for inode in wanted[s.pid] if inode in holders}
            awaited = _ends_awaited(s)
            s.gone = sorted(pid for pid in awaited if is_gone(pid)) if _of_this_namespace(s) else []
            others = {pid for held in s.peers.values() for pid, _ in held} | awaited
            s.programs = {pid: program_of(pid) for pid in sorted(others - read - set(s.gone))[:MAX_PROGRAMS]}
            if s.view is not None and ends:
                agents = {**{(s.name, th.tid): th for th in s.view.threads if not th.idle}, **{t.node: t for t in s.tasks}}
                s.at_ends = file_ends.agents_at(s.pid, s.view.rt, agents, ends)
        self._look_outside()
        now = ProcTable()
        for s in self.live:
            s.children = self.families.spent(now, s.pid)
            s.others = self.families.seen(now, [*s.children, *_awaited(s)])
        for s in self.seen:
            from_samples.fill_in(s)

    def _look_outside(self) -> None:
        """Reads what there is to know of processes that may not be read."""
        if self.outside is None:
            return
        self.outside.look()
        for s in self.refused:
            s.outside, s.reach = self.outside.of(s.pid), self.outside.reached([s.pid])
            s.peers = {0: [(pid, False) for pid in s.reach if pid != s.pid]}


def _not_seen(snap: ProcessSnapshot) -> ProcessState:
    """A process of which nothing has been read yet."""
    rank = snap.rank
    found = ProcessState(snap.name, state="", pid=int(snap.pid or 0), rank=rank, snapshot=snap)
    if rank is not None:
        found.role, found.engine, found.family = rank.role, rank.engine, rank.family
        found.replica, found.alone = rank.ranks.get("dp", rank.replica), rank.replica is not None
    return found


def _of_this_namespace(s: ProcessState) -> bool:
    """Whether pids that its memory holds are ours."""
    return s.view is not None and s.view.ns_pid == s.pid


def _ends_awaited(s: ProcessState) -> set[int]:
    """The pids of the processes whose end its threads and tasks wait for."""
    return {edge.pid for edge in s.edges if edge.pid} | {pid for call in _calls(s) if call.name == "wait" for pid in call.peers}


def _calls(s: ProcessState) -> list[system_calls.Call]:
    calls = [*(thread.call for thread in s.window.threads.values()), *(t.call for t in s.tasks)]
    return [call for call in calls if call is not None]


def _awaited(s: ProcessState) -> set[int]:
    """The pids for which a process waits, or which have what it waits for."""
    found = {pid for held in s.peers.values() for pid, _ in held} | {pid for call in _calls(s) for pid in call.peers}
    return found.union(*({edge.pid, *edge.pids, *edge.unread} for edge in s.edges)) - {0}


def _inodes(s: ProcessState) -> set[int]:
    """The inodes of the pipes, and of the other ends of the sockets, that a process waits for."""
    sources = [source for call in _calls(s) for source in call.sources]
    return (
        {source.inode for source in s.waiting if source.kind == "listener"}
        | {source.inode for source in sources if source.kind == "pipe"}
        | {p for source in sources for p in source.peers if p and source.kind != "child"}
    )


def _open(live: list[ProcessState], targets: Targets, table: ProcTable) -> dict[int, Runtime]:
    found: dict[int, Runtime] = {}
    for s in live:
        s.state = state_of(s.pid)
        process = table.processes.get(s.pid)
        s.program = process.called if process is not None else ""
        if s.state in ("", "Z", "X"):
            s.ended = how_ended(process.exit_status) if process is not None and process.exit_status else ""
            continue
        s.ancestors, s.signals = ancestors(table, s.pid), handled_signals(s.pid)
        s.dead_children, s.hidden = ended_children(table, s.pid), hidden_kin(table, s.pid)
        if s.snapshot is None:
            continue
        try:
            found[s.pid] = rt = open_runtime(targets.of(s.snapshot.ref))
            s.program = _with_test(s.program, rt) if s.program.startswith("pytest") else s.program
            s.snapshot.label = s.snapshot.label or threads.distributed_label(rt)  # the name that its copy will have
            s.name = s.snapshot.name
        except GdbextError as e:
            log.passed_over(e)  # no Python that can be read: clocks and native stacks are left
    return found


def _with_test(program: str, rt: Runtime) -> str:
    """What a process of pytest is called, with its worker and the test that it runs: pytest puts both into its environment."""
    known = dict(entry.partition(b"=")[::2] for entry, _ in moved_environment(rt.target))
    worker, test = (known.get(name, b"").decode("utf-8", "replace") for name in (b"PYTEST_XDIST_WORKER", b"PYTEST_CURRENT_TEST"))
    return ", ".join(filter(None, [f"{program} {worker}".strip(), shorten(test, LONGEST_TEST)]))


class _Watch:
    """The samples of one process, and its counters. `rt`: None where it runs no readable Python; `first`: the counters and the
    tasks at the first sample; `taken`: the sample that is due was already taken for its requests."""

    def __init__(self, s: ProcessState, rt: Runtime | None) -> None:
        self.s, self.rt, self.observer = s, rt, Observer(s.pid, rt)
        self.first: dict[str, Any] = {}
        self.taken = False
        self.births = families.Births(s.pid)
        self.moved, self.quotas = bytes_moved(s.pid), quotas(s.pid)
        s.window = self.observer.window

    def go_on(self) -> None:
        """Goes on after a copy, whose stacks count as a sample."""
        self.taken = False
        threads = self.s.view.threads if self.s.view is not None else ()
        self.observer.resume((th.tid, th.python) for th in threads)

    def take(self) -> None:
        """Takes a sample before it is due, for another reading at the same moment."""
        self.observer.sample(anew=True)
        self.taken = True

    def sample(self) -> None:
        """Takes a sample; the first time also the counters."""
        first, rt = self.first, self.rt
        if not self.taken:
            self.observer.sample()
        self.births.look(first="waiting" not in first)
        self.taken = False
        if "waiting" not in first:
            first["waiting"] = shortages.waiting(self.s.pid, 2)
        if rt is None:
            return
        if "counts" not in first:
            first.update(counts=self._counted(rt), taken=event_loops.callbacks_taken(rt))
        if first.get("tasks") is None:  # as they are at the first sample in which they can be listed
            rt.target.invalidate()
            first["tasks"] = async_waits.keys(rt)
            if first["tasks"]:
                first["unread"] = _unread(system_calls.Files(self.s.pid).watched())
        self.observer.sample_gil()

    def end(self) -> None:
        """Reads the values with which the first sample is compared."""
        self.taken = False
        if self.rt is not None:
            self.rt.target.invalidate()
            counted = self.first["counts"] if self.observer.stands else _settled(self.rt)
            _last_look(self.s, self.rt, self.first, counted)
        elif not self.s.ended:
            _last_calls(self.s)
        before, now = self.first.get("waiting", {}), shortages.waiting(self.s.pid)
        self.s.waiting, self.s.waited = list({**before, **now}.values()), set(before) & set(now)
        self.s.read, self.s.wrote = (now - was for now, was in zip(bytes_moved(self.s.pid), self.moved))
        self.s.served = shortages.served(self.s.pid)
        self.s.restarts = self.births.failed(lambda: from_samples.statuses(self.rt))
        own = quotas(self.s.pid)
        self.s.throttled = sum(one[4] for one in own) > sum(one[4] for one in self.quotas)
        short = shortages.of_process(self.s.pid) + shortages.throttled(self.quotas, own)
        self.s.short = [*short, *([self.s.restarts] if self.s.restarts else [])]
        self.observer.end()

    def _counted(self, rt: Runtime) -> dict[Any, int]:
        """Its counters. One reading is enough if the process does not run meanwhile."""
        ran = process_clock(self.s.pid)
        rt.target.drop_pages()
        counts = _counts(rt)
        return counts if self.observer.stands_since(ran) else _settled(rt)


def _last_calls(s: ProcessState) -> None:
    """Reads what the threads of a process without Python wait for. Of one whose Python cannot be read, that says too little."""
    with log.passing_over(GdbextError):
        if _PYTHON.search(read_maps(s.pid)[0]):
            return
        target = ProcTarget(s.pid)
        s.window.enter(system_calls.read(target, [th.tid for th in target.threads()]), anew=True)
        s.listens = any(source.kind == "listener" for source in system_calls.Files(s.pid).watched())


def _last_look(s: ProcessState, rt: Runtime, first: dict[str, Any], counted: dict[Any, int]) -> None:
    """Compares the last counters (`counted`) with the `first` ones, and reads what threads and tasks wait for."""
    s.counters = []
    for key, before in first["counts"].items():
        if key in counted:
            s.counters.append(Counter(s.name, s.pid, key[0] if isinstance(key, tuple) else str(key), before, counted[key]))
    seen = async_waits.AsyncState()
    s.tasks, s.loops = seen.tasks, seen.loops
    try:
        tids = [th.tid for th in rt.target.threads()]
        s.window.enter(system_calls.read(rt.target, tids), anew=True)
        _read_sleeps(s, rt)
        _read_polls(s, rt)
        light = threads.read_threads(rt.target, rt, [], native=False) if async_waits.used(rt) else []
        seen = async_waits.read(s.name, rt, light, time.monotonic())
        for _ in range(AGAIN):  # of a task that runs just now it is not seen what it waits for, or tries again
            if len(seen.tasks) > FEW or all(task.state != "running" for task in seen.tasks):
                break
            time.sleep(TICK)
            rt.target.invalidate()
            seen = async_waits.read(s.name, rt, light, time.monotonic())
        _read_calls(s, rt, [loop.tid for loop in seen.loops if loop.tid])
        for loop in seen.loops:
            taken = first.get("taken", {}).get(loop.address)
            if taken is not None and loop.taken is not None:
                loop.turned = loop.taken >= taken + 2  # a callback counts two
        files = system_calls.Files(s.pid)
        for task in seen.tasks:
            if task.descriptor >= 0:
                task.call = system_calls.Call("recv", [files.source(task.descriptor)])
        for loop in seen.loops:
            for descriptor, told in loop.told.items():
                loop.calls.update(dict.fromkeys(told, system_calls.Call("recv", [files.source(descriptor)])))
        if seen.loops:
            watched = files.watched()
            s.listens = any(source.kind == "listener" for source in watched)
            s.clients = len({source.inode for source in watched if source.kind == "served" and source.tcp})
            s.unread = len(_unread(watched) & first.get("unread", set()))
    except GdbextError as e:
        s.partial.append(str(e))
        return
    s.tasks, s.loops = seen.tasks, seen.loops
    before, now = first.get("tasks"), seen.keys()
    if before is None or now is None:  # nothing is known of their progress: none is reported as blocked
        s.moved_tasks = {t.node for t in seen.tasks}
        return
    kept = {loop.address for loop in seen.loops if loop.turned is False}  # the task that runs there has not finished
    stays = {t.address for t in seen.tasks if t.loop in kept}
    asked = {address for keys in (before, now) for address, key in keys.items() if key == async_waits.ASKED}
    changed = {address for address, key in now.items() if before.get(address) != key} - stays - asked
    slept = {t.address for t in seen.tasks if t.kind == "sleep" or t.edge is not None and t.edge.polls and t.edge.shared}
    gone = sum(address not in now for address in before if address not in asked)
    s.moved_tasks = {t.node for t in seen.tasks if t.address in changed}
    if before or now:
        s.counters.append(Counter(s.name, s.pid, "asyncio tasks that made progress or ended", 0, len(changed - slept) + gone))


def _read_calls(s: ProcessState, rt: Runtime, tids: Sequence[int]) -> None:
    """Reads the system calls of threads that wait. A thread that had just woken, to look at its timers or because its wait has a
    time limit, is soon back in its wait."""
    for _ in range(TICKS):
        woken = [tid for tid in tids if s.window.thread(tid).call is None]
        if not woken:
            break
        time.sleep(TICK)
        s.window.enter(system_calls.read(rt.target, woken), anew=False)


def _read_sleeps(s: ProcessState, rt: Runtime) -> None:
    """Fills in, for each thread that sleeps, whether its code does anything but sleep after that."""
    asleep = {tid for tid, thread in s.window.threads.items() if thread.call is not None and thread.call.name == "nanosleep"}
    for py in rt.threads() if asleep else ():
        if py.tid in asleep:
            s.window.threads[py.tid].for_good = async_waits.sleeps_for_good(rt.frames(py))


def _read_polls(s: ProcessState, rt: Runtime) -> None:
    """Fills in, for each thread that ran or woke, whether its loop only asks, and for what."""
    for py in rt.threads()[:MAX_QUEUES]:
        thread = s.window.thread(py.tid)
        if not thread.stacks or py.tid not in s.window.threads:
            continue
        thread.poll = _poll_of(s, rt, py)
        if thread.poll is None:
            if thread.call is None and py.tid == s.pid:
                _read_calls(s, rt, [py.tid])  # it may just have woken to try
            thread.tries = tries.of_thread((s.name, py.tid), rt, py, thread.call)
        asks = [ask for ask in thread.poll.asks if ask.kind == "Connection"] if thread.poll is not None else []
        if thread.poll is None or not asks:
            continue
        files = system_calls.Files(s.pid)
        sources = [files.source(ask.number) for ask in asks]
        if any(source.kind == "listener" for source in sources):  # a server's loop, which also asks whether it is to end
            thread.poll.asks = [*asks, *(ask for ask in thread.poll.asks if ask not in asks)]
        if thread.poll.asks[0].kind == "Connection":
            thread.call = system_calls.Call("poll", sources, thread.poll.limit)


def _poll_of(s: ProcessState, rt: Runtime, py: PyThread) -> Poll | None:
    """The loop of a thread that only asks; the stack of one that runs may change while it is read."""
    for _ in range(TICKS):
        try:
            found = poll_loops.of_frames(rt.frames(py))
            if found is not None:
                polls.edge((s.name, py.tid), found)
            return found
        except GdbextError as e:
            log.passed_over(e)
            rt.target.invalidate()
    return None


def _unread(watched: Sequence[system_calls.Source]) -> set[int]:
    """The inodes of sources that have something to read."""
    return {source.inode for source in watched if source.unread}


def _settled(rt: Runtime) -> dict[Any, int]:
    return settled_counts(rt.target, lambda: _counts(rt), MAX_TURNS)


def _counts(rt: Runtime) -> dict[Any, int]:
    """{(what, address): count} of the queues that threads stand at, of collectives and of rings. A deque's count changes at each
    end at which items come or go."""
    found: dict[Any, int] = {}
    try:
        for py in rt.threads()[:MAX_QUEUES]:
            for frame in rt.frames(py)[:8]:
                if path_of(frame).endswith(QUEUES):
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


def _last_state(s: ProcessState, stopped: bool) -> None:
    """Fills in the state at the end. `stopped`: the process is stopped for longer than another reader would stop it."""
    now = state_of(s.pid) or "X"  # it was there when we began
    s.frozen = frozen_by(s.pid)
    s.state = "S" if now in ("T", "t") and not stopped else now


def _ranks_here(rank: Rank | None, size: int) -> int:
    """How many of the `size` ranks with which a process meets its engine's command line puts on each machine; 0 where it does not
    say."""
    spread = rank.instance.spread if rank is not None and rank.instance is not None else None
    return len(spread.here) if spread is not None and spread.group == "world" and spread.nodes and spread.size == size else 0


def _read_copy(s: ProcessState, snap: ProcessSnapshot, live: bool) -> None:
    """Takes in what the copy of a process says."""
    s.snapshot, s.pid = snap, int(snap.pid or 0)
    if s.view is None:
        s.name = snap.name
    if s.rank is not None and s.rank.is_left:
        held = possessions.of_process(s.pid)
        gone = "its parent is gone" if s.rank.orphan else f"its parent {s.rank.ppid} is an orphan"
        s.orphan = gone + (f"; it holds {held}" if held else "")
    if snap.target is None:
        s.why = snap.reason
        return
    try:
        s.view = view = threads.view_of(snap)
        there = not live or view.thread(s.pid) is not None or state_of(s.pid) in ("", "Z", "X")
        ended = not there and state_of(s.pid, s.pid) in ("Z", "X")
        s.name, s.threads = view.name, from_samples.threads_of(view, None if there else s.pid, ended)
        asks = {tid: th.asks for tid, th in s.window.threads.items()}
        loops = {tid: poll for tid, poll in asks.items() if poll and poll.asks[0].kind != "Connection"}
        again = {tid: replace(th.tries, waiter=(view.name, tid)) for tid, th in s.window.threads.items() if th.tries is not None}
        edges, why = locks.find(view, loops, again)
        waits = {e.waiter: e for e in edges}
        for t in s.threads:
            t.edge = waits.get(t.node)
        s.shared = {m.path.split(" ")[0][len(SHM) :] for m in view.target.mappings() if m.path.startswith(SHM)}
        s.partial += view.partial + snap.partial
        if not live and isinstance(snap.target, CoreFileTarget):
            s.died = snap.target.fatal_signal()
            s.born, s.parent = snap.target.kin(from_samples.family_of(view.rt) if view.rt is not None else "")
        if view.rt is not None:
            s.rings, s.counts = shm_rings.find(view.rt), collectives.find(view.rt)
            s.hosts = gloo_peers.read(view.rt, s.counts)
            s.world, s.stands_for = threads.world(view.rt), threads.place_by_environment(view.rt)
            store = collectives.store_of(view.rt) or (threads.store_by_environment(view.rt) if s.stands_for else "")
            s.job = system_calls.in_network(store, s.pid)
            from_samples.meet(view, s.threads, s.counts)
            s.per_node = (threads.ranks_of_a_node(view.rt) or _ranks_here(s.rank, s.world[1])) if s.world is not None else 0
            if s.world is None and s.rank is None:  # an engine's default group may span many engines
                s.world = next(((c.rank, c.size) for c in s.counts if c.default and c.rank is not None), None)
            if not live:
                seen = async_waits.read(s.name, view.rt, view.threads)
                s.tasks, s.loops = seen.tasks, seen.loops
        from_samples.name_tasks(edges, s.tasks)
        for th in view.threads:
            if th.python and s.window.thread(th.tid).stacks:
                with log.passing_over(GdbextError):  # the copy may lack a page of them
                    s.window.thread(th.tid).stacks.append(stack_key(th.python))
        # of a thread that makes progress it does not matter where it would have waited at that moment
        s.partial += [
            f"thread {tid}: {reason}" if tid else reason for tid, reason in why.items() if not s.window.thread(tid).moved
        ]
    except GdbextError as e:
        s.why = str(e)
