"""Looks at processes with native frames too. Threads that ran since the last look are paused for a moment. Their registers,
stacks and Python frames are copied in the pause and analysed afterwards.

A thread that waits where it was copied last is not paused again: in the same system call, at the same place of its stack and in
the same Python frames. Threads that run no Python are left out.
"""

from __future__ import annotations

import functools
import gc
import time
import zlib
from collections import deque
from typing import NamedTuple, Sequence, cast

from .. import log
from ..access import ptrace, remote_memory
from ..access.base import Target
from ..access.holder import Holder, before_others
from ..access.model import Mapping, Module
from ..access.proc import ProcTarget
from ..access.ranges import RED_ZONE, STACK_BYTES
from ..access.remote_memory import BulkReader
from ..access.unwind import Unwinder
from ..cpython.frames import PyFrame
from ..cpython.gil import RESTART
from ..cpython.runtime import open_runtime
from ..errors import FaultError, GdbextError
from ..observe.bulk_stacks import GoneError, MovedError
from ..observe.codes import TornError
from ..observe.thread_files import Files
from ..render import names
from ..stacks import merge
from . import recording
from .recording import DROPPED, NATIVE, Recording
from .sampler import CHECK, ProcessSampler, Thread

RATE = 10.0  # looks a second, unless asked for others
PENDING = 200  # bytes of a pending look, without its copy
MAX_PENDING = 32 << 20  # bytes of one process's looks that are pending
TRIES = 6  # at frames of a paused thread: the first tries may only find their places


class Keeper(BulkReader):
    """A reader that keeps everything it reads as `kept`, `[(address, bytes)]`, while that is a list."""

    kept: list[tuple[int, bytes]] | None = None

    def read(self, address: int, size: int) -> bytes:
        """As `BulkReader.read`."""
        found = super().read(address, size)
        if self.kept is not None:
            self.kept.append((address, found))
        return found

    def read_ranges(self, ranges: Sequence[int], total: int) -> bytes:
        """As `BulkReader.read_ranges`."""
        found, at = super().read_ranges(ranges, total), 0
        if self.kept is not None:
            for address, size in zip(ranges[::2], ranges[1::2]):
                self.kept.append((address, found[at : at + size]))
                at += size
        return found


class Copied(Target):
    """A running process with `pieces` (`[(address, bytes)]`) of its memory as they were copied. Everything else (code and code
    objects) is read from the process."""

    is_live, is_stopped = True, False

    def __init__(self, live: ProcTarget) -> None:
        super().__init__()
        self.live, self.pid, self.arch = live, live.pid, live.arch
        self.pieces: list[tuple[int, bytes]] = []

    def _page(self, start: int) -> bytes | None:
        return None  # nothing is kept: the next copy has other bytes

    def _read(self, address: int, size: int) -> bytes:
        for start, data in self.pieces:
            if start <= address and address + size <= start + len(data):
                return data[address - start : address - start + size]
        return self.live.read(address, size)

    def mappings(self) -> list[Mapping]:
        """Those of the process."""
        return self.live.mappings()

    def mapping_at(self, address: int) -> Mapping | None:
        """That of the process."""
        return self.live.mapping_at(address)

    def modules(self) -> list[Module]:
        """Those of the process."""
        return self.live.modules()

    def module_at(self, address: int) -> Module | None:
        """That of the process."""
        return self.live.module_at(address)


class Copy(NamedTuple):
    """The copy of one thread: registers, Python frames as `StackReader.chain`, the addresses of its states, and memory."""

    registers: dict[str, int]
    chain: list[int]
    tstates: list[int]
    pieces: list[tuple[int, bytes]]


class Packed(NamedTuple):
    """A copy that waits for analysis. `numbers`: its Python frames in the tree; `places`, `memory`: of its pieces, packed."""

    registers: dict[str, int]
    tstates: list[int]
    numbers: list[int]
    places: list[tuple[int, int]]
    memory: bytes

    def pieces(self) -> list[tuple[int, bytes]]:
        """[(address, bytes)]"""
        data, at, found = zlib.decompress(self.memory), 0, []
        for address, size in self.places:
            found.append((address, data[at : at + size]))
            at += size
        return found


class Pending(NamedTuple):
    """A look at a thread that has not been analysed yet. `what`: a copy, or the node if known; None: the same node as before."""

    thread: Thread
    look: int
    state: int
    what: Packed | int | None

    @property
    def size(self) -> int:
        return PENDING + (len(self.what.memory) if isinstance(self.what, Packed) else 0)


