"""Stalls of a recording: times of 100 ms and more in which a thread or a whole process made no progress, and why.

* "stopped": a signal or a debugger held the process
* "gc": the garbage collector was at work
* "gil": one thread kept the GIL and another waited for it all the time
* "loop": a callback kept an asyncio loop
* "disk", "lock"
* "spin": a thread ran on in one function
* "processor": a thread was ready to run and got no CPU
* "late-rank": ranks waited at a meeting point for one that came later

Waits for work are no stalls: poll and select, reads of sockets, sleeps, waits in functions of `primitives.table.RESTS`.
"""

from __future__ import annotations

import itertools
from typing import Iterator, NamedTuple, Tuple

from ..engines import registry
from ..primitives.table import RESTS
from .recording import (
    DISK,
    DROPPED,
    GIL,
    LOCK,
    QUEUED,
    RUNNING,
    SLEEP,
    STATES,
    STOPPED,
    Frame,
    ProcessTrack,
    Recording,
    ThreadTrack,
)

Path = Tuple[Tuple[str, str], ...]

SHORTEST = 0.1  # seconds
MAX_PARTS = 2000  # segments of one function that runs on
FEWEST = 4  # looks at a stall
LAST = float("inf")
GAP = 0.03  # seconds between two collections of one stall
MOST, MUCH, SOME, LITTLE = 0.7, 0.5, 0.25, 0.15  # parts of a stall
FAINT = 0.05  # part of a stall in which the thread waited for a device, where it waited for nothing else
OWN = 0.15  # part of the time in which a function that runs on is innermost itself
_IDLE_FOLDERS = ("/multiprocessing/", "/asyncio/")
_RUNNERS = ("/asyncio/runners.py", "/uvloop/__init__.py")
_ORDER = ("stopped", "gc", "gil", "loop", "disk", "lock", "spin", "processor")


class Stall(NamedTuple):
    """One stall. `begin`, `end`: seconds since the recording began; `process` with its label; `thread`: the one that was blocked
    or blocked others; `frame`: where it was; `waiting`: labels of the ranks that waited for it; `why`: the reason why a rank was
    late."""

    cause: str
    begin: float
    end: float
    process: ProcessTrack
    thread: ThreadTrack
    frame: Frame | None
    waiting: tuple[str, ...] = ()
    why: str = ""


class Segment:
    """A time in which the calls of a thread stayed the same: from `begin` to `end` in `path`. `node`: a node with this path;
    `states`: {state: seconds}."""

    __slots__ = ("begin", "end", "node", "path", "states")

    def __init__(self, begin: float, node: int, path: Path) -> None:
        self.begin, self.end, self.node, self.path = begin, begin, node, path
        self.states: dict[int, float] = {}

    def part(self, *states: int) -> float:
        """The part of the time that the thread spent in these states."""
        return sum(self.states.get(s, 0.0) for s in states) / (self.end - self.begin or 1.0)


def find(rec: Recording) -> list[Stall]:
    """The stalls of a recording, in the order of their beginnings."""
    finder = Finder(rec)
    found: list[Stall] = []
    for process in rec.processes:
        own: list[Stall] = []
        for stall in sorted(finder.of_process(process), key=lambda s: _ORDER.index(s.cause)):
            if _was_watched(stall) and not any(_overlap(stall, other) > MUCH * (stall.end - stall.begin) for other in own):
                own.append(stall)
        found += own
    late = finder.late_ranks(found)
    explained = [s for s in found if any(s.process is r.process and _overlap(s, r) > MUCH * (s.end - s.begin) for r in late)]
    waited = [s for s in found if any(s.process.label in r.waiting and _overlap(s, r) > MUCH * (s.end - s.begin) for r in late)]
    return sorted([s for s in found if s not in explained and s not in waited] + late, key=lambda s: (s.begin, s.end))


def _was_watched(stall: Stall) -> bool:
    """Whether there were enough looks at it: the recorder itself may get no CPU. It always holds for "gil" and "lock": that the
    GIL did not change hands, or that a thread did not run, is seen afterwards too."""
    if stall.cause in ("gil", "lock"):
        return True
    process = stall.process
    first, last = process.look_at(stall.begin), process.look_at(stall.end)
    times = [*process.begins[first : last + 1], stall.end]
    gap = max((b - a for a, b in zip(times, times[1:])), default=0.0)
    return last - first >= FEWEST and gap <= MUCH * (stall.end - stall.begin)


