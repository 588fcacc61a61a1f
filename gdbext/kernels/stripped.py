"""What strip leaves of a library that launches kernels, found in its own code (x86-64): which host function is which kernel,
and where the launch functions of a runtime that is linked into it begin.

nvcc's registering code hands each kernel's host function and its mangled name to __cudaRegisterFunction, the host function as
second, the name as fourth argument (crt/host_runtime.h). A function of the runtime holds its own name and its number in
cupti_runtime_cbid.h, which it tells profilers; both together prove it. Where functions begin and end is told by .eh_frame,
which strip cannot remove.
"""

import re
import struct

from ..access.cfi import FrameTable
from ..errors import NotFoundError

# The numbers of the launch functions in CUPTI's public cupti_runtime_cbid.h.
CALLBACK_IDS = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernel_ptsz": 214,
    "cudaLaunchCooperativeKernel": 269,
    "cudaLaunchCooperativeKernel_ptsz": 270,
    "cudaLaunchKernelExC": 430,
    "cudaLaunchKernelExC_ptsz": 431,
}
MAX_FUNCTION = 1 << 22  # bytes of one function that are looked at
PT_LOAD, PF_X = 1, 1
R_GLOB_DAT, R_RELATIVE = 6, 8  # of R_X86_64_*
RAX, RCX, RDX, RSP, RBP, RSI, RDI = 0, 1, 2, 4, 5, 6, 7
CALL_SPOILS = (0, 1, 2, 6, 7, 8, 9, 10, 11)
_LEA = re.compile(rb"[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d]", re.S)  # lea disp32(%rip), register


