"""The collector: copies the memory that stacks and Python need out of a running process, in a pause of about a millisecond.

It is a process of its own, one for each rank, never inside gdb: `python3 -m gdbext.access.collector PID --reader MODULE -o FILE`,
started by collect.py. Its order is: stop, copy, resume, analyse.

* Before the stop the reader runs on the running process, only to learn which pages it will need.
* During the stop registers, stacks and those pages are copied with few system calls. No pointer is followed.
* After the stop the reader runs on the copy. Pages that turn out to be missing are added, and the stop is made again.
* A reader that chooses runs before the stop too: what it touches is copied. Where the process has run meanwhile it runs on the
  copy again, and what that lacks is worth another stop.
* A process may change too fast for that. The last round then follows pointers during the stop, within a time limit.

A helper process stops the threads, without a signal (holder.py). It resumes them after `LONGEST` seconds, whatever becomes of the
copy. If the collector is killed at any moment, every thread runs on. A stop never waits for pages that are not in memory: they
are copied afterwards. Threads that sleep are left asleep where possible (sleepers.py).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Sequence

from .. import log
from ..errors import GdbextError, NotFoundError
from . import core_writer, identity, loaded, namespaces, ptrace, redaction, resident, room, secrets
from .base import Target
from .holder import LONGEST
from .model import PAGE, Mapping, ReadLog, Thread
from .proc import ProcTarget, boot_id, process_clock
from .procfs import parse_maps, read_maps, read_proc, read_schedstat, wait_channel
from .ranges import Writable, joined, near_first, runs, stack_ranges
from .room import text_size
from .stopper import Stop, Stopper
from .working_set import MAX_PAGES, Copy, Recorder

if TYPE_CHECKING:
    Kept = Callable[[Target], tuple[list[bytes], list[bytes], set[bytes], list[tuple[int, int, int]]]]
Reader = Callable[[Target], str]

READY = b"r"
ROUNDS = 3
STARVED = 10  # more of them, while none of its threads stops in time
TORN = 4  # more of them, while threads that were left asleep wake, some do not stop, or the copy takes longer than the stop
PREFETCHES = 6  # before each of them at most
WALK_LIMIT = 0.1  # seconds that the last round may follow pointers while the process is paused
SHORT_WALK = 0.03  # if that suffices, there is no extra stop for pages that one more learning run may have missed too
LEAST_PAGES = 512  # of Python's state, before they are known
STACK_GUESS = 8 << 10  # bytes of a thread's stack
WHOLE = 0.45  # of the spare memory: a copy is in memory twice while it is written
NAMED_THREADS = 32  # of those that did not stop
AS_IT_IS = "it was read as it is, without being stopped"
NAMED = 1 << 20  # bytes: smaller omissions are not reported


class Collection:
    """A copy of one process in the making. `collect()` makes it, and is faster soon after `rehearse()`; `write(path)` writes it
    as a snapshot.

    `read(target)` reads everything that the copy has to hold in addition to registers and stacks; it returns the first error, or
    ''. `heap`: bytes of other private memory to copy as well. `choose(target)`, where it is given, reads all that later answers
    will read; without `heap` nothing is kept but the bytes that it reads, and of these none that people wrote. `timeout`:
    seconds that a thread may take to stop. `kept(target)`
    gives the program's own copies of (command line, environment, other secrets). `unstoppable`: why the process is not to be
    stopped, where it is not."""

    def __init__(
        self,
        pid: int,
        read: Reader,
        *,
        heap: int = 0,
        choose: Reader | None = None,
        timeout: float = 1,
        kept: Kept | None = None,
        unstoppable: str = "",
    ) -> None:
        self.pid, self.read, self.heap, self.choose, self.kept = pid, read, heap, choose, kept
        if ptrace.status(pid) is None:
            raise NotFoundError(f"process {pid} does not exist (any more)")
        self.tid = ptrace.memory_tid(pid) or 0  # a thread that has the memory: the main one may have ended
        if not self.tid:
            raise GdbextError(f"process {pid} has no memory: it is a zombie or a kernel thread")
        self.live = ProcTarget(pid)
        self.live.open_memory()  # names the missing permission, before anything is stopped
        self.threads: dict[int, Thread] = {}
        self.asleep = ptrace.uninterruptible(pid)
        self.maps = parse_maps(read_maps(pid)[0])
        self.auxv = read_proc(self.tid, "auxv")
        self.stopper = Stopper(self.live, self.tid, timeout, unstoppable)
        self.exact = choose is not None and not heap
        self.recorder = Recorder(pid, limit=2 * MAX_PAGES + heap // PAGE)
        self.recorder.read_log = ReadLog(exact=self.exact)
        self.wanted: set[int] = set()
        self.moving: set[int] = set()  # those that are read each time
        self.heap_spans: list[tuple[int, int]] = []
        self.pauses: list[float] = []
        self.partial: list[str] = []
        self.woken = 0  # threads that slept and were stopped all the same
        self.left_out = 0  # bytes of private memory
        self.stop = Stop()
        self.learnt: int | None = None  # the process's CPU time when all wanted pages were known
        self.chosen: int | None = None  # and when all was read that is read once
        self.logs: list[ReadLog] = []  # of what was read of the last copy, and before
        self.written: set[bytes] = set()  # what people wrote
        self.parts: dict[int, int] = {}  # as `ReadLog.marks`, of pages of which only a part is kept
        self.stood = False  # it has not run from then to the stop
        self.rehearsed = False
        self.moment = time.time()  # of the copy
        self.walk = WALK_LIMIT  # seconds that the last read of changing memory took

    # ---- collecting ----------------------------------------------------------------------------------------------
    def rehearse(self) -> None:
        """Learns which pages are wanted, while the process runs."""
        loaded.library_names(self.recorder.read, self.auxv)  # they let gdb name the libraries in the snapshot
        self._prefetch()
        self.stopper.sleepers.learn()
        self.rehearsed = True

    def collect(self, at_once: bool = False) -> None:
        """Fills `stop`, `pauses` and `partial` in. `at_once`: others are copied in this moment too: what was chosen in the
        rehearsal is copied, and what the chooser finds new is not worth a later moment."""
        if not self.rehearsed:
            self.rehearse()
        else:
            self.maps, self.asleep = parse_maps(read_maps(self.pid)[0]), ptrace.uninterruptible(self.pid)
            if not at_once and (self.learnt is None or process_clock(self.pid) != self.learnt):
                self._prefetch()
            self.stopper.sleepers.learn()
        self.live.invalidate()
        self._add_threads()
        for m in self.maps:
            if m.path == "[vdso]":
                self.wanted.update(range(m.start, m.end, PAGE))
        number = starved = torn = 0
        while number < ROUNDS:
            last = number == ROUNDS - 1 or number > 0 and self.walk < SHORT_WALK
            copy, error = self._round(last)
            if not self.stop.registers and starved < STARVED and ptrace.memory_tid(self.pid):
                starved += 1  # no thread was paused: none got a CPU to stop on
                continue
            if self.stop.again and torn < TORN:
                torn += 1
                continue
            number += 1
            missed = copy.read_log.missed or (set() if at_once else self._lacking(copy))
            if not missed:
                break
            self.wanted |= missed
            self._prefetch()
        if missed:
            error = self._add_missed(copy, missed, None if at_once else self.choose)
        if error:
            self.partial.append("Python: " + error)
        if self.stop.torn:
            self.partial.append(self.stop.torn)
        if self.stop.held_by:
            holds = ptrace.stopper(min(self.stop.held_by))
            self.partial.append(f"{holds}, holds it: {AS_IT_IS}")
        if self.stopper.unstoppable:
            self.partial += ["unstopped"] * self.stop.ran + [f"{self.stopper.unstoppable}: {AS_IT_IS}"]
        late, away = self._add_afterwards()
        self._add_read_only(copy.maps)
        if self.exact:
            self._keep_what_was_read()
        if self.choose is not None:
            used = resident.select(self.tid, self.maps, resident.SMALL)
            writable = Writable(copy.maps)
            kept = sum(page in writable for page in self.stop.memory)
            self.left_out = max(0, used.size + sum(n for _, n in used.left_out) - PAGE * kept)
        self._report_afterwards(late, away)
        self._add_blocked()
        if not self.stop.registers and not ptrace.memory_tid(self.pid):
            raise NotFoundError(f"process {self.pid} ended while it was copied")
        if not self.stop.registers:
            raise GdbextError(f"process {self.pid} gets no CPU: none of its threads stopped in {starved + 1} tries; ask again")

    def _add_missed(self, copy: Copy, missed: set[int], choose: Reader | None) -> str:
        """Copies, while the process runs, the pages that the readers still miss, until they miss none that can be read. -> the
        first error of the read"""
        lost: set[int] = set()
        added, error = 0, ""
        for _ in range(PREFETCHES):
            for page in missed - lost:
                try:
                    self.stop.memory[page] = self._now(page, PAGE)
                    added += 1
                except GdbextError as e:
                    log.passed_over(e)
                    lost.add(page)
            copy.read_log = ReadLog(of_copy=True, exact=self.exact)
            self.logs.append(copy.read_log)
            copy.invalidate()
            error = self.read(copy)
            if choose is not None:
                choose(copy)
            missed = copy.read_log.missed
            if missed <= lost:
                break
        for n, what in ((added, "were copied while it ran"), (len(missed), "were not copied")):
            if n:
                self.partial.append(f"{n} pages that Python's state points to {what}: they change faster than it is stopped")
        return error

    def _prefetch(self) -> None:
        """Repeats the read until a pass finds no new page. So the pages are learnt while the process runs, not while it is
        stopped."""
        for _ in range(PREFETCHES):
            reads, ran = self.recorder.read_log, process_clock(self.pid)
            self.learnt, self.chosen = ran, self.chosen if reads.repeated else ran
            self.recorder.invalidate()
            self.wanted |= reads.pages
            reads.pages, began = set(), time.monotonic()
            self.read(self.recorder)
            known = reads.pages <= self.wanted
            self.wanted |= reads.pages
            if reads.repeated:
                self.moving |= reads.pages
                self.walk = time.monotonic() - began
                if known:
                    break
            reads.repeated = True
            if ran is not None and process_clock(self.pid) == ran:
                break  # it did not run meanwhile: another pass would find the same

    def select_heap(self) -> int:
        """Selects the other private memory to copy. -> bytes that the snapshot will take at most; `GdbextError` where there is no
        room for it"""
        least = PAGE * (len(self.wanted) or LEAST_PAGES) + STACK_GUESS * len(ptrace.tids(self.pid))
        why = "-max-bytes"
        if self.heap:
            left, where = room.spare()
            fits = int((left - room.OWN - least) * WHOLE)
            if fits < self.heap:
                self.heap, why = max(fits, 0), f"{where} has {text_size(max(left, 0))} to spare"
            chosen = resident.select(self.tid, self.maps, self.heap)
            self.heap_spans = chosen.spans
            self.left_out = sum(n for _, n in chosen.left_out)
            if self.choose is None:  # else the rest was not asked for
                self.partial += [f"{text_size(n)} at {a:#x} left out ({why})" for a, n in chosen.left_out if n > NAMED]
            least += chosen.size
        room.need(least, f"a copy of process {self.pid}")
        return least

    def _round(self, last: bool) -> tuple[Copy, str]:
        """One stop, and then the reader's result on the copy. `last`: the reader walks during the stop too."""
        self.stop.memory.clear()  # an earlier round's copy: there is no room for two
        growth = None
        if self.heap:  # chosen anew: on a machine at full load seconds have passed
            self.maps = parse_maps(read_maps(self.pid)[0])
            growth = resident.Growth(self.tid, self.maps)
            chosen = resident.select(self.tid, self.maps, self.heap)
            self.heap_spans, self.left_out = chosen.spans, sum(n for _, n in chosen.left_out)
        writable = Writable(self.maps)
        pages = {p for p in self.wanted if p in writable}
        # Memory that grows, a frame stack say, grows next to its end.
        pages |= {p + d for p in self.moving for d in (-PAGE, PAGE) if p + d in writable}
        walker = Recorder(self.pid) if last else None
        if walker is not None:
            walker.know_maps_of(self.recorder)
            walker.read_log.repeated = True  # the rest was learnt before; the process is paused for the memory that changes

        def walk(until: float) -> None:
            if walker is not None:
                walker.deadline = min(time.monotonic() + WALK_LIMIT, until)
                self.read(walker)

        ranges = joined(runs(pages)), near_first(self.heap_spans, pages)
        self.stop = stop = self.stopper.copy(*ranges, maps=self.maps, walk=walk, growth=growth)
        self.moment, self.stood = time.time(), stop.clock is not None and stop.clock == self.chosen
        if stop.registers:
            self.pauses.append(stop.seconds)
        self.woken = max(self.woken, stop.woken)
        self.maps = stop.maps
        if walker is not None:
            stop.memory.update(walker.copies)
        self.live.invalidate()
        if not stop.registers.keys() <= self.threads.keys():
            self._add_threads()
        copy = Copy(self.live, stop.memory, stop.maps, [self.threads.get(tid) or Thread(tid) for tid in sorted(stop.registers)])
        copy.read_log = ReadLog(of_copy=True, exact=self.exact)
        self.logs = [self.recorder.read_log, copy.read_log]
        error = self.read(copy)
        loaded.library_names(copy.read, self.auxv)
        return copy, error

    def _add_threads(self) -> None:
        """Adds threads that are not known yet. The others keep their state from before the first stop: a stop wakes a thread that
        sleeps."""
        for thread in self.live.threads():
            self.threads.setdefault(thread.tid, thread)

    def _now(self, address: int, size: int) -> bytes:
        """Memory of the running process, whose map may just have changed."""
        try:
            return self.live.read_now(address, size)
        except GdbextError as e:
            log.passed_over(e)
            self.live.invalidate()
            return self.live.read_now(address, size)

    def _add_afterwards(self) -> tuple[set[int], set[int]]:
        """Copies, while the process runs, the pages for which the stop was too short, and those not in memory. -> both"""
        found: dict[str, set[int]] = {"late": set(), "away": set()}
        lost = []
        for kind, ranges in (("late", self.stop.late), ("swapped", self.stop.swapped), ("away", self.stop.away)):
            for address, size in ranges:
                try:
                    data = self._now(address, size)
                except GdbextError as e:
                    where = self.live.mapping_at(address)
                    if where is not None and "r" in where.perms:  # else it is not mapped any more
                        lost.append((address, size, e))
                    continue
                where = self.live.mapping_at(address)
                pages = range(address, address + size - PAGE + 1, PAGE)
                if kind != "away" or where is not None and where.path.startswith("/") and any(data):
                    found["late" if kind == "late" else "away"].update(pages)  # others were never written to
                for page in pages:
                    self.stop.memory.setdefault(page, data[page - address : page - address + PAGE])
        for address, size, why in lost[:1]:
            more = f" and {len(lost) - 1} more" if len(lost) > 1 else ""
            where = self.live.mapping_at(address)
            path = f" of {where.path}" if where is not None and where.path else ""
            self.partial.append(f"{text_size(size)} at {address:#x}{path}{more} left out: {why}")
        return found["late"], found["away"]

    def _lacking(self, copy: Copy) -> set[int]:
        """The pages that the chooser reads and a copy lacks: none where the process has not run since it read the process."""
        if self.choose is None or self.stood:
            return set()
        copy.read_log = ReadLog(of_copy=True, exact=self.exact)
        self.logs.append(copy.read_log)
        copy.invalidate()  # what it keeps of earlier reads would be read unnoticed
        self.choose(copy)
        return copy.read_log.missed

    def _keep_what_was_read(self) -> None:
        """Of memory that can change the bytes that were read stay, and the addresses on stacks: the ways to the frames."""
        writable, memory = Writable(self.stop.maps), self.stop.memory
        texts = (self._text(at, min(n, secrets.MAX_VALUE * unit), unit) for at, n, unit in self._content() if unit)
        self.written = {text for text in texts if len(text) >= redaction.PIECE and len(set(text)) >= redaction.MIN_DISTINCT}
        for log_ in self.logs:
            for page, marks in (log_.marks or {}).items():
                self.parts[page] = self.parts.get(page, 0) | marks
        ends = sorted((m.start, m.end) for m in self.stop.maps)
        stacks = stack_ranges(self.stop.registers.values(), self.live.arch, [span for span in ends if span[0] in writable])
        for page in {page for at, size in stacks for page in range(at, at + size, PAGE)} & memory.keys():
            redaction.keep_addresses(memory, page, self.parts.get(page, 0), ends)
            self.parts[page] = redaction.WHOLE
        for page in [page for page in memory if page in writable]:
            if page not in self.parts:
                del memory[page]
            elif self.parts[page] != redaction.WHOLE:
                redaction.keep_marked(memory, page, self.parts[page])
        self.parts = {page: marks for page, marks in self.parts.items() if page in memory and marks != redaction.WHOLE}
        self.parts = {page: marks for page, marks in self.parts.items() if page in writable}

    def _report_afterwards(self, late: set[int], away: set[int]) -> None:
        """Says how much of what is kept was not copied in the stop."""
        ran = f"were copied while it ran: it is paused for {LONGEST:g} s at most"
        for pages, why in ((late, ran), (away, "were not in memory: they were copied while it ran on")):
            kept = len(pages & self.stop.memory.keys())
            if kept:
                self.partial.append(f"{text_size(PAGE * kept)} {why}")

    def _add_read_only(self, maps: Sequence[Mapping]) -> None:
        """Adds read-only pages. They cannot change, so no stop is needed. The head of each file, and its notes or symbols,
        identify the file later."""
        writable = Writable(maps)
        for page in self.wanted:
            if page not in writable:
                self._add(page, PAGE)
        for m in maps:
            if m.offset == 0 and m.path.startswith("/") and "w" not in m.perms and "r" in m.perms:
                self._add(m.start, PAGE)
                for address, size in identity.proof_ranges(self.live, m.start):
                    self._add(address, size)

    def _add(self, address: int, size: int) -> None:
        for page in range(address & -PAGE, address + size, PAGE):
            if page not in self.stop.memory:
                try:
                    self.stop.memory[page] = self.live.read(page, PAGE)
                except GdbextError as e:
                    log.passed_over(e)  # unmapped since

    def _add_blocked(self) -> None:
        """Names the threads that could not be stopped."""
        for tid in sorted(self.stop.stray)[:NAMED_THREADS]:
            name = self.threads[tid].name if tid in self.threads else ""
            channel = wait_channel(self.pid, tid)
            where = f", in {channel}" if channel else ""
            what = (
                "waits inside the kernel, where nothing can stop it (state D)" if tid in self.asleep else "did not stop in time"
            )
            known = "its stack is read from where it entered the kernel" if tid in self.stop.registers else "no registers of it"
            self.partial.append(f"thread {tid} ({name}) {what}{where}: {known}")
        if len(self.stop.stray) > NAMED_THREADS:
            self.partial.append(f"{len(self.stop.stray) - NAMED_THREADS:,} more threads did not stop, in time or at all")

    # ---- writing -------------------------------------------------------------------------------------------------
    def write(self, path: str, label: str) -> int:
        """Writes the snapshot to an existing file, or to /proc/self/fd/N of one that has no name yet. -> its size in bytes"""
        program = self._leave_secrets_out()
        order = sorted(self.stop.registers, key=lambda t: (t != self.pid, t))
        threads = [(t, self.stop.registers[t]) for t in order]
        try:
            room.need_disk(path, PAGE * len(self.stop.memory))
            size = core_writer.write_core(
                os.open(path, os.O_WRONLY | os.O_CREAT, 0o600),
                self.live.arch,
                self.pid,
                threads,
                self.stop.maps,
                self.stop.memory,
                auxv=self.auxv,
                program=program,
                pac_mask=self.stop.pac_mask,
                note=self._note(label),
                kept=self.parts,
            )
        except OSError as e:
            raise GdbextError(f"{path}: {e.strerror}: name another file with -o") from None
        return size

    def _leave_secrets_out(self) -> str:
        """Blanks the command line, the environment, and copies of secrets; -> the program's name."""
        stat, argv = read_proc(self.pid, "stat"), read_proc(self.tid, "cmdline").split(b"\0")
        try:
            environ = read_proc(self.tid, "environ").split(b"\0")
        except GdbextError as e:
            log.passed_over(e)
            environ = []
        moved = secrets.moved_environment(self.live)
        environ += [pair for pair, _ in moved]
        words, variables, others, places = self.kept(self.live) if self.kept is not None else ([], [], set(), [])
        area = secrets.kernel_area(stat, self.stop.maps)
        if area is None:
            self.partial.append("where its command line and environment lie is not known: they may be in the snapshot")
        else:
            redaction.blank(self.stop.memory, *area)
        for place in [*places, *secrets.left_out(moved)]:
            redaction.fill(self.stop.memory, *place)
        sure, perhaps = map(set.union, secrets.values(argv, environ), secrets.values(words, variables))
        redaction.redact(self.stop.memory, {*sure, *self.written, *filter(secrets.is_worth, others)}, perhaps)
        for at, count, unit in self._content():
            redaction.fill(self.stop.memory, at, count, unit or 1, letter=b" ")
        return argv[0].decode("utf-8", "surrogateescape").split(" ")[0]

    def _content(self) -> set[tuple[int, int, int]]:
        return {place for log_ in self.logs for place in log_.content or ()}

    def _text(self, address: int, size: int, unit: int) -> bytes:
        """Characters of the copy in UTF-8, without those that it lacks."""
        parts = []
        for page in range(address & -PAGE, address + size, PAGE):
            parts.append(bytes(self.stop.memory.get(page, b"")[max(address - page, 0) : address + size - page]))
        text = b"".join(parts)
        return text if unit == 1 else text.decode("utf-16-le" if unit == 2 else "utf-32-le", "ignore").encode("utf-8", "ignore")

    def _ran(self, tid: int) -> float | None:
        """Seconds that a thread has run, where the kernel counts them finely."""
        try:
            return read_schedstat(self.tid, tid).ran / 1e9
        except (GdbextError, OSError, ValueError) as e:
            log.passed_over(e)
            return None

    def _note(self, label: str) -> dict[str, Any]:
        root, user = self.live.root(), self.live.user()
        process = {"pid": self.tid, "start": ptrace.start_time(self.tid), "boot": boot_id()}
        parent = ptrace.parent_of(self.tid)
        return {
            "user": [user.uid, sorted(user.groups)] if user is not None else None,
            "pid": self.pid,
            "label": label,
            "maps": self.stop.text,
            "threads": {
                str(t.tid): {"name": t.name, "state": t.state, "ns_tid": t.ns_tid, "cpu": self._ran(t.tid)}
                for t in self.threads.values()
            },
            "root": process if root else None,  # to be looked for below its own root
            "process": process,
            "pids": namespaces.pids_of(self.tid),
            "parent": {"pid": parent, "start": ptrace.start_time(parent), "boot": boot_id()} if parent else None,
            "cwd": self.live.cwd(),
            "pauses": self.pauses,
            "time": self.moment,
            "partial": self.partial,
            "left_out": self.left_out,
        }


