"""A recording in memory. All stacks are in one tree. Of each thread, only the looks are kept at which its stack or its state
changed."""

from __future__ import annotations

import bisect
from array import array
from typing import Any, Callable, Iterable, Iterator, NamedTuple, Sequence

MAX_FRAMES = 200_000  # places: function, file, line
MAX_NODES, MAX_RUNS, MAX_LOOKS = 400_000, 12_000_000, 4_000_000  # about 60 MiB, 110 MiB and 64 MiB
DROPPED = 0xFFFFFFFF  # in place of a node: the stack was torn at every try
NATIVE = -1  # in place of a line
RUNNING, GIL, LOCK, DISK, SLEEP, POLL, NETWORK, OTHER, STOPPED, QUEUED = range(10)
STATES = (
    "running",
    "waits for the GIL",
    "lock",
    "disk",
    "sleep",
    "poll",
    "network",
    "other wait",
    "stopped",
    "waits for a processor",
)


class Frame(NamedTuple):
    """A call of a Python function at `line` of `file` (0: not known), or of a native function in the library `file`."""

    function: str
    file: str
    line: int

    @property
    def native(self) -> bool:
        return self.line == NATIVE

    @property
    def where(self) -> str:
        """`file.py:12`, `libc.so.6`; "" for a mark, which has no file."""
        name = self.file.rpartition("/")[2]
        return name if self.native or not name else f"{name}:{self.line}"

    @property
    def place(self) -> tuple[str, str]:
        """A key that stays equal while the thread moves inside one function."""
        return self.function, self.file


class StackTree:
    """Stacks that share their outer calls: node -> (outer node, frame). Node 0 is the empty stack."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forgets every stack."""
        self.frames: list[Frame] = []
        self.parents, self.numbers = array("I", [0]), array("I", [0])
        self._frame_numbers: dict[tuple[str, str, int], int] = {}
        self._children: dict[tuple[int, int], int] = {}
        self.full = False

    def frame(self, function: str, file: str, line: int) -> int:
        """The number of a frame."""
        key = (function, file, line)
        number = self._frame_numbers.get(key)
        if number is None and len(self.frames) >= MAX_FRAMES:
            self.full = True
            key = ("(more functions than are kept)", "", 0)
            number = self._frame_numbers.get(key)
        if number is None:
            number = self._frame_numbers[key] = len(self.frames)
            self.frames.append(Frame(*key))
        return number

    def child(self, node: int, frame: int) -> int:
        """The node of the stack of `node` that calls `frame`. Once the tree is full, a new stack ends at its deepest known
        node."""
        found = self._children.get((node, frame))
        if found is None:
            if len(self.parents) >= MAX_NODES:
                self.full = True
                return node
            found = self._children[node, frame] = len(self.parents)
            self.parents.append(node)
            self.numbers.append(frame)
        return found

    def stack(self, node: int) -> list[Frame]:
        """The frames of a node, outermost first."""
        found = []
        while node:
            found.append(self.frames[self.numbers[node]])
            node = self.parents[node]
        return found[::-1]

    def python(self, node: int) -> list[Frame]:
        """The Python frames of a node, outermost first."""
        return [frame for frame in self.stack(node) if not frame.native]


class Changes:
    """The (look, value) pairs at which a value changed."""

    def __init__(self, pairs: Iterable[tuple[int, int]] = ()) -> None:
        self.looks, self.values = array("I"), array("i")
        for pair in pairs:
            self.append(pair)

    def append(self, pair: tuple[int, int]) -> None:
        """Adds the next change."""
        self.looks.append(pair[0])
        self.values.append(pair[1])

    def add(self, look: int, value: int) -> None:
        """Adds a value if it differs from the last."""
        if not self.values or self.values[-1] != value:
            self.append((look, value))

    def __len__(self) -> int:
        return len(self.looks)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self.looks, self.values))


class Run(NamedTuple):
    """A time in which a thread's stack and state stayed the same: from `begin` to `end`, seconds since the recording began, over
    `looks` looks. A `node` of `DROPPED`: the stack is not known."""

    begin: float
    end: float
    node: int
    state: int
    looks: int


