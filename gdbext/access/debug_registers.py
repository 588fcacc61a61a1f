"""Hardware breakpoints and watchpoints of a stopped thread through ptrace: how many there can be, and disarmed.

Sources: Linux include/uapi/linux/elf.h, arch/x86/include/asm/user_64.h, arch/arm64/include/uapi/asm/ptrace.h.
"""

from __future__ import annotations

import contextlib

from . import ptrace

PEEKUSER, POKEUSER = 3, 6
DEBUGREG_OFFSET = 848  # struct user (x86-64): u_debugreg
NT_ARM_HW_BREAK, NT_ARM_HW_WATCH = 0x402, 0x403
MACHINES = ("x86_64", "aarch64")
LEAST = 2  # of each kind that every aarch64 processor has (Arm Architecture Reference Manual, ID_AA64DFR0_EL1)


def how_many(tid: int) -> int:
    """The number of hardware breakpoints and watchpoints of a thread that this thread traces.

    On x86-64 both kinds share the registers. aarch64 has registers of its own for each kind; there it is the smaller of the two
    numbers."""
    if ptrace.MACHINE != "aarch64":
        return 4
    try:
        return min(ptrace.register_set(tid, kind)[0] for kind in (NT_ARM_HW_WATCH, NT_ARM_HW_BREAK))
    except OSError:  # another process traces it: a gdbserver here
        return LEAST


def clear_debug_registers(tid: int) -> bool:
    """Disarms the hardware breakpoints and watchpoints of a stopped thread; True when there were any."""
    if ptrace.MACHINE == "aarch64":
        return sum(_disarm(tid, kind) for kind in (NT_ARM_HW_WATCH, NT_ARM_HW_BREAK)) > 0
    if ptrace.MACHINE != "x86_64" or not ptrace.call(PEEKUSER, tid, DEBUGREG_OFFSET + 7 * 8):
        return False
    for n in (7, 0, 1, 2, 3, 6):  # control first: an address may change only while it is disarmed
        ptrace.call(POKEUSER, tid, DEBUGREG_OFFSET + n * 8, 0)
    return True


def clear_of_stopped(pid: int) -> None:
    """As `clear_debug_registers`, for those threads of a process that this process traces and that stand still. A debugger writes
    all again that are in use before it resumes one (gdb/nat/x86-linux.c)."""
    for tid in ptrace.tids(pid):
        with contextlib.suppress(OSError):
            clear_debug_registers(tid)


def _disarm(tid: int, kind: int) -> bool:
    """As `clear_debug_registers`, for one kind. The register set has their number, then address and control of each (struct
    user_hwdebug_state, arch/arm64/include/uapi/asm/ptrace.h)."""
    state = bytearray(ptrace.register_set(tid, kind))
    controls = range(16, 8 + 16 * state[0], 16)
    if not any(state[at] & 1 for at in controls):
        return False
    for at in controls:
        state[at : at + 4] = bytes(4)
    ptrace.set_registers(tid, kind, bytes(state[: 8 + 16 * state[0]]))
    return True
