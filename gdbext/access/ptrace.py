"""ptrace, process_vm_readv and the related fields of /proc, through ctypes. They serve the collector and the guard; inside gdb
they only read registers.

Threads are stopped by PTRACE_SEIZE + PTRACE_INTERRUPT. No signal is sent: when the tracer dies at any moment every thread runs
on, and a process in a group-stop (state T) stays in it. Numbers: Linux include/uapi/linux/ptrace.h, arch/*/include/asm/user.h.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import time
from typing import Any, Callable, Iterable, Sequence

from .. import log
from ..errors import GdbextError, NotFoundError, UnstoppableError
from . import procfs
from .permission import permission_hint

CONT, DETACH = 7, 17
GETREGSET, SETREGSET, SEIZE, INTERRUPT = 0x4204, 0x4205, 0x4206, 0x4207
NT_PRSTATUS, NT_X86_XSTATE, NT_ARM_PAC_MASK = 1, 0x202, 0x406
WALL = 0x40000000  # waitpid: threads of any kind
SIGSTOP_BIT = 1 << 18
MACHINE = os.uname().machine  # platform.machine() starts a process before Python 3.9
IOV_MAX = 1024
FIRST_LOOK, LOOK_AGAIN = 0.001, 0.005  # seconds after which threads that do not stop are checked for uninterruptible sleep
LASTING = 0.5  # seconds: a tracer that holds a process for longer is no reader that passes by

# Order of the general registers in NT_PRSTATUS: struct user_regs_struct (x86-64), struct user_pt_regs (aarch64).
REGISTERS = {
    "x86-64": (
        "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss fs_base gs_base ds es fs gs"
    ).split(),
    "aarch64": [f"x{i}" for i in range(31)] + ["sp", "pc", "cpsr"],
}
STACK_POINTER = {"x86-64": "rsp", "aarch64": "sp"}
# The fields of /proc/PID/task/TID/syscall for a thread that is blocked in the kernel, by register.
BLOCKED = {
    "x86-64": ["orig_rax", "rdi", "rsi", "rdx", "r10", "r8", "r9", "rsp", "rip"],
    "aarch64": ["x8", "x0", "x1", "x2", "x3", "x4", "x5", "sp", "pc"],
}


class Iovec(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.process_vm_readv.restype = ctypes.c_ssize_t
libc.process_vm_readv.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_void_p, ctypes.c_ulong, ctypes.c_ulong]

PR_SET_PDEATHSIG = 1  # sys/prctl.h


def call(request: int, tid: int, address: int = 0, data: int = 0) -> int:
    """ptrace(2); raises `OSError`."""
    ctypes.set_errno(0)
    result = int(libc.ptrace(request, tid, address, data))
    if result == -1 and ctypes.get_errno():
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def end_with_parent(parent: int) -> None:
    """Asks the kernel to kill this process when the thread that started it ends (PR_SET_PDEATHSIG of prctl(2)). It exits at once
    where `parent` has already ended."""
    libc.prctl(PR_SET_PDEATHSIG, 9, 0, 0, 0)  # SIGKILL
    if os.getppid() != parent:
        os._exit(1)


# ---- from /proc ------------------------------------------------------------------------------------------------------
def tids(pid: int) -> list[int]:
    """Thread ids, sorted; [] when the process is gone."""
    try:
        return procfs.task_ids(pid)
    except NotFoundError as e:
        log.passed_over(e)
        return []


def status(pid: int, tid: int | None = None) -> dict[str, Any] | None:
    """`{"state", "tracer", "pending", "blocked", "tgid", "kthread"}` of a thread (default: the main one), or None when it is
    gone.

    `state`: the letter of proc(5). `pending`: signal mask of the thread and the process together. `blocked`: mask of the signals
    that the thread blocks."""
    try:
        data = procfs.read_proc(pid, f"task/{tid or pid}/status")
        signals = {name: int(procfs.status_field(data, name) or b"0", 16) for name in (b"SigPnd", b"ShdPnd", b"SigBlk")}
        return {
            "state": procfs.status_field(data, b"State")[:1].decode(),
            "tracer": int(procfs.status_field(data, b"TracerPid")),
            "tgid": int(procfs.status_field(data, b"Tgid")),
            "pending": signals[b"SigPnd"] | signals[b"ShdPnd"],
            "blocked": signals[b"SigBlk"],
            "kthread": procfs.status_field(data, b"Kthread").strip() == b"1" or not procfs.status_field(data, b"VmSize"),
        }
    except (GdbextError, OSError, ValueError) as e:
        log.passed_over(e)
        return None


def thread_state(pid: int, tid: int) -> str:
    """The letter of proc(5), '' when the thread is gone. Cheaper than `status`."""
    return procfs.state_of(pid, tid)


def lasting_stops(pids: Iterable[int]) -> dict[int, dict[str, Any]]:
    """{pid: `status`} of the processes whose main thread is stopped, by a signal or by a tracer.

    A tracer counts where the same one still holds the process after `LASTING`, and at each check in between. Another reader, such
    as this pack's own collector, holds a process only for milliseconds. One wait serves all processes."""
    found = {pid: s for pid in pids for s in [status(pid)] if s is not None and s["state"] in "Tt"}
    deadline = time.monotonic() + LASTING
    while any(s["tracer"] for s in found.values()) and time.monotonic() < deadline:
        time.sleep(LOOK_AGAIN)
        for pid in [pid for pid, s in found.items() if s["tracer"]]:
            now = status(pid)
            if now is not None and now["state"] == "T" and not now["tracer"]:
                found[pid] = now  # its tracer has released it, and a signal had stopped it before
            elif now is None or (now["state"], now["tracer"]) != (found[pid]["state"], found[pid]["tracer"]):
                del found[pid]
    return found


