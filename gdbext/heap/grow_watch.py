"""Watches one running process for memory that grows. Nothing is stopped, and what it takes is bounded: after each round it rests
for as long as keeps it below `SHARE` of a CPU.

A page fault's sample has the top of the stack of its moment. In it lies the next instruction of the interpreter, which tells the
Python line, and the return addresses, which tell the library. Where faults may not be sampled, threads are looked at whose count
of faults rises (/proc/PID/task/TID/stat, proc_pid_stat(5)): a line counts if the count rises between two readings of a running
thread that have it both (`follow`).
"""

from __future__ import annotations

import bisect
import collections
import os
import random
import re
import struct
import time
from typing import Sequence

from .. import log
from ..access.page_faults import Fault, Mapped, PageFaults, SampledStack
from ..access.proc import ProcTarget
from ..access.procfs import read_proc, read_stat, status_field, task_ids
from ..access.remote_memory import read_ranges
from ..access.unwind import PC, Unwinder
from ..cpython import runtime as runtimes
from ..cpython.codes import bytecode, nested
from ..cpython.frames import Code, PyFrame
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from . import grown, resident
from .calls import ALLOCATORS, Calls
from .counters import counters
from .follow import Follower
from .free import OFTEN, Free, arenas_of
from .grown import ARENAS, HEAP, HUGE, Look, Place, Row, Spans, Taken
from .loops import Loops

SHARE = 0.006  # of a CPU
ROUND = 0.25  # seconds between rounds
TURN = 0.05  # seconds for which one of several processes is looked at
COOLS = 0.9  # from round to round
HOT = 3  # of these threads
LOOKS = 24  # of all mappings, at most
LOOK_SHARE = 0.003  # of a CPU for them
FREE_SHARE = 0.002  # of a CPU, for looks at what allocators hold free
CHECKED = 48  # samples of which each such look asks
AMPLE = 100 << 10  # bytes of pools that were used before: who takes them touches no new page
DETAIL = 12  # samples of a round whose stacks are told
MAX_TAKEN = 20_000
MAX_LATER = 500  # samples, of 8 KiB at most
STACK_POINTER = {"x86-64": "rsp", "aarch64": "sp"}
DEPTH = 48  # native frames
LOWEST, HIGHEST = 1 << 16, 1 << 47  # addresses
REUSED = 0.1  # of a page that was touched, where the process has no more than before
FRESH = 0.005  # seconds from a record to the look at its thread
MAX_THREADS = 1024
CANNOT = {
    "page faults": "memory that the kernel fills itself (mlock, MAP_POPULATE), and memory that is used again without a fault",
    "new mappings": "the library that made them",
    "counts": "the library, the address and the shortest lines: what a thread takes counts for whatever grows",
    "calls": "calls whose frames were written over before a look, those made by inlined or generated code, and who keeps a block",
    "smaps": "who took the memory",
    "frames": "code that ran before it was first seen",
}
KIB = 1024


