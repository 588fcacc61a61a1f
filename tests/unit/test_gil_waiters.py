"""Who waits for the GIL in a stopped process, also where the waiter was caught between two system calls of its wait."""

import struct
from types import SimpleNamespace

import pytest

from gdbext.cpython import gil
from gdbext.errors import FaultError

START, SIZE, CODE, STACK = 0x10000, 0x100, 0x400000, 0x7F0000
SYSCALL, OTHER = b"\x0f\x05", b"\x90\x90"
FUTEX, READ = 202, 0


class Target:
    is_stopped, arch, pid = True, "x86-64", 1

    def __init__(self, code=OTHER, stack=(), functions=(), **registers):
        self.code, self.functions = code, functions
        self.stack = struct.pack("<512Q", *stack, *[0] * (512 - len(stack)))
        self.held = {"rip": CODE + 2, "rsp": STACK, "rdi": 0, "rax": -1, "orig_rax": -1, **registers}

    def registers(self, thread):
        return self.held

    def read(self, address, size):
        for start, data in ((CODE, self.code), (STACK, self.stack)):
            if start <= address and address + size <= start + len(data):
                return data[address - start :][:size]
        raise FaultError(address, size)

    def read_partial(self, address, size):
        return self.read(address, min(size, STACK + len(self.stack) - address) if address >= STACK else size)

    def module_at(self, address):
        return None

    def unwind(self, thread):
        return [SimpleNamespace(function=name) for name in self.functions]


def waits(target, symbols, monkeypatch):
    rt = SimpleNamespace(target=target, library=SimpleNamespace(elf=SimpleNamespace(has_static_symbols=symbols)))
    monkeypatch.setattr(gil, "gil_range", lambda rt, interp: (START, START + SIZE))
    return gil.waits(rt, SimpleNamespace(interp=1), SimpleNamespace(tid=1))


@pytest.mark.parametrize(
    "symbols,there,expected",
    [
        (True, {"code": SYSCALL, "orig_rax": FUTEX, "rdi": START + 8}, True),  # asleep in the wait
        (True, {"code": SYSCALL, "orig_rax": FUTEX, "rdi": START + SIZE}, False),  # asleep on something else
        (True, {"code": SYSCALL, "orig_rax": READ, "rdi": START + 8}, False),
        (True, {"code": SYSCALL, "orig_rax": FUTEX, "rdi": START + 8, "rsi": 0x81}, False),  # FUTEX_WAKE: it wakes another
        (True, {"code": SYSCALL, "orig_rax": FUTEX, "rdi": START + 8, "rsi": 0x189}, True),  # FUTEX_WAIT_BITSET, by the clock
        (True, {"functions": ["clock_gettime", "take_gil", "PyEval_RestoreThread"]}, True),  # awake between two of its calls
        (True, {"functions": ["memcpy", "list_extend"]}, False),
        (False, {"rdi": START + 16}, True),  # the same without symbols: a register or the stack points into the lock
        (False, {"stack": [1, 2, START + 40]}, True),
        (False, {"stack": [1, 2, START + SIZE]}, False),
    ],
)
def test_a_waiter_asleep_and_one_caught_awake(symbols, there, expected, monkeypatch):
    assert waits(Target(**there), symbols, monkeypatch) is expected