def stopped_by(pids: Iterable[int]) -> dict[int, str]:
    """{pid: what has stopped it, in words} of the processes that stay stopped (`lasting_stops`): "a signal", "process 17 (gdb),
    which traces it"."""
    return {pid: stopper(s["tracer"]) for pid, s in lasting_stops(pids).items()}


def stopper(tracer: int) -> str:
    """What has stopped a process, in words. `tracer`: the process that traces it, 0 for none."""
    return f"{named(tracer)}, which traces it" if tracer else "a signal"


def named(pid: int) -> str:
    """A process in words: its pid and its name."""
    name = procfs.read_or_empty(pid, "comm").decode("utf-8", "replace").strip() or "?"  # it has just ended, say
    return f"process {pid} ({name})"


def uninterruptible(pid: int) -> list[int]:
    """Threads in state D (uninterruptible sleep): neither a signal nor a tracer stops them until their wait in the kernel
    ends."""
    return [tid for tid in tids(pid) if thread_state(pid, tid) == "D"]


def memory_tid(pid: int) -> int | None:
    """A thread of a process that has its memory (a main thread that has ended has none); None where there is no such thread."""
    for tid in [pid, *tids(pid)]:
        state = status(pid, tid)
        if state is not None and state["state"] not in "ZX" and not state["kthread"]:
            return tid
    return None


def start_time(pid: int) -> int | None:
    """Clock ticks after boot at which a process began, or None when it is gone. Together with the pid it identifies a process for
    good."""
    try:
        return procfs.read_stat(pid).started
    except (GdbextError, OSError) as e:
        log.passed_over(e)
        return None


def parent_of(pid: int) -> int:
    """The pid of a process's parent, 0 where it has none or is gone."""
    try:
        return procfs.read_stat(pid).parent
    except (GdbextError, OSError) as e:
        log.passed_over(e)
        return 0


def is_stopped(pid: int) -> bool:
    """True where a thread of the process is in a group-stop (T): stopped by a signal, not by a tracer."""
    return any(s["state"] == "T" for s in (status(pid, t) for t in tids(pid)) if s)


def tracers(pid: int) -> set[int]:
    """Pids of the processes that trace a thread of `pid`."""
    return {s["tracer"] for s in (status(pid, t) for t in tids(pid)) if s and s["tracer"]}


