"""Who waits for the interpreter's lock, told by the address that a thread's futex call waits on: no names, no symbols, and without
stopping a running process.

CPython waits for the lock in pthread_cond_timedwait on a condition inside `struct _gil_runtime_state` (Python/ceval_gil.c, take_gil),
which glibc turns into futex(2) on a word inside that condition. Linux keeps the call's arguments in the thread's registers,
and tells them in /proc/PID/task/TID/syscall.
"""

import random
import time

from ..access.proc import read_proc
from ..errors import FaultError, GdbextError

FUTEX = {"x86-64": 202, "aarch64": 98}
FIRST_ARGUMENT, _PC = {"x86-64": "rdi", "aarch64": "x0"}, {"x86-64": "rip", "aarch64": "pc"}
_CALL = {"x86-64": b"\x0f\x05", "aarch64": b"\x01\x00\x00\xd4"}  # syscall; svc #0


def gil_range(rt, interp):
    """(start, end) of the lock of an interpreter, (0, 0) where there is none."""
    L, t = rt.layout, rt.target
    start = (
        rt.address + L["runtime.ceval.gil"] if "runtime.gilstate.tstate_current" in L else t.u64(interp + L["interp.ceval.gil"])
    )
    return (start, start + L["gil.__size"]) if start else (0, 0)


def futex_of(target, thread):
    """The address that a `Thread` waits on in futex(2), 0 when it is in no such call; `GdbextError` where neither registers nor /proc
    tell."""
    if not target.is_stopped:
        words = read_proc(target.pid, f"task/{thread.tid}/syscall").split()
        inside = len(words) > 1 and words[0].isdigit() and int(words[0]) == FUTEX[target.arch]
        return int(words[1], 16) if inside else 0
    registers, call = target.registers(thread), _CALL[target.arch]
    before = registers[_PC[target.arch]] - len(call)
    try:
        raw = target.read(before, len(call))
    except FaultError:  # a core leaves code out: it comes from the file
        module = target.module_at(before)
        raw = module.elf.at(before - module.bias, len(call)) if module is not None else None
    return registers[FIRST_ARGUMENT[target.arch]] if raw == call else 0


def waits(rt, py, thread):
    """Whether a `PyThread` waits for its interpreter's lock; None where it cannot be told. `thread`: its `Thread`."""
    start, end = gil_range(rt, py.interp)
    if not start:
        return False
    try:
        return start <= futex_of(rt.target, thread) < end
    except (GdbextError, KeyError):
        return None


def state(rt, py, thread=None):
    """ "holds", "waits", "none", "disabled" or "unknown" for a `PyThread`; `thread`: its `Thread`, None where there is none to be found."""
    said = rt.gil_state(py)
    if said != "unknown" or thread is None:
        return said
    found = waits(rt, py, thread)
    return said if found is None else "waits" if found else "none"


class Samples:
    """What `count` looks at a running process gave: `held`, `waited`: {tid: looks}; `free`: looks at which nobody held the lock;
    `seconds` they took."""

    def __init__(self):
        self.count, self.free, self.held, self.waited, self.seconds = 0, 0, {}, {}, 0.0

    def starved(self):
        """tids that waited for the lock and were never seen to hold it, the most patient first."""
        return sorted((tid for tid in self.waited if tid not in self.held), key=lambda tid: -self.waited[tid])


def sample(rt, count, interval=0.005):
    """`Samples` of a process that runs, read through /proc; `GdbextError` where it is stopped. `interval`: seconds, on average."""
    target = rt.target
    if target.is_stopped:
        raise GdbextError(
            f"{target.describe()} is stopped: who gets the GIL shows only while it runs; detach, then add -on {target.pid or 'PID'}"
        )
    found, began = Samples(), time.monotonic()
    threads = {th.tid: th for th in target.threads()}
    known = [(py, threads[py.tid]) for py in rt.threads() if py.tid in threads]
    tids = {py.address: py.tid for py in rt.threads()}
    interps = sorted({py.interp for py, _ in known})
    for _ in range(count):
        target.invalidate()
        holders = [rt.gil(interp) for interp in interps]
        waiting = [py.tid for py, th in known if waits(rt, py, th)]
        found.count += 1
        owners = {tids.get(address, 0) for said, address in holders if said == "held"}
        found.free += not owners
        for tid in owners:
            found.held[tid] = found.held.get(tid, 0) + 1
        for tid in waiting:
            if tid not in owners:
                found.waited[tid] = found.waited.get(tid, 0) + 1
        time.sleep(random.uniform(0.5, 1.5) * interval)  # not in step with the switch interval of the process
    found.seconds = time.monotonic() - began
    return found
