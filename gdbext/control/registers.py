"""Registers and debug information of the thread that gdb has selected."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any, Callable

import gdb

from ..access.cfi import MASK
from ..access.unwind import ARGUMENTS, NUMBERS, PC

if TYPE_CHECKING:
    from ..access.base import Target
    from ..kernels.parameters import Parameter


THREAD_POINTER = {"x86-64": "fs_base", "aarch64": "tpidr"}
PTHREAD_BELOW = {"x86-64": False, "aarch64": True}  # whether glibc's struct pthread ends where that points, or begins there
# A jump to an address in a register or in memory, by which an interpreter goes to an instruction's handler.
JUMP = {
    "x86-64": re.compile(rb"\xff[\xe0-\xe7\x20-\x24\x26\x27\x60-\x67\xa0-\xa7]", re.S),
    "aarch64": re.compile(rb"[\x00\x20\x40\x60\x80\xa0\xc0\xe0][\x00-\x03]\x1f\xd6", re.S),  # br
}


def register(name: str) -> int:
    """A register of the thread that gdb has selected, by gdb's name of it."""
    return int(gdb.parse_and_eval(f"(unsigned long)${name}"))


def pthread(target: Target) -> int:
    """The value of pthread_self() in the thread that gdb has selected."""
    pointer = register(THREAD_POINTER[target.arch])
    return pointer - target.cached("pthread size", lambda: _pthread_size(target)) if PTHREAD_BELOW[target.arch] else pointer


def _pthread_size(target: Target) -> int:
    """Bytes of glibc's struct pthread, from glibc's own data for debuggers (nptl_db/structs.def)."""
    return target.u32(target.symbol("_thread_db_sizeof_pthread"))


def arguments(target: Target, count: int) -> list[int]:
    """The first arguments, integers or pointers, of a function. The selected thread must be at its first instruction."""
    return [register(name) for name in ARGUMENTS[target.arch][:count]]


def current_registers(target: Target) -> dict[str, int]:
    """{name: value} of the thread that gdb has selected, its program counter included."""
    frame = gdb.newest_frame()
    names = [*NUMBERS[target.arch], PC[target.arch]]
    return {name: int(frame.read_register(name)) & MASK for name in names}


def vector_register(arch: str) -> Callable[[int], bytes | None]:
    """-> a function from a number to the low 8 bytes of that vector register of the selected thread."""

    def read(index: int) -> bytes | None:
        try:
            value = gdb.newest_frame().read_register(f"xmm{index}" if arch == "x86-64" else f"v{index}")
            return struct.pack("<q", int((value["v2_int64"] if arch == "x86-64" else value["d"]["s"])[0]))
        except (gdb.error, ValueError):
            return None

    return read


def selected_tid() -> int:
    """The tid of the thread that gdb has selected."""
    thread = gdb.selected_thread()
    return thread.ptid[1] or thread.ptid[2]


def _block_at(function: int) -> Any:
    """The block of the function that begins at an address; None where none does."""
    block = gdb.block_for_pc(function)
    while block is not None and block.function is None:
        block = block.superblock
    return block if block is not None and block.start == function else None


def dwarf_parameters(signature: Any, function: int, hosts: dict[int, Any]) -> list[Parameter] | None:
    """[(name, type, size)] of a kernel's parameters, from the debug information that gdb has read for its host function; None
    without it.

    `function`: the launch's name for the kernel: the host function's address or an opaque handle. `hosts`: {address: `Signature`}
    of host functions."""
    try:
        known = [a for a, s in hosts.items() if signature is not None and s.text == signature.text]
        block = next((b for b in map(_block_at, [function, *known]) if b is not None), None)
        if block is None:
            return None
        found = [(s.name, str(s.type), s.type.sizeof) for s in block if s.is_argument]
    except (gdb.error, RuntimeError):
        return None
    kinds = signature.parameters if signature is not None else None
    if kinds is not None and len(kinds) != len(found):
        return None
    # typedefs and template parameters are resolved in the signature already
    return [(name, kinds[i] if kinds is not None else kind, size) for i, (name, kind, size) in enumerate(found)]