class ThreadTrack:
    """One thread. From look number `looks[i]` on it was in `nodes[i]`, state `states[i]`. `cpu`: seconds it ran."""

    def __init__(self, tid: int, name: str) -> None:
        self.tid, self.name = tid, name
        self.looks, self.nodes, self.states = array("I"), array("I"), array("B")
        self.ended: int | None = None  # the look at which it was gone
        self.cpu = 0.0

    def add(self, look: int, node: int, state: int) -> bool:
        """Adds a look. -> whether it differs from the one before."""
        if self.nodes and self.nodes[-1] == node and self.states[-1] == state:
            return False
        self.looks.append(look)
        self.nodes.append(node)
        self.states.append(state)
        return True

    def put(self, first: int, after: int, node: int, end: int) -> int:
        """Gives the looks from `first` until before `after` the stack `node`, as far as theirs is `DROPPED`. `end`: the look
        after the last that was taken. -> how many they are."""
        begin = max(0, bisect.bisect_right(self.looks, first) - 1)
        runs = list(zip(self.looks[begin:], self.nodes[begin:], self.states[begin:]))
        for each in (self.looks, self.nodes, self.states):
            del each[begin:]
        changed = 0
        for (look, old, state), over in zip(runs, [*(run[0] for run in runs[1:]), end]):
            low, high = max(look, first), min(over, after)
            if old != DROPPED or low >= high:
                self.add(look, old, state)
                continue
            if look < low:
                self.add(look, old, state)
            self.add(low, node, state)
            changed += high - low
            if high < over:
                self.add(high, old, state)
        return changed


class ProcessTrack:
    """One process; times are seconds since the recording began.

    * `begins`, `ends`: of each look
    * `gil`: [(look, index of the thread that holds it, -1: none)], where it changed
    * `gc`: [(look, whether a collection is under way)], where it changed
    * `kept`: [(first look, look after the last, index of the thread)] of times when one thread had the GIL and no other got it
    * `counters`: {name: [(time, value)]}
    * `samples`: number of stacks, also of threads that had not run
    * `dropped`: how many of those were torn
    * `torn`: number of torn reads
    * `cpu`: seconds that the whole process ran
    * `splits`: looks that are the rest of the one before, with a new time because the recorder got no CPU in the middle of it
    * `pauses`: with native frames, for each look the seconds that threads were paused
    * `unstopped`: how many of `samples` have Python frames alone, since the thread could not be paused
    * `finish`: when its recording ended
    """

    def __init__(self, label: str, pid: int) -> None:
        self.label, self.pid = label, pid
        self.begins, self.ends = array("d"), array("d")
        self.threads: list[ThreadTrack] = []
        self.gil, self.gc = Changes(), Changes()
        self.kept: list[tuple[int, int, int]] = []
        self.counters: dict[str, list[tuple[float, float]]] = {}
        self.samples = self.dropped = self.torn = self.splits = self.unstopped = 0
        self.pauses = array("d")
        self.cpu = 0.0
        self.finish = 0.0  # when the recording of it ended

    def split(self, time: float) -> None:
        """Ends the look that is under way, and begins another for the rest of it."""
        self.ends.append(time)
        self.begins.append(time)
        self.splits += 1

    def drop_halves(self) -> None:
        """Makes arrays that belong together equally long again, after ^C in the middle of a look."""
        for changes in (self.gil, self.gc):
            _cut_alike((changes.looks, changes.values))
        _cut_alike((self.begins, self.ends, self.pauses) if self.pauses else (self.begins, self.ends))
        for thread in self.threads:
            _cut_alike((thread.looks, thread.nodes, thread.states))
            while thread.looks and thread.looks[-1] >= len(self.begins):
                for each in (thread.looks, thread.nodes, thread.states):
                    each.pop()
            thread.ended = None if thread.ended is None else min(thread.ended, len(self.begins))
        for changes in (self.gil, self.gc):
            while changes.looks and changes.looks[-1] >= len(self.begins):
                changes.looks.pop()
                changes.values.pop()

    def time_of(self, look: int) -> float:
        """When a look began; the recording's end for one that was not taken."""
        return self.begins[look] if look < len(self.begins) else self.finish

    def look_at(self, time: float) -> int:
        """The number of the last look that began by `time`, 0 before the first."""
        return max(0, bisect.bisect_right(self.begins, time) - 1)

    def runs(self, thread: ThreadTrack, first: int = 0) -> Iterator[Run]:
        """The thread's runs in order, without gaps, from run number `first` on."""
        last = len(self.begins) if thread.ended is None else thread.ended
        for i in range(first, len(thread.looks)):
            look = thread.looks[i]
            after = thread.looks[i + 1] if i + 1 < len(thread.looks) else last
            yield Run(self.time_of(look), self.time_of(after), thread.nodes[i], thread.states[i], after - look)

    def looks_with_gil(self, thread: int) -> Callable[[int, int], int]:
        """-> count(first, after): in how many of these looks the thread with this number held the GIL."""
        begins, ends, before = [], [], [0]
        for i, (look, holder) in enumerate(self.gil):
            if holder == thread:
                begins.append(look)
                ends.append(self.gil.looks[i + 1] if i + 1 < len(self.gil) else len(self.begins))
                before.append(before[-1] + ends[-1] - look)

        def until(look: int) -> int:
            at = bisect.bisect_right(begins, look)
            return before[at] - max(0, ends[at - 1] - look) if at else 0

        return lambda first, after: until(after) - until(first)

    def run_at(self, thread: ThreadTrack, time: float) -> int:
        """The number of the thread's run at a time, 0 before the first."""
        return max(0, bisect.bisect_right(thread.looks, self.look_at(time)) - 1)

    def spans(self, changes: Changes) -> Iterator[tuple[float, float, int]]:
        """(begin, end, value) of `gil` or `gc`."""
        for i, (look, value) in enumerate(changes):
            after = changes.looks[i + 1] if i + 1 < len(changes) else len(self.begins)
            yield self.time_of(look), self.time_of(after), value


