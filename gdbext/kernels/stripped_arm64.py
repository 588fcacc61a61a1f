"""`stripped.Code` of aarch64: the same search in code whose instructions are 32-bit words.

Arm Architecture Reference Manual for A-profile, C4.1 (encodings); AAPCS64, 6.1.1 (registers that a call may change).
"""

from __future__ import annotations

import re
from typing import Iterable, Iterator

from ..access import a64
from .stripped import MAX_FUNCTION, Code, Known, put

CALL_SPOILS = (*range(19), 30)
SP, FP = 31, 29
REACH = 64  # instructions between the two that make an address
_ADRP = re.compile(rb"[\x90\xb0\xd0\xf0]")  # the highest byte of an adrp


class Arm64Code(Code):
    ARGUMENTS = (0, 1, 2, 3)
    R_GLOB_DAT, R_RELATIVE = 1025, 1027  # R_AARCH64_*

    def mentions(self, wanted: Iterable[int]) -> list[tuple[int, int]]:
        """As `Code.mentions`: an adrp makes the page of an address, and an add behind it the rest."""
        found, pages = [], {address >> 12 for address in wanted}
        for vaddr, offset, size in self.text:
            data = bytes(self.elf.data[offset : offset + size])
            for m in _ADRP.finditer(data[3::4]):
                at, word = m.start() * 4, int.from_bytes(data[m.start() * 4 : m.start() * 4 + 4], "little")
                page = a64.address(word, vaddr + at)
                if page >> 12 in pages:
                    found += [(where, a) for where, a in _sums(data, at, word & 31, page, vaddr) if a in wanted]
        return found

    def calls(self, vaddr: int) -> Iterator[Known]:
        """As `Code.calls`."""
        known: Known = {}
        left: dict[int, Known] = {}  # {address: the state known at a branch to it}
        ended = False
        for here, word in self._words(self.frames.extent(vaddr)):
            if ended:  # the next instruction is reached by a branch only
                known, ended = left.pop(here, {}), False
            to = a64.branch(word)
            if to > 0:
                left.setdefault(here + to, dict(known))
            if a64.calls(word):
                yield dict(known)
                for register in CALL_SPOILS:
                    known.pop(register, None)
            elif a64.always(word) or a64.leaves(word):
                ended = True
            elif not to:
                self._follow(known, word, here)

    def _words(self, extent: tuple[int, int] | None) -> Iterator[tuple[int, int]]:
        if extent is None or not 0 < extent[1] - extent[0] <= MAX_FUNCTION:
            return
        code = self.elf.at(extent[0], extent[1] - extent[0]) or b""
        for at in range(0, len(code) - 3, 4):
            yield extent[0] + at, int.from_bytes(code[at : at + 4], "little")

    def _follow(self, known: Known, word: int, here: int) -> None:
        """As `Code._step`. In an instruction that is not decoded the lowest five bits name the register that it may write."""
        target, source = word & 31, word >> 5 & 31
        if word & 0x9F000000 == 0x90000000:  # adrp
            known[target] = a64.address(word, here)
        elif word & 0xFF800000 == 0x91000000:  # add x, x, #
            base = known.get(source)
            put(known, target, None if base is None or source == SP else base + a64.immediate(word))
            _forget_slots(known, target)
        elif word & 0xFFE0FFE0 == 0xAA0003E0:  # mov x, x
            put(known, target, known.get(word >> 16 & 31))
        elif a64.moves_number(word):
            known[target] = a64.moved_number(word)
        elif word & 0xFFC00000 == 0xF9400000:  # ldr x, [x, #]
            place = (word >> 10 & 0xFFF) * 8
            value = known.get((source, place)) if source in (SP, FP) else None
            if value is None and isinstance(known.get(source), int):
                value = self.pointer(known[source] + place)
            put(known, target, value)
        elif word & 0xFFC00000 == 0xF9000000:  # str x, [x, #]
            put(known, (source, (word >> 10 & 0xFFF) * 8), known.get(target))
        elif word & 0x3E000000 == 0x28000000:  # ldp, stp
            self._pair(known, word)
        elif not _stores(word):
            known.pop(target, None)
            _forget_slots(known, target)
        elif word & 0x3B200400 == 0x38000400:  # str with an index, which is another one afterwards
            known.pop(source, None)
            _forget_slots(known, source)

    def _pair(self, known: Known, word: int) -> None:
        base, place = word >> 5 & 31, a64.signed(word >> 15, 7)
        registers, written = (word & 31, word >> 10 & 31), word & 0x01800000 != 0x01000000  # the base, but for a plain offset
        for n, register in enumerate(registers):
            slot = (base, (place + n) * 8)
            if word & 0x400000:
                put(known, register, known.get(slot) if word >> 30 == 2 else None)
            else:
                put(known, slot, known.get(register) if word >> 30 == 2 and not written else None)
        if written:
            known.pop(base, None)
            _forget_slots(known, base)

    def _holds_number(self, extent: tuple[int, int], number: int) -> bool:
        numbers: dict[int, int] = {}
        for _, word in self._words(extent):
            target = word & 31
            if _stores(word):
                if numbers.get(target) == number or word & 0x3E000000 == 0x28000000 and numbers.get(word >> 10 & 31) == number:
                    return True
            elif a64.moves_number(word):
                numbers[target] = a64.moved_number(word)
            else:
                numbers.pop(target, None)
        return False


def _sums(data: bytes, at: int, register: int, page: int, vaddr: int) -> Iterator[tuple[int, int]]:
    """`[(address of the add, sum)]` behind an adrp at `at`, until its register gets a new value."""
    for place in range(at + 4, min(at + 4 * REACH, len(data) - 3), 4):
        word = int.from_bytes(data[place : place + 4], "little")
        if word & 0xFF8003E0 == 0x91000000 | register << 5:
            yield vaddr + place, page + a64.immediate(word)
        if word & 0x9F00001F == 0x90000000 | register:
            return


def _stores(word: int) -> bool:
    """Whether it stores general registers: a str, stur or stp."""
    return (
        word & 0x3B000000 == 0x39000000
        and not word & 0xC00000
        or (word & 0x3B200000 == 0x38000000 and not word & 0xC00000 or word & 0x3E400000 == 0x28000000)
    )


def _forget_slots(known: Known, register: int) -> None:
    if register in (SP, FP):
        for key in [k for k in known if isinstance(k, tuple) and k[0] == register]:
            del known[key]