# ---- stopping without a signal ---------------------------------------------------------------------------------------
class Stopped:
    """All threads of a process, seized and interrupted, for a `with` block (or several, one after the other).

    * `threads`: tids of the stopped threads
    * `stray`: tids that did not stop: they are in uninterruptible sleep (state D), for which there is no wait, or took longer
      than `timeout`. They stay seized. `release_stray()` releases those that have stopped since; the end of this process releases
      the rest.
    * `seconds`: how long the process was stopped, from the first interrupt to the last detach; 0 where no thread was
    * `began`: when the first thread was stopped (monotonic)
    * `standing`: seconds to wait for the other threads from then on, where that is less than `timeout`
    * `patience`: seconds that another tracer, perhaps a reader that finishes soon, is given to go
    * `only`: the threads to stop, else all
    * `spare`: the threads to leave alone
    * `begins`: called again and again until the first thread has stopped, from before the first interrupt on"""

    def __init__(
        self,
        pid: int,
        timeout: float = 1.0,
        only: Sequence[int] | None = None,
        patience: float = LASTING,
        spare: Iterable[int] = (),
    ) -> None:
        self.pid, self.timeout, self.only, self.patience = pid, timeout, only, patience
        self.spare = frozenset(spare)
        self.threads: dict[int, int] = {}
        self.stray: set[int] = set()
        self.seconds = self.began = 0.0
        self.standing = timeout
        self.begins: Callable[[], None] = lambda: None
        self._seized: set[int] = set()
        self._began: float | None = None

    def __enter__(self) -> Stopped:
        try:
            self.release_stray()
            self._seize_new(time.monotonic() + self.patience)  # which does not stop: the pause begins with the first interrupt
            if not self._seized and not (self.spare and tids(self.pid)):
                raise NotFoundError(f"process {self.pid} does not exist (any more)")
            self._began = self.began = time.monotonic()
            self.begins()
            deadline = self._began + self.timeout
            fresh = self._seized - self.stray  # a stray has its interrupt since the time before
            while fresh:
                for tid in list(fresh):
                    self._interrupt(tid)
                self._wait(deadline)
                fresh = self._seize_new() if time.monotonic() < deadline else set()
        except BaseException:
            self.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _seize_new(self, patience: float = 0.0) -> set[int]:
        """Seizes the threads that are not seized yet. `patience`: until when another tracer may release them."""
        fresh = set()
        for tid in tids(self.pid) if self.only is None else self.only:
            if tid not in self._seized and tid not in self.spare and self._seize(tid, patience):
                fresh.add(tid)
                self._seized.add(tid)
        return fresh

    def _seize(self, tid: int, patience: float) -> bool:
        free = False  # it was refused though no process traces it: its tracer may just have ended
        while True:
            try:
                call(SEIZE, tid)
            except OSError as e:
                state = status(self.pid, tid)
                if e.errno == errno.ESRCH or state is None or state["state"] in "ZX":
                    return False  # it has ended meanwhile
                if time.monotonic() < patience and not free:
                    time.sleep(LOOK_AGAIN)
                    free = not state["tracer"]
                    continue
                if state["tracer"]:
                    text = f"process {self.pid} is already traced by {named(state['tracer'])}"
                    raise UnstoppableError(text) from None
                raise UnstoppableError(f"process {self.pid}: no permission to stop it; {permission_hint(self.pid)}") from None
            return True

    def _interrupt(self, tid: int) -> None:
        try:
            call(INTERRUPT, tid)
        except OSError:
            self._seized.discard(tid)  # ended

    def _wait(self, deadline: float) -> None:
        waiting = self._seized - set(self.threads)
        look = time.monotonic() + FIRST_LOOK
        nobody = not self.threads
        while waiting:
            moved = False
            for tid in list(waiting):
                if self._collect(tid):
                    waiting.discard(tid)
                    moved = True
            if nobody and self.threads:  # until one of them has stopped, none is paused
                nobody, self.began = False, time.monotonic()
                deadline = min(deadline, self.began + self.standing)
            elif nobody:
                self.begins()
            if moved:
                continue
            now = time.monotonic()
            if now > deadline:
                break
            if now > look:
                if all(thread_state(self.pid, tid) == "D" for tid in waiting):
                    break
                look = now + LOOK_AGAIN
            time.sleep(0.00005)
        self.stray = waiting

    def _collect(self, tid: int) -> bool:
        """True when `tid` stopped or ended."""
        try:
            found, code = os.waitpid(tid, WALL | os.WNOHANG)
        except ChildProcessError:
            self._seized.discard(tid)
            return True
        if not found:
            return False
        if os.WIFSTOPPED(code):
            # A signal that was on its way stops the thread as well: it is passed on at the detach. The stop of our own
            # interrupt, and of a group-stop, carries an event in the upper half and no signal to deliver.
            self.threads[tid] = 0 if code >> 16 else os.WSTOPSIG(code)
        else:
            self._seized.discard(tid)
        return True

    def release(self) -> None:
        """Detaches the stopped threads. Safe to call twice."""
        for tid, signal in list(self.threads.items()):
            try:
                call(DETACH, tid, 0, signal)
            except OSError:
                pass  # killed meanwhile: nothing to release
        if self._began is not None:
            self.seconds = time.monotonic() - self._began if self._seized else 0.0
            self._began = None
        self._seized -= set(self.threads)
        self.stray |= self._seized
        self.threads = {}

    def release_stray(self) -> bool:
        """Detaches strays that have stopped by now; True when none is left."""
        for tid in list(self.stray):
            self._collect(tid)
            if tid in self.threads or tid not in self._seized:
                self.stray.discard(tid)
        self.release()
        return not self.stray