def take(
    pid: int,
    path: str,
    reader: str,
    label: str = "",
    *,
    timeout: float = 1.0,
    words: Sequence[str] = (),
    heap: int = 0,
    until: int | None = None,
    unstoppable: str = "",
) -> dict[str, Any]:
    """Takes a snapshot of `pid` into `path`, in this process. -> `{"pid", "file", "bytes", "pauses", "partial", "threads"}`

    * `reader`: a module. Its `read(target, *words)` reads everything that the copy has to hold in addition to registers and
      stacks. Its `kept_secrets(target)`, which is optional, gives the program's own copies of its command line and environment.
      Its `choose(target, *words)`, optional too, reads what is to be kept of `heap`.
    * `heap`: bytes of other private memory to copy as well, see `resident.select`.
    * `unstoppable`: why the process is not to be stopped, where it is not
    * `until`: the descriptor on which a byte comes when it is time to stop the process."""
    module = importlib.import_module(reader)
    kept, chooser = getattr(module, "kept_secrets", None), getattr(module, "choose", None)
    choose = None if chooser is None else lambda target: str(chooser(target, *words))
    read = lambda target: str(module.read(target, *words))  # noqa: E731
    collection = Collection(pid, read, heap=heap, choose=choose, timeout=timeout, kept=kept, unstoppable=unstoppable)
    try:
        room.need_disk(path, collection.select_heap())
        collection.rehearse()
        if until is not None:
            _word(until)
        collection.collect(at_once=until is not None and chooser is not None)
    finally:
        collection.stopper.end()
    size = collection.write(path, label)
    return {
        "woken": collection.woken,
        "pid": pid,
        "file": path,
        "bytes": size,
        "pauses": collection.pauses,
        "moment": collection.moment,
        "partial": collection.partial,
        "left_out": collection.left_out,
        "threads": len(collection.stop.registers),
    }