def _overlap(a: Stall, b: Stall | Segment) -> float:
    return min(a.end, b.end) - max(a.begin, b.begin)


class Finder:
    """The data from which stalls, steps and loops are found: the calls of each node, and the times in which they stayed the
    same."""

    def __init__(self, rec: Recording) -> None:
        self.rec = rec
        self.shortest = SHORTEST - 1.0 / rec.rate if rec.rate > 20 else SHORTEST  # its ends lie between two looks
        self._paths: dict[int, Path] = {}  # by node; equal ones are one object
        self._known: dict[Path, Path] = {}
        self._callbacks: dict[int, Path | None] = {}  # by the id of a path, which lives as long as this

    def of_process(self, process: ProcessTrack) -> Iterator[Stall]:
        """The stalls of one process by all causes except "late-rank". One stall may explain another."""
        yield from self._stopped(process)
        yield from self._collections(process)
        yield from self._kept(process)
        for thread in process.threads:
            if len(thread.looks) > 1:
                segments = list(self.segments(process, thread))
                yield from self._loops(process, thread, segments)
                yield from self._stands(process, thread, segments)
                yield from self._spins(process, thread, segments)

    def path(self, node: int) -> Path:
        """(function, file) of each Python call of a node, outermost first."""
        found = self._paths.get(node)
        if found is None:
            found = () if node == DROPPED else tuple(f.place for f in self.rec.tree.python(node))
            found = self._paths[node] = self._known.setdefault(found, found)
        return found

    def frame(self, node: int) -> Frame | None:
        """The innermost Python frame of a node."""
        tree = self.rec.tree
        while node and node != DROPPED:
            frame = tree.frames[tree.numbers[node]]
            if not frame.native:
                return frame
            node = tree.parents[node]
        return None

    def segments(self, process: ProcessTrack, thread: ThreadTrack, begin: float = 0.0, end: float = LAST) -> Iterator[Segment]:
        """The segments that overlap a time, in order. Looks with a torn stack belong to the segment before them. Segments are not
        stored: a recording of an hour has millions."""
        first = process.run_at(thread, begin) if begin > 0 else 0
        while first > 0 and self._same(thread.nodes[first - 1], thread.nodes[first]):
            first -= 1
        last: Segment | None = None
        looks, nodes, states = thread.looks, thread.nodes, thread.states
        start = process.time_of(looks[first]) if looks else 0.0
        for i in range(first, len(looks)):
            stop = self._end_of(process, thread, i)
            node = nodes[i]
            if last is None or node != DROPPED and node != last.node and self.path(node) is not last.path:
                if last is not None:
                    yield last
                if start >= end:
                    return
                last = Segment(start, 0 if node == DROPPED else node, self.path(node))
            last.states[states[i]] = last.states.get(states[i], 0.0) + stop - start
            last.end = start = stop
        if last is not None:
            yield last

    @staticmethod
    def _end_of(process: ProcessTrack, thread: ThreadTrack, i: int) -> float:
        if i + 1 < len(thread.looks):
            return process.begins[thread.looks[i + 1]] if thread.looks[i + 1] < len(process.begins) else process.finish
        return process.time_of(len(process.begins) if thread.ended is None else thread.ended)

    def _same(self, node: int, other: int) -> bool:
        return DROPPED in (node, other) or self.path(node) is self.path(other)

    # ---- one process ---------------------------------------------------------------------------------------------
    def _stopped(self, process: ProcessTrack) -> Iterator[Stall]:
        for thread in process.threads[:1]:  # all threads stop and run on together
            for run in process.runs(thread, 0):
                if run.state == STOPPED and run.end - run.begin >= self.shortest:
                    seen = self._seen(process, thread, run.begin, run.end)
                    yield Stall("stopped", run.begin, run.end, process, thread, seen)

    def _collections(self, process: ProcessTrack) -> Iterator[Stall]:
        begin = end = -1.0
        for start, stop, collecting in [*process.spans(process.gc), (float("inf"), float("inf"), 1)]:
            if not collecting:
                continue
            if start - end > GAP:
                if end - begin >= self.shortest:
                    thread = self._holder(process, begin, end) or self._busiest(process, begin, end)
                    yield Stall("gc", begin, end, process, thread, self._seen(process, thread, begin, end))
                begin = start
            end = stop

    def _kept(self, process: ProcessTrack) -> Iterator[Stall]:
        for first, after, index in process.kept:
            begin, end = process.time_of(first), process.time_of(after)
            if end - begin < self.shortest:
                continue
            holder = process.threads[index]
            if any(self._wanted_gil(process, th, begin, end) for th in process.threads if th is not holder):
                yield Stall("gil", begin, end, process, holder, self._seen(process, holder, begin, end))

    def _wanted_gil(self, process: ProcessTrack, thread: ThreadTrack, begin: float, end: float) -> bool:
        """Whether a thread waited for the GIL all the time. It wakes every few milliseconds to ask for it again, and is then
        ready to run."""
        return (
            self._share(process, thread, begin, end, GIL) >= LITTLE
            and self._share(process, thread, begin, end, GIL, RUNNING, QUEUED) >= MOST
        )

    def _loops(self, process: ProcessTrack, thread: ThreadTrack, segments: list[Segment]) -> Iterator[Stall]:
        """The times when a loop's thread stays in one callback, mostly with the same calls. With many short callbacks of the same
        function, no calls stay the same for long."""
        for begin, end, longest in self.callbacks(segments):
            if end - begin >= self.shortest and longest.end - longest.begin >= MUCH * (end - begin):
                yield Stall("loop", begin, end, process, thread, self.frame(longest.node))

    def callbacks(self, segments: list[Segment]) -> Iterator[tuple[float, float, Segment]]:
        """(begin, end, the longest segment in it) of each time in which a loop's thread is in one callback. One callback is one
        function called by the loop, or by the task that the loop steps."""
        at = 0
        while at < len(segments):
            key, longest, after = self._callback(segments[at].path), segments[at], at + 1
            while after < len(segments) and self._callback(segments[after].path) == key:
                longest = max(longest, segments[after], key=lambda s: s.end - s.begin)
                after += 1
            if key is not None:
                yield segments[at].begin, segments[after - 1].end, longest
            at = after

    def _callback(self, path: Path) -> Path | None:
        if id(path) not in self._callbacks:
            self._callbacks[id(path)] = _callback(path)
        return self._callbacks[id(path)]

    def _stands(self, process: ProcessTrack, thread: ThreadTrack, segments: list[Segment]) -> Iterator[Stall]:
        whole = process.finish - process.time_of(0)
        for segment in segments:
            length = segment.end - segment.begin
            if length < self.shortest or length > 0.95 * whole or idle(segment.path):
                continue
            cause = _waits_for(segment)
            if cause:
                yield Stall(cause, segment.begin, segment.end, process, thread, self.frame(segment.node))

    def _spins(self, process: ProcessTrack, thread: ThreadTrack, segments: list[Segment]) -> Iterator[Stall]:
        """The times when one function runs on: it is innermost itself, or one call below it is."""
        at = 0
        while at < len(segments):
            after = at + 1
            for base in (segments[at].path, segments[at].path[:-1]):
                stop, deep = at, len(base)
                while base and stop < min(len(segments), at + MAX_PARTS):
                    path = segments[stop].path
                    if path is not base and (len(path) - deep not in (0, 1) or path[:deep] != base):
                        break
                    stop += 1
                if stop == at or segments[stop - 1].end - segments[at].begin < self.shortest:
                    continue
                cause = self._runs_on(thread, segments[at:stop], base)
                if cause:
                    node = next(s.node for s in segments[at:stop] if s.path == base)
                    yield Stall(cause, segments[at].begin, segments[stop - 1].end, process, thread, self.frame(node))
                    after = stop
                    break
            at = after

    def _runs_on(self, thread: ThreadTrack, part: list[Segment], base: Path) -> str:
        if idle(base):
            return ""
        whole = part[-1].end - part[0].begin
        queued = sum(s.states.get(QUEUED, 0.0) for s in part)
        ran = sum(s.part(RUNNING, GIL) * (s.end - s.begin) for s in part) + queued
        own = sum(s.end - s.begin for s in part if s.path == base)
        if ran < MOST * whole or own < OWN * whole:
            return ""
        if queued >= MUCH * whole:
            return "processor"
        running = sum(s.states.get(RUNNING, 0.0) for s in part)
        if running < LITTLE * whole:  # it hardly ever had the GIL or CPU that it wanted
            return ""
        return "spin" if not thread.cpu or thread.cpu >= MUCH * running else ""  # else looks only saw it ready to run

    # ---- what happened in a time ---------------------------------------------------------------------------------
    def _share(self, process: ProcessTrack, thread: ThreadTrack, begin: float, end: float, *states: int) -> float:
        """The part of a time that a thread spent in these states."""
        spent = sum(
            min(run.end, end) - max(run.begin, begin)
            for run in itertools.takewhile(lambda r: r.begin < end, process.runs(thread, process.run_at(thread, begin)))
            if run.state in states and run.end > begin
        )
        return spent / (end - begin or 1.0)

    def state(self, process: ProcessTrack, thread: ThreadTrack, begin: float, end: float) -> int:
        """The state in which a thread was for the longest part of a time."""
        return max(range(len(STATES)), key=lambda s: self._share(process, thread, begin, end, s))

    def _holder(self, process: ProcessTrack, begin: float, end: float) -> ThreadTrack | None:
        """The thread that had the GIL for the longest part of a time; None where no thread had it."""
        held: dict[int, float] = {}
        for start, stop, index in process.spans(process.gil):
            if index >= 0 and start < end and stop > begin:
                held[index] = held.get(index, 0.0) + min(stop, end) - max(start, begin)
        return process.threads[max(held, key=held.__getitem__)] if held else None

    def _busiest(self, process: ProcessTrack, begin: float, end: float) -> ThreadTrack:
        return max(process.threads, key=lambda th: self._share(process, th, begin, end, RUNNING))

    def _seen(self, process: ProcessTrack, thread: ThreadTrack, begin: float, end: float) -> Frame | None:
        """The innermost frame in which a thread was for the longest part of a time."""
        longest, frame = 0.0, None
        for segment in self.segments(process, thread, begin, end):
            own = min(segment.end, end) - max(segment.begin, begin)
            if own > longest:
                longest, frame = own, self.frame(segment.node)
        return frame

    # ---- several processes ---------------------------------------------------------------------------------------
    def late_ranks(self, found: list[Stall]) -> list[Stall]:
        """Ranks for which others waited, each once for a time. There are two kinds.

        First, main threads meet at a place. All but a few of them are there for `SHORTEST`; those that come only when the wait
        ends are late.

        Second, a rank is stopped while another one stands still, until just then. The other one waited in a function that the
        stopped rank enters too, whatever the calls to it: few looks see a rank at a prefill's collective. Or it ran on in one
        place, in a loop of C code for example."""
        meeting: dict[Path, dict[int, ProcessTrack]] = {}  # the ranks that wait at a place
        seen: dict[int, set[tuple[str, str]]] = {}  # the innermost functions in which each process was, waiting or not
        long: list[tuple[ProcessTrack, Segment]] = []
        for process in (p for p in self.rec.processes if p.threads and p.begins):
            over = process.time_of(len(process.begins) - 1)  # the culprit of an unfinished wait is not known
            for segment in self.segments(process, process.threads[0]):
                seen.setdefault(id(process), set()).update(segment.path[-1:])
                waits = segment.part(RUNNING, QUEUED, SLEEP) < MUCH and not idle(segment.path, _IDLE_FOLDERS[1:])
                waits = waits or awaits(segment.path)
                if waits and segment.end < over and segment.part(STOPPED) < SOME:  # a stopped rank waits for no other
                    meeting.setdefault(segment.path, {})[id(process)] = process
                    if segment.end - segment.begin >= self.shortest:
                        long.append((process, segment))
        late: list[Stall] = []
        for process, segment in long:
            peers = meeting[segment.path]
            missing = [
                p for p in peers.values() if p is not process and self._there(p, segment) < SOME and self._arrives(p, segment)
            ]
            if len(missing) <= max(1, len(peers) // 2):
                for one in missing:
                    self._add_late(late, one, process, segment, found)
        for stop in (s for s in found if s.cause == "stopped"):
            near = self._near(stop)
            met = [(process, segment) for process, segment in long if segment.path[-1] in seen[id(stop.process)]]
            for other, stood in met + [(s.process, s) for s in found if s.cause == "spin"]:
                covers = _overlap(stop, stood) > max(MUCH * (stop.end - stop.begin), MOST * (stood.end - stood.begin))
                if other is not stop.process and covers and abs(stood.end - stop.end) <= near:
                    self._add_late(late, stop.process, other, stop, found)
        return late

    def _near(self, waited: Segment | Stall) -> float:
        """The seconds around the end of a wait within which an event counts as simultaneous with it. Ranks that waited may get
        their CPUs a little later."""
        return max(3.0 / self.rec.rate if self.rec.rate else GAP, LITTLE * (waited.end - waited.begin))

    def _there(self, process: ProcessTrack, segment: Segment) -> float:
        """The part of a wait during which another rank's main thread waits in the same place."""
        own = [
            min(s.end, segment.end) - max(s.begin, segment.begin)
            for s in self.segments(process, process.threads[0], segment.begin, segment.end)
            if s.path == segment.path and s.end > segment.begin and s.begin < segment.end
        ]
        return sum(own) / (segment.end - segment.begin)

    def _arrives(self, process: ProcessTrack, segment: Segment) -> bool:
        """Whether the rank's other work ends when the wait does, as far as the waiting ranks get CPUs at once."""
        near = self._near(segment)
        about = self.segments(process, process.threads[0], segment.end - near, segment.end + near)
        return any(abs(s.end - segment.end) <= near for s in about if s.path != segment.path)

    def _add_late(
        self, late: list[Stall], one: ProcessTrack, waiting: ProcessTrack, segment: Segment | Stall, found: list[Stall]
    ) -> None:
        for i, known in enumerate(late):
            if known.process is one and min(known.end, segment.end) - max(known.begin, segment.begin) > 0:
                names = tuple(dict.fromkeys((*known.waiting, waiting.label)))
                late[i] = known._replace(begin=min(known.begin, segment.begin), end=max(known.end, segment.end), waiting=names)
                return
        thread = one.threads[0]
        own = Stall("late-rank", segment.begin, segment.end, one, thread, self._seen(one, thread, segment.begin, segment.end))
        longest = max((s for s in found if s.process is one), key=lambda s: _overlap(s, own), default=own)
        is_known = longest is not own and _overlap(longest, own) > MUCH * (own.end - own.begin)
        why = longest.cause if is_known else STATES[self.state(one, thread, own.begin, own.end)]
        late.append(own._replace(waiting=(waiting.label,), why=why))


def _waits_for(segment: Segment) -> str:
    """The object of a wait in the same calls: "disk", "lock", or "" for neither. Writing a file again and again keeps the thread
    on a CPU too, in the kernel. Then few looks see the wait for the device, but no other wait looks like this."""
    disk, ready = segment.part(DISK), segment.part(RUNNING, QUEUED, GIL)
    if disk >= LITTLE or disk >= FAINT and disk + ready >= MOST:
        return "disk"
    lock = segment.part(LOCK)
    return "lock" if lock >= MOST or lock >= MUCH and lock + segment.part(GIL, QUEUED) >= MOST else ""


def idle(path: Path, folders: tuple[str, ...] = _IDLE_FOLDERS) -> bool:
    """Whether the innermost function is one in which threads wait for work."""
    if not path:
        return True
    file = path[-1][1]
    return awaits(path) or file.endswith(RESTS) or any(folder in file for folder in folders)


def awaits(path: Path) -> bool:
    """Whether the innermost function spins until another rank has something for it."""
    return bool(path) and registry.spins_in(*path[-1])


def _callback(path: Path) -> Path | None:
    """The key of an asyncio loop's callback: its calls down to the first function outside asyncio and uvloop; None outside a
    callback. A loop that is not written in Python (uvloop's) shows no calls of its own. There, any call from asyncio's or
    uvloop's `run` to a function outside asyncio is a callback. Where neither of these runs the loop, callbacks are not known."""
    for i in range(len(path) - 1, -1, -1):
        function, file = path[i]
        name = function.rpartition(".")[2]
        foreign = name == "run" and file.endswith(_RUNNERS) and not any("/asyncio/" in f for _, f in path[i + 1 : i + 2])
        if foreign or name == "_run" and file.endswith("/asyncio/events.py"):
            own = next((j for j in range(i + 1, len(path)) if not _of_a_loop(path[j])), len(path) - 1)
            return path[: own + 1] if own > i else None
    return None


def _of_a_loop(call: tuple[str, str]) -> bool:
    return "/asyncio/" in call[1] or "/uvloop/" in call[1]