def general_registers(tid: int) -> bytes:
    """The raw NT_PRSTATUS register set of a stopped thread."""
    return register_set(tid, NT_PRSTATUS)


def extended_registers(tid: int) -> bytes:
    """The raw NT_X86_XSTATE register set of a stopped thread: an XSAVE area."""
    return register_set(tid, NT_X86_XSTATE)


def pac_mask(tid: int) -> bytes:
    """The raw NT_ARM_PAC_MASK set of a stopped thread: which bits of an address may be a signature; b"" where there are none."""
    try:
        return register_set(tid, NT_ARM_PAC_MASK) if MACHINE == "aarch64" else b""
    except OSError:  # a CPU without pointer authentication
        return b""


def register_set(tid: int, kind: int) -> bytes:
    """A raw register set of a stopped thread; raises `OSError`."""
    buffer = ctypes.create_string_buffer(1 << 14)
    iov = Iovec(ctypes.cast(buffer, ctypes.c_void_p).value, len(buffer))
    call(GETREGSET, tid, kind, ctypes.addressof(iov))
    return buffer.raw[: iov.length]


def set_registers(tid: int, kind: int, data: bytes) -> None:
    """Sets a register set of a stopped thread."""
    iov = Iovec(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value, len(data))
    call(SETREGSET, tid, kind, ctypes.addressof(iov))


def blocked_registers(pid: int, tid: int, arch: str) -> bytes | None:
    """A NT_PRSTATUS set of a thread that waits in the kernel and cannot be stopped, as `call_registers`. None for a thread that
    runs, or whose system call may not be read."""
    return call_registers(procfs.read_or_empty(pid, f"task/{tid}/syscall"), arch)


def known_registers(call: bytes, arch: str) -> dict[str, int]:
    """`{name: value}` from /proc/PID/task/TID/syscall for a thread that waits in the kernel: the arguments of its system call,
    its stack pointer and its program counter. {} for one that runs."""
    try:
        found = procfs.parse_syscall(call)
    except ValueError:
        return {}
    if found is None:
        return {}
    values = (found.number, *found.arguments, found.sp, found.pc) if found.arguments else (found.sp, found.pc)
    return {name: value & (1 << 64) - 1 for name, value in zip(BLOCKED[arch][-len(values) :], values)}


def call_registers(call: bytes, arch: str) -> bytes | None:
    """A NT_PRSTATUS set of the `known_registers`, 0 for all others; None where there are none."""
    known = known_registers(call, arch)
    return encode_registers(known, arch) if known else None


def decode_registers(raw: bytes, arch: str) -> dict[str, int] | None:
    """`{name: value}` of a raw NT_PRSTATUS set; None where it is too short or the architecture is not known."""
    names = REGISTERS.get(arch)
    if names is None or len(raw) < 8 * len(names):
        return None
    return dict(zip(names, struct.unpack_from(f"<{len(names)}Q", raw)))


def encode_registers(values: dict[str, int], arch: str) -> bytes:
    """A raw NT_PRSTATUS set; 0 for registers that have no value."""
    return struct.pack(f"<{len(REGISTERS[arch])}Q", *(values.get(name, 0) for name in REGISTERS[arch]))