class GrowWatch:
    """One process over `seconds`. `faults`: samples page faults, where the kernel lets it; `why_not`: why it does not."""

    def __init__(self, target: ProcTarget, label: str, seconds: float, faults: bool) -> None:
        self.target, self.label, self.pid, self.seconds = target, label, target.pid, seconds
        self.looks: list[Look] = []
        self.counted: list[tuple[float, dict[str, int]]] = []
        self.taken: list[Taken] = []
        self.born: list[Taken] = []
        self.why_not, self.no_python, self.ended = "", "", False
        self._code = ProcTarget(self.pid)
        self._codes: dict[int, tuple[int, Code, int]] = {}  # by where the bytecode begins: its end, where it has been entered
        self._starts: list[int] = []
        self._loops = Loops(self._code)
        self._minor: dict[int, int] = {}
        self.hot: list[int] = []
        self._heat: dict[int, float] = {}  # pages that these threads took lately
        self.spans, self._mapped_most = Spans(), 0
        self._counted: dict[int, int] = {}  # faults that no sample stands for yet, by thread
        self._later: dict[int, Fault] = {}  # samples whose code is not known yet, by number in `taken`
        self._mapped: dict[int, int] = {}  # bytes of mappings, by where they begin and where they end
        self.rt: Runtime | None = None
        try:
            self.rt = runtimes.open_runtime(target)
        except GdbextError as e:
            self.no_python = str(e)
        self.faults: PageFaults | None = None
        try:
            if faults:
                self.faults = PageFaults(self.pid, task_ids(self.pid), self._mmap())
                self.frames(set(task_ids(self.pid)))  # what a thread runs now it may run at a fault
            else:
                self.why_not = "not asked for"
        except GdbextError as e:
            self.why_not = str(e)
        self.began = time.monotonic()
        self._look_cost, self._next_look = 0.0, 0.0
        self.follower: Follower | None = None
        self.calls: Calls | None = None
        self.free = Free(self._code, self.rt, self._code.presence())
        self._heaps: list[int] = []
        self._anonymous: list[tuple[int, int]] = []
        self._next_free, self._parts = 0.0, 1
        self._freed: set[tuple[float, int]] = set()  # samples whose pages were free later
        self._pools: list[tuple[float, float]] = []  # bytes of Python's allocator at each look, those of them that are free
        if self.faults is None:
            self.follow()
            self.calls = Calls(self._code)
            self._minor = self._counts()

    def follow(self) -> Follower | None:
        """What follows its threads; None where it runs no Python that can be read."""
        if self.rt is not None:
            self.follower = Follower(self.target, self.rt)
            self.follower.know()
        return self.follower

    def _mmap(self) -> int:
        """The address of libc's mmap; 0 where it is not known."""
        for module in self._code.modules():
            if re.match(r"(libc|libc-[\d.]+)\.so[.\d]*$", os.path.basename(module.path)):
                with log.passing_over(GdbextError):
                    return self._code.symbol("mmap", [module])
        return 0

    def share_with(self, parts: int) -> None:
        """It is one of so many watches, which share what one may take of a CPU."""
        self._parts = parts
        if self.follower is not None:
            self.follower.share /= parts
        if self.calls is not None:
            self.calls.share /= parts

    # ---- rounds --------------------------------------------------------------------------------------------------
    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    def round(self) -> None:
        """Takes in what came since the last round; a look at the mappings where one is due."""
        try:
            self.counted.append((self.now(), counters(self.pid)))
            if len(self.counted) > MAX_TAKEN:
                del self.counted[::2]
            if self.now() >= self._next_look:
                self.look()
            if self.faults is not None:
                self._take(self.faults)
            else:
                self._compare()
            if self.now() >= self._next_free:
                self._look_for_free()
        except GdbextError as e:
            log.passed_over(e)
            self.ended = not os.path.exists(f"/proc/{self.pid}")

    def look(self) -> None:
        """Looks at all mappings."""
        spent = time.process_time()
        pieces = resident.pieces(self.pid)
        status = read_proc(self.pid, "status")
        locked = int((status_field(status, b"VmLck").split() or [b"0"])[0]) * KIB
        threads = int(status_field(status, b"Threads") or b"0")
        self.looks.append(grown.looked(self.now(), pieces, self._first_word, locked, threads))
        own = [piece for piece in pieces if piece.rss and not piece.path and "w" in piece.perms]
        self._anonymous = [(piece.start, piece.end) for piece in own]
        if self.faults is None:
            self._pools.append(self.free.pools(self._anonymous))
        self._heaps = arenas_of(piece.start for piece in pieces if piece.rss and not piece.path)
        self._look_cost = max(self._look_cost * 0.7, time.process_time() - spent)
        self._next_look = self.now() + max(
            self.seconds / LOOKS, min(self._parts * self._look_cost / LOOK_SHARE, self.seconds / 7)
        )

    def _look_for_free(self) -> None:
        """Which of the pages that were sampled lately, and of some of all, are free now."""
        spent = time.process_time()
        self.free.look(self._heaps)
        some = self.taken[-CHECKED:] + random.sample(self.taken, min(len(self.taken), 3 * CHECKED))
        some = [one for one in some if one.address and one.way == grown.FAULT]
        for one, free in zip(some, self.free.free([one.address for one in some])):
            if free:
                self._freed.add((one.time, one.address))
        self._next_free = self.now() + self._parts * (time.process_time() - spent) / FREE_SHARE

    def _first_word(self, address: int) -> int:
        try:
            return int(struct.unpack("<Q", self._code.read_now(address, 8))[0])
        except GdbextError as e:
            log.passed_over(e)
            return 0

    def rest(self, until: float) -> None:
        """Waits for the next round, and for records of the kernel's at its end."""
        time.sleep(max(0.0, until - time.monotonic() - ROUND / 2))
        if self.faults is not None:
            self.faults.wait(max(0.0, until - time.monotonic()))

    # ---- samples of faults -----------------------------------------------------------------------------------------
    def _take(self, source: PageFaults) -> None:
        faults, mapped, born = source.take()
        wanted = {tid for tid, (_, own) in faults.items() if own} | {m.tid for m, _ in mapped} | {b.tid for b in born}
        frames = self.frames(wanted)
        each = max(1, DETAIL // max(1, len(faults)))
        for tid, (count, own) in faults.items():
            count += self._counted.pop(tid, 0)
            if not own:
                self._counted[tid] = count
                continue
            step = max(1, len(own) // each)
            chosen = own[step // 2 :: step][: each + 1]
            for one in chosen:
                self._add(self.of_fault(one, count / len(chosen), frames.get(tid)))
        for new, call in mapped[:: max(1, len(mapped) // DETAIL)]:
            self._add(self._of_mapping(new, call, frames.get(new.tid)))
        for thread in born:
            source.add(thread.new)
            place = self._python(_own(frames.get(thread.tid))) if self._fresh(self._time(thread.time)) else Place()
            self.born.append(Taken(self._time(thread.time), thread.tid, place, 1, thread.new))

    def _add(self, one: Taken) -> None:
        if len(self.taken) >= MAX_TAKEN:  # every second one of those so far stands for two
            self.taken = [t._replace(pages=2 * t.pages) for t in self.taken[::2]]
            self._later.clear()
        self.taken.append(one)

    def of_fault(self, one: Fault, pages: float, frames: list[PyFrame] | None) -> Taken:
        """A sample that stands for so many pages. `frames`: its thread's, read later."""
        library, native, end = self._native(one)
        place, sure, at = self._line_at(one, end), 2, self._time(one.time)
        if place is None and self._learn(one, end):
            place = self._line_at(one, end)
        if place is None:
            sure = self._fresh(at) if frames else 2
            place = self._python(frames) if sure else Place()
            if frames and len(self._later) < MAX_LATER:
                self._later[len(self.taken)] = one
        return Taken(at, one.tid, place._replace(library=library, native=native), pages, one.address, grown.FAULT, sure=sure)

    def _of_mapping(self, one: Mapped, call: Fault | None, frames: list[PyFrame] | None) -> Taken:
        at = self._time(one.time)
        end = one.address + one.size  # the kernel tells of the whole mapping, where it joined the new one to one before
        pages = max(one.size - self._mapped.get(end, self._mapped.get(one.address, 0)), 0) / grown.PAGE
        if len(self._mapped) > MAX_TAKEN:
            self._mapped.clear()
        self._mapped[end] = self._mapped[one.address] = one.size
        made = Taken(at, one.tid, self._python(frames), pages, one.address, grown.MAPPING, sure=self._fresh(at))
        if call is not None and 0 <= one.time - call.time < 1e9 * FRESH:
            place = self.of_fault(call, pages, frames)
            made = made._replace(place=place.place, sure=place.sure)
        return made

    def _fresh(self, at: float) -> int:
        """How sure what was read now is of a moment."""
        return 1 if self.now() - at < FRESH else 0

    def _time(self, stamp: int) -> float:
        return min(max(stamp / 1e9 - self.began, 0.0), self.now())

    def _native(self, one: Fault) -> tuple[str, str, int]:
        """(library, function) of the innermost frame that is none of an allocator's; Python itself where none is above it; where
        the innermost frame of the interpreter's loop ends, 0: not seen."""
        if not one.registers:
            return "", "", 0
        arch = self._code.arch
        if self._code.mapping_at(one.registers[PC[arch]]) is None:
            self._code.invalidate()
        memory = SampledStack(self._code, one.registers[STACK_POINTER[arch]], one.stack)
        frames = Unwinder(memory).frames(one.registers, DEPTH)  # type: ignore[arg-type]
        found = "", ""
        for frame in frames:
            name = os.path.basename(frame.library).replace(" (deleted)", "")
            if not name or not frame.reliable:
                break
            found = name, frame.function
            if not ALLOCATORS.match(name):
                break
        return (*found, self._loops.end(frames))

    def _words(self, one: Fault, end: int) -> tuple[int, ...]:
        """The registers and the words of the stack up to the end of the interpreter's innermost frame, where that was seen."""
        size = len(one.stack)
        if end:
            size = max(0, min(size, end - one.registers[STACK_POINTER[self._code.arch]]))
        return (*one.registers.values(), *struct.unpack(f"<{size // 8}Q", one.stack[: size // 8 * 8]))

    def _line_at(self, one: Fault, end: int) -> Place | None:
        """The Python line at a fault: the innermost word of the stack that is the next instruction of code that is known. Before
        3.11 each call has a frame of the loop's own, where words of earlier calls stand: there is no line."""
        if not self._starts or not one.stack or not end or self.rt is None or "gen.gi_frame" in self.rt.layout:
            return None
        low, high = self._starts[0], max(end for end, *_ in self._codes.values())
        for word in self._words(one, end):
            if low < word <= high:
                start = self._starts[bisect.bisect_left(self._starts, word) - 1]
                stop, code, entered = self._codes[start]
                if entered < word <= stop and word % 2 == 0:
                    line = code.line(word - start - 2)
                    if line:
                        return Place("", "", code.qualname, code.file, line)
        return None

    def _learn(self, one: Fault, end: int) -> bool:
        """Takes in the code of the frame that the interpreter's innermost loop had, by the pointers to it that are there still.
        -> whether any is new. The line is believed where its instruction is on the stack too."""
        rt = self.rt
        if rt is None or not end or not self._codes:
            return False
        at, type_at = rt.layout.frame_code, rt.layout["object.ob_type"]
        known = next(iter(self._codes.values()))[1]
        places = [word for word in dict.fromkeys(self._words(one, end)) if word % 8 == 0 and LOWEST < word < HIGHEST]
        new = False
        with log.passing_over(GdbextError):
            kind = self.target.read_now(known.address + type_at, 8)
            codes = {
                int.from_bytes(data, "little") & ~rt.dialect.tag_mask
                for data in read_ranges(self.pid, [(p + at, 8) for p in places])
            }
            codes = {code for code in codes if code % 8 == 0 and LOWEST < code < HIGHEST}
            for code, data in zip(sorted(codes), read_ranges(self.pid, [(code + type_at, 8) for code in sorted(codes)])):
                if data == kind:
                    with log.passing_over(GdbextError):
                        new |= self._know(Code(rt, code))
        return new

    # ---- Python ----------------------------------------------------------------------------------------------------
    def frames(self, tids: set[int]) -> dict[int, list[PyFrame]]:
        """{tid: its Python frames now}; their code objects are known from then on."""
        rt, found = self.rt, {}
        if rt is None or not tids:
            return {}
        self.target.invalidate()
        try:
            threads = [thread for thread in rt.threads() if thread.tid in tids]
        except GdbextError as e:
            log.passed_over(e)
            return {}
        for thread in threads[:DETAIL]:
            with log.passing_over(GdbextError):
                found[thread.tid] = frames = rt.frames(thread)
                for frame in frames:
                    if self._know(frame.code) and frame.code.name == "<module>":
                        for code, _ in nested(frame.code):
                            self._know(code)
        return found

    def _know(self, code: Code) -> bool:
        """Takes in where the bytecode of a code object is. -> whether that is new."""
        with log.passing_over(GdbextError):
            start = bytecode(code)
            known = self._codes.get(start)
            if known is not None and known[1].address == code.address and known[1].qualname == code.qualname:
                return False
            layout, target = code.rt.layout, code.rt.target
            if "code.co_code_adaptive" in layout:
                size = 2 * target.u64(code.address + layout["varobj.ob_size"])
            else:
                size = code.rt.object(target.u64(code.address + layout["code.co_code"])).len()
            if 0 < size < 1 << 20:
                code.line(0)  # its table is read while it is there
                at = layout.get("code._co_firsttraceable")
                first = target.i32(code.address + at) + 2 if at is not None else 0  # behind RESUME: its address stays in stacks
                self._codes[start] = start + size, code, start + 2 * first
                self._starts = sorted(self._codes)
                return True
        return False

    def _python(self, frames: list[PyFrame] | None) -> Place:
        if not frames:
            return Place()
        try:
            return Place("", "", frames[0].function, frames[0].file, frames[0].line or 0)
        except GdbextError as e:
            log.passed_over(e)
            return Place()

    # ---- without faults --------------------------------------------------------------------------------------------
    def _counts(self) -> dict[int, int]:
        found = {}
        for tid in task_ids(self.pid)[:MAX_THREADS]:
            with log.passing_over(GdbextError, OSError):
                found[tid] = int(read_stat(self.pid, tid).fields[7])
        return found

    def _compare(self) -> None:
        """Who took pages since the last round, by the kernel's count for each thread."""
        now = self._counts()
        risen = {tid: count - self._minor[tid] for tid, count in now.items() if count > self._minor.get(tid, count)}
        new = [tid for tid in now if tid not in self._minor]
        if self.follower is not None and (new or now.keys() != self._minor.keys() or not self._minor):
            self.follower.know()
        self._minor = now
        for tid, pages in risen.items():
            self._add(Taken(self.now(), tid, Place(), pages, sure=0))
        frames = self.frames(set(new))
        for tid in new:
            self.born.append(Taken(self.now(), 0, self._python(_own(frames.get(tid))), 1, tid))
        for tid in self._heat.keys() | risen.keys():
            self._heat[tid] = COOLS * self._heat.get(tid, 0.0) + risen.get(tid, 0)
        self.hot = sorted((tid for tid in self._heat if tid in now), key=lambda tid: -self._heat[tid])[:HOT]
        self._heat = {tid: self._heat[tid] for tid in self.hot}
        self._look_at_calls([tid for tid in self.hot if tid in risen])

    def _look_at_calls(self, tids: list[int], runs: bool = False) -> None:
        random.shuffle(tids)
        if self.calls is not None:
            for tid in tids:
                with log.passing_over(GdbextError, struct.error):
                    self.calls.look(tid, runs)

    def spot(self, follower: Follower, tid: int) -> None:
        """Follows a thread for a moment. Pages count less where the process has no more of them than before; what is mapped
        counts where it is more than ever."""
        last, rise = [0, *follower.memory()], 0.0

        def pages(count: int) -> float:
            nonlocal rise
            mapped, more = follower.memory()
            if last[0] and count > last[0]:
                rise += max(more - last[2], REUSED * (count - last[0]))
            if mapped > self._mapped_most:
                rise, self._mapped_most = rise + mapped - max(self._mapped_most, last[1]), mapped
            last[:] = max(count, last[0]), mapped, more
            return rise

        for span in follower.follow(tid, pages):
            self.spans.add(self.now(), span)
        if follower.runs(tid) >= 0:
            self._look_at_calls([tid], True)

    # ---- the end ---------------------------------------------------------------------------------------------------
    def sources(self) -> list[tuple[str, bool, str, str]]:
        """[(source, whether it was there, why not, what it cannot see)]."""
        faults = self.faults
        kernel = "" if faults is None or faults.kernel else "faults inside system calls; "
        if faults is not None and faults.left_out:
            kernel += f"those of {len(faults.left_out)} threads, for {len(faults.threads)} others are sampled; "
        return [
            ("page faults", faults is not None, self.why_not, kernel + CANNOT["page faults"]),
            ("new mappings", faults is not None, self.why_not, CANNOT["new mappings"]),
            ("each thread's count of faults", faults is None, "", CANNOT["counts"]),
            (
                "calls on stacks",
                self.calls is not None and not self.calls.why_not,
                self.calls.why_not if self.calls else "",
                CANNOT["calls"],
            ),
            ("smaps", bool(self.looks), "", CANNOT["smaps"]),
            ("Python frames", self.rt is not None, self.no_python, CANNOT["frames"]),
        ]

    def _calls(self) -> tuple[bool, str]:
        return (self.calls is not None and not self.calls.why_not), (self.calls.why_not if self.calls else "")

    def finish(self) -> list[Row]:
        """The rows of what keeps growing."""
        if self.faults is not None:
            self.faults.close()
        with log.passing_over(GdbextError):
            self.look()
            self._settle()
        rows = grown.judge(self.looks, self.taken, self.born, self.counted)
        if self.calls is not None:
            for row in rows:
                if not row.place.library and sum(row.kind == one.kind for one in rows) == 1:
                    self._library(row, self.calls)
        rows = [row.doubted() if row.place != Place() and self._doubtful(row) else row for row in rows]
        for row in rows:
            row.names = [self.name(tid) for tid in row.tids]
        return rows

    def _doubtful(self, row: Row) -> bool:
        """Whether memory of that kind was free as it grew: then who touches new pages need not be who keeps some."""
        if row.kind in (HEAP, ARENAS) and self.free.often(row.kind == HEAP):
            own = [one for one in self.taken if one.kind == row.kind and one.stays and one.place[2:] == row.place[2:]]
            return self.faults is None or sum(one.freed for one in own) > grown.SELDOM * len(own)
        if row.kind != grown.ANONYMOUS or not self._pools:
            return False
        ample = sum(free > AMPLE for _, free in self._pools) > OFTEN * len(self._pools)
        return ample and 2 * (self._pools[-1][0] - self._pools[0][0]) > row.bytes

    def _library(self, row: Row, calls: Calls) -> None:
        """Gives a row the library whose calls alone took memory of that kind from the kernel, in the thread that touched most."""
        touched: collections.Counter[int] = collections.Counter()
        for one in self.taken:
            if not one.sure:
                touched[one.tid] += int(one.pages)
        tid, pages = (touched.most_common(1) or [(0, 0)])[0]
        place = calls.place(row.kind, tid)
        if not place.library or 2 * pages < sum(touched.values()) or row.tids and row.tids[0] != tid:
            return
        if row.kind not in (HEAP, ARENAS) and pages * grown.PAGE > grown.CHURNS * row.bytes and row.kind != HUGE:
            return  # it gives most of what it touches back
        if not row.place.file:
            row.source, row.tids = "calls", [tid]
        row.place = row.place._replace(library=place.library, native=place.native)

    def _settle(self) -> None:
        """Says of each sample which kind of memory it is of, and whether its page is there still."""
        self.taken += [Taken(at, tid, place, rise, sure=1) for at, tid, place, rise in self.spans.told()]
        pieces = sorted(resident.pieces(self.pid), key=lambda piece: piece.start)
        starts = [piece.start for piece in pieces]
        kinds = [grown.kind_of(piece, self._first_word) for piece in pieces]
        presence = self._code.presence()
        last: dict[int, int] = {}
        for number, one in enumerate(self.taken):
            last[one.address // grown.PAGE] = number
        found = []
        for number, one in enumerate(self.taken):
            place = self._line_again(self._later[number]) if number in self._later else None
            if place is not None:
                one = one._replace(place=place._replace(library=one.place.library, native=one.place.native), sure=2)
            if one.address:
                at = bisect.bisect_right(starts, one.address) - 1
                inside = at >= 0 and one.address < pieces[at].end
                stays = inside and last[one.address // grown.PAGE] == number and not presence.absent(one.address, 1)
                freed = (one.time, one.address) in self._freed
                one = one._replace(stays=stays, kind=kinds[at] if inside else "gone", freed=freed)
            found.append(one)
        self.taken = found
        alive = set(task_ids(self.pid))
        self.born = [one._replace(stays=one.address in alive) for one in self.born]
        self._where_they_stand(alive)

    def _line_again(self, one: Fault) -> Place | None:
        return self._line_at(one, self._native(one)[2])

    def _where_they_stand(self, alive: set[int]) -> None:
        """Threads that were born have the place where they stand, if it is not known who started them."""
        lacking = {one.address for one in self.born if one.address in alive and one.place == Place()}
        frames = self.frames(set(list(lacking)[:DETAIL]))
        self.born = [
            one._replace(place=self._python(_own(frames.get(one.address)))) if one.address in frames else one for one in self.born
        ]

    def name(self, tid: int) -> str:
        """A thread's name."""
        with log.passing_over(GdbextError, OSError):
            return read_stat(self.pid, tid).name.decode("utf-8", "replace")
        return ""


def _own(frames: list[PyFrame] | None) -> list[PyFrame] | None:
    """Frames from the innermost one on that is none of threading.py."""
    own = [frame for frame in frames or () if os.path.basename(frame.file) not in ("threading.py", "thread.py")]
    return own or frames


def run(watches: Sequence[GrowWatch], seconds: float) -> None:
    """Watches processes for so long, or until all have ended."""
    for one in watches:
        one.share_with(len(watches))
    try:
        _rounds(watches, time.monotonic(), seconds)
    except BaseException:
        for one in watches:
            if one.faults is not None:
                one.faults.close()
        raise
    finally:
        for one in watches:
            if one.follower is not None:
                one.follower.end()


def _rounds(watches: Sequence[GrowWatch], began: float, seconds: float) -> None:
    while time.monotonic() - began < seconds and any(not one.ended for one in watches):
        before = time.process_time()
        for one in watches:
            if not one.ended:
                one.round()
        spent = time.process_time() - before
        wait = min(max(ROUND * random.uniform(0.5, 1.0), spent / SHARE), 5.0, seconds / (2 * grown.PARTS))
        until = min(time.monotonic() + wait, began + seconds)
        if len(watches) == 1 and watches[0].faults is not None:
            watches[0].rest(until)
        else:
            _follow(watches, until)


def _follow(watches: Sequence[GrowWatch], until: float) -> None:
    """Looks at the threads that take most of processes without samples, one process after the other, until then."""
    while time.monotonic() < until:
        turn = TURN if len(watches) > 1 else until - time.monotonic()
        found = [(one, one.follower) for one in watches if one.follower is not None and one.hot and not one.ended]
        if not found:
            time.sleep(max(0.0, until - time.monotonic()))
        for one, follower in found:
            follower.spots(one.hot, min(until, time.monotonic() + turn), one.spot)
