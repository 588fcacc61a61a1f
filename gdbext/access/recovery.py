"""Resumes processes that a dead gdb has left stopped: the work of the guard's process (guard_process.py).

As soon as the kernel has removed the dead tracer, the guard stops the threads without a signal. It clears debug registers,
restores the bytes under breakpoints and releases the threads. Then it sends SIGCONT to a process that gdb's SIGSTOP left stopped,
even if that SIGSTOP is not delivered yet. A process that was in a group-stop before the attach is never resumed. Standard library
only; no gdb.
"""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import struct
import time
from typing import Callable, Container

from .. import log
from ..errors import GdbextError
from . import in_root, ptrace, remote_memory
from .debug_registers import clear_debug_registers
from .model import PAGE
from .procfs import parse_maps, read_or_empty, read_proc, read_stat, read_syscall, status_field
from .resident import spans

WATCH = 2.0  # seconds for which a released process is watched for a stop that was still on its way
BREAKPOINTS = {"x86_64": b"\xcc", "aarch64": b"\x00\x00\x20\xd4"}  # int3, brk #0
TGKILL = {"x86_64": 234, "aarch64": 131}
KILL = {"x86_64": 62, "aarch64": 129}
STRAY_SECONDS = 0.5  # of waiting for threads that did not stop: the end of the guard releases the rest
LEFT_BITS = 1 << signal.SIGTRAP - 1 | 1 << signal.SIGINT - 1
GETSIGINFO, SI_USER = 0x4202, 0  # include/uapi/linux/ptrace.h, include/uapi/asm-generic/siginfo.h
SIGINFO = struct.Struct("<4ii")  # siginfo_t: si_signo, si_errno, si_code, padding, si_pid
FORKS = {"x86_64": (56, 57, 58, 435), "aarch64": (220, 435)}  # clone, fork, vfork, clone3


class Held:
    """A process that gdb holds. `start`: when it began. `was_stopped`: whether it was in a group-stop before. `known`: the
    addresses of breakpoint bytes that it had before. `program`: `program_of` it."""

    __slots__ = ("start", "was_stopped", "known", "program")

    def __init__(self, start: int, was_stopped: bool, known: Container[int] = (), program: tuple[int, int] | None = None) -> None:
        self.start, self.was_stopped, self.known, self.program = start, was_stopped, known, program


class GroupStop:
    """The group-stop in which a process with armed debug registers is kept, and which its tracer overrides. Any SIGCONT ends it:
    `renew` looks, and makes it again. `start`: when the process began.

    proc(5)'s `exit_code` is the signal that a group-stop is by, 0 without one, also of a process that its tracer lets run (Linux
    5.17, fs/proc/array.c). A parent that has waited with WUNTRACED, and an earlier kernel, hide it: then it is made again once a
    second."""

    def __init__(self, pid: int, start: int) -> None:
        self.pid, self.start = pid, start
        self.sent, self._pause, self._next = 0, 0.1, 0.0

    def renew(self) -> None:
        """Never an error."""
        try:
            found, state = read_stat(self.pid), ptrace.status(self.pid)
        except (GdbextError, OSError, ValueError) as e:
            log.passed_over(e)
            return
        if found.started != self.start or state is None or not state["tracer"]:
            return
        if found.exit_status:
            self._pause = 0.1
        elif not state["pending"] & ptrace.SIGSTOP_BIT and time.monotonic() >= self._next:
            self._next, self._pause = time.monotonic() + self._pause, min(1.0, 2 * self._pause)
            self.sent += 1
            with log.passing_over(OSError):
                os.kill(self.pid, signal.SIGSTOP)

    def end(self, was_stopped: bool) -> None:
        """The tracer has ended it in the moment in which it was made again here, maybe."""
        if self.sent and not was_stopped and ptrace.start_time(self.pid) == self.start:
            with log.passing_over(OSError):
                end_group_stop(self.pid)


def _other_tracers(pid: int) -> set[int]:
    """Who else traces a process: a thread in uninterruptible sleep is this process's own until it wakes."""
    return ptrace.tracers(pid) - {os.getpid()}


def left_stopped(pid: int) -> bool:
    """True where a SIGSTOP has stopped the process, or is pending for one of its threads."""
    for tid in ptrace.tids(pid):
        s = ptrace.status(pid, tid)
        if s and s["tracer"] in (0, os.getpid()) and (s["state"] == "T" or s["pending"] & ptrace.SIGSTOP_BIT):
            return True
    return False


