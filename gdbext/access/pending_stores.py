"""The stores that machine code is about to make on its way to a jump or a call.

An interpreter loads its next instruction before all results of the last one are in memory. Compilers put stores behind the load:
in arm64's CPython 3.13 in four of ten instructions. A watchpoint on bytecode stops at the load. So a value on the frame's stack
is right only once the stores that follow are applied.

Both ways of each branch are decoded. A way ends at a jump to an address in a register or in memory, or at a call: before a call
everything is stored that the callee may read. Sources: Arm Architecture Reference Manual, C4.1 (A64 encodings); Intel SDM volume
2, chapter 2 and appendix A.
"""

from __future__ import annotations

import struct
from typing import Callable, Dict, NamedTuple, Optional

from ..errors import GdbextError
from . import a64, x86
from .a64 import signed
from .cfi import MASK

Values = Dict[int, Optional[int]]  # by the number of a register; None: not known

LONGEST, MOST = 100, 16  # instructions of a way, and ways
X86_64 = ("rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", *(f"r{n}" for n in range(8, 16)))
AARCH64 = (*(f"x{n}" for n in range(31)), "sp")


class Store(NamedTuple):
    """`address`, `value`: None where not known; `size` in bytes."""

    address: int | None
    size: int
    value: int | None


class _Unknown(Exception):
    """The next stores cannot be determined."""


class _End(Exception):
    """The way ends here."""


class _Branch(Exception):
    """The way goes on, or at `target`."""

    def __init__(self, target: int) -> None:
        super().__init__(target)
        self.target = target


class _Machine:
    """Known registers on the way; None for an unknown value."""

    def __init__(self, read: Callable[[int, int], bytes], register: Callable[[str], int], pc: int) -> None:
        self.read, self.register, self.pc = read, register, pc
        self.values: Values = {}
        self.stores: list[Store] = []
        self.done = 0  # instructions

    names: tuple[str, ...] = ()

    def get(self, number: int) -> int | None:
        if number not in self.values:
            self.values[number] = self.register(self.names[number]) & MASK
        return self.values[number]

    def put(self, number: int, value: int | None) -> None:
        self.values[number] = None if value is None else value & MASK

    def sum(self, *numbers: int | None) -> int | None:
        return None if None in numbers else sum(n for n in numbers if n is not None) & MASK

    def store(self, address: int | None, size: int, value: int | None) -> None:
        self.stores.append(Store(address, size, None if value is None else value & (1 << 8 * size) - 1))

    def step(self) -> None:
        """Does the instruction at `pc`."""
        raise NotImplementedError


