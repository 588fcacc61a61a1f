"""Looks at processes many times a second through /proc, without stopping them.

A thread that did not run between two looks still has the same stack and state (`observe.thread_files`). Only the other threads
are read again: their system call, and their stack.
"""

from __future__ import annotations

import contextlib
import os
import struct
import time
from typing import Callable, Collection, Iterator, Sequence

from .. import log
from ..access.proc import ProcTarget
from ..access.procfs import cpu_of, parse_syscall, resident_bytes, state_of
from ..access.remote_memory import BulkReader
from ..cpython.gil import FUTEX, RESTART, gil_range
from ..cpython.runtime import open_runtime
from ..cpython.whole_stacks import states_by_thread
from ..engines.sensitive_names import shown_name
from ..errors import GdbextError, NotFoundError
from ..observe.bulk_stacks import DoubtError, GoneError, StackReader, ThreadPlaces
from ..observe.codes import TornError
from ..observe.loop import rounds
from ..observe.system_calls import family
from ..observe.thread_files import Files, KeptThread
from . import recording
from .aside import Aside, Kept
from .execs import Followed, Image, first_opened
from .marks import Mark, Marks
from .recording import DROPPED, MAX_LOOKS, MAX_RUNS, ProcessTrack, Recording, ThreadTrack
from .step_counter import STEPS, StepCounter

CHECK = 1.0  # seconds after which threads are listed again, and those whose root is known by now are taken in
JITTER = 0.3  # of the time between two looks
COUNT = 0.25  # seconds between two readings of the kernel's counters of a process
KEPT_LOOKS, KEPT = 3, 0.05  # looks in a row at which one thread has the GIL and no other had it in between; their seconds
LATE = 0.005  # seconds into a look: what is read later gets a new time, as the recorder got no CPU meanwhile
PER_THREAD = 100  # runs that take as much memory as everything else of a thread
_BY_FAMILY = {
    "read": recording.DISK, "write": recording.DISK, "poll": recording.POLL, "select": recording.POLL,
    "epoll": recording.POLL, "nanosleep": recording.SLEEP, "recv": recording.NETWORK, "accept": recording.NETWORK,
    "connect": recording.NETWORK, "futex": recording.LOCK, "flock": recording.LOCK, "fcntl": recording.LOCK,
}  # fmt: skip
_SYNC = {"x86-64": (74, 75, 162, 277, 306), "aarch64": (81, 82, 83, 84, 267)}  # fsync, fdatasync, sync, sync_file_range, syncfs


class Thread(KeptThread):
    """One sampled Python thread. `track`: everything seen of it; `node`, `state`: those at the last look. `places`: where its
    stack is, of its state in each interpreter that it runs."""

    def __init__(self, pid: int, index: int, track: ThreadTrack, places: Sequence[ThreadPlaces], files: Files) -> None:
        super().__init__(pid, track.tid, files)
        self.index, self.track, self.places = index, track, list(places)
        self.call, self.node, self.state = b"", DROPPED, recording.RUNNING
        self.aside: Aside | None = None  # the last look, if it is kept aside

    def on_a_cpu(self, clock: bytes, now: float) -> bool:
        """As `ran`, given its last state."""
        found = self.ran(clock, now, self.state in (recording.RUNNING, recording.QUEUED))
        self.track.cpu = self.cpu
        return found

    def asleep(self) -> bool:
        """Whether it waits, and has not run since its clock was taken in."""
        return self.state not in (recording.RUNNING, recording.QUEUED) and bool(self.clock) and self.read_clock() == self.clock


