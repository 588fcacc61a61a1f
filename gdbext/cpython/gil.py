"""Which Python thread holds the interpreter's lock, the GIL, and which threads wait for it. The only source of the field `gil`;
it needs no symbols.

A thread waits for the lock when its futex call waits on an address inside the lock. This can be read of a running process too.
CPython waits in pthread_cond_timedwait on a condition inside `struct _gil_runtime_state` (Python/ceval_gil.c, take_gil). glibc
turns that into futex(2) on a word inside the condition. Linux keeps the call's arguments in the thread's registers, and reports
them in /proc/PID/task/TID/syscall.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING

from .. import log
from ..access.model import PAGE, Thread
from ..access.procfs import Syscall, read_proc, read_syscall, status_field
from ..errors import FaultError, GdbextError

if TYPE_CHECKING:
    from ..access.base import Target
    from .runtime import PyThread, Runtime

FUTEX = {"x86-64": 202, "aarch64": 98}
FIRST_ARGUMENT, _PC = {"x86-64": "rdi", "aarch64": "x0"}, {"x86-64": "rip", "aarch64": "pc"}
_SECOND = {"x86-64": "rsi", "aarch64": "x1"}
_WAITS, _COMMAND = (0, 6, 9, 11, 13), 0x7F  # operations of futex(2) that wait: include/uapi/linux/futex.h
_SP = {"x86-64": "rsp", "aarch64": "sp"}
_AWAKE_FRAMES, _AWAKE_BYTES = 12, 512  # how much of a stack is looked at
# restart_syscall(2): an interrupted wait with a time limit goes on in it, with the same arguments
RESTART = {"x86-64": 219, "aarch64": 128}
_LOOKS = (0.0, 0.001, 0.002, 0.004)  # seconds before each look at a thread of a running process: a waiter wakes up every 5 ms
_NUMBER = {"x86-64": "orig_rax", "aarch64": "x8"}  # the register that has the system call's number
_CALL = {"x86-64": b"\x0f\x05", "aarch64": b"\x01\x00\x00\xd4"}  # syscall; svc #0


def gil_range(rt: Runtime, interp: int) -> tuple[int, int]:
    """(start, end) of the lock of an interpreter, (0, 0) where there is none."""
    L, t = rt.layout, rt.target
    start = (
        rt.address + L["runtime.ceval.gil"] if "runtime.gilstate.tstate_current" in L else t.u64(interp + L["interp.ceval.gil"])
    )
    return (start, start + L["gil.__size"]) if start else (0, 0)


def futex_of(target: Target, thread: Thread) -> int:
    """The address on which a `Thread` waits in futex(2), 0 where it is in no such call; `GdbextError` where neither registers nor
    /proc tell."""
    if _runs_on(target):
        call = _call_of(target, thread)
        if call is None:
            return 0
        number, (address, operation) = call.number, call.arguments[:2]
    elif _in_call(target, thread):
        registers = target.registers(thread)
        number, address = registers.get(_NUMBER[target.arch], FUTEX[target.arch]), registers[FIRST_ARGUMENT[target.arch]]
        operation = registers.get(_SECOND[target.arch], _WAITS[0])
    else:
        return 0
    waits = number in (FUTEX[target.arch], RESTART[target.arch]) and operation & _COMMAND in _WAITS
    return address if waits and address >= PAGE else 0


def _runs_on(target: Target) -> bool:
    return not target.is_stopped and target.pid is not None


def _call_of(target: Target, thread: Thread) -> Syscall | None:
    """The system call in which a thread of a running process is; None where it is in none."""
    call = read_syscall(target.pid, thread.tid) if target.pid is not None else None
    return call if call is not None and call.number >= 0 else None


def _in_call(target: Target, thread: Thread) -> bool:
    """Whether a thread of a stopped process is in a system call: behind the instruction that makes the call.

    On aarch64 also at that instruction: Linux sets the thread back to it, to repeat the call, before a tracer sees the thread
    (arch/arm64/kernel/signal.c, do_signal). Behind it x0 has the first argument; after futex(2) has ended, x0 has its result.
    """
    call, registers = _CALL[target.arch], target.registers(thread)
    pc = registers[_PC[target.arch]]
    if _code(target, pc - len(call), len(call)) == call:
        return target.arch != "aarch64" or registers["x8"] != FUTEX["aarch64"] or PAGE <= registers["x0"] < 1 << 63
    return target.arch == "aarch64" and _code(target, pc, len(call)) == call


def _code(target: Target, at: int, size: int) -> bytes | None:
    try:
        return target.read(at, size)
    except FaultError as e:  # a core leaves code out: it comes from the file
        log.passed_over(e)
        module = target.module_at(at)
        return module.elf.at(at - module.bias, size) if module is not None else None


def _awake_waiter(rt: Runtime, thread: Thread, start: int, end: int) -> bool:
    """Whether a thread of a stopped process is between two futex calls of one wait for the lock at `start` to `end`.

    A waiter wakes up every switch interval (5 ms), requests the lock, and waits on. Where the interpreter has symbols, take_gil
    is on its native stack. Without symbols, its registers and the innermost part of its stack hold addresses inside the lock.
    """
    target = rt.target
    if _in_call(target, thread):
        return False
    if rt.library.elf.has_static_symbols:
        return any(frame.function == "take_gil" for frame in target.unwind(thread)[:_AWAKE_FRAMES])
    registers = target.registers(thread)
    stack = target.read_partial(registers[_SP[target.arch]], _AWAKE_BYTES)
    words = [*registers.values(), *struct.unpack(f"<{len(stack) // 8}Q", stack[: len(stack) & -8])]
    return any(isinstance(word, int) and start <= word < end for word in words)


def waits(rt: Runtime, py: PyThread, thread: Thread) -> bool | None:
    """Whether a `PyThread` waits for its interpreter's lock; None where this cannot be told. `thread`: its `Thread`."""
    start, end = gil_range(rt, py.interp)
    if not start:
        return False
    try:
        if start <= futex_of(rt.target, thread) < end:
            return True
        return rt.target.is_stopped and _awake_waiter(rt, thread, start, end)
    except (GdbextError, KeyError) as e:
        log.passed_over(e)
        return None


