"""Which line a thread is in while a count rises, where the kernel gives no samples of who makes it rise. Nothing is stopped.

A thread that runs is read again and again for a moment. What rises between two readings that have the same line is that line's.
"""

from __future__ import annotations

import os
import random
import time
from typing import Callable, Iterator, Sequence

from .. import log
from ..access.proc import ProcTarget
from ..access.remote_memory import BulkReader
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from ..observe import system_calls
from ..observe.bulk_stacks import MovedError, StackReader, ThreadPlaces
from .grown import Place, Span

SPOT = 0.0035  # seconds between two looks at the threads that take most
SELDOM = 60  # times as seldom, where it is known when they wake
EARLY = 0.0003  # seconds before a thread wakes
SPOTS = 0.004  # of a CPU, for these looks
FOLLOW, BRIEF = 0.002, 0.0007  # seconds for which a running thread is read; mostly, where nothing rises in it
THOROUGH = 0.25  # of the looks: to the end
IDLE = 0.001  # seconds without a change after which it is not: it waits for a CPU, or for C
APART = 0.0003  # seconds between two readings: more may have been any line
LATE, NAP = 0.002, 0.00003  # seconds for which a thread that should wake is waited for
TRIES = 4  # at the places of a stack
MAX_OPEN = 64  # threads whose files stay open
MAX_LINES = 50_000
RUNS = (b"R", b"D")  # states of a thread that takes memory


