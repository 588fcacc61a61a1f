"""Calls a C function in a process that gdb holds, so that the process itself undoes the call.

gdb's own calls return to a place where only gdb waits. If gdb detaches, quits or is killed meanwhile, the thread runs on there
and the process dies. Here the function returns into the C library's end of a signal handler, over a signal frame that holds the
thread's former registers. The kernel then restores all of them. So a running call does not depend on gdb, which may leave at any
moment.

Sources: Linux arch/x86/include/uapi/asm/sigcontext.h and ucontext.h, arch/x86/kernel/signal_64.c (rt_sigreturn) and fpu/signal.c;
System V ABI x86-64, 3.2.2 (red zone, alignment).
"""

from __future__ import annotations

import contextlib
import os
import re
import struct
import threading
from typing import Any, Callable, Iterator

import gdb

from ..access import ptrace
from ..access.background import background_thread
from ..access.base import Target
from ..access.cli_gdb import command
from ..access.procfs import read_or_empty, status_field
from ..errors import GdbextError
from . import time_limit

# A fault of the called code: it stops where it happened, as it would without the call.
FAULTS = ("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE", "SIGABRT")
RED_ZONE = 128
RESTORERS = (b"\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05", b"\xb8\x0f\x00\x00\x00\x0f\x05")  # mov $15, %rax (or %eax); syscall
UC_FLAGS = 1 | 2 | 4  # UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS
# The kernel restores x87, SSE and AVX. The state after them is the callee's to change (ABI), or the thread's default (PKRU).
XSTATE, XSTATE_SIZE, XSTATE_HEADER = 0b111, 832, 512
MAGIC1, MAGIC2 = 0x46505853, 0x46505845
SIGCONTEXT = "r8 r9 r10 r11 r12 r13 r14 r15 rdi rsi rbp rbx rdx rax rcx rsp rip eflags".split()
BAD_STACK = 0x1000  # flags that sigaltstack refuses: the thread's own alternate stack stays as it is
NO_CALL = (1 << 64) - 1  # orig_rax: no system call is to be begun anew
FRAME_SIZE = 8 + 304 + 128  # return address, ucontext, siginfo
GRACE = 0.05  # seconds from the answer until gdb stops the process: the call has returned by then
STEP = 0.02


def check_calls() -> None:
    """Raises `GdbextError` where this gdb must not call functions."""
    if not gdb.parameter("may-call-functions"):
        raise GdbextError("set may-call-functions is off: gdb may not call the function that this needs")


def call(target: Target, inferior: Any, thread: Any, function: int, text: bytes, done: Callable[[], bool]) -> bool:
    """Runs `function(text)` in `thread` of `inferior`, which is stopped between two instructions of a program. All threads run
    meanwhile, and are stopped again afterwards. `done()` says, without help of the process, that the work is finished or is
    waited for no longer.

    -> False where something (Ctrl-C, a fault) stopped the process before: the call goes on with the process. `GdbextError` where
    the call cannot be made, or the process ended during it."""
    thread.switch()
    tid = thread.ptid[1] or inferior.pid
    memory, registers = _prepare(target, tid, text)
    with _undisturbed():
        try:
            for address, data in memory:
                inferior.write_memory(address, data)
            _set_registers(tid, {**registers, "rip": function})
        except (gdb.error, gdb.MemoryError, OSError) as e:
            raise GdbextError(f"process {inferior.pid}: the call cannot be made: {str(e).splitlines()[0]}") from None
        if _go_on(done) and not done():
            gdb.write("the call was interrupted and is let finish; Ctrl-C again ends the wait\n")
            _go_on(done)
    if not inferior.is_valid() or not inferior.pid:
        raise GdbextError("the process ended in the call")
    return done()


def _set_registers(tid: int, values: dict[str, int]) -> None:
    """Sets registers of a thread, all at once. gdb writes one at a time: if it were killed between two of them, the thread would
    run with a mix of new and old values."""
    now = ptrace.decode_registers(ptrace.general_registers(tid), "x86-64") or {}
    ptrace.set_registers(tid, ptrace.NT_PRSTATUS, ptrace.encode_registers({**now, **values}, "x86-64"))
    with contextlib.suppress(gdb.error):
        gdb.execute("maintenance flush register-cache", to_string=True)
        return
    gdb.execute("flushregs", to_string=True)  # before gdb 11


def _go_on(done: Callable[[], bool]) -> bool:
    """Lets the process run until `done()`, or something stops it. -> whether that was an interrupt."""
    signals: list[str] = []

    def stopped(event: Any) -> None:
        signals.append(getattr(event, "stop_signal", ""))

    ended = threading.Event()
    with time_limit.stopper() as stop:
        background_thread(_stop_when, done, ended, stop)
        gdb.events.stop.connect(stopped)
        try:
            gdb.execute("continue", to_string=True)
            while signals[-1:] == [time_limit.STOP.name] and not done():  # not ours
                gdb.execute("continue", to_string=True)
        except KeyboardInterrupt:
            return True
        except gdb.error:
            return False
        finally:
            gdb.events.stop.disconnect(stopped)
            ended.set()
    return signals[-1:] == ["SIGINT"]