def restore_run_state(pid: int, start: int, was_stopped: bool, seconds: float = 0) -> int:
    """Watches a released process for `seconds`, or looks at it once, and keeps it as it was before: running, or stopped. Returns
    the signals sent."""
    sent, deadline = 0, time.monotonic() + seconds
    pause = 0.002
    while ptrace.start_time(pid) == start and not _other_tracers(pid):
        stopped = left_stopped(pid)
        if stopped != was_stopped:
            if _other_tracers(pid):
                break  # another tracer attaches now, and the stop is its own
            try:
                os.kill(pid, signal.SIGSTOP if was_stopped else signal.SIGCONT)
                sent += 1
            except OSError:
                break
        if time.monotonic() >= deadline:
            break
        time.sleep(pause)
        pause = min(0.05, pause * 1.3)
    return sent


def _code_mappings(pid: int) -> list[tuple[int, int, int, tuple[int, int], str]]:
    """`[(start, end, file offset, (device, inode), path)]` of a process's executable private mappings of files."""
    found = []
    for m in parse_maps(os.fsdecode(read_proc(pid, "maps"))):
        if m.perms[2:] == "xp" and m.path.startswith("/"):
            major, minor = (int(number, 16) for number in m.device.split(":"))
            found.append((m.start, m.end, m.offset, (os.makedev(major, minor), m.inode), m.path))
    return found


def _open_mapped(pid: int, start: int, end: int, key: tuple[int, int], path: str) -> tuple[int, bool] | None:
    """(descriptor of the mapped file, whether it is certain); None where it cannot be opened.

    The kernel's own link to it (for root alone) is certain. So is the file at the path, inside the process's root, with the same
    device and inode. Where only the inode agrees it is not: some file systems (btrfs, overlayfs) name another device."""
    sure = True
    try:
        found = os.open(f"/proc/{pid}/map_files/{start:x}-{end:x}", os.O_PATH | os.O_CLOEXEC)
    except OSError:
        sure = False
        try:
            found = in_root.open_in_root(pid, path, os.O_PATH)
        except OSError:
            return None
    try:
        status = os.fstat(found)
        if not stat.S_ISREG(status.st_mode) or not sure and status.st_ino != key[1]:
            return None  # a device; or another file by now, which is no evidence
        return os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_CLOEXEC), sure or status.st_dev == key[0]
    except OSError:
        return None
    finally:
        os.close(found)


def planted_breakpoints(pid: int) -> dict[int, bytes]:
    """`{address: the file's bytes}` where the process has a breakpoint instruction and its mapped file has not.

    Only pages of code of which the process has a private copy are read, so an engine's 200 GB of memory cost nothing here. A file
    that may be another one counts only where the rest of the page is the same. Source: Documentation/admin-guide/mm/pagemap.rst.
    """
    trap = BREAKPOINTS.get(ptrace.MACHINE)
    found: dict[int, bytes] = {}
    if trap is None:
        return found
    with open(f"/proc/{pid}/pagemap", "rb", buffering=0) as pagemap:
        for start, end, offset, key, path in _code_mappings(pid):
            pages = [at for low, high in spans(pagemap.fileno(), start, end) or () for at in range(low, high, PAGE)]
            file = _open_mapped(pid, start, end, key, path) if pages else None
            if file is None:
                continue
            try:
                for at, data in zip(pages, remote_memory.read_ranges(pid, [(at, PAGE) for at in pages])):
                    original = os.pread(file[0], PAGE, offset + at - start)
                    places = _traps(data, original, trap)
                    if file[1] or _restored(data, original, places, trap) == original:
                        found.update((at + place, original[place : place + len(trap)]) for place in places)
            finally:
                os.close(file[0])
    return found


def _traps(data: bytes, original: bytes, trap: bytes) -> list[int]:
    """Where a page has a breakpoint instruction and the file has not."""
    places, step, at = [], len(trap), data.find(trap)
    while 0 <= at < len(original):
        if at % step == 0 and original[at : at + step] != trap:
            places.append(at)
        at = data.find(trap, at + 1)
    return places


def _restored(data: bytes, original: bytes, places: list[int], trap: bytes) -> bytes:
    """A page with the file's bytes at some `places`."""
    page = bytearray(data[: len(original)])
    for at in places:
        page[at : at + len(trap)] = original[at : at + len(trap)]
    return bytes(page)


def stop_threads(pid: int, tracer: int, number: int = signal.SIGSTOP) -> None:
    """Sends SIGSTOP to each thread of a process that `tracer` still traces while it exits. So no thread runs into an armed debug
    register."""
    try:
        ours = status_field(read_proc(pid, "status"), b"TracerPid") == b"%d" % tracer
    except (GdbextError, OSError) as e:
        log.passed_over(e)
        return
    if ours or not number:  # otherwise it was released in good order
        for tid in ptrace.tids(pid):
            ptrace.libc.syscall(TGKILL[ptrace.MACHINE], pid, tid, int(number))