class Recording:
    """A recording. `began`: seconds since 1970; `clock`: the same moment on the monotonic clock; `processes`; `tree`: their
    stacks; `seconds`: its length; `rate`: as asked for; `cost`: seconds of CPU that the recorder used; `notes`: why it is less
    than was asked for; `failing`: it has only what threads did while they had an exception, and the empty stack otherwise."""

    failing = False

    def __init__(self, rate: float = 0.0, began: float = 0.0) -> None:
        self.rate, self.began, self.clock = rate, began, 0.0
        self.tree = StackTree()
        self.processes: list[ProcessTrack] = []
        self.seconds = self.cost = 0.0
        self.notes: list[str] = []

    @property
    def native(self) -> bool:
        """Whether it was made with native frames."""
        return any(p.pauses for p in self.processes)

    @property
    def reached(self) -> float:
        """Looks a second at the process that was looked at least often."""
        each = [
            (len(p.begins) - p.splits) / (p.finish - p.begins[0]) for p in self.processes if p.begins and p.finish > p.begins[0]
        ]
        return min(each, default=0.0)

    def cut(self, start: float, end: float) -> Recording:
        """The part from `start` to `end` seconds; times stay as they are."""
        found = Recording(self.rate, self.began)
        found.clock, found.failing = self.clock, self.failing
        found.tree, found.notes = self.tree, self.notes
        found.seconds = max(0.0, min(end, self.seconds) - max(start, 0.0))
        found.cost = self.cost * found.seconds / self.seconds if self.seconds else 0.0
        found.processes = [_cut(p, start, end) for p in self.processes]
        return found


def _cut_alike(together: Sequence[array[Any]]) -> None:
    shortest = min(map(len, together))
    for each in together:
        del each[shortest:]


def _cut(process: ProcessTrack, start: float, end: float) -> ProcessTrack:
    found = ProcessTrack(process.label, process.pid)
    first = bisect.bisect_left(process.begins, start)
    last = bisect.bisect_left(process.begins, end)
    found.begins, found.ends = process.begins[first:last], process.ends[first:last]
    found.finish = min(end, process.finish)
    found.pauses = process.pauses[first:last]
    found.cpu, found.torn, found.unstopped = process.cpu, process.torn, process.unstopped
    found.splits = round(process.splits * len(found.begins) / len(process.begins)) if process.begins else 0
    for thread in process.threads:
        own = ThreadTrack(thread.tid, thread.name)
        own.cpu = thread.cpu
        over = len(process.begins) if thread.ended is None else thread.ended
        if over < last:
            own.ended = max(0, over - first)
        for i, look in enumerate(thread.looks):
            after = thread.looks[i + 1] if i + 1 < len(thread.looks) else over
            if look < last and after > first:
                own.add(max(0, look - first), thread.nodes[i], thread.states[i])
                shown = min(after, last) - max(look, first)
                found.samples += shown
                found.dropped += shown if thread.nodes[i] == DROPPED else 0
        found.threads.append(own)
    for changes, part in ((process.gil, found.gil), (process.gc, found.gc)):
        for i, (look, value) in enumerate(changes):
            after = changes.looks[i + 1] if i + 1 < len(changes) else len(process.begins)
            if look < last and after > first:
                part.append((max(0, look - first), value))
    found.kept = [(max(0, a - first), min(b, last) - first, i) for a, b, i in process.kept if a < last and b > first]
    found.counters = {name: [(t, v) for t, v in values if start <= t < end] for name, values in process.counters.items()}
    return found