class ProcessSampler:
    """Looks at one process. `track`: everything seen of it. `execed`: it ended because the process runs another program now.
    `GdbextError` where it runs no readable Python."""

    keeps_aside = True  # looks at threads whose root is not known yet
    marks: Marks | None = None

    def __init__(self, target: ProcTarget, label: str, rec: Recording, files: Files) -> None:
        self.target, self.rec, self._files = target, rec, files
        self.rt = open_runtime(target)
        self.bulk = BulkReader(target)
        self.reader = StackReader(self.rt, self.bulk, rec.tree)
        self.track = ProcessTrack(label, target.pid)
        self.alive, self.runs = True, 0
        self._threads: dict[int, Thread] = {}  # by the address of the first of its states
        self._of_state: dict[int, Thread] = {}  # by that of each
        self._interp = self.rt.interpreters()[0]
        self._head = b""
        self._checked = 0.0
        self._kept = (0, -1, 0)  # (first look, thread that has the GIL since then, number of switches by then)
        self._aside = Kept()
        self._image = Image(target)
        self.execed = False
        self.steps: StepCounter | None = None
        self._cpu = self._counted_cpu = cpu_of(target.pid)
        self._counted = 0.0
        self._plan()
        rec.processes.append(self.track)

    # ---- what the interpreter says of itself ---------------------------------------------------------------------
    def _plan(self) -> None:
        L, rt = self.rt.layout, self.rt
        head = "interp.threads.head" if "interp.threads.head" in L else "interp.tstate_head"
        ranges = [self._interp + L[head], 8, self._interp + L["interp.gc.collecting"], 4]
        self._gil = gil_range(rt, self._interp)
        self._has_gil = bool(self._gil[0]) and not ("gil.enabled" in L and not rt.target.i32(self._gil[0] + L["gil.enabled"]))
        if self._has_gil:
            for key, size in (("gil.last_holder", 8), ("gil.locked", 4), ("gil.switch_number", 8)):
                ranges += [self._gil[0] + L[key], size]
        self._state_ranges = ranges

    def _interpreter(self, look: int) -> bytes:
        """Takes in the holder of the GIL and whether a collection is under way. -> the head of the list of threads."""
        data = self.bulk.read_ranges(self._state_ranges, sum(self._state_ranges[1::2]))
        collecting = data[8] & 1
        holder, locked, switches = struct.unpack_from("<QIQ", data, 12) if self._has_gil else (0, 0, 0)
        own = self._of_state.get(holder) if locked else None
        index = own.index if own is not None else -1
        self.track.gil.add(look, index)
        self.track.gc.add(look, collecting)
        if self._kept[1:] != (index, switches):
            self._end_kept(look)
            self._kept = (look, index, switches)
        return data[:8]

    def _end_kept(self, look: int) -> None:
        first, index, _ = self._kept
        times = self.track.begins
        if index >= 0 and look - first >= KEPT_LOOKS and times[look - 1] - times[first] >= KEPT:
            self.track.kept.append((first, look, index))

    def _list_threads(self, look: int) -> None:
        self.target.invalidate()
        rt = self.rt
        try:
            found = {states[0].address: states for states in states_by_thread(rt)}
            new = found.keys() - self._threads.keys()
            names = rt.thread_names() if new else {}
            idents = {py.address: self.target.u64(py.address + rt.layout["tstate.thread_id"]) for s in found.values() for py in s}
        except GdbextError as e:
            log.passed_over(e)
            return  # a list in the middle of an update: the next look
        for address in [a for a, th in self._threads.items() if a not in found or found[a][0].tid != th.track.tid]:
            self._end(address, look)
        self._of_state = {}
        for address, states in found.items():
            thread = self._threads.get(address)
            known = {p.tstate: p for p in thread.places} if thread is not None else {}
            places = [known.get(py.address) or ThreadPlaces(py.address, idents[py.address]) for py in states]
            if thread is not None:
                thread.places = places
            else:
                track = ThreadTrack(states[0].tid, shown_name(rt, names.get(idents[address], "")))
                self.track.threads.append(track)
                thread = self._threads[address] = Thread(self.track.pid, len(self.track.threads) - 1, track, places, self._files)
            self._of_state.update((py.address, thread) for py in states)

    def _end(self, address: int, look: int) -> None:
        gone = self._threads.pop(address)
        gone.track.ended = look
        if gone.aside is not None:
            gone.aside.after, gone.aside = look, None
        gone.close()

    # ---- one look ------------------------------------------------------------------------------------------------
    def look(self, began: float) -> None:
        """Looks at every thread. `began`: when the recording did, on the monotonic clock."""
        look, start = len(self.track.begins), time.monotonic()
        if not self._image.is_same():
            self.alive, self.execed = False, state_of(self.track.pid) not in ("", "Z", "X")
            return
        try:
            head = self._interpreter(look)
            due = start - self._checked >= CHECK
            if head != self._head or due:
                self._head = head
                self._list_threads(look)
            if due:
                self._checked = start
                self._aside.take_in(self.reader, self.track)
                if self.steps is not None:
                    self.steps.find()
                if self.marks is not None:
                    self.marks.refresh()
        except GdbextError as e:
            log.passed_over(e)
            self.alive = state_of(self.track.pid) not in ("", "Z", "X")
            return
        self.track.begins.append(start - began)
        if self.steps is not None and self.steps.stepped():
            made = self.track.counters.setdefault(STEPS, [])
            made.append((start - began, float(len(made) + 1)))
            self.runs += 1
        self._look_at_threads(look, start, began)
        end = time.monotonic()
        if end - self._counted >= COUNT:
            self._count(end, end - began)

    @contextlib.contextmanager
    def _while_there(self, address: int, look: int) -> Iterator[None]:
        """Ends the track of a thread that turns out to have ended."""
        try:
            yield
        except (GoneError, NotFoundError) as e:
            log.passed_over(e)
            self._end(address, look)
            self._head = b""

    def _look_at_threads(self, look: int, start: float, began: float) -> None:
        for address, thread in list(self._threads.items()):
            now = time.monotonic()
            if now - start > LATE:
                self.track.split(now - began)
                look, start = look + 1, now
            with self._while_there(address, look):
                self._thread(thread, look, now)
        self.track.ends.append(time.monotonic() - began)

    def _count(self, now: float, at: float) -> None:
        """Adds to the process's counters that the kernel keeps."""
        cpu, resident = cpu_of(self.track.pid), resident_bytes(self.track.pid)
        if self._counted:
            used = max(0.0, cpu - self._counted_cpu) / (now - self._counted)
            self.track.counters.setdefault("processors used", []).append((at, round(used, 3)))
        self.track.counters.setdefault("resident bytes", []).append((at, resident))
        self._counted, self._counted_cpu = now, cpu

    def _went_on(self, thread: Thread, now: float) -> bool:
        """Takes in a thread's clock and its wait. -> whether it may have moved since the last look."""
        clock = thread.read_clock()
        self.track.samples += 1
        if (
            clock
            and clock == thread.clock
            and thread.state not in (recording.RUNNING, recording.QUEUED)
            and thread.node != DROPPED
        ):
            return False
        ran = thread.on_a_cpu(clock, now)
        thread.state = self._state(self._call(thread), thread)
        if thread.state == recording.RUNNING and not ran:
            thread.state = recording.QUEUED
        return True

    def _call(self, thread: Thread) -> bytes:
        """The text of its system call."""
        return thread.read_call()

    def _thread(self, thread: Thread, look: int, now: float) -> None:
        if not self._went_on(thread, now):
            return
        before = self._mark(thread)
        thread.node = self._read(thread, look)
        if self.marks is not None:
            after = self._mark(thread)
            if thread.aside is not None:
                thread.aside.node = self.marks.marked(self.rec.tree, thread.aside.node, before, after)
            elif thread.node != DROPPED:
                thread.node = self.marks.marked(self.rec.tree, thread.node, before, after)
        self._add(thread, look, thread.node, thread.state)

    def _mark(self, thread: Thread) -> Mark:
        return self.marks.of(thread.track.tid, [p.tstate for p in thread.places]) if self.marks is not None else Mark()

    def _read(self, thread: Thread, look: int) -> int:
        """The node of the thread's stack, or `DROPPED`."""
        if thread.aside is not None:
            thread.aside.after, thread.aside = look, None
        try:
            return self.reader.read_all(thread.places, thread.asleep)
        except GoneError:
            raise
        except DoubtError as e:
            log.passed_over(e)
            if self.keeps_aside and len(thread.places) == 1:
                thread.aside = Aside(thread.track, thread.places[0], look)
                self._aside.add(thread.aside)
        except TornError as e:
            log.passed_over(e)
        self.track.dropped += 1
        return DROPPED

    def _add(self, thread: Thread, look: int, node: int, state: int) -> None:
        if thread.track.add(look, node, state):
            self.runs += 1

    def _state(self, call: bytes, thread: Thread) -> int:
        try:
            waits = parse_syscall(call)
        except ValueError:
            return self._blocked(thread, recording.OTHER)
        if waits is None:
            return recording.RUNNING
        number = waits.number
        if number in (FUTEX[self.target.arch], RESTART[self.target.arch]):
            of_gil = self._gil[0] <= waits.arguments[0] < self._gil[1]
            return self._unless_held(thread, recording.GIL if of_gil else recording.LOCK)
        if number in _SYNC[self.target.arch]:
            return recording.DISK
        found = _BY_FAMILY.get(family(number, self.target.arch), recording.OTHER)
        if found == recording.POLL and not any(waits.arguments[:4]):  # select of no file: how time.sleep waits before 3.11
            found = recording.SLEEP
        if found in (recording.DISK, recording.OTHER):
            return self._blocked(thread, found)
        return self._unless_held(thread, found)

    def _unless_held(self, thread: Thread, said: int) -> int:
        """The given state, or STOPPED. A thread that a signal holds still shows the call it was in. All threads stop together, so
        the main thread's state shows it."""
        return (
            recording.STOPPED
            if thread.track.tid == self.track.pid and state_of(self.track.pid, thread.track.tid) in ("T", "t")
            else said
        )

    def _blocked(self, thread: Thread, said: int) -> int:
        """The state of a thread in a read or write: it waits for a file if the kernel waits for a device (state D), else for a
        pipe or socket."""
        found = {"D": recording.DISK, "T": recording.STOPPED, "t": recording.STOPPED, "R": recording.RUNNING}
        return found.get(state_of(self.track.pid, thread.track.tid), recording.NETWORK if said == recording.DISK else said)

    def present(self) -> list[Thread]:
        """The threads at the last look, the main thread first."""
        return sorted(self._threads.values(), key=lambda thread: thread.track.tid != self.track.pid)

    def holder(self) -> int:
        """The tid of the thread that had the GIL at the last look, 0 for none."""
        last = self.track.gil.values
        return self.track.threads[last[-1]].tid if last and 0 <= last[-1] < len(self.track.threads) else 0

    def forget(self) -> None:
        """Starts over after the tree of stacks was cleared: every thread's stack is read anew."""
        self.reader = StackReader(self.rt, self.bulk, self.rec.tree)
        self._aside.clear()
        for thread in self._threads.values():
            thread.node, thread.aside = DROPPED, None

    def restart(self) -> None:
        """Begins a new track, in which each thread keeps its present stack and state. The recording no longer has the old one."""
        old = self.track
        self.track = ProcessTrack(old.label, old.pid)
        self.rec.processes[self.rec.processes.index(old)] = self.track
        self._kept = (0, -1, 0)
        self._aside.clear()
        for index, thread in enumerate(self._threads.values()):
            thread.index, thread.track = index, ThreadTrack(thread.track.tid, thread.track.name)
            self.track.threads.append(thread.track)
            thread.track.add(0, thread.node, thread.state)
            thread.aside = None

    def finish(self, at: float) -> None:
        """Ends this process's recording, `at` seconds after it began."""
        self.track.finish = at
        self._aside.take_in(self.reader, self.track)
        self.track.drop_halves()
        self._end_kept(len(self.track.begins))
        self.track.cpu = cpu_of(self.track.pid) - self._cpu if self.alive else sum(th.cpu for th in self.track.threads)
        self.track.torn = self.reader.torn
        for thread in self._threads.values():
            thread.close()
        self._threads.clear()
        self._image.close()
        self.target.close()


