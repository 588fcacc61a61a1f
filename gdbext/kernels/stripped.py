"""Finds kernels in a stripped library from its own code: the host function of each kernel, and the beginnings of the launch
functions of a linked-in runtime. x86-64 is here, aarch64 in `stripped_arm64.py`.

nvcc's registering code calls __cudaRegisterFunction for each kernel, with its host function as second and its mangled name as
fourth argument (crt/host_runtime.h). A function of the runtime holds its own name and its number in cupti_runtime_cbid.h, for
profilers; both together prove it. The beginnings and ends of functions come from .eh_frame, which strip cannot remove.
"""

from __future__ import annotations

import re
import struct
from typing import Dict, Iterable, Iterator, Sequence, Tuple, Union

from ..access import x86
from ..access.cfi import FrameTable
from ..access.elf import Elf
from ..access.x86 import RAX, RCX, RDI, RDX, RSI, RSP, Instruction, decode

Place = Union[int, Tuple[int, int]]  # the number of a register, or a slot on the stack: (register, displacement)
Known = Dict[Place, int]

# The numbers of the launch functions in CUPTI's public cupti_runtime_cbid.h.
CALLBACK_IDS = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernel_ptsz": 214,
    "cudaLaunchCooperativeKernel": 269,
    "cudaLaunchCooperativeKernel_ptsz": 270,
    "cudaLaunchKernelExC": 430,
    "cudaLaunchKernelExC_ptsz": 431,
}
MAX_FUNCTION = 1 << 22  # bytes of one function that are decoded
PT_LOAD, PF_X = 1, 1
_LEA = re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]", re.S)  # lea disp32(%rip), register