class Code:
    """The code of one file, and what of it was worked out."""

    def __init__(self, elf):
        self.elf, self.frames = elf, FrameTable(elf)
        self.text = [(s.vaddr, s.offset, s.filesz) for s in elf.segments if s.type == PT_LOAD and s.flags & PF_X]
        self._hosts = self._pointers = self._runtime = None

    def mentions(self, wanted):
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

    def strings(self, pattern):
        """{address: text} of the constant C strings that a compiled pattern of bytes finds."""
        found = {}
        for name, (vaddr, offset, size, _, _) in self.elf.sections.items():
            if name.startswith(".rodata"):
                for m in pattern.finditer(self.elf.data, offset, offset + size):
                    found[m.start(1) - offset + vaddr] = m.group(1).decode("ascii", "replace")
        return found

    def names(self, words):
        """Whether one of some words (bytes) is among the constant strings."""
        return any(
            self.elf.data.find(word, offset, offset + size) >= 0
            for name, (_, offset, size, _, _) in self.elf.sections.items()
            if name.startswith(".rodata")
            for word in words
        )

    def calls(self, vaddr):
        """Each call in the function around `vaddr`, as {number of a register: what is known to be in it}."""
        extent = self.frames.extent(vaddr)
        if extent is None or not 0 < extent[1] - extent[0] <= MAX_FUNCTION:
            return
        code = self.elf.at(extent[0], extent[1] - extent[0]) or b""
        known, at = {}, 0
        while at < len(code):
            try:
                one = decode(code, at)
            except IndexError:
                return
            here = extent[0] + at
            at += one.length
            if one.opcode == 0xE8 or one.opcode == 0xFF and one.operation == 2:
                yield dict(known)
                for register in CALL_SPOILS:
                    known.pop(register, None)
                known = {
                    k: v for k, v in known.items() if not (isinstance(k, tuple) and k[0] == RSP)
                }  # arguments on the stack go
            elif one.opcode in (0xC3, 0xE9, 0xEB):
                known = {}
            else:
                self._step(known, one, here)

    def _step(self, known, one, here):
        """What an instruction does to the registers and stack slots that are known; what is not understood forgets what it may
        write."""
        wide, slot = one.rex & 8, one.slot()
        if one.opcode == 0x8D and one.relative is not None and wide:
            known[one.register] = here + one.length + one.relative
        elif one.opcode == 0x8B and wide and one.mode == 3:
            _put(known, one.register, known.get(one.other))
        elif one.opcode == 0x89 and wide and one.mode == 3:
            _put(known, one.other, known.get(one.register))
        elif one.opcode == 0x8B and wide and one.relative is not None:
            _put(known, one.register, self.pointer(here + one.length + one.relative))
        elif one.opcode == 0x8B and wide and slot is not None:
            _put(known, one.register, known.get(slot))
        elif one.opcode == 0x89 and slot is not None:
            _put(known, slot, known.get(one.register) if wide else None)
        elif 0xB8 <= one.opcode <= 0xBF:
            known[one.opcode & 7 | (one.rex & 1) << 3] = one.immediate & 0xFFFFFFFF
        elif 0x50 <= one.opcode <= 0x5F or one.opcode in (0x68, 0x6A) or one.mode == 3 and one.other == RSP:
            for key in [k for k in known if isinstance(k, tuple) and k[0] == RSP]:
                del known[key]
            if 0x58 <= one.opcode <= 0x5F:
                known.pop(one.opcode & 7 | (one.rex & 1) << 3, None)
        elif one.mode is not None and not (0x38 <= one.opcode <= 0x3B or one.opcode in (0x84, 0x85)):  # not cmp, test
            known.pop(one.register, None)
            known.pop(one.other if one.mode == 3 else slot, None)
        elif one.mode is None and one.opcode & 0xC7 == 0x05 or one.opcode in (0x98, 0x99):
            known.pop(RAX, None)

    def pointer(self, vaddr):
        """What the loader puts into a word of the global offset table; None where the file does not tell."""
        if self._pointers is None:
            self._pointers = {}
            got, rela, symbols = (self.elf.sections.get(name) for name in (".got", ".rela.dyn", ".dynsym"))
            if got and rela:
                for where, info, addend in struct.iter_unpack("<QQq", self.elf.data[rela[1] : rela[1] + rela[2] // 24 * 24]):
                    if got[0] <= where < got[0] + got[2]:
                        if info == R_RELATIVE:
                            self._pointers[where] = addend
                        elif info & 0xFFFFFFFF == R_GLOB_DAT and symbols and (info >> 32) * 24 + 24 <= symbols[2]:
                            self._pointers[where] = (
                                struct.unpack_from("<Q", self.elf.data, symbols[1] + (info >> 32) * 24 + 8)[0] or None
                            )
        return self._pointers.get(vaddr)

    def host_functions(self):
        """{address: mangled name of the kernel that it launches}, as the file registers them."""
        if self._hosts is None:
            self._hosts = {}
            names = self.strings(re.compile(rb"(?<=\0)(_Z[A-Za-z0-9_$.]{1,16000})(?=\0)"))
            done = set()
            for at, _ in self.mentions(names) if names else ():
                extent = self.frames.extent(at)
                if extent is None or extent[0] in done:
                    continue
                done.add(extent[0])
                for known in self.calls(at):
                    host = known.get(RSI)
                    if (
                        known.get(RCX) in names
                        and known.get(RDX) == known[RCX]
                        and host is not None
                        and (self.frames.extent(host) or (None,))[0] == host
                    ):
                        self._hosts[host] = names[known[RCX]]
        return self._hosts

    def handles(self, vaddr):
        """`[(address of a handle, host function)]` in the function around `vaddr`: __cudaGetKernel(&handle, host function) of
        CUDA 13's stubs."""
        hosts = self.host_functions()
        return [(known[RDI], known[RSI]) for known in self.calls(vaddr) if known.get(RSI) in hosts and known.get(RDI) is not None]

    def runtime(self):
        """`[(name, address)]` of the launch functions of a runtime that is linked in."""
        if self._runtime is not None:
            return self._runtime
        found = {}
        words = "|".join(sorted(CALLBACK_IDS, key=len, reverse=True)).encode()
        names = self.strings(re.compile(rb"(?<![A-Za-z0-9])(" + words + rb")(?=\0)"))
        for at, string in self.mentions(names) if names else ():
            extent = self.frames.extent(at)
            if extent is not None and self._stores(extent, CALLBACK_IDS[names[string]]):
                found.setdefault(names[string], set()).add(extent[0])
        self._runtime = [(name, next(iter(places))) for name, places in found.items() if len(places) == 1]
        return self._runtime

    def _stores(self, extent, number):
        """Whether a function stores a number."""
        code, at = self.elf.at(extent[0], min(extent[1] - extent[0], MAX_FUNCTION)) or b"", 0
        while at < len(code):
            try:
                one = decode(code, at)
            except IndexError:
                return False
            if one.opcode == 0xC7 and one.immediate == number:
                return True
            at += one.length
        return False


def code_of(elf):
    """The `Code` of a file, None where it has none that can be looked at."""
    if "stripped_code" not in elf.__dict__:
        elf.stripped_code = None
        if elf.arch == "x86-64" and ".nv_fatbin" in elf.sections:
            try:
                elf.stripped_code = Code(elf)
            except NotFoundError:
                pass
    return elf.stripped_code


def _put(known, place, value):
    if value is None:
        known.pop(place, None)
    else:
        known[place] = value


# ---- one instruction -----------------------------------------------------------------------------------------------------
class Instruction:
    """`opcode`: 0x0Fnn, 0x0F38nn, 0x0F3Ann for longer ones; `mode`, `operation`, `register`, `other`: of the ModRM byte (None
    without one), the two registers with REX's bits; `displacement`; `relative`: that of an address relative to the next
    instruction; `immediate`."""

    __slots__ = (
        "length",
        "opcode",
        "rex",
        "mode",
        "operation",
        "register",
        "other",
        "displacement",
        "relative",
        "immediate",
        "plain",
    )

    def slot(self):
        """(RSP or RBP, displacement) of an operand on the stack, else None."""
        return (self.other, self.displacement) if self.mode in (0, 1, 2) and self.plain else None


def decode(code, at):
    """The `Instruction` at `code[at]` (Intel's manual, volume 2): its length, and what `Code` follows of it. `IndexError` past
    the end."""
    start, one, narrow = at, Instruction(), False
    one.rex = one.immediate = one.displacement = 0
    one.mode = one.operation = one.register = one.other = one.relative = None
    one.plain = False
    while code[at] in (0x66, 0x67, 0xF2, 0xF3, 0x2E, 0x36, 0x3E, 0x26, 0x64, 0x65, 0xF0):
        narrow = narrow or code[at] == 0x66
        at += 1
    if code[at] & 0xF0 == 0x40:
        one.rex = code[at]
        at += 1
    op = code[at]
    at += 1
    if op == 0x0F:
        op = 0x0F00 | code[at]
        at += 1
        if op in (0x0F38, 0x0F3A):
            op = op << 8 | code[at]
            at += 1
    elif op in (0xC4, 0xC5, 0x62):  # AVX and AVX-512
        kind = 1 if op == 0xC5 else code[at] & (31 if op == 0xC4 else 7)
        at += {0xC5: 1, 0xC4: 2, 0x62: 3}[op]
        op = {2: 0x0F3800, 3: 0x0F3A00}.get(kind, 0x0F00) | code[at]
        at += 1
    one.opcode = op
    has, size = _shape(op, narrow, one.rex)
    if has:
        byte = code[at]
        at += 1
        one.mode, one.operation = byte >> 6, byte >> 3 & 7
        one.register, low = one.operation | (one.rex & 4) << 1, byte & 7
        one.other = low | (one.rex & 1) << 3
        wide = {1: 1, 2: 4}.get(one.mode, 0)
        one.plain = one.mode in (1, 2) and one.other == RBP
        if one.mode != 3 and low == 4:
            one.plain = code[at] == 0x24  # (%rsp) without an index
            if one.mode == 0 and code[at] & 7 == 5:
                wide = 4
            at += 1
        if one.mode == 0 and low == 5:
            wide = 4
        if wide:
            one.displacement = int.from_bytes(code[at : at + wide], "little", signed=True)
            if one.mode == 0 and low == 5:
                one.relative = one.displacement
            at += wide
        if op in (0xF6, 0xF7) and one.operation < 2:
            size = 1 if op == 0xF6 else 2 if narrow else 4
    if size:
        one.immediate = int.from_bytes(code[at : at + size], "little", signed=size < 8)
        at += size
    code[at - 1]  # an IndexError where it is cut off
    one.length = at - start
    return one


def _shape(op, narrow, rex):
    """(whether a ModRM byte follows, bytes of the immediate value) of an opcode."""
    word = 2 if narrow else 4
    if op >= 0x0F3A00:
        return True, 1
    if op >= 0x0F3800:
        return True, 0
    if op >= 0x0F00:
        low = op & 0xFF
        if 0x80 <= low <= 0x8F:
            return False, 4
        if (
            low in (0x05, 0x06, 0x08, 0x09, 0x0B, 0x30, 0x31, 0x32, 0x34, 0x35, 0x77, 0xA0, 0xA1, 0xA2, 0xA8, 0xA9)
            or 0xC8 <= low <= 0xCF
        ):
            return False, 0
        return True, 1 if low in (0x70, 0x71, 0x72, 0x73, 0xA4, 0xAC, 0xBA, 0xC2, 0xC4, 0xC5, 0xC6) else 0
    if op < 0x40:
        return op & 7 < 4, {4: 1, 5: word}.get(op & 7, 0)
    if op in (0x69, 0x81, 0xC7):
        return True, word
    if op in (0x6B, 0x80, 0x83, 0xC0, 0xC1, 0xC6):
        return True, 1
    if op == 0x63 or 0x84 <= op <= 0x8F or 0xD0 <= op <= 0xD3 or 0xD8 <= op <= 0xDF or op in (0xF6, 0xF7, 0xFE, 0xFF):
        return True, 0
    if 0xB8 <= op <= 0xBF:
        return False, 8 if rex & 8 else word
    if 0xA0 <= op <= 0xA3:
        return False, 8
    if op in (0x68, 0xA9):
        return False, word
    if op in (0xE8, 0xE9):
        return False, 4
    if op in (0xC2,):
        return False, 2
    if op == 0xC8:
        return False, 3
    return False, 1 if 0x70 <= op <= 0x7F or 0xB0 <= op <= 0xB7 or 0xE0 <= op <= 0xE7 or op in (0x6A, 0xA8, 0xCD, 0xEB) else 0