def record(
    targets: Sequence[tuple[ProcTarget, str]],
    rate: float,
    seconds: float,
    failed: list[dict[str, object]],
    beside: Callable[[Recording, float], None] | None = None,
    realtime: bool = False,
    sampler_of: Callable[[ProcTarget, str, Recording, Files], ProcessSampler] = ProcessSampler,
    schedulers: Collection[int] = (),
    marks: tuple[bool, bool] = (False, False),
) -> Recording:
    """Looks at processes (`(ProcTarget, label)`) `rate` times a second for `seconds`; ^C ends it early. Processes that cannot be
    read are added to `failed`. `beside(recording, seconds since the beginning)` is called after each round of looks. `realtime`:
    this thread runs before all without real-time priority, for at most half of the time. `sampler_of` makes the samplers.
    `schedulers`: pids of the processes whose engine counts its steps. `marks`: whether stacks have the names of tasks, and
    whether only those with an exception are kept.

    `GdbextError` where no process can be read."""
    rec = Recording(rate)
    rec.failing = marks[1]
    files, samplers, spent = Files(), [], time.process_time()

    def opened(target: ProcTarget, label: str) -> ProcessSampler:
        found = sampler_of(target, label, rec, files)
        if target.pid in schedulers:
            found.steps = StepCounter(found.rt, found.bulk)
        found.marks = Marks(found.rt, *marks) if any(marks) else None
        return found

    for target, label in targets:
        try:
            samplers.append(first_opened(opened, target, label))
        except GdbextError as e:
            failed.append({"label": label, "pid": target.pid, "reason": str(e)})
    if not samplers:
        raise GdbextError(str(failed[0]["reason"]) if failed else "no process to record")
    rec.began, rec.clock = time.time(), time.monotonic()
    began = rec.clock
    followed = Followed(opened)
    try:
        with _priority(rec, realtime):
            _rounds(rec, samplers, began, seconds, beside, realtime, followed)
    except KeyboardInterrupt:
        rec.notes.append("ended by ^C")
    rec.seconds = time.monotonic() - began
    for sampler in samplers:
        sampler.finish(rec.seconds if sampler.alive else (sampler.track.ends[-1] if sampler.track.ends else 0.0))
        if not sampler.alive and not sampler.execed:
            rec.notes.append(f"{sampler.track.label} has ended")
    rec.notes += followed.notes()
    rec.cost = time.process_time() - spent
    if rec.tree.full:
        rec.notes.append("more different stacks than are kept: the later ones are cut off at their inner end")
    return rec