class Code:
    """The code of one file and the results of its analysis. `ARGUMENTS`: the numbers of the registers of a call's first four
    arguments."""

    ARGUMENTS = (RDI, RSI, RDX, RCX)
    R_GLOB_DAT, R_RELATIVE = 6, 8  # R_X86_64_*

    def __init__(self, elf: Elf) -> None:
        self.elf, self.frames = elf, FrameTable(elf)
        self.text = [(s.vaddr, s.offset, s.filesz) for s in elf.segments if s.type == PT_LOAD and s.flags & PF_X]
        self._hosts: dict[int, str] | None = None
        self._pointers: dict[int, int | None] | None = None
        self._runtime: list[tuple[str, int]] | None = None

    def mentions(self, wanted: Iterable[int]) -> list[tuple[int, int]]:
        """`[(address of the instruction, one of `wanted`)]`: instructions that take one of these addresses."""
        found = []
        for vaddr, offset, size in self.text:
            data = bytes(self.elf.data[offset : offset + size])
            for m in _LEA.finditer(data):
                at = m.start()
                if at + 7 > len(data):
                    break
                target = vaddr + at + 7 + int.from_bytes(data[at + 3 : at + 7], "little", signed=True)
                if target in wanted:
                    found.append((vaddr + at, target))
        return found

    def strings(self, pattern: re.Pattern[bytes]) -> dict[int, str]:
        """{address: text} of the constant C strings that a compiled pattern of bytes finds."""
        found = {}
        for name, (vaddr, offset, size, _, _) in self.elf.sections.items():
            if name.startswith(".rodata"):
                for m in pattern.finditer(b"\0" + bytes(self.elf.data[offset : offset + size])):  # the first has no end before it
                    found[m.start(1) - 1 + vaddr] = m.group(1).decode("ascii", "replace")
        return found

    def names(self, words: Sequence[bytes]) -> bool:
        """Whether one of some words (bytes) is among the constant strings."""
        return any(
            self.elf.data.find(word, offset, offset + size) >= 0
            for name, (_, offset, size, _, _) in self.elf.sections.items()
            if name.startswith(".rodata")
            for word in words
        )

    def calls(self, vaddr: int) -> Iterator[Known]:
        """Each call in the function around `vaddr`, as {number of a register: its known value}."""
        extent = self.frames.extent(vaddr)
        if extent is None or not 0 < extent[1] - extent[0] <= MAX_FUNCTION:
            return
        code = self.elf.at(extent[0], extent[1] - extent[0]) or b""
        known: Known = {}
        at = 0
        while at < len(code):
            try:
                one = decode(code, at)
            except IndexError:
                return
            here = extent[0] + at
            at += one.length
            if one.opcode == x86.CALL or (one.opcode == x86.GROUP5 and one.operation == x86.GROUP5_CALL):
                yield dict(known)
                for register in x86.CALL_SPOILS:
                    known.pop(register, None)
                known = {
                    k: v for k, v in known.items() if not (isinstance(k, tuple) and k[0] == RSP)
                }  # arguments on the stack go
            elif one.opcode in (x86.RETURN, x86.JUMP, x86.JUMP_SHORT):
                known = {}
            else:
                self._step(known, one, here)

    def _step(self, known: Known, one: Instruction, here: int) -> None:
        """Applies an instruction to the known registers and stack slots. An instruction that is not decoded makes those that it
        may write unknown."""
        slot = one.slot()
        if self._moved(known, one, here):
            return
        if one.opcode in x86.PUSH_POP or one.opcode in x86.PUSH_IMMEDIATE or (one.mode == 3 and one.other == RSP):
            for key in [k for k in known if isinstance(k, tuple) and k[0] == RSP]:
                del known[key]
            if one.opcode in x86.POP:
                known.pop(one.opcode & 7 | (one.rex & x86.REX_B) << 3, None)
        elif one.mode is not None and one.opcode not in x86.COMPARE and one.opcode not in x86.TEST:
            known.pop(one.register, None)
            if one.mode == 3 or slot is not None:
                known.pop(one.other if slot is None else slot, None)
        elif one.mode is None and one.opcode & 0xC7 == 0x05 or one.opcode in x86.WIDEN_RAX:  # 05: eax with an immediate
            known.pop(RAX, None)

    def _moved(self, known: Known, one: Instruction, here: int) -> bool:
        """Applies a move whose result is known; False for another instruction."""
        wide, slot = one.rex & x86.REX_W, one.slot()
        if one.opcode in x86.MOV_IMMEDIATE:
            known[one.opcode & 7 | (one.rex & x86.REX_B) << 3] = one.immediate & 0xFFFFFFFF
        elif one.opcode == x86.MOV_STORE and slot is not None:
            put(known, slot, known.get(one.register) if wide else None)
        elif not wide:
            return False
        elif one.opcode == x86.LEA and one.relative is not None:
            known[one.register] = here + one.length + one.relative
        elif one.opcode == x86.MOV_STORE and one.mode == 3:
            put(known, one.other, known.get(one.register))
        elif one.opcode == x86.MOV_LOAD and one.mode == 3:
            put(known, one.register, known.get(one.other))
        elif one.opcode == x86.MOV_LOAD and one.relative is not None:
            put(known, one.register, self.pointer(here + one.length + one.relative))
        elif one.opcode == x86.MOV_LOAD and slot is not None:
            put(known, one.register, known.get(slot))
        else:
            return False
        return True

    def pointer(self, vaddr: int) -> int | None:
        """The value that the loader puts into a word of the global offset table; None where the file does not give it."""
        if self._pointers is None:
            self._pointers = {}
            got, rela, symbols = (self.elf.sections.get(name) for name in (".got", ".rela.dyn", ".dynsym"))
            if got and rela:
                for where, info, addend in struct.iter_unpack("<QQq", self.elf.data[rela[1] : rela[1] + rela[2] // 24 * 24]):
                    if got[0] <= where < got[0] + got[2]:
                        if info == self.R_RELATIVE:
                            self._pointers[where] = addend
                        elif info & 0xFFFFFFFF == self.R_GLOB_DAT and symbols and (info >> 32) * 24 + 24 <= symbols[2]:
                            at = symbols[1] + (info >> 32) * 24 + 8  # the symbol's value
                            self._pointers[where] = int.from_bytes(self.elf.data[at : at + 8], "little") or None
        return self._pointers.get(vaddr)

    def host_functions(self) -> dict[int, str]:
        """{address: mangled name of the kernel that it launches}, as the file registers them."""
        if self._hosts is None:
            self._hosts = {}
            done: set[int] = set()
            names = self.strings(re.compile(rb"(?<=\0)(_Z[A-Za-z0-9_$.]{1,16000})(?=\0)"))
            for at, _ in self.mentions(names) if names else ():
                extent = self.frames.extent(at)
                if extent is None or extent[0] in done:
                    continue
                done.add(extent[0])
                for known in self.calls(at):
                    _, host, device, name = (known.get(register) for register in self.ARGUMENTS)
                    if name in names and device == name and host is not None and (self.frames.extent(host) or (None,))[0] == host:
                        self._hosts[host] = names[name]
        return self._hosts

    def handles(self, vaddr: int) -> list[tuple[int, int]]:
        """`[(address of a handle, host function)]` in the function around `vaddr`: __cudaGetKernel(&handle, host function) of
        CUDA 13's stubs."""
        hosts = self.host_functions()
        found = [(known.get(self.ARGUMENTS[0]), known.get(self.ARGUMENTS[1])) for known in self.calls(vaddr)]
        return [(handle, host) for handle, host in found if host is not None and host in hosts and handle is not None]

    def runtime(self) -> list[tuple[str, int]]:
        """`[(name, address)]` of the launch functions of a runtime that is linked in."""
        if self._runtime is not None:
            return self._runtime
        found: dict[str, set[int]] = {}
        words = "|".join(sorted(CALLBACK_IDS, key=len, reverse=True)).encode()
        names = self.strings(re.compile(rb"(?<![A-Za-z0-9])(" + words + rb")(?=\0)"))
        for at, string in self.mentions(names) if names else ():
            extent = self.frames.extent(at)
            if extent is not None and self._holds_number(extent, CALLBACK_IDS[names[string]]):
                found.setdefault(names[string], set()).add(extent[0])
        self._runtime = [(name, next(iter(places))) for name, places in found.items() if len(places) == 1]
        return self._runtime

    def _holds_number(self, extent: tuple[int, int], number: int) -> bool:
        """Whether a function stores a number."""
        code, at = self.elf.at(extent[0], min(extent[1] - extent[0], MAX_FUNCTION)) or b"", 0
        while at < len(code):
            try:
                one = decode(code, at)
            except IndexError:
                return False
            if one.opcode == x86.STORE_IMMEDIATE and one.immediate == number:
                return True
            at += one.length
        return False


def put(known: Known, place: Place, value: int | None) -> None:
    """Notes the value of a register or stack slot; None: it is not known."""
    if value is None:
        known.pop(place, None)
    else:
        known[place] = value