def end_group_stop(pid: int) -> None:
    """Sends SIGCONT to a process that a debugger traces. SIGCONT takes all stop signals away that are on their way, also those by
    which the debugger itself is stopping single threads: gdb would wait for these for ever, so they are sent again. OSError where
    the process has ended."""
    own = [tid for tid in ptrace.tids(pid) if int(status_field(_status(pid, tid), b"SigPnd") or b"0", 16) & ptrace.SIGSTOP_BIT]
    os.kill(pid, signal.SIGCONT)
    for tid in own:
        ptrace.libc.syscall(TGKILL[ptrace.MACHINE], pid, tid, int(signal.SIGSTOP))


def _status(pid: int, tid: int) -> bytes:
    return read_or_empty(pid, f"task/{tid}/status")


def _is_of(tid: int, number: int, tracer: int) -> bool:
    """Whether a signal that a thread has stopped at is one that its dead tracer has left: a trap, or the Ctrl-C that gdb passes
    on when a signal ends it (gdb/inflow.c, child_pass_ctrlc). Outside of the thread's pid namespace gdb has the number 0."""
    if number != signal.SIGINT:
        return number == signal.SIGTRAP
    info = ctypes.create_string_buffer(128)
    ptrace.call(GETSIGINFO, tid, 0, ctypes.addressof(info))
    _, _, code, _, sender = SIGINFO.unpack_from(info)
    return code == SI_USER and sender in (0, tracer)


def discard_signals(pid: int, tracer: int, seconds: float = 1.0) -> int:
    """Removes pending SIGTRAPs from an untraced process in a group-stop, which come from debug registers that are clear by now,
    and a SIGINT that its dead tracer sent. -> how many"""

    def pending() -> list[int]:
        return [t for t in ptrace.tids(pid) if (ptrace.status(pid, t) or {"pending": 0})["pending"] & LEFT_BITS]

    waiting, dropped, deadline = set(pending()), 0, time.monotonic() + seconds
    if not waiting:
        return 0
    for tid in waiting:
        ptrace.call(ptrace.SEIZE, tid)
    os.kill(pid, signal.SIGCONT)  # a signal is delivered to a thread that runs
    over = False
    while waiting:
        for tid in list(waiting):
            try:
                found, code = os.waitpid(tid, ptrace.WALL | os.WNOHANG)
            except ChildProcessError:
                found, code = tid, 0
            if found and not os.WIFSTOPPED(code):
                waiting.remove(tid)  # ended
            elif found:
                number = 0 if code >> 16 else os.WSTOPSIG(code)
                if number and _is_of(tid, number, tracer):
                    dropped, number = dropped + 1, 0
                if over:
                    waiting.remove(tid)
                ptrace.call(ptrace.DETACH if over else ptrace.CONT, tid, 0, number)
        if not over and (time.monotonic() > deadline or not pending()):
            over = True
            for tid in waiting:
                with log.passing_over(OSError):
                    ptrace.call(ptrace.INTERRUPT, tid)
        if time.monotonic() > deadline + seconds:
            break
        time.sleep(0.0005)
    return dropped


def program_of(pid: int) -> tuple[int, int] | None:
    """(device, inode) of the program that a process runs; None where it has ended or may not be examined."""
    try:
        found = os.stat(f"/proc/{pid}/exe")
    except OSError as e:
        log.passed_over(e)
        return None
    return found.st_dev, found.st_ino


def end_stopped_copies(group: int, began: int, program: tuple[int, int] | None) -> int:
    """Ends a fork that gdb leaves behind if it is killed while it tries out ptrace, before its first attach. -> how many

    The fork has stopped itself by SIGSTOP for good (gdb/nat/linux-ptrace.c, linux_check_ptrace_features). `group`, `began`,
    `program`: gdb's process group, start time and program."""
    found = 0
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            seen = read_stat(pid)
            if seen.state != "T" or seen.group != group or seen.started < began:
                continue
            if program is None or program_of(pid) != program:
                continue
            call = read_syscall(pid, pid)
            if call is not None and (call.number, *call.arguments[:2]) == (KILL.get(ptrace.MACHINE), pid, signal.SIGSTOP):
                os.kill(pid, signal.SIGKILL)
                found += 1
        except (GdbextError, OSError) as e:
            log.passed_over(e)  # it has ended, or is not ours
    return found