class _AArch64(_Machine):
    names = AARCH64

    def step(self) -> None:
        code = self.read(self.pc, 4)
        if len(code) < 4:
            raise _Unknown
        (word,) = struct.unpack("<I", code)
        self.pc += 4
        rd, rn, rm = word & 31, word >> 5 & 31, word >> 16 & 31
        if a64.calls(word) or a64.leaves(word):
            raise _End
        if a64.always(word):
            self.pc += a64.branch(word) - 4
        elif a64.branches(word):
            raise _Branch(self.pc - 4 + a64.branch(word))
        elif word >> 26 & 7 == 5:  # system
            if word != 0xD503201F:  # nop
                raise _Unknown
        elif word >> 25 & 5 == 4:
            self._memory(word, rd, rn, rm)
        elif word & 0x1F800000 == 0x11000000:  # add, sub of a number
            number = a64.immediate(word)
            value = self.sum(self.get(rn), -number if word >> 30 & 1 else number)
            if not word >> 29 & 1 or rd != 31:  # else cmp, cmn
                self._set(word, rd, value)
        elif word & 0x1F000000 == 0x10000000:  # adr, adrp
            self._result(1 << 31, rd, a64.address(word, self.pc - 4))
        elif word & 0x7FE0FFE0 == 0x2A0003E0:  # mov
            self._result(word, rd, self._source(rm))
        elif word & 0x3FE00000 == 0x0B000000:  # add, sub of a register, shifted to the left
            shift, value = word >> 10 & 63, self._source(rm)
            value = None if value is None or not word >> 31 else -(value << shift) if word >> 30 & 1 else value << shift
            self._result(word, rd, self.sum(self._source(rn), value))
        elif word & 0x7FE00000 == 0x0B200000:  # add of a register, extended
            value = _extended(self._source(rm), word >> 13 & 7)
            self._set(word, rd, self.sum(self.get(rn), None if value is None else value << (word >> 10 & 7)))
        elif word & 0x1F800000 == 0x12000000:  # and, orr, eor of a number; of x31 `ands` writes flags only
            if word >> 29 & 3 != 3 or rd != 31:
                self._set(word, rd, _bits(word >> 29 & 3, self._source(rn), _mask(word)))
        elif word & 0x1FE00000 == 0x1A400000:  # ccmp
            pass
        elif a64.moves_number(word):
            self._result(word, rd, a64.moved_number(word))
        elif word >> 25 & 7 in (5, 7) or word >> 26 & 7 == 4:  # other arithmetic; of vectors, some write a general register
            self._result(word, rd, None)
        else:
            raise _Unknown

    def _source(self, number: int) -> int | None:
        return 0 if number == 31 else self.get(number)

    def _set(self, word: int, rd: int, value: int | None) -> None:
        """`rd` may be the stack pointer."""
        self.put(rd, value if value is None or word >> 31 else value & 0xFFFFFFFF)

    def _result(self, word: int, rd: int, value: int | None) -> None:
        if rd != 31:
            self._set(word, rd, value)

    def _memory(self, word: int, rt: int, rn: int, rm: int) -> None:
        vector, base = word >> 26 & 1, self.get(rn)
        kind = word >> 27 & 7
        if kind == 5 and not word >> 25 & 1:  # pairs
            size = 16 if vector and word >> 30 == 2 else 8 if word >> 30 == 2 or vector and word >> 30 == 1 else 4
            step, mode, load = signed(word >> 15, 7) * size, word >> 23 & 3, word >> 22 & 1
            at = base if mode == 1 else self.sum(base, step)
            second = word >> 10 & 31
            for number, place in ((rt, at), (second, self.sum(at, size))):
                if not load:
                    self.store(place, size, None if vector else self._source(number))
                elif not vector and number != 31:
                    self.put(number, None)
            if mode in (1, 3):
                self.put(rn, self.sum(base, step))
            return
        if kind == 3 and not word >> 24 & 1:  # a load of a constant
            if not vector and rt != 31:
                self.put(rt, None)
            return
        if kind != 7:
            raise _Unknown  # exclusive ones, atomic ones
        size, load = 1 << (word >> 30), word >> 22 & 3
        if vector and load & 2:
            size, load = 16, load & 1
        if word >> 24 & 1:  # a number, scaled
            at = self.sum(base, (word >> 10 & 4095) * size)
        elif not word >> 21 & 1:
            step, mode = signed(word >> 12, 9), word >> 10 & 3
            if mode == 2:
                raise _Unknown
            at = base if mode == 1 else self.sum(base, step)
            if mode in (1, 3):
                self.put(rn, self.sum(base, step))
        elif word >> 10 & 3 == 2:  # a register
            value = _extended(self._source(rm), word >> 13 & 7)
            at = self.sum(base, None if value is None else value * (size if word >> 12 & 1 else 1))
        else:
            raise _Unknown
        if not load:
            self.store(at, size, None if vector else self._source(rt))
        elif not vector and rt != 31:
            self.put(rt, None)