class _Python(NamedTuple):
    """A Python frame as `merge` takes it: `anchor`, and its number in the tree."""

    anchor: int
    number: int


class NativeSampler(ProcessSampler):
    """As `ProcessSampler`, with native frames. `holder` pauses the threads. Copies are analysed at the end, since the first use
    of a large library takes as long as several looks. They are analysed earlier where more than `MAX_PENDING` bytes are
    pending."""

    keeps_aside = False  # what is pending is not in a track yet

    def __init__(self, target: ProcTarget, label: str, rec: Recording, files: Files, *, holder: Holder) -> None:
        super().__init__(target, label, rec, files)
        self.bulk = self._keeper = Keeper(target)
        self.forget()
        self._holder, self._memory = holder, Copied(target)
        self._copied_rt, self._walker = open_runtime(self._memory), Unwinder(self._memory)
        self._stood: dict[int, tuple[list[bytes], bytes, list[int]]] = {}  # {tid: (words of its call, it, frames)} when copied
        self._pending: deque[Pending] = deque()
        self._pending_bytes = 0
        self._noted: dict[int, int] = {}  # {tid: the state of the look that is pending last}
        self._shown: dict[int, int] = {}  # {tid: the node that was thought about last}
        self._refused = -CHECK

    def _look_at_threads(self, look: int, start: float, began: float) -> None:
        due = {}
        for address, thread in list(self._threads.items()):
            with self._while_there(address, look):
                if self._went_on(thread, start) and not self._stands(thread):
                    due[address] = thread
                elif self._noted.get(thread.track.tid) != thread.state:
                    self._note(thread, look, None)
        begin = time.monotonic()
        copies, pause = self._copy(list(due.values()), begin) if due else ({}, 0.0)
        self.track.begins[-1] = begin - began
        self.track.ends.append(time.monotonic() - began)
        self.track.pauses.append(pause)
        for address, thread in due.items():
            with self._while_there(address, look):
                self._take(thread, look, copies.get(thread.track.tid))
        while self._pending_bytes > MAX_PENDING:
            self._think()

    def _call(self, thread: Thread) -> bytes:
        """The text of its system call. A wait that was restarted after a pause counts as the same wait."""
        call = thread.read_call()
        words, (before, old, _) = call.split(), self._stood.get(thread.track.tid, ([], b"", []))
        again = len(words) > 1 and words[1:] == before[1:] and int(words[0]) == RESTART[self.target.arch]
        thread.call = old if again else call
        return thread.call

    def _stands(self, thread: Thread) -> bool:
        """Whether it waits where it was copied last."""
        words, _, chain = self._stood.get(thread.track.tid, ([], b"", []))
        if thread.node == DROPPED or len(words) < 2 or thread.call.split() != words:
            return False
        try:
            return self.reader.chain_all(thread.places) == chain
        except GoneError:
            raise
        except (TornError, FaultError) as e:
            log.passed_over(e)
            return False

    def _copy(self, due: list[Thread], now: float) -> tuple[dict[int, Copy], float]:
        """-> ({tid: its copy} of the threads that were paused, the seconds of the pause)."""
        if now - self._refused < CHECK:
            return {}, 0.0
        found: dict[int, Copy] = {}
        collects = gc.isenabled()
        gc.disable()  # another process is paused
        try:
            with before_others(), self._holder.held(self.track.pid, [thread.track.tid for thread in due]) as held:
                for thread in due:
                    raw = ptrace.decode_registers(held.registers.get(thread.track.tid, b""), self.target.arch)
                    chain = self._chain(thread) if raw is not None else None
                    if raw is not None and chain is not None:
                        found[thread.track.tid] = Copy(raw, chain, [p.tstate for p in thread.places], self._pieces(raw))
        except GdbextError as e:
            self._refused = now
            note = f"{self.track.label}: no native frames for a while: {e}"
            if note not in self.rec.notes:
                self.rec.notes.append(note)
            return {}, 0.0
        finally:
            self._keeper.kept = None
            if collects:
                gc.enable()
        return {} if held.over else found, held.seconds

    def _chain(self, thread: Thread) -> list[int] | None:
        for _ in range(TRIES):
            self._keeper.kept = []
            try:
                return self.reader.chain_all(thread.places)
            except TornError as e:
                log.passed_over(e)
                continue
            except FaultError as e:
                log.passed_over(e)
                for places in thread.places:
                    places.hints, places.inner, places.ranges = {}, {}, []
        return None

    def _pieces(self, registers: dict[str, int]) -> list[tuple[int, bytes]]:
        """The stack of a paused thread, and the memory that was read for its frames."""
        sp = registers[ptrace.STACK_POINTER[self.target.arch]]
        m = self.target.mapping_at(sp)
        size = STACK_BYTES if m is None else min(m.end - sp + RED_ZONE, STACK_BYTES)
        stack = remote_memory.read_ranges(self.track.pid, [(sp - RED_ZONE, size)])[0]
        return [(sp - RED_ZONE, stack), *(self._keeper.kept or ())]

    # ---- afterwards ----------------------------------------------------------------------------------------------
    def _take(self, thread: Thread, look: int, copy: Copy | None) -> None:
        """Takes in the result of a look at a thread: a copy, or Python frames alone where the thread could not be paused."""
        self._stood.pop(thread.track.tid, None)
        try:
            if copy is None:
                self.track.unstopped += 1
                thread.node = self._read(thread, look)
                self._note(thread, look, thread.node)
                return
            chain, frame = copy.chain, self.reader.codes.frame  # while the code objects are what they were
            self._resolved(chain)
            numbers = [frame(*chain[i : i + 3]) for i in range(0, len(chain), 3)]
            places = [(address, len(data)) for address, data in copy.pieces]
            memory = zlib.compress(b"".join(data for _, data in copy.pieces), 1)
        except GoneError:
            raise
        except TornError as e:
            log.passed_over(e)
            self.track.dropped += 1
            thread.node = DROPPED
            self._note(thread, look, DROPPED)
            return
        thread.node = 0  # its node is found later
        self._note(thread, look, Packed(copy.registers, copy.tstates, numbers, places, memory))
        if thread.state not in (recording.RUNNING, recording.QUEUED):
            self._stood[thread.track.tid] = thread.call.split(), thread.call, chain

    def _note(self, thread: Thread, look: int, what: Packed | int | None) -> None:
        one = Pending(thread, look, thread.state, what)
        self._pending.append(one)
        self._pending_bytes += one.size
        self._noted[thread.track.tid] = thread.state

    def _think(self) -> None:
        """Finds the node of the look that has been pending longest."""
        one = self._pending[0]
        node, tid = one.what, one.thread.track.tid
        if isinstance(node, Packed):
            copy = node
            try:
                node = self._merged(copy)
            except GdbextError as e:  # it has ended since, or its libraries are gone
                log.passed_over(e)
                self.track.unstopped += 1
                node = functools.reduce(self.rec.tree.child, [n for n in reversed(copy.numbers) if n >= 0], 0)
        elif node is None:
            node = self._shown.get(tid, DROPPED)
        self._shown[tid] = node
        self._add(one.thread, one.look, node, one.state)
        self._pending.popleft()  # only now: after a ^C before this line it is still here, and nothing is added twice
        self._pending_bytes -= one.size

    def _resolved(self, chain: list[int]) -> None:
        """As `StackReader.resolved`; a code object that was replaced is read anew."""
        for _ in range(TRIES - 1):
            with log.passing_over(MovedError):
                self.reader.resolved(chain)
                return
        self.reader.resolved(chain)

    def finish(self, at: float) -> None:
        """As `ProcessSampler.finish`, after everything pending has been analysed."""
        while self._pending:
            self._think()
        super().finish(at)

    def _merged(self, copy: Packed) -> int:
        self._memory.pieces, numbers = copy.pieces(), copy.numbers
        raw = [step for state in copy.tstates for step in self._copied_rt.dialect.walk(self._copied_rt, state)]
        if len(copy.tstates) > 1:
            raw.sort(key=lambda step: step.anchor)
        anchors = [r.anchor for r in raw] if len(raw) == len(numbers) else [0] * len(numbers)
        python = [_Python(anchor, number) for anchor, number in zip(anchors, numbers) if number >= 0]
        # merge asks its Python frames for their anchors alone, and hands them back
        entries = merge.merge(self._copied_rt, cast("list[PyFrame]", python), self._walker.frames(copy.registers))[0]
        node, tree, last = 0, self.rec.tree, -1
        for entry in reversed(entries):
            if entry.python is not None:
                number = cast("_Python", entry.python).number
            elif entry.native is None or entry.interpreter_frame and python:
                continue
            else:
                number = tree.frame(names.short(entry.native.function) or "??", entry.native.library, NATIVE)
                if number == last and not entry.native.function:
                    continue  # a library without names: one frame for a row of them
            node, last = tree.child(node, number), number
        return node