def _word(descriptor: int) -> None:
    """Says that all is ready, by a byte, and returns when one comes back; `GdbextError` where none will come."""
    with contextlib.suppress(OSError):  # the other end has given its word already
        os.write(descriptor, READY)
    if not os.read(descriptor, 1):
        raise GdbextError("the copy is no longer wanted")


def report(pid: int, path: str, reader: str, label: str = "", **asked: Any) -> int:
    """Prints one line of JSON, what `take` returns or `{"error": text}`. -> exit status"""
    try:
        print(json.dumps(take(pid, path, reader, label, **asked)))
    except GdbextError as e:
        print(json.dumps({"error": str(e)}))
        return 1
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """The process that was started as this module."""
    import argparse  # here: a fork needs none

    parser = argparse.ArgumentParser(
        prog="python3 -m gdbext.access.collector", description="Copy the stacks and the Python state of a running process."
    )
    parser.add_argument("pid", type=int)
    parser.add_argument("-o", "--output", dest="path", required=True)
    parser.add_argument("--label", default="")
    parser.add_argument("--reader", required=True, help="the module that reads what the copy has to hold")
    parser.add_argument("--word", dest="words", action="append", default=[], help="an argument of the reader")
    parser.add_argument("--heap", type=int, default=0, help="bytes of other private memory to copy at most")
    parser.add_argument("--until", type=int, help="the descriptor on which a byte comes when it is time to stop the process")
    return report(**vars(parser.parse_args(words)))


if __name__ == "__main__":
    sys.exit(main())
