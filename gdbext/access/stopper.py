"""One stop of a process and the copy that is made in it: registers, stacks, the wanted pages, then other memory while the process
is paused (`holder.LONGEST` seconds at most). A stop waits for nothing: pages that are not in memory are listed."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from . import ptrace
from .holder import LONGEST, Holder, before_others
from .model import PAGE
from .pagemap import Presence
from .procfs import maps_text, parse_maps
from .ranges import joined, stack_ranges
from .remote_memory import ReadBuffer
from .sleepers import Sleeper, Sleepers

if TYPE_CHECKING:
    from typing import Callable, Sequence

    from .model import Mapping
    from .proc import ProcTarget
    from .resident import Growth

    Ranges = Sequence[tuple[int, int]]  # (address, size)


class Stop:
    """The result of one stop.

    * `registers`: raw, by tid; `pac_mask`: raw
    * `memory`: by page; `beside`: the pages that only `heap` and `growth` name
    * `text`: the memory map; `maps`: the same, parsed
    * `seconds`: how long the process was paused
    * `woken`: how many threads slept and were stopped
    * `away`: `[(address, size)]` of wanted pages and stacks that were not in memory; `swapped`: the same of `heap`
    * `late`: ranges for which there was no time
    * `stray`: threads that did not stop
    * `held_by`: other tracers that hold the process
    * `torn`: why the copy is of different moments, or ''
    * `again`: another stop may bring a better copy"""

    def __init__(self) -> None:
        self.registers: dict[int, bytes] = {}
        self.pac_mask = b""
        self.memory: dict[int, bytes | memoryview] = {}
        self.beside: set[int] = set()
        self.maps: list[Mapping] = []
        self.text = ""
        self.seconds, self.woken, self.torn, self.again = 0.0, 0, "", False
        self.away: list[tuple[int, int]] = []
        self.swapped: list[tuple[int, int]] = []
        self.late: list[tuple[int, int]] = []
        self.stray: set[int] = set()
        self.held_by: set[int] = set()


class Stopper:
    """Stops of one process. `tid`: a thread that has its memory; `timeout`: seconds that a thread may take to stop."""

    def __init__(self, live: ProcTarget, tid: int, timeout: float) -> None:
        self.live, self.tid, self.timeout = live, tid, timeout
        self.holder, self.presence = Holder(), Presence(tid)
        self.sleepers = Sleepers(live, self.holder)

    def end(self) -> None:
        """Ends the process that stops it."""
        self.holder.end()
        self.presence.close()

    def copy(
        self, pages: Ranges, heap: Ranges, *, maps: Sequence[Mapping], walk: Callable[[float], None], growth: Growth | None
    ) -> Stop:
        """Stops the process and copies `pages`, and as much of `heap` as there is time for. `maps`: its memory map.
        `walk(until)`: follows pointers to memory that changes, during the stop. `growth`: finds memory that has come into use
        since `heap` was chosen; it is copied too."""
        got, pid = Stop(), self.live.pid
        here, got.away = self.presence.split(pages)
        own, swapped = self.presence.split(heap)
        got.swapped = swapped
        buffers = [ReadBuffer(own), ReadBuffer(here)]
        ends = sorted((m.start, m.end) for m in maps if "w" in m.perms)
        sleepers = self.sleepers.now()
        stop = self.holder.held(pid, spare=sleepers, limit=LONGEST, timeout=self.timeout, patience=ptrace.LASTING)
        with before_others(), stop as held:
            got.registers, got.pac_mask = held.registers, held.pac_mask
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
        got.again = bool(got.torn) or any(ptrace.thread_state(pid, tid) in ("R", "S") for tid in held.stray)
        got.maps = got.maps or parse_maps(got.text)
        for buffer in buffers:
            for address, data in buffer.pieces():
                for i in range(0, len(data) - PAGE + 1, PAGE):
                    got.memory[address + i] = data[i : i + PAGE]
        asked = {page for one in buffers[1:3] for at, size in one.ranges for page in range(at, at + size, PAGE)}
        beside = {page for one in (buffers[0], *buffers[3:]) for at, size in one.ranges for page in range(at, at + size, PAGE)}
        got.beside = beside - asked
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
        if any(one.state == "t" for one in sleepers.values()):
            got.held_by = ptrace.tracers(pid) - {self.holder.pid}


def _torn(over: bool, stirred: set[int]) -> str:
    """Why a copy is of different moments, '' where it is of one."""
    if over:
        return f"its copy took longer than the {LONGEST:g} s for which it is paused at most: it is of different moments"
    if stirred:
        return f"thread {min(stirred)}, which was left asleep, woke while it was copied: the copy is of different moments"
    return ""