def state(rt: Runtime, py: PyThread, thread: Thread | None = None) -> str:
    """The state of a Python thread toward the GIL:

    - "holds", "waits", "none" (it neither has nor wants it), "disabled" (a free-threaded build).
    - "unknown": another thread has it, and neither registers nor /proc tell on what this one waits.

    In a running process a thread may want the lock a moment later, or be between two futex calls of its wait. So "none" has a
    condition: the thread stayed in one other system call from before to after the holder was read. `thread`: its `Thread`, None
    where no thread of the system belongs to it.
    """
    if thread is not None and _runs_on(rt.target) and rt.target.read_log is None:  # a collector only learns which pages are read
        return _state_at_once(rt, py, thread)
    said, holder = rt.gil(py.interp)
    if said == "disabled":
        return "disabled"
    if said == "held" and any(holder == address for address, _ in py.states):
        return "holds"
    found = waits(rt, py, thread) if thread is not None else None
    if found is None:
        return "none" if said == "free" else "unknown"
    return "waits" if found else "none"


def _state_at_once(rt: Runtime, py: PyThread, thread: Thread) -> str:
    """`state` in a running process. It is read again, a few times, while the thread moves between the readings."""
    for wait in _LOOKS:
        time.sleep(wait)
        rt.target.drop_pages()
        try:
            before = _standing(rt.target, thread)
            said, holder = rt.gil(py.interp)
            if said == "disabled":
                return "disabled"
            if said == "held" and any(holder == address for address, _ in py.states):
                return "holds"
            if before is not None and _standing(rt.target, thread) == before:
                return "waits" if _waits_in(rt, py, before[0]) else "none"
        except GdbextError as e:
            log.passed_over(e)
            return "unknown"
    return "unknown"


def _waits_in(rt: Runtime, py: PyThread, call: Syscall) -> bool:
    """Whether a system call waits for the lock of a thread's interpreter."""
    start, end = gil_range(rt, py.interp)
    return call.number in (FUTEX[rt.target.arch], RESTART[rt.target.arch]) and start <= call.arguments[0] < end


def _standing(target: Target, thread: Thread) -> tuple[Syscall, int] | None:
    """Evidence that a thread did not move: its system call, and how often it has slept. None where it is in no system call."""
    call = _call_of(target, thread)
    if call is None or target.pid is None:
        return None
    return call, int(status_field(read_proc(target.pid, f"task/{thread.tid}/status"), b"voluntary_ctxt_switches") or 0)


def switches(rt: Runtime, interp: int) -> int:
    """How often the lock of an interpreter passed from one thread to another."""
    lock = gil_range(rt, interp)[0]
    return rt.target.u64(lock + rt.layout["gil.switch_number"]) if lock else 0


def stands(rt: Runtime, py: PyThread, thread: Thread) -> bool | None:
    """Whether a thread of a running process waits for the lock; None for one that is in no system call."""
    try:
        call = _call_of(rt.target, thread)
        return None if call is None else _waits_in(rt, py, call)
    except GdbextError as e:
        log.passed_over(e)
        return None