@contextlib.contextmanager
def _priority(rec: Recording, realtime: bool) -> Iterator[None]:
    """Gives the calling thread the lowest real-time priority (sched(7)) in the block, if it is permitted; else a note says so."""
    before = (os.sched_getscheduler(0), os.sched_getparam(0)) if realtime else None
    try:
        if before is not None:
            os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except OSError as e:
        before = None
        rec.notes.append(f"no real-time priority ({e.strerror}): root may give it, or CAP_SYS_NICE")
    try:
        yield
    finally:
        if before is not None:
            os.sched_setscheduler(0, *before)


def _rounds(
    rec: Recording,
    samplers: list[ProcessSampler],
    began: float,
    seconds: float,
    beside: Callable[[Recording, float], None] | None,
    realtime: bool,
    followed: Followed,
) -> None:
    rest = (lambda took: took) if realtime else (lambda took: 0.0)  # a thread with priority leaves the others half the time
    # not in step with what the process does at regular times
    for _ in rounds(1.0 / rec.rate, seconds=seconds, jitter=JITTER, rest=rest):
        alive = [s for s in samplers if s.alive]
        for sampler in alive:
            with log.passing_over(GdbextError):
                sampler.look(began)
        if beside is not None:
            beside(rec, time.monotonic() - began)
        if not followed.look(samplers, time.monotonic() - began) and not any(s.alive for s in samplers):
            return
        runs = sum(s.runs + len(s.track.gil) + PER_THREAD * len(s.track.threads) for s in samplers)
        if runs >= MAX_RUNS or sum(len(s.track.begins) for s in samplers) >= MAX_LOOKS:
            now = time.monotonic() - began
            rec.notes.append(f"the memory for a recording is full after {now:.0f} s: a lower -rate goes further")
            return