def disarm(pid: int, known: Container[int] = ()) -> tuple[int, int]:
    """Clears debug registers and restores the bytes under breakpoints of an untraced process; its threads are stopped for that
    moment.

    `known`: addresses of breakpoint bytes that were there before the attach; they stay. Returns (threads cleared, bytes
    restored)."""
    cleared = restored = 0
    with ptrace.Stopped(pid, 2.0) as stopped:
        for tid in stopped.threads:
            try:
                cleared += clear_debug_registers(tid)
            except OSError:
                continue  # killed meanwhile
        planted = {a: b for a, b in planted_breakpoints(pid).items() if a not in known}
        if planted:
            with open(f"/proc/{pid}/mem", "r+b", buffering=0) as mem:
                for address, original in planted.items():
                    restored += os.pwrite(mem.fileno(), original, address) > 0
    deadline = time.monotonic() + STRAY_SECONDS
    while not stopped.release_stray() and time.monotonic() < deadline:
        time.sleep(0.01)
    return cleared, restored


def left_children(held: dict[int, Held], tracer: int) -> dict[int, Held]:
    """Children that a dead tracer has left stopped, or with a trap that is pending: it was attached to them from their first
    instruction on (PTRACE_O_TRACEFORK).

    They are children of the processes of `held`, or of their children, younger than those, run the same program, and nobody
    traces them. One that is stopped has not come out of its fork yet: whoever stops a process by a signal finds it elsewhere.
    Such a one counts too where its parent has ended and it has another by now."""
    found: dict[int, Held] = {}
    programs = {one.start: {one.program, program_of(pid)} - {None} for pid, one in held.items()}
    for pid in sorted(map(int, filter(str.isdigit, os.listdir("/proc")))):
        try:
            seen = read_stat(pid)
            parent = held.get(seen.parent) or found.get(seen.parent)
            if pid in held or parent is None and seen.state not in "Tt":
                continue
            state = ptrace.status(pid)
            if state is None or state["tracer"] not in (0, tracer):
                continue
            call = read_syscall(pid, pid) if state["state"] in "Tt" else None
            forked = call is not None and call.number in FORKS.get(ptrace.MACHINE, ())
            if not (forked or parent is not None and state["pending"] & LEFT_BITS):
                continue
            program = program_of(pid)
            for above in [parent] if parent is not None else held.values():
                if seen.started >= above.start and program in programs.get(above.start, {above.program}):
                    found[pid] = Held(seen.started, False, above.known, program)
        except (GdbextError, OSError) as e:
            log.passed_over(e)  # it has ended
    return found


def recover(held: dict[int, Held], tracer: int, gone: Callable[[], bool]) -> None:
    """Resumes the processes of `held`, and their children that `tracer` was attached to, after its death.

    `gone()` says whether the tracer has really ended: until then it may still trace them (while it writes a core file, say)."""
    released: dict[int, Held] = {}
    tries: dict[int, int] = {}
    family = dict(held)
    while held:
        dead = gone()
        for pid, one in list(held.items()):
            if ptrace.start_time(pid) != one.start:
                del held[pid]
            elif _let_go(pid, one, tracer, tries):
                released[pid] = held.pop(pid)
        if held:
            time.sleep(0.001 if not dead else 0.01)
        for pid, one in released.items():
            restore_run_state(pid, one.start, one.was_stopped)  # at once: other processes may still wait for the tracer
    deadline, look = time.monotonic() + WATCH, 0.0
    while family and time.monotonic() < deadline:
        if time.monotonic() > look:
            for pid, one in left_children(family, tracer).items():
                if _let_go(pid, one, tracer, tries):
                    restore_run_state(pid, one.start, False)
            look = time.monotonic() + 0.1
        for pid, one in list(released.items()):
            if _other_tracers(pid):
                del released[pid]  # another debugger has it
            restore_run_state(pid, one.start, one.was_stopped)
        time.sleep(0.01)


def _let_go(pid: int, one: Held, tracer: int, tries: dict[int, int]) -> bool:
    """Whether nothing of the dead tracer is left in the process: it may be resumed."""
    by = ptrace.tracers(pid)
    if tracer in by:
        return False  # the kernel has not released it yet
    if not by:
        try:
            disarm(pid, one.known)
            discard_signals(pid, tracer)
        except (GdbextError, OSError) as e:
            log.passed_over(e)
            tries[pid] = tries.get(pid, 0) + 1
            if ptrace.tracers(pid) == {tracer} or tries[pid] < 200:
                return False  # with a debug register armed it must not be resumed
    return True