class _X86(_Machine):
    names = X86_64
    STORES = (0x11, 0x13, 0x17, 0x29, 0x7E, 0x7F, 0xD6, 0xE7)  # of vectors
    LOADS = (0x10, 0x12, 0x14, 0x16, 0x28, 0x57, 0x6C, 0x6E, 0x6F, 0xEF)
    KNOWN = frozenset((0x66, 0xF2, 0xF3, 0x3E))  # prefixes

    def step(self) -> None:
        try:
            one = self.one = x86.decode(self.read(self.pc, 15), 0)
        except IndexError:
            raise _Unknown from None
        self.pc += one.length
        op = one.opcode
        self.size = 8 if one.rex & x86.REX_W else 2 if x86.OPERAND_SIZE in one.prefixes else 4
        if one.vex or not self.KNOWN.issuperset(one.prefixes):
            raise _Unknown
        if op in (x86.CALL, x86.RETURN) or op == x86.GROUP5 and one.operation in (x86.GROUP5_CALL, x86.GROUP5_JUMP):
            raise _End
        if op in (x86.JUMP, x86.JUMP_SHORT):
            self.pc += one.immediate
        elif op in x86.CONDITIONAL or op >> 8 == x86.TWO_BYTES and op & 0xFF in x86.LONG_CONDITIONAL:
            raise _Branch(self.pc + one.immediate)
        elif op >> 8:
            self._two_bytes(one, op)
        elif op < 0x40:
            self._arithmetic(one, op)
        else:
            self._do(one, op)

    def _do(self, one: x86.Instruction, op: int) -> None:
        size = self.size if op & 1 else 1
        if op in (0xA8, 0xA9, *x86.TEST) or op == 0x90 and not one.rex:
            pass
        elif op in x86.MOV_IMMEDIATE:
            self._into(op & 7 | (one.rex & x86.REX_B) << 3, self.size, one.immediate)
        elif op in (0x88, x86.MOV_STORE):
            self._write(size, self.get(one.register) if size >= 4 else None)
        elif op in (0xC6, x86.STORE_IMMEDIATE):
            self._write(size, one.immediate)
        elif op in (0x8A, x86.MOV_LOAD, 0x63):
            self._into(one.register, size, self.get(one.other) if op == x86.MOV_LOAD and one.mode == 3 else None)
        elif op == x86.LEA:
            self._into(one.register, self.size, self._address())
        elif op in (0x80, 0x81, 0x83):
            add = {0: one.immediate, 5: -one.immediate}.get(one.operation)
            if one.operation != 7:  # cmp
                self._write(size, self.sum(self.get(one.other), add) if one.mode == 3 and size >= 4 else None)
        elif op in x86.GROUP3 and one.operation < 4 or op == x86.GROUP5 and one.operation < 2 or op in (0xC0, 0xC1, 0xD0, 0xD1):
            if op not in x86.GROUP3 or one.operation > 1:  # else test
                self._write(size, None)
        else:
            raise _Unknown

    def _arithmetic(self, one: x86.Instruction, op: int) -> None:
        """add, or, adc, sbb, and, sub, xor, cmp."""
        size = self.size if op & 1 else 1
        if op & 7 > 5:
            raise _Unknown
        if op >> 3 == 7:  # cmp
            return
        if one.mode is None:  # of rax and a number
            self._into(x86.RAX, size, None)
            return
        both = self.sum(self.get(one.register), self.get(one.other)) if one.mode == 3 and op in (1, 3) else None
        if op & 2:
            self._into(one.register, size, both)
        else:
            same = op >> 3 in (5, 6) and one.mode == 3 and one.other == one.register  # xor of itself
            self._write(size, 0 if same and size >= 4 else both)

    def _two_bytes(self, one: x86.Instruction, op: int) -> None:
        low = op & 0xFF
        if op >> 8 != x86.TWO_BYTES:
            raise _Unknown
        if low in (0xB6, 0xB7, 0xBE, 0xBF, 0xAF) or low & 0xF0 == 0x40:
            self._into(one.register, self.size, None)
        elif low & 0xF0 == 0x90:
            self._write(1, None)
        elif low == 0x1F or low in self.LOADS or low == 0x7E and 0xF3 in one.prefixes:
            pass
        elif low in self.STORES:
            whole = 8 if one.rex & x86.REX_W else 4
            if one.mode != 3 or low == 0x7E:
                self._write((8 if one.mode == 3 else whole) if low == 0x7E else 8 if low in (0x13, 0x17, 0xD6) else 16, None)
        else:
            raise _Unknown

    def _address(self) -> int | None:
        """Of the operand in memory; None where it is not known, or in a register."""
        one = self.one
        if one.mode == 3:
            return None
        parts = [one.displacement, self.pc if one.relative is not None else 0]
        value = self.get(one.index) if one.index is not None else 0
        return self.sum(*parts, None if value is None else value << one.scale, self.get(one.base) if one.base is not None else 0)

    def _into(self, register: int, size: int, value: int | None) -> None:
        """Writes a register of `size` bytes; of a short one nothing is known any more."""
        if size == 1 and not self.one.rex and register >= 4:
            register -= 4  # ah, ch, dh, bh
        self.put(register, None if value is None or size < 4 else value if size == 8 else value & 0xFFFFFFFF)

    def _write(self, size: int, value: int | None) -> None:
        """Writes the operand that may be in memory."""
        if self.one.mode == 3:
            self._into(self.one.other, size, value)
        else:
            self.store(self._address(), size, value)


