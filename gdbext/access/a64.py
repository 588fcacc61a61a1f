"""Parts of A64 instructions: words of 32 bits (Arm Architecture Reference Manual for A-profile, C4.1)."""

from __future__ import annotations


def signed(value: int, bits: int) -> int:
    """The lowest `bits` of a word as a signed number."""
    return ((value & (1 << bits) - 1) ^ 1 << bits - 1) - (1 << bits - 1)


def calls(word: int) -> bool:
    """bl, blr"""
    return word & 0xFC000000 == 0x94000000 or _to_register(word) and word >> 21 & 3 == 1


def leaves(word: int) -> bool:
    """br, ret"""
    return _to_register(word) and word >> 21 & 3 in (0, 2)


def _to_register(word: int) -> bool:
    """Of a plain address, or one that is authenticated first."""
    return word & 0xFF9FFC1F == 0xD61F0000 or word & 0xFF9FF81F == 0xD61F081F


def always(word: int) -> bool:
    """b"""
    return word & 0xFC000000 == 0x14000000


def branches(word: int) -> bool:
    """b.cond, cbz, cbnz, tbz, tbnz"""
    return word & 0xFF000000 == 0x54000000 or word & 0x7C000000 == 0x34000000


def branch(word: int) -> int:
    """How far a b or a branch goes, in bytes; 0 for another instruction."""
    if always(word):
        return signed(word, 26) * 4
    return signed(word >> 5, 14 if word & 0x7E000000 == 0x36000000 else 19) * 4 if branches(word) else 0


def address(word: int, here: int) -> int:
    """What an adr, or for its page an adrp, at `here` makes."""
    number = signed(word >> 5, 19) << 2 | word >> 29 & 3
    return (here & ~0xFFF) + (number << 12) if word >> 31 else here + number


def immediate(word: int) -> int:
    """The number of an add or sub that has one."""
    return (word >> 10 & 0xFFF) << (12 if word >> 22 & 1 else 0)


def moves_number(word: int) -> bool:
    """movz"""
    return word & 0x7F800000 == 0x52800000


def moved_number(word: int) -> int:
    """What a movz writes."""
    return (word >> 5 & 0xFFFF) << 16 * (word >> 21 & 3)
