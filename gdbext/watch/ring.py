"""The last minutes of one process or engine in a fixed number of bytes: what changed, and when. Pure."""

from __future__ import annotations

import collections
from typing import Any, Sequence

ENTRY, TEXT = 152, 58  # bytes of an entry without its values, and of a text without its characters
THREAD = 3 * (ENTRY + TEXT)  # of what is kept of a thread beside its entries
LEAST = 1 << 18  # bytes of a ring
FLOAT = 32  # of a number and its place
SPACING = 1.0  # seconds between two rows of numbers, however often one looks
NUMBERS = 0.25  # the part of the bytes that rows of numbers may take
NOTES = 0.125  # the same of notes
DEEPEST = 64  # frames of a stack that are kept, the innermost

Frames = Sequence[str]  # "function (file.py:12)", outermost first


class Stacks:
    """Stacks as they are used by entries, each once. A stack that no entry uses is forgotten."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], int] = {}
        self._used: dict[int, list[Any]] = {}  # number: [the stack, how many entries use it]
        self._next, self.bytes = 0, 0

    def use(self, frames: Frames) -> int:
        """The number of a stack, used once more."""
        stack = tuple(frames)
        number = self._known.get(stack)
        if number is None:
            number = self._known[stack] = self._next
            self._next += 1
            self._used[number] = [stack, 0]
            self.bytes += _size(stack)
        self._used[number][1] += 1
        return number

    def release(self, number: int) -> None:
        """One entry that uses it is gone."""
        held = self._used[number]
        held[1] -= 1
        if not held[1]:
            del self._used[number], self._known[held[0]]
            self.bytes -= _size(held[0])

    def of(self, number: int) -> tuple[str, ...]:
        """The frames of a stack that is in use."""
        found: tuple[str, ...] = self._used[number][0]
        return found


def _size(stack: tuple[str, ...]) -> int:
    return ENTRY + sum(TEXT + len(frame) for frame in stack)


def _weight(value: Any) -> int:
    """Bytes of a note's values, counted as for all else."""
    if isinstance(value, dict):
        return 2 * ENTRY + sum(TEXT + len(key) + _weight(one) for key, one in value.items())
    if isinstance(value, list):
        return ENTRY + sum(map(_weight, value))
    return TEXT + len(value) if isinstance(value, str) else FLOAT


class Ring:
    """`limit`: bytes. `changes`: [(time, tid, state, number of the stack)] of threads; `numbers`: [(time, ...)], one row a second
    at most; `notes`: [(time, what, its values)]; `begins`: the time since which it is whole."""

    def __init__(self, limit: int) -> None:
        self.limit, self.begins = limit, 0.0
        self.stacks = Stacks()
        self.changes: collections.deque[tuple[float, int, str, int]] = collections.deque()
        self.numbers: collections.deque[tuple[Any, ...]] = collections.deque()
        self.notes: collections.deque[tuple[float, str, dict[str, Any]]] = collections.deque()
        self._noted: dict[str, dict[str, Any]] = {}  # what: its last values
        self._notes = 0  # bytes
        self.names: dict[int, str] = {}
        self._last: dict[int, tuple[str, int]] = {}  # tid: its state and stack now, which are in use too
        self._count: dict[int, int] = {}  # tid: its entries

    @property
    def bytes(self) -> int:
        """What it takes, counted as CPython 3.12 would."""
        return len(self.changes) * ENTRY + self.stacks.bytes + self._rows() + self._notes + THREAD * len(self.names)

    def _rows(self) -> int:
        return len(self.numbers) * (ENTRY + FLOAT * len(self.numbers[-1])) if self.numbers else 0

    def thread(self, at: float, tid: int, name: str, state: str, frames: Frames) -> bool:
        """Takes in where a thread is now. -> whether that differs from the last time."""
        frames = self._inner(frames)
        number = self.stacks.use(frames)
        before = self._last.get(tid)
        if before == (state, number):
            self.stacks.release(number)
            return False
        self._last[tid], self.names[tid] = (state, number), name
        if before is not None:
            self.stacks.release(before[1])
        self.stacks.use(frames)
        self._add(at, tid, state, number)
        return True

    def _inner(self, frames: Frames) -> Frames:
        """The innermost frames, as many as there is room for if all threads had such: half of the bytes is for the present."""
        left = self.limit // 2 // (len(self._last) + 1) - ENTRY - THREAD
        for i in range(len(frames) - 1, max(-1, len(frames) - 1 - DEEPEST), -1):
            left -= TEXT + len(frames[i])
            if left < 0:
                return frames[i + 1 :]
        return frames[-DEEPEST:]

    def gone(self, at: float, tids: Sequence[int]) -> None:
        """Takes in that threads have ended."""
        for tid in tids:
            before = self._last.pop(tid, None)
            if before is not None:
                self._add(at, tid, "ended", before[1])  # its last stack, used by this entry from now on

    def _add(self, at: float, tid: int, state: str, number: int) -> None:
        self.changes.append((at, tid, state, number))
        self._count[tid] = self._count.get(tid, 0) + 1
        self._trim()

    @property
    def alive(self) -> list[int]:
        """The tids of its threads."""
        return list(self._last)

    def row(self, at: float, *values: Any) -> None:
        """A row of numbers; None for what is not known."""
        if self.numbers and 0 <= at - self.numbers[-1][0] < SPACING:  # a clock may be set back
            return
        self.numbers.append((at, *values))
        self._trim()

    def note(self, at: float, what: str, values: dict[str, Any], always: bool = False) -> None:
        """Something beside threads and rows; without `always` where it differs from the last of its kind."""
        if not always:
            if self._noted.get(what) == values:
                return
            self._noted[what] = values
        self.notes.append((at, what, values))
        self._notes += _weight(values)
        self._trim()

    def _trim(self) -> None:
        while self._notes > NOTES * self.limit and self.notes:
            self._notes -= _weight(self.notes.popleft()[2])
        while self._rows() > NUMBERS * self.limit and self.numbers:
            self.begins = self.numbers.popleft()[0]
        while self.changes and self.bytes > self.limit:
            at, tid, _, number = self.changes.popleft()
            self.begins = at
            self.stacks.release(number)
            self._count[tid] -= 1
            if not self._count[tid] and tid not in self._last:
                del self._count[tid], self.names[tid]

    def data(self) -> dict[str, Any]:
        """As JSON: `threads` {tid: name}, `stacks`, `changes` [[time, tid, state, place in `stacks`]], `now` the same of every
        thread that there is, `numbers`, `notes`, `begins`, `bytes`, `limit`."""
        places: dict[int, int] = {}
        stacks: list[tuple[str, ...]] = []

        def place(number: int) -> int:
            if number not in places:
                places[number] = len(stacks)
                stacks.append(self.stacks.of(number))
            return places[number]

        changes = [[at, tid, state, place(number)] for at, tid, state, number in self.changes]
        now = [[tid, state, place(number)] for tid, (state, number) in self._last.items()]
        return {
            "threads": {str(tid): name for tid, name in self.names.items()},
            "stacks": [list(stack) for stack in stacks],
            "changes": changes,
            "now": now,
            "numbers": [list(row) for row in self.numbers],
            "notes": [list(note) for note in self.notes],
            "begins": self.begins,
            "bytes": self.bytes,
            "limit": self.limit,
        }

    def last(self) -> list[tuple[int, str, str, tuple[str, ...]]]:
        """(tid, name, state, stack) of every thread that there is; of a process that has ended, what there was last."""
        return [(tid, self.names[tid], state, self.stacks.of(number)) for tid, (state, number) in self._last.items()]