def _stop_when(done: Callable[[], bool], ended: threading.Event, stop: Callable[[], None]) -> None:
    """Stops the process soon after `done()`."""
    while not ended.wait(STEP):
        if done():
            if not ended.wait(GRACE):
                stop()
            return


def _prepare(target: Target, tid: int, text: bytes) -> tuple[list[tuple[int, bytes]], dict[str, int]]:
    """-> ([(address, bytes)] to write, {register: value} to set) for a call with the address of `text` as its argument."""
    now = ptrace.decode_registers(ptrace.general_registers(tid), "x86-64")
    state = ptrace.status(target.pid, tid) if target.pid is not None else None
    if now is None or target.pid is None or state is None:
        raise GdbextError(f"process {target.pid}: the registers of its thread {tid} cannot be read")
    if _shadow_stack(target.pid, tid):
        raise GdbextError(f"process {target.pid}: its thread {tid} has a shadow stack, which no call from outside can pass")
    restorer = _restorer(target)
    at = now["rsp"] - RED_ZONE - len(text) & -16
    floating = at - XSTATE_SIZE - 4 & -64
    frame = (floating - FRAME_SIZE & -16) - 8  # as behind a call: the stack pointer plus 8 is a multiple of 16
    blob = struct.pack("<QQQQIIQ", restorer, UC_FLAGS, 0, 0, BAD_STACK, 0, 0)
    blob += struct.pack("<18Q", *(now[name] for name in SIGCONTEXT))
    blob += struct.pack("<4H", now["cs"], 0, 0, now["ss"]) + bytes(32) + struct.pack("<Q", floating) + bytes(64)
    blob += struct.pack("<Q", state["blocked"]) + bytes(128)
    stack = target.mapping_at(now["rsp"])
    if stack is None or frame - (64 << 10) < stack.start and stack.path != "[stack]":
        raise GdbextError(
            f"process {target.pid}: the stack of its thread {tid} has no room for a call: select another thread (thread N)"
        )
    memory = [(at, text), (floating, _floating(ptrace.extended_registers(tid))), (frame, blob)]
    return memory, {"rsp": frame, "rdi": at, "rax": 0, "orig_rax": NO_CALL}


def _floating(raw: bytes) -> bytes:
    """The floating-point part of a signal frame: XSTATE_SIZE bytes of an XSAVE area, its software words and the end's mark."""
    if len(raw) < XSTATE_SIZE:
        raise GdbextError("this CPU saves no AVX registers: gdb makes no calls on it")
    used = struct.unpack_from("<Q", raw, XSTATE_HEADER)[0] & XSTATE
    software = struct.pack("<IIQI", MAGIC1, XSTATE_SIZE + 4, XSTATE, XSTATE_SIZE).ljust(48, b"\0")
    header = struct.pack("<Q", used).ljust(64, b"\0")
    return raw[:464] + software + header + raw[XSTATE_HEADER + 64 : XSTATE_SIZE] + struct.pack("<I", MAGIC2)


def _shadow_stack(pid: int, tid: int) -> bool:
    return b"shstk" in status_field(read_or_empty(pid, f"task/{tid}/status"), b"x86_Thread_features")


def _restorer(target: Target) -> int:
    """The address of the C library's end of a signal handler."""
    for m in sorted(target.mappings(), key=lambda m: "libc" not in os.path.basename(m.path)):
        if "x" in m.perms and m.path.startswith("/"):
            code = target.read_partial(m.start, m.end - m.start)
            for word in RESTORERS:
                if word in code:
                    return m.start + code.index(word)
    raise GdbextError(
        f"process {target.pid}: its libraries have no end of a signal handler (__restore_rt), through which a call that undoes "
        "itself returns"
    )


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """No breakpoint and no signal stops the process; a fault and gdb's own SIGINT and SIGTRAP do."""
    locking = gdb.parameter("scheduler-locking")
    enabled = re.findall(r"^(\d+)\s.*?\s(?:keep|del|dis)\s+y\b", gdb.execute("info breakpoints", to_string=True), re.M)
    handled = re.findall(r"^(SIG\w+)\s+(Yes|No)\s+(Yes|No)\s+(Yes|No)\s", gdb.execute("info signals", to_string=True), re.M)
    changed = [h for h in handled if h[0] not in (*FAULTS, "SIGINT", "SIGTRAP") and h[1:] != ("No", "No", "Yes")]
    try:
        gdb.execute("set scheduler-locking off", to_string=True)
        for number in enabled:
            gdb.execute(command("disable {}", number), to_string=True)
        for name, *_ in changed:
            gdb.execute(command("handle {} nostop noprint pass", name), to_string=True)
        yield
    finally:
        for name, *words in changed:
            wanted = [w if yes == "Yes" else "no" + w for w, yes in zip(("stop", "print", "pass"), words)]
            gdb.execute(command("handle {} {}", name, " ".join(wanted)), to_string=True)
        for number in enabled:
            with contextlib.suppress(gdb.error):  # a temporary one may be gone
                gdb.execute(command("enable {}", number), to_string=True)
        gdb.execute(command("set scheduler-locking {}", str(locking)), to_string=True)
