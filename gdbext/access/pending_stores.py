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
from typing import TYPE_CHECKING, NamedTuple

from ..errors import GdbextError
from .cfi import MASK

if TYPE_CHECKING:
    from typing import Callable, Dict, Optional

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
        if word & 0xFF9FFC1F == 0xD61F0000 and word >> 21 & 3 != 3 or word & 0xFC000000 == 0x94000000:  # br, blr, ret, bl
            raise _End
        if word & 0xFC000000 == 0x14000000:  # b
            self.pc += _signed(word, 26) * 4 - 4
        elif word & 0xFF000010 == 0x54000000 or word & 0x7E000000 == 0x34000000:  # b.cond; cbz, cbnz
            raise _Branch(self.pc - 4 + _signed(word >> 5, 19) * 4)
        elif word & 0x7E000000 == 0x36000000:  # tbz, tbnz
            raise _Branch(self.pc - 4 + _signed(word >> 5, 14) * 4)
        elif word >> 26 & 7 == 5:  # system
            if word != 0xD503201F:  # nop
                raise _Unknown
        elif word >> 25 & 5 == 4:
            self._memory(word, rd, rn, rm)
        elif word & 0x1F800000 == 0x11000000:  # add, sub of a number
            number = (word >> 10 & 4095) << (12 if word >> 22 & 1 else 0)
            value = self.sum(self.get(rn), -number if word >> 30 & 1 else number)
            if not word >> 29 & 1 or rd != 31:  # else cmp, cmn
                self._set(word, rd, value)
        elif word & 0x1F000000 == 0x10000000:  # adr, adrp
            number = _signed(word >> 5, 19) << 2 | word >> 29 & 3
            at = self.pc - 4
            self._result(1 << 31, rd, (at & ~4095) + (number << 12) if word >> 31 else at + number)
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
        elif word & 0x7F800000 == 0x52800000:  # movz
            self._result(word, rd, (word >> 5 & 0xFFFF) << 16 * (word >> 21 & 3))
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
            step, mode, load = _signed(word >> 15, 7) * size, word >> 23 & 3, word >> 22 & 1
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
            step, mode = _signed(word >> 12, 9), word >> 10 & 3
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

    def step(self) -> None:
        code = self.read(self.pc, 15)
        self.code, self.at = code.ljust(15, b"\0"), 0
        prefixes, self.rex, self.branches = set(), 0, False
        while self.code[self.at] in (0x66, 0xF2, 0xF3, 0x3E):
            prefixes.add(self._byte())
        if self.code[self.at] & 0xF0 == 0x40:
            self.rex = self._byte()
        self.size = 8 if self.rex & 8 else 2 if 0x66 in prefixes else 4
        jump = self._do(self._byte(), prefixes)
        if self.at > len(code):
            raise _Unknown
        self.pc += self.at
        if self.branches:
            raise _Branch(self.pc + jump)
        self.pc += jump

    def _byte(self) -> int:
        self.at += 1
        return self.code[self.at - 1]

    def _number(self, size: int) -> int:
        self.at += size
        return int.from_bytes(self.code[self.at - size : self.at], "little", signed=True)

    def _do(self, op: int, prefixes: set[int]) -> int:
        """-> how far it jumps."""
        if op in (0xE9, 0xEB):
            return self._number(4 if op == 0xE9 else 1)
        elif op & 0xF0 == 0x70:
            self.branches = True
            return self._number(1)
        elif op == 0x0F and self.code[self.at] & 0xF0 == 0x80:
            self.at += 1
            self.branches = True
            return self._number(4)
        elif op in (0xE8, 0xC3):  # call, ret
            raise _End
        elif op == 0x0F:
            self._two_bytes(self._byte(), prefixes)
        elif op == 0x90:
            pass
        elif op & 0xF8 == 0xB8 or op in (0x63, 0x88, 0x89, 0x8A, 0x8B, 0x8D, 0xC6, 0xC7):
            self._move(op)
        elif op < 0x40 and op & 7 < 4:  # add, or, adc, sbb, and, sub, xor, cmp
            register, place = self._modrm()
            self._arithmetic(op, register, place)
        elif op < 0x40 and op & 7 in (4, 5):
            self._number(1 if op & 7 == 4 else min(self.size, 4))
            if op >> 3 != 7:
                self._into(0, None)
        elif op in (0x80, 0x81, 0x83):
            which, place = self._modrm(1 if op != 0x81 else min(self.size, 4))
            number = self._number(1 if op != 0x81 else min(self.size, 4))
            if which & 7 != 7:
                add = {0: number, 5: -number}.get(which & 7)
                own = isinstance(place, _Register) and op != 0x80
                value = self.sum(self.get(place.number), add) if own and isinstance(place, _Register) else None
                self._write(place, self.size if op != 0x80 else 1, value)
        elif op in (0x84, 0x85):
            self._modrm()
        elif op in (0xA8, 0xA9):
            self._number(1 if op == 0xA8 else min(self.size, 4))
        elif op in (0xF6, 0xF7):
            self._negate(op)
        elif op in (0xC0, 0xC1, 0xD0, 0xD1):
            _, place = self._modrm(1 if op < 0xD0 else 0)
            self.at += op < 0xD0
            self._write(place, self.size if op & 1 else 1, None)
        elif op == 0xFF:
            which, place = self._modrm()
            if which & 7 in (2, 4):  # call, jmp
                raise _End
            if which & 7 > 1:
                raise _Unknown
            self._write(place, self.size, None)
        else:
            raise _Unknown
        return 0

    def _move(self, op: int) -> None:
        if op & 0xF8 == 0xB8:
            self._into(op & 7 | (self.rex & 1) << 3, self._number(8 if self.rex & 8 else self.size))
        elif op in (0x88, 0x89, 0xC6, 0xC7):
            size = self.size if op & 1 else 1
            register, place = self._modrm(min(size, 4) if op >= 0xC6 else 0)
            value = self._number(min(size, 4)) if op >= 0xC6 else self.get(register)
            self._write(place, size, value)
        elif op in (0x8A, 0x8B, 0x63):
            register, place = self._modrm()
            known = isinstance(place, _Register) and op == 0x8B
            self._into(register, self.get(place.number) if known and isinstance(place, _Register) else None)
        else:  # lea
            register, place = self._modrm()
            self._into(register, None if isinstance(place, _Register) else place)

    def _negate(self, op: int) -> None:
        size = self.size if op & 1 else 1
        which, place = self._modrm(min(size, 4))  # a register where its length matters, or `test`
        if which & 7 > 3:  # of rax and rdx
            raise _Unknown
        if which & 7 < 2:
            self._number(min(size, 4))
        else:
            self._write(place, size, None)

    def _arithmetic(self, op: int, register: int, place: int | _Register | None) -> None:
        if op >> 3 == 7:  # cmp
            return
        size = self.size if op & 1 else 1
        if op & 2:
            other = self.get(place.number) if isinstance(place, _Register) else None
            value = self.sum(self.get(register), other) if op == 3 else None
            self._into(register, value)
        elif isinstance(place, _Register):
            same = op >> 3 in (5, 6) and place.number == register  # xor of itself
            self._write(place, size, 0 if same else self.sum(self.get(place.number), self.get(register)) if op == 1 else None)
        else:
            self._write(place, size, None)

    def _two_bytes(self, op: int, prefixes: set[int]) -> None:
        if op in (0xB6, 0xB7, 0xBE, 0xBF, 0xAF) or op & 0xF0 == 0x40:
            register, _ = self._modrm()
            self._into(register, None)
        elif op & 0xF0 == 0x90:
            _, place = self._modrm()
            self._write(place, 1, None)
        elif op == 0x1F:
            self._modrm()
        elif op in self.STORES:
            if op == 0x7E and 0xF3 in prefixes:  # a load
                self._modrm()
                return
            _, place = self._modrm()
            if isinstance(place, _Register):
                if op == 0x7E:
                    self._write(place, 8, None)
            else:
                size = (8 if self.rex & 8 else 4) if op == 0x7E else 8 if op in (0x13, 0x17, 0xD6) else 16
                self._write(place, size, None)
        elif op in self.LOADS:
            self._modrm()
        else:
            raise _Unknown

    def _modrm(self, behind: int = 0) -> tuple[int, int | _Register | None]:
        """-> (register, the other operand: an address, None where it is not known, or a `_Register`); `behind`: bytes of the
        instruction behind it."""
        byte = self._byte()
        mod, register, rm = byte >> 6, byte >> 3 & 7 | (self.rex & 4) << 1, byte & 7
        if mod == 3:
            return register, _Register(rm | (self.rex & 1) << 3)
        base: int | None
        parts: list[int | None] = []
        if rm == 4:
            sib = self._byte()
            index = sib >> 3 & 7 | (self.rex & 2) << 2
            if index != 4:
                value = self.get(index)
                parts.append(None if value is None else value << (sib >> 6))
            rm = sib & 7
            if rm == 5 and mod == 0:
                return register, self.sum(self._number(4), *parts)
        elif rm == 5 and mod == 0:
            number = self._number(4)
            return register, self.pc + self.at + behind + number
        base = self.get(rm | (self.rex & 1) << 3)
        number = self._number(1) if mod == 1 else self._number(4) if mod == 2 else 0
        return register, self.sum(base, number, *parts)

    def _into(self, register: int, value: int | None) -> None:
        self.put(register, value if value is None or self.size == 8 else value & 0xFFFFFFFF if self.size == 4 else None)

    def _write(self, place: int | _Register | None, size: int, value: int | None) -> None:
        if not isinstance(place, _Register):
            self.store(place, size, value)
        elif size >= 4:
            self.put(place.number, value if value is None or size == 8 else value & 0xFFFFFFFF)
        else:
            number = place.number if size > 1 or self.rex or place.number < 4 else place.number - 4  # ah, ch, dh, bh
            self.put(number, None)


class _Register(NamedTuple):
    number: int


_MACHINES = {"x86-64": _X86, "aarch64": _AArch64}


def _signed(value: int, bits: int) -> int:
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _extended(value: int | None, option: int) -> int | None:
    """A register that is used as 32 or 64 bits; None as 8 or 16."""
    if value is None or option not in (2, 3, 6, 7):
        return None
    return _signed(value, 32) if option == 6 else value & 0xFFFFFFFF if option == 2 else value


def _mask(word: int) -> int:
    """The number of a logical instruction of A64 (Arm ARM, shared pseudocode DecodeBitMasks)."""
    length = ((word >> 22 & 1) << 6 | ~(word >> 10) & 63).bit_length() - 1
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
