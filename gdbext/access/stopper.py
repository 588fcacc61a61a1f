"""One stop of a process and the copy that is made in it: registers, stacks, the wanted pages, then other memory while the process
is paused (`holder.LONGEST` seconds at most). A stop waits for nothing: pages that are not in memory are listed.

A process that cannot be stopped (another one traces it, a filter forbids it, no process can be started) is copied as fast, while
it runs. /proc gives the registers of the threads that sleep."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Callable, Iterator, Sequence

from .. import log
from ..errors import UnstoppableError
from . import ptrace
from .holder import LONGEST, Held, Holder, before_others
from .model import PAGE, Mapping
from .pagemap import Presence
from .proc import ProcTarget, process_clock
from .procfs import maps_text, parse_maps
from .ranges import joined, stack_ranges
from .remote_memory import ReadBuffer
from .resident import Growth
from .sleepers import Sleeper, Sleepers

if TYPE_CHECKING:
    Ranges = Sequence[tuple[int, int]]  # (address, size)


class Stop:
    """The result of one stop.

    * `registers`: raw, by tid; `pac_mask`: raw
    * `memory`: by page
    * `text`: the memory map; `maps`: the same, parsed
    * `seconds`: how long the process was paused
    * `woken`: how many threads slept and were stopped
    * `away`: `[(address, size)]` of wanted pages and stacks that were not in memory; `swapped`: the same of `heap`
    * `late`: ranges for which there was no time
    * `stray`: threads that did not stop
    * `held_by`: other tracers that hold the process
    * `torn`: why the copy is of different moments, or ''
    * `again`: another stop may bring a better copy
    * `ran`: whether it ran meanwhile, since it could not be stopped
    * `clock`: `process_clock` while it was paused"""

    def __init__(self) -> None:
        self.registers: dict[int, bytes] = {}
        self.pac_mask = b""
        self.memory: dict[int, bytes | memoryview] = {}
        self.maps: list[Mapping] = []
        self.text = ""
        self.seconds, self.woken, self.torn, self.again, self.ran = 0.0, 0, "", False, False
        self.clock: int | None = None
        self.away: list[tuple[int, int]] = []
        self.swapped: list[tuple[int, int]] = []
        self.late: list[tuple[int, int]] = []
        self.stray: set[int] = set()
        self.held_by: set[int] = set()


class Stopper:
    """Stops of one process. `tid`: a thread that has its memory; `timeout`: seconds that a thread may take to stop.
    `unstoppable`: why it cannot be stopped; '' as long as it can. Never an error: then it is not stopped."""

    def __init__(self, live: ProcTarget, tid: int, timeout: float, unstoppable: str = "") -> None:
        self.live, self.tid, self.timeout, self.unstoppable = live, tid, timeout, unstoppable
        self.holder: Holder | None = None
        try:
            self.holder = None if unstoppable else Holder()
        except UnstoppableError as e:
            self.unstoppable = str(e)
        self.presence, self.sleepers = Presence(tid), Sleepers(live, self.holder)

    def end(self) -> None:
        """Ends the process that stops it."""
        if self.holder is not None:
            self.holder.end()
        self.presence.close()

    def copy(
        self, pages: Ranges, heap: Ranges, *, maps: Sequence[Mapping], walk: Callable[[float], None], growth: Growth | None
    ) -> Stop:
        """Stops the process and copies `pages`, and as much of `heap` as there is time for. `maps`: its memory map.
        `walk(until)`: follows pointers to memory that changes, during the stop. `growth`: finds memory that has come into use
        since `heap` was chosen; it is copied too."""
        if self.holder is not None:
            try:
                return self._copy(pages, heap, maps, walk, growth)
            except UnstoppableError as e:
                log.passed_over(e)
                self.unstoppable = str(e)
                self.holder.end()
                self.holder = self.sleepers.holder = None
        return self._copy(pages, heap, maps, walk, growth)

    @contextlib.contextmanager
    def _held(self, sleepers: dict[int, Sleeper]) -> Iterator[Held]:
        if self.holder is None:
            yield Held({"registers": {}, "stray": [], "pac_mask": "", "until": time.monotonic() + LONGEST}, LONGEST)
            return
        stop = self.holder.held(self.live.pid, spare=sleepers, limit=LONGEST, timeout=self.timeout, patience=ptrace.LASTING)
        with before_others(), stop as held:
            yield held

    def _copy(
        self, pages: Ranges, heap: Ranges, maps: Sequence[Mapping], walk: Callable[[float], None], growth: Growth | None
    ) -> Stop:
        got, pid = Stop(), self.live.pid
        here, got.away = self.presence.split(pages)
        own, swapped = self.presence.split(heap)
        got.swapped = swapped
        buffers = [ReadBuffer(own), ReadBuffer(here)]
        ends = sorted((m.start, m.end) for m in maps if "w" in m.perms)
        sleepers = self.sleepers.now()
        with self._held(sleepers) as held:
            got.registers, got.pac_mask, got.clock = held.registers, held.pac_mask, process_clock(pid)
            self._add_sleepers(got, sleepers, held.stray)
            tops, away = self.presence.split(stack_ranges(got.registers.values(), self.live.arch, ends))
            got.away += away
            buffers.append(ReadBuffer(tops))
            late = buffers[2].read(self.tid, held.until) + buffers[1].read(self.tid, held.until)
            walk(held.until)
            # parsed later; read now, since a thread's stack may be new
            got.text = maps_text(self.tid)
            if growth is not None:
                got.maps = parse_maps(got.text)
                buffers.append(ReadBuffer(joined(growth.spans(got.maps))))
                got.late += buffers[3].read(self.tid, held.until)
            over = bool(late) or time.monotonic() > held.until
            got.late += buffers[0].read(self.tid, held.until)
            stirred = self.sleepers.stirred(sleepers)
        got.late += late
        got.seconds, got.woken, got.torn = held.seconds, self.sleepers.woken, _torn(over, stirred)
        if self.holder is None:
            self._say_it_ran(got, stirred)
        else:
            got.again = bool(got.torn) or any(ptrace.thread_state(pid, tid) in ("R", "S") for tid in held.stray)
        got.maps = got.maps or parse_maps(got.text)
        for buffer in buffers:
            for address, data in buffer.pieces():
                for i in range(0, len(data) - PAGE + 1, PAGE):
                    got.memory[address + i] = data[i : i + PAGE]
        return got

    def _add_sleepers(self, got: Stop, sleepers: dict[int, Sleeper], stray: set[int]) -> None:
        """Adds the registers of threads that our stop does not hold."""
        pid = self.live.pid
        got.stray = stray | {tid for tid, one in sleepers.items() if one.state == "D"}
        got.registers.update((tid, one.registers) for tid, one in sleepers.items())
        for tid in stray:
            blocked = ptrace.blocked_registers(pid, tid, self.live.arch)
            if blocked is not None:
                got.registers[tid] = blocked
        if self.holder is not None and any(one.state == "t" for one in sleepers.values()):
            got.held_by = ptrace.tracers(pid) - {self.holder.pid}

    def _say_it_ran(self, got: Stop, stirred: set[int]) -> None:
        """Threads that ran all the while have no registers: all are 0 (snapshot.py). One that only woke may sleep the next
        time."""
        size, pid = 8 * len(ptrace.REGISTERS[self.live.arch]), self.live.pid
        others = [tid for tid in ptrace.tids(pid) if tid not in got.registers]
        running = {tid: bytes(size) for tid in others if ptrace.thread_state(pid, tid) not in ("", "Z", "X")}
        got.registers.update(running)
        got.ran, got.torn = bool(running or stirred), ""
        got.again = bool(stirred) and not running


def _torn(over: bool, stirred: set[int]) -> str:
    """Why a copy is of different moments, '' where it is of one."""
    if over:
        return f"its copy took longer than the {LONGEST:g} s for which it is paused at most: it is of different moments"
    if stirred:
        return f"thread {min(stirred)}, which was left asleep, woke while it was copied: the copy is of different moments"
    return ""
