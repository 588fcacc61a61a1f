"""Page faults and new mappings of a process's threads, as the kernel's own samples (perf events). Nothing is stopped.

Each sample has the address that was touched, the registers and the top of the stack at that moment, so the native stack and the
Python line can be told afterwards. All faults are counted, and of each thread so few are sampled that there are about `WANTED`
from one call of `take` to the next. Memory that the kernel fills itself (MAP_POPULATE, mlock) makes no such fault. Of it there
is the record of the new mapping, and the call of mmap: a breakpoint that is an event too, which samples and stops nothing.

Sources: perf_event_open(2), Linux include/uapi/linux/perf_event.h, arch/x86/include/uapi/asm/perf_regs.h,
arch/arm64/include/uapi/asm/perf_regs.h, mm/memory.c (mm_account_fault), Documentation/admin-guide/sysctl/kernel.rst
(perf_event_paranoid, perf_event_mlock_kb).
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import fcntl
import mmap
import os
import random
import select
import struct
import time
from typing import Iterable, Iterator, NamedTuple, Sequence

from .. import log
from ..errors import FaultError, GdbextError
from . import ptrace
from .model import PAGE, Memory, Registers

OPEN = {"x86_64": 298, "aarch64": 241}
SOFTWARE, PAGE_FAULTS, DUMMY = 1, 2, 9  # PERF_TYPE_, PERF_COUNT_SW_
FIELDS = 1 | 1 << 1 | 1 << 2 | 1 << 3 | 1 << 12 | 1 << 13  # PERF_SAMPLE_ IP, TID, TIME, ADDR, REGS_USER, STACK_USER
WITHOUT_KERNEL = 1 << 5 | 1 << 6
# mmap, task, watermark, mmap_data, sample_id_all, mmap2, use_clockid
FLAGS = 1 << 8 | 1 << 13 | 1 << 14 | 1 << 17 | 1 << 18 | 1 << 23 | 1 << 25
OF_MAPPINGS = 1 << 8 | 1 << 17 | 1 << 23
CLOEXEC = 8
WANTED = 6  # samples of a thread
FIRST = 1  # faults for one sample, at first
BREAKPOINT, EXECUTE, WRITE = 5, 4, 2  # PERF_TYPE_, HW_BREAKPOINT_X, _W
DISABLED, MOST_WRITES = 1, 5  # writes that are sampled one after the other
MOST_CALLS = 200  # of mmap in a thread, from one `take` to the next: more would cost the process too much
SET_OUTPUT = 0x2405  # PERF_EVENT_IOC_SET_OUTPUT
SET_PERIOD = 0x40082404  # PERF_EVENT_IOC_PERIOD
REFRESH = 0x2402  # PERF_EVENT_IOC_REFRESH: so many samples more, then the event disables itself
STACK = 8192  # bytes of it in a sample
RINGS = (32, 16, 4)  # pages of a thread's buffer: the first that the kernel gives
MAX_THREADS = 256
HEAD, TAIL = 1024, 1032  # struct perf_event_mmap_page
LOST, FORK, SAMPLE, MMAP2 = 2, 7, 9, 10  # PERF_RECORD_
_MASKS = {"x86_64": 0xFF01FF, "aarch64": (1 << 33) - 1}
_NAMES = {
    "x86_64": ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "rsp", "rip"] + [f"r{n}" for n in range(8, 16)],
    "aarch64": [f"x{n}" for n in range(31)] + ["sp", "pc"],
}
_ATTRIBUTES = struct.Struct("<IIQQQQQIIQQQQIiQ")
SIZE = 128


class Fault(NamedTuple):
    """A page that thread `tid` touched at `time` (nanoseconds of CLOCK_MONOTONIC). `pc`: in the process; `stack`: from the
    stack pointer on."""

    tid: int
    time: int
    address: int
    registers: Registers
    stack: bytes


class Mapped(NamedTuple):
    """A mapping that thread `tid` made, or made larger."""

    tid: int
    time: int
    address: int
    size: int


class Born(NamedTuple):
    """A thread `new` that thread `tid` started."""

    tid: int
    time: int
    new: int


class Thread:
    """The events of one thread; `OSError` where the kernel gives none."""

    def __init__(self, tid: int, kernel: bool, call: int, mappings: bool = True, words: Sequence[int] = ()) -> None:
        self.tid, self.counted, self.period, self.mappings, self._called = tid, 0, FIRST, mappings, 0
        flags = (FLAGS if mappings else FLAGS & ~OF_MAPPINGS) | (0 if kernel else WITHOUT_KERNEL)
        self.file, self._calls = _open(tid, SOFTWARE, DUMMY if words else PAGE_FAULTS, flags), -1
        self._words = words
        self._writes: dict[int, int] = {}
        try:
            self._ring = self._mapped()
            self.arm()
        except BaseException:
            for file in (*self._writes.values(), self.file):
                os.close(file)
            raise
        self._data = len(self._ring) - mmap.PAGESIZE
        if call:
            try:
                self._calls = _open(tid, BREAKPOINT, 0, WITHOUT_KERNEL | 1 << 18 | 1 << 25, call)
                fcntl.ioctl(self._calls, SET_OUTPUT, self.file)
            except OSError as e:
                log.passed_over(e)
                self.forget_calls()

    def arm(self) -> None:
        """Samples the next writes, few, to each word that was written since."""
        for word in self._words:
            if word not in self._writes:  # one that has disabled itself Linux 6.18 enables no more
                file = _open(self.tid, BREAKPOINT, 0, WITHOUT_KERNEL | DISABLED | 1 << 18 | 1 << 25, word, WRITE)
                self._writes[word] = file
                fcntl.ioctl(file, SET_OUTPUT, self.file)
                fcntl.ioctl(file, REFRESH, random.randint(2, MOST_WRITES))

    def written(self) -> list[Fault]:
        """The writes that were sampled since the last call."""
        found = [_fault(data) for kind, data in self.records() if kind == SAMPLE]
        for word in {one.address for one in found}:
            file = self._writes.pop(word, None)
            if file is not None:  # a second sample came before it was closed
                os.close(file)
        return found

    def forget_calls(self) -> None:
        """Samples calls no more."""
        if self._calls >= 0:
            os.close(self._calls)
            self._calls = -1

    def _mapped(self) -> mmap.mmap:
        for pages in RINGS:
            try:
                return mmap.mmap(self.file, (1 + pages) * mmap.PAGESIZE)
            except OSError as e:
                log.passed_over(e)
                if pages == RINGS[-1]:
                    raise
        raise AssertionError

    def faults(self) -> int:
        """How many pages it has touched since the last call, sampled or not."""
        now = int(struct.unpack("<Q", os.read(self.file, 8))[0])
        new, self.counted = now - self.counted, now
        wanted = max(1, new // WANTED)
        if not self.period / 2 <= wanted <= self.period * 2 and new:
            self.set_period(wanted if wanted > self.period else max(wanted, self.period // 4))
        return new

    def set_period(self, period: int) -> None:
        """One fault of so many is sampled from now on."""
        self.period = period
        fcntl.ioctl(self.file, SET_PERIOD, struct.pack("<Q", period))

    def calls(self) -> int:
        """How often it has called mmap since the last call, sampled or not; 0 where that is not counted."""
        if self._calls < 0:
            return 0
        before, self._called = self._called, int(struct.unpack("<Q", os.read(self._calls, 8))[0])
        return self._called - before

    def records(self) -> Iterator[tuple[int, bytes]]:
        """(type, the record behind its head) of all that came since the last call."""
        ring, size = self._ring, self._data
        head, tail = struct.unpack_from("<QQ", ring, HEAD)
        while tail < head:
            at = tail % size
            kind, _, length = struct.unpack("<IHH", self._bytes(at, 8))
            if length < 8:
                break
            yield kind, self._bytes((at + 8) % size, length - 8)
            tail += length
        struct.pack_into("<Q", ring, TAIL, head)

    def _bytes(self, at: int, count: int) -> bytes:
        begin, size = mmap.PAGESIZE + at, self._data
        if at + count <= size:
            return self._ring[begin : begin + count]
        return self._ring[begin : mmap.PAGESIZE + size] + self._ring[mmap.PAGESIZE : mmap.PAGESIZE + at + count - size]

    def close(self) -> None:
        """Ends the events."""
        if self.file >= 0:
            self.forget_calls()
            for file in self._writes.values():
                os.close(file)
            self._ring.close()
            os.close(self.file)
            self.file = -1

    def __del__(self) -> None:
        """A watch that ^C ends leaves no event behind in gdb, a server or a notebook."""
        if hasattr(self, "_data"):
            self.close()


def _open(tid: int, kind: int, config: int, flags: int, address: int = 0, access: int = EXECUTE) -> int:
    event = ctypes.create_string_buffer(
        _ATTRIBUTES.pack(
            *(kind, SIZE, config, FIRST, FIELDS, 0, flags, 1, access if address else 0, address, 8 if address else 0, 0),
            *(_MASKS[ptrace.MACHINE], STACK, time.CLOCK_MONOTONIC, 0),
        ),
        SIZE,
    )
    found = int(ptrace.libc.syscall(OPEN[ptrace.MACHINE], event, tid, -1, -1, CLOEXEC))
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return found


class PageFaults:
    """The faults of a process's threads, as far as the kernel gives them. `GdbextError` where it gives none. `lost`: records
    that found no room; `left_out`: the threads that are not sampled; `kernel`: faults that system calls make are among them.
    `call`: where the process has mmap, 0: not known."""

    def __init__(self, pid: int, tids: Iterable[int], call: int = 0) -> None:
        self.call = call
        self.pid, self.lost, self.kernel = pid, 0, True
        self.left_out: set[int] = set()
        self.threads: dict[int, Thread] = {}
        self._over: set[int] = set()  # files of those that have ended
        self.poll = select.poll()
        if ptrace.MACHINE not in OPEN:
            raise GdbextError(f"page faults are not sampled on {ptrace.MACHINE}")
        why = ""
        for tid in tids:
            why = self.add(tid) or why
        if not self.threads:
            raise GdbextError(f"perf_event_open is refused: {why}")

    def add(self, tid: int) -> str:
        """Samples a thread too. -> why not."""
        if tid in self.threads:
            return ""
        if len(self.threads) >= MAX_THREADS:
            self.left_out.add(tid)
            return f"{MAX_THREADS} threads are sampled already"
        try:
            try:
                found = Thread(tid, self.kernel, self.call)
            except PermissionError:
                if self.threads or not self.kernel:
                    raise
                self.kernel = False
                found = Thread(tid, False, self.call)
        except (OSError, ValueError) as e:
            log.passed_over(e)
            self.left_out.add(tid)
            return str(getattr(e, "strerror", "") or e)
        self.threads[tid] = found
        self.left_out.discard(tid)
        self.poll.register(found.file, select.POLLIN)
        return ""

    def wait(self, seconds: float) -> None:
        """Waits until a new record comes, at most so long. A thread that has ended is left out from then on."""
        self.poll.poll(0)  # what came before wakes nobody
        for file, events in self.poll.poll(1000 * seconds):
            if events & (select.POLLHUP | select.POLLERR):
                self.poll.unregister(file)
                self._over.add(file)

    def take(self) -> tuple[dict[int, tuple[int, list[Fault]]], list[tuple[Mapped, Fault | None]], list[Born]]:
        """({tid: (faults, those of them that were sampled)}, mappings with the calls that made them, new threads) since the last
        call."""
        faults: dict[int, tuple[int, list[Fault]]] = {}
        mapped: list[tuple[Mapped, Fault | None]] = []
        born: list[Born] = []
        for tid, thread in self.threads.items():
            count, own = thread.faults(), self._records(thread, mapped, born)
            if count or own:
                faults[tid] = count, own
        for tid in [tid for tid, thread in self.threads.items() if thread.file in self._over]:
            self.threads.pop(tid).close()  # another one has its place
        self._over.clear()
        by = collections.Counter(one.tid for one, _ in mapped)
        for tid in [tid for tid, thread in self.threads.items() if max(by[tid], thread.calls()) > MOST_CALLS]:
            self._calm(tid)
        return faults, mapped, born

    def _calm(self, tid: int) -> None:
        """A thread that maps all the time has no records of mappings any more: each wakes this process."""
        with contextlib.suppress(KeyError):
            self.poll.unregister(self.threads[tid].file)
        period = self.threads[tid].period
        self.threads.pop(tid).close()
        try:
            found = self.threads[tid] = Thread(tid, self.kernel, 0, False)
            found.set_period(period)
        except (OSError, ValueError) as e:
            log.passed_over(e)  # it has ended

    def _records(self, thread: Thread, mapped: list[tuple[Mapped, Fault | None]], born: list[Born]) -> list[Fault]:
        own, call = [], None
        for kind, data in thread.records():
            if kind == SAMPLE:
                one = _fault(data)
                if self.call and one.address == self.call:
                    call = one
                else:
                    own.append(one)
            elif kind == LOST:
                self.lost += struct.unpack_from("<QQ", data)[1]
            elif kind in (MMAP2, FORK) and struct.unpack_from("<I", data)[0] == self.pid:
                if kind == MMAP2:
                    _, by, start, size = struct.unpack_from("<IIQQ", data)
                    mapped.append((Mapped(by, struct.unpack_from("<Q", data, len(data) - 8)[0], start, size), call))
                    call = None
                else:
                    _, _, new, by, time = struct.unpack_from("<IIIIQ", data)
                    born.append(Born(by, time, new))
        return own

    def close(self) -> None:
        """Ends all events."""
        for thread in self.threads.values():
            thread.close()
        self.threads.clear()


class Writes:
    """Writes of a process's threads to a few words (three at most: debug registers), as samples with the stack of their moment.
    `GdbextError` where the kernel gives none."""

    def __init__(self, pid: int, tids: Iterable[int], words: Sequence[int]) -> None:
        if ptrace.MACHINE not in OPEN:
            raise GdbextError(f"writes are not sampled on {ptrace.MACHINE}")
        self.threads: list[Thread] = []
        self._poll, why = select.poll(), "no thread"
        for tid in list(tids)[:MAX_THREADS]:
            try:
                self.threads.append(Thread(tid, False, 0, False, words))
                self._poll.register(self.threads[-1].file, select.POLLIN)
            except (OSError, ValueError) as e:
                log.passed_over(e)
                why = str(getattr(e, "strerror", "") or e)
        if not self.threads:
            raise GdbextError(f"perf_event_open is refused: {why}")

    def wait(self, seconds: float) -> None:
        """Samples the next writes of each thread to each word, until one has come, or so many seconds have gone by."""
        for thread in self.threads:
            with contextlib.suppress(OSError):  # it has ended
                thread.arm()
        self._poll.poll(1000 * seconds)

    def take(self) -> list[Fault]:
        """Those that have come, by time; of each thread and word fewer than it has written, or all. `address`: the word."""
        return sorted((one for thread in self.threads for one in thread.written()), key=lambda one: one.time)

    def close(self) -> None:
        """Ends all events."""
        for thread in self.threads:
            thread.close()


def _fault(data: bytes) -> Fault:
    pc, _, tid, time, address, abi = struct.unpack_from("<QIIQQQ", data)
    names, at = _NAMES[ptrace.MACHINE], 40
    registers: Registers = {}
    if abi:
        registers = dict(zip(names, struct.unpack_from(f"<{len(names)}Q", data, at)))
        at += 8 * len(names)
    (size,) = struct.unpack_from("<Q", data, at)
    if not size:
        return Fault(tid, time, address, registers, b"")
    (filled,) = struct.unpack_from("<Q", data, at + 8 + size)
    return Fault(tid, time, address, registers, data[at + 8 : at + 8 + min(size, filled)])


class SampledStack:
    """The memory of a process, with the stack of one thread as a sample has it. For `Unwinder`."""

    def __init__(self, memory: Memory, start: int, stack: bytes) -> None:
        self._memory, self._start, self._stack = memory, start, stack

    def read(self, address: int, size: int) -> bytes:
        """As of a Target."""
        at = address - self._start
        if 0 <= at <= len(self._stack) - size:
            return self._stack[at : at + size]
        if 0 <= at < PAGE * 256 and self._memory.mapping_at(address) is self._memory.mapping_at(self._start):
            raise FaultError(address, size, "more of the stack than was sampled")
        return self._memory.read(address, size)

    def u64(self, address: int) -> int:
        """As of a Target."""
        return int(struct.unpack("<Q", self.read(address, 8))[0])

    def words(self, address: int, count: int) -> tuple[int, ...]:
        """As of a Target."""
        return struct.unpack(f"<{count}Q", self.read(address, 8 * count))

    def __getattr__(self, name: str) -> object:
        return getattr(self._memory, name)