_MACHINES = {"x86-64": _X86, "aarch64": _AArch64}


def _extended(value: int | None, option: int) -> int | None:
    """A register that is used as 32 or 64 bits; None as 8 or 16."""
    if value is None or option not in (2, 3, 6, 7):
        return None
    return signed(value, 32) if option == 6 else value & 0xFFFFFFFF if option == 2 else value


def _mask(word: int) -> int:
    """The number of a logical instruction of A64 (Arm ARM, shared pseudocode DecodeBitMasks)."""
    length = ((word >> 22 & 1) << 6 | ~(word >> 10) & 63).bit_length() - 1
    if length < 1:
        raise _Unknown  # no such instruction
    size = 1 << length
    ones, turn = (word >> 10 & (size - 1)) + 1, word >> 16 & (size - 1)
    one = (1 << ones) - 1
    one = (one >> turn | one << (size - turn)) & ((1 << size) - 1)
    return sum(one << at for at in range(0, 64, size))


def _bits(kind: int, value: int | None, other: int) -> int | None:
    if value is None:
        return None
    return value | other if kind == 1 else value ^ other if kind == 2 else value & other


def ways(arch: str, read: Callable[[int, int], bytes], register: Callable[[str], int], pc: int) -> list[list[Store]]:
    """The stores of a thread from `pc` on, in order, on each way that it may take. `read(address, size)` gives code,
    `register(name)` a register by gdb's name. `GdbextError` where they cannot be determined."""
    kind = _MACHINES[arch]
    found: list[list[Store]] = []
    open_ones = [kind(read, register, pc)]
    while open_ones and len(found) + len(open_ones) <= MOST:
        machine = open_ones.pop()
        try:
            for _ in range(LONGEST - machine.done):
                machine.done += 1
                try:
                    machine.step()
                except _Branch as branch:
                    other = kind(read, register, branch.target)
                    other.values, other.stores, other.done = dict(machine.values), list(machine.stores), machine.done
                    open_ones.append(other)
        except _End:
            found.append(machine.stores)
            continue
        except _Unknown:
            pass
        raise GdbextError("the machine code on the way to the next instruction cannot be followed")
    if open_ones:
        raise GdbextError("there are too many ways to the next instruction")
    return found


def word_after(arch: str, read: Callable[[int, int], bytes], register: Callable[[str], int], pc: int, address: int) -> int | None:
    """The 8-byte word at `address` as it will be at the next jump or call; None where it will not change. `GdbextError` where
    that cannot be determined."""
    words = {_last(stores, address) for stores in ways(arch, read, register, pc)}
    if len(words) > 1:
        raise GdbextError("which way leads to the next instruction is not known yet")
    return words.pop()


def _last(stores: list[Store], address: int) -> int | None:
    found: int | None = None
    for store in stores:
        if store.address is None:
            raise GdbextError("it is not known where a value is about to be stored")
        if store.address < address + 8 and store.address + store.size > address:
            if store.address != address or store.size != 8 or store.value is None:
                raise GdbextError("it is about to be stored, and its value is not known yet")
            found = store.value
    return found