class Follower:
    """The threads of one process. `share`: of a CPU, that looks at them may take. It is the tree of stacks of its reader too: of
    each stack only the innermost line is kept."""

    def __init__(self, target: ProcTarget, rt: Runtime) -> None:
        self.share = SPOTS
        self._target, self._rt, self._reader = target, rt, StackReader(rt, BulkReader(target), self)
        self._places: dict[int, ThreadPlaces] = {}
        self._files: dict[int, int] = {}
        self.wakes: dict[int, float] = {}  # when a thread wakes by itself
        self._due: set[int] = set()  # threads that wake now
        self._free = 0.0  # when the next look may begin
        self._cpus = os.sched_getaffinity(0)
        self._lines: list[Place] = [Place()]
        self._numbers: dict[tuple[str, str, int], int] = {}

    def frame(self, function: str, file: str, line: int) -> int:
        """The number of a line."""
        if len(self._lines) >= MAX_LINES:
            return 0
        found = self._numbers.setdefault((function, file, line), len(self._lines))
        if found == len(self._lines):
            self._lines.append(Place("", "", function, file, line))
        return found

    def child(self, node: int, frame: int) -> int:
        """The innermost line stands for the stack."""
        return frame

    def know(self) -> None:
        """Takes in which threads there are."""
        self._target.invalidate()
        with log.passing_over(GdbextError):
            key = self._rt.layout["tstate.thread_id"]
            threads = {thread.tid: (thread.address, self._target.u64(thread.address + key)) for thread in self._rt.threads()}
            for tid, (address, ident) in threads.items():
                known = self._places.get(tid)
                if known is None or (known.tstate, known.ident) != (address, ident):
                    self._places[tid] = ThreadPlaces(address, ident)
            for tid in self._places.keys() - threads.keys():
                del self._places[tid]

    def tids(self) -> list[int]:
        """The threads that run Python, those that have run most first."""
        spent = {}
        for tid in self._places:
            with log.passing_over(OSError, ValueError):
                spent[tid] = sum(map(int, self._stat(tid).split(None, 13)[11:13]))
        return sorted(spent, key=lambda tid: -spent[tid])

    def _chain(self, tid: int) -> list[int]:
        """The frames that a thread is in, in one read; [] where they are not seen."""
        places = self._places.get(tid)
        if places is None:
            return []
        for _ in range(TRIES):
            try:
                return self._reader.chain(places)
            except MovedError as e:
                log.passed_over(e)
            except GdbextError as e:
                log.passed_over(e)
                break
        return []

    def _line(self, chain: list[int]) -> int:
        try:
            return self._reader.resolved(chain).node
        except GdbextError as e:
            log.passed_over(e)
            return 0

    def runs(self, tid: int) -> int:
        """Pages that a thread has touched first, -1 for one that does not run; OSError, ValueError where it is gone."""
        stat = self._stat(tid)
        return int(stat.split(None, 8)[7]) if stat[:1] in RUNS else -1

    def _stat(self, tid: int) -> bytes:
        stat = self._file(tid, f"task/{tid}/stat")
        return stat[stat.rindex(b")") + 2 :]

    def memory(self) -> tuple[int, int]:
        """(pages that are mapped, pages that are resident); OSError, ValueError where the process is gone."""
        mapped, resident = self._file(0, "statm").split(None, 2)[:2]
        return int(mapped), int(resident)

    def _file(self, key: int, name: str) -> bytes:
        file = self._files.get(key)
        if file is None:
            if len(self._files) >= MAX_OPEN:
                self.close()
            file = self._files[key] = os.open(f"/proc/{self._target.pid}/{name}", os.O_RDONLY)
        return os.pread(file, 2048, 0)

    def _leave(self, tid: int) -> None:
        """Leaves the CPU that a thread ran on last: while it is read there it does not run."""
        wanted = self._cpus - {int(self._stat(tid).split()[36])} or self._cpus
        if os.sched_getaffinity(0) != wanted:
            os.sched_setaffinity(0, wanted)

    def follow(self, tid: int, count: Callable[[int], float]) -> Iterator[Span]:
        """What `count(pages)` rises by while a thread runs, a moment at most; one that wakes now is waited for. `pages`: that it
        has touched first, -1: it sleeps."""
        self._leave(tid)
        last: tuple[int, float, float] | None = None  # the reading before: line, count after it, when
        if tid in self._due:
            self._due.discard(tid)
            last = self._awaits(tid, count)
            if last is None:
                return
        begin = changed = at = time.monotonic()
        pages, end, known = -1, begin + (FOLLOW if random.random() < THOROUGH else BRIEF), -1
        while at < end and at - changed < IDLE:
            before = count(self.runs(tid))  # of lines that were left before this one is read
            started = time.monotonic()
            node = self._line(self._chain(tid))
            known, pages = pages, self.runs(tid)
            after, at = count(pages), time.monotonic()
            node = node if pages >= 0 else 0
            if last is None or node != last[0] or pages != known:
                changed = at
            if last is not None and started - last[2] < APART:
                rise = before - last[1]
                end = begin + FOLLOW if rise > 0 else end
                yield Span(tid, self._lines[last[0]], self._lines[node], rise)
            if pages < 0:
                return
            last = node, after, at

    def _awaits(self, tid: int, count: Callable[[int], float]) -> tuple[int, float, float] | None:
        """Waits for a thread that wakes about now. -> the last reading of its sleep; None where it does not wake."""
        end, found = time.monotonic() + EARLY + LATE, None
        node = self._line(self._chain(tid))
        while time.monotonic() < end:
            if self.runs(tid) >= 0:
                return found
            found = node, count(-1), time.monotonic()
            time.sleep(NAP)
        return None

    def spots(self, hot: Sequence[int], until: float, look: Callable[[Follower, int], None]) -> None:
        """Waits for the next moment at which one of `hot` may run, until `until` at most, and looks at those that do."""
        now = time.monotonic()
        wakes = {tid: at - EARLY for tid, at in self.wakes.items() if tid in hot and at - EARLY >= max(now, self._free)}
        known = bool(hot) and all(tid in wakes for tid in hot)
        due = max(now + SPOT * random.uniform(0.5, 1.5) * (SELDOM if known else 1), self._free)
        first = min(wakes, key=lambda tid: wakes[tid], default=0)
        at = min(due, wakes.get(first, due), until)
        time.sleep(max(0.0, at - now))
        if at == until:
            return
        before, spent = time.monotonic(), time.thread_time()
        for tid in hot:
            with log.passing_over(GdbextError, OSError, ValueError, LookupError):
                if at == wakes.get(tid):
                    del self.wakes[tid]
                    self._due.add(tid)
                if tid in self._due or self.runs(tid) >= 0:
                    look(self, tid)
                    if self.runs(tid) < 0:
                        self.sleeps(tid, time.monotonic())
                elif tid not in self.wakes or self.wakes[tid] < before:
                    self.sleeps(tid, 0.0)
        self._free = before + (time.thread_time() - spent) / self.share

    def sleeps(self, tid: int, fell: float) -> None:
        """Takes in until when a thread sleeps that does not run. `fell`: when it fell asleep, 0.0: not seen."""
        self._target.drop_pages()
        now = time.monotonic()
        left, whole = system_calls.time_limit_of(self._target, tid)
        if left and (fell or not whole):
            self.wakes[tid] = (fell if whole else now) + left

    def close(self) -> None:
        """Closes its files."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def end(self) -> None:
        """It follows nobody any more."""
        self.close()
        os.sched_setaffinity(0, self._cpus)
