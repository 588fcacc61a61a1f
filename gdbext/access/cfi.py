"""Call-frame information of a file (.eh_frame): where the caller's frame and registers are, for each address of a function.

Sources: DWARF 4 chapter 6.4, LSB "Exception Frames" (.eh_frame, .eh_frame_hdr), System V ABI x86-64 section 3.6.2.
"""

from __future__ import annotations

import struct
from typing import Tuple, Union

from .. import log
from ..errors import GdbextError, NotFoundError
from .elf import PT_GNU_EH_FRAME, Data, Elf

Operand = Union[int, bytes]
Rule = Tuple[str, Operand]

MASK = (1 << 64) - 1
OMITTED = 0xFF  # DW_EH_PE_omit
_FORMATS = {0: "Q", 2: "H", 3: "I", 4: "Q", 10: "h", 11: "i", 12: "q"}  # DW_EH_PE: absptr, udata2..8, sdata2..8
_ADVANCE = {2: "B", 3: "H", 4: "I"}  # DW_CFA_advance_loc1, 2, 4
_NOT_DECODED = (GdbextError, struct.error, IndexError, KeyError)


class Cursor:
    """A place in the bytes of a file; `vaddr` is the virtual address of the byte at `at`."""

    __slots__ = ("data", "at", "delta")

    def __init__(self, data: Data, at: int, vaddr: int = 0) -> None:
        self.data, self.at, self.delta = data, at, vaddr - at

    def take(self, code: str) -> int:
        """The next number, by its `struct` code."""
        end = self.at + struct.calcsize("<" + code)
        value: int = struct.unpack("<" + code, self.data[self.at : end])[0]
        self.at = end
        return value

    def uleb(self) -> int:
        """The next unsigned LEB128 number."""
        value = shift = 0
        while True:
            b = self.data[self.at]
            self.at += 1
            value |= (b & 127) << shift
            shift += 7
            if b < 128 or shift > 70:
                return value

    def sleb(self) -> int:
        """The next signed LEB128 number."""
        start, value = self.at, self.uleb()
        bits = 7 * (self.at - start)
        return value - (1 << bits) if value >> (bits - 1) & 1 else value

    def block(self) -> bytes:
        """The next bytes, behind their length."""
        size = self.uleb()
        self.at += size
        return bytes(self.data[self.at - size : self.at])

    def encoded(self, encoding: int, base: int = 0) -> int | None:
        """A pointer in one of the DW_EH_PE encodings, None for an omitted one."""
        if encoding == OMITTED:
            return None
        here = self.at + self.delta
        kind = encoding & 15
        value = self.uleb() if kind == 1 else self.sleb() if kind == 9 else self.take(_FORMATS[kind])
        relative = encoding & 0x70
        if relative == 0x10 and value:
            value += here
        elif relative == 0x30:
            value += base
        return value & MASK

    def address(self, encoding: int) -> int:
        """As `encoded`, where there must be one."""
        value = self.encoded(encoding)
        if value is None:
            raise GdbextError("call-frame information without an address")
        return value


class Cie:
    """The common part of the entries of several functions (a Common Information Entry)."""

    def __init__(self, cursor: Cursor, end: int) -> None:
        self.version = cursor.take("B")
        start = cursor.at
        augmentation = cursor.data[start : cursor.data.find(b"\0", start, end)]
        cursor.at = start + len(augmentation) + 1
        if self.version == 4:
            cursor.take("H")
        self.code_align, self.data_align = cursor.uleb(), cursor.sleb()
        self.return_register = cursor.take("B") if self.version == 1 else cursor.uleb()
        self.encoding, self.signal, self.sized = 0, b"S" in augmentation, augmentation.startswith(b"z")
        if self.sized:
            length = cursor.uleb()
            stop = cursor.at + length
            for c in augmentation[1:]:
                if c == ord("R"):
                    self.encoding = cursor.take("B")
                elif c == ord("P"):
                    cursor.encoded(cursor.take("B"))
                elif c == ord("L"):
                    cursor.take("B")
            cursor.at = stop
        self.program = (cursor.at, end)


class Entry:
    """The entry of one function (a Frame Description Entry): its `start`, `size` and `cie`; its instructions are `at` to
    `end`."""

    __slots__ = ("start", "size", "cie", "at", "end")

    def __init__(self, start: int, size: int, cie: Cie, at: int, end: int) -> None:
        self.start, self.size, self.cie, self.at, self.end = start, size, cie, at, end


class Row:
    """How to find the caller from one address.

    `cfa`: (register, offset) of the canonical frame address, or an expression's bytes; `rules`: `{register: (kind, operand)}`;
    `signal`: the caller was interrupted, it did not call."""

    def __init__(self, cie: Cie) -> None:
        self.cfa: tuple[int, int] | bytes = (0, 0)
        self.rules: dict[int, Rule] = {}
        self.signal, self.return_register = cie.signal, cie.return_register

    def based(self) -> tuple[int, int]:
        """`cfa` where an instruction expects a register and an offset."""
        if isinstance(self.cfa, bytes):
            raise GdbextError("call-frame information that moves a frame address given by an expression")
        return self.cfa


class FrameTable:
    """The call-frame information of one file, found through its .eh_frame_hdr; `NotFoundError` where it has none that is known
    here."""

    def __init__(self, elf: Elf) -> None:
        self.elf = elf
        self._cies: dict[int, Cie] = {}
        self._rows: dict[int, tuple[int, Row] | None] = {}
        segment = next((s for s in elf.segments if s.type == PT_GNU_EH_FRAME), None)
        if segment is None or segment.offset + 12 > len(elf.data):
            raise NotFoundError(f"{elf.path}: no .eh_frame_hdr")
        cursor = Cursor(elf.data, segment.offset, segment.vaddr)
        self._base = segment.vaddr
        _, frame_encoding, count_encoding, table_encoding = (cursor.take("B") for _ in range(4))
        cursor.encoded(frame_encoding, self._base)
        self._count = cursor.encoded(count_encoding, self._base) or 0
        self._table = cursor.at
        if table_encoding != 0x3B or self._table + 8 * self._count > len(elf.data):
            raise NotFoundError(f"{elf.path}: its .eh_frame_hdr has no table that is known here")

    def find(self, vaddr: int) -> tuple[int, Row] | None:
        """-> (start of the function, `Row` of rules at `vaddr`), or None where no entry covers it."""
        if vaddr not in self._rows:
            self._rows[vaddr] = self._rules(vaddr)
        return self._rows[vaddr]

    def extent(self, vaddr: int) -> tuple[int, int] | None:
        """-> (first address, first address behind it) of the function around `vaddr`, or None where no entry covers it."""
        found = self._entry(vaddr)
        return (found.start, found.start + found.size) if found else None

    def _entry(self, vaddr: int) -> Entry | None:
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            start = self._signed(self._table + 8 * middle) + self._base
            if start <= vaddr:
                low = middle + 1
            else:
                high = middle
        if not low:
            return None
        entry = self._signed(self._table + 8 * (low - 1) + 4) + self._base
        at = self.elf.offset_of(entry)
        if at is None:
            return None
        cursor = Cursor(self.elf.data, at, entry)
        length = cursor.take("I")
        if length in (0, 0xFFFFFFFF):
            return None
        end = cursor.at + length
        here = cursor.at
        cie = self._cie(here - cursor.take("I"), entry - at)
        start = cursor.address(cie.encoding)
        size = cursor.address(cie.encoding & 15)
        if not start <= vaddr < start + size:
            return None
        if cie.sized:
            skip = cursor.uleb()
            cursor.at += skip
        return Entry(start, size, cie, cursor.at, end)

    def _signed(self, at: int) -> int:
        return int.from_bytes(self.elf.data[at : at + 4], "little", signed=True)

    def _rules(self, wanted: int) -> tuple[int, Row] | None:
        entry = self._entry(wanted)
        if entry is None:
            return None
        row = Row(entry.cie)
        machine = _Machine(self.elf.data, row, entry.cie, wanted)
        machine.run(*entry.cie.program, entry.start)
        machine.initial = dict(row.rules)
        machine.run(entry.at, entry.end, entry.start)
        return entry.start, row

    def _cie(self, at: int, delta: int) -> Cie:
        if at not in self._cies:
            cursor = Cursor(self.elf.data, at, at + delta)
            length = cursor.take("I")
            end = cursor.at + length
            cursor.take("I")
            self._cies[at] = Cie(cursor, end)
        return self._cies[at]


class _Machine:
    """Runs call-frame instructions (DWARF 4, 6.4.2) up to the address `wanted` and fills in `row`."""

    def __init__(self, data: Data, row: Row, cie: Cie, wanted: int) -> None:
        self.data, self.row, self.cie, self.wanted = data, row, cie, wanted
        self.initial: dict[int, Rule] | None = None
        self.stack: list[tuple[tuple[int, int] | bytes, dict[int, Rule]]] = []

    def run(self, at: int, end: int, location: int) -> None:
        """The instructions from `at` to `end`, whose first row begins at the address `location`."""
        cursor = Cursor(self.data, at)
        while cursor.at < end:
            op = cursor.take("B")
            high, low = op & 0xC0, op & 0x3F
            if high == 0x40:
                location += low * self.cie.code_align
            elif op == 0x01:
                location = cursor.address(self.cie.encoding)
            elif op in _ADVANCE:
                location += cursor.take(_ADVANCE[op]) * self.cie.code_align
            elif high == 0x80:
                self.row.rules[low] = ("offset", cursor.uleb() * self.cie.data_align)
            elif high == 0xC0:
                self._restore(low)
            elif not (self._frame_address(op, cursor) or self._rule(op, cursor) or self._state(op, cursor)):
                raise GdbextError(f"an unknown call-frame instruction {op:#x}")
            if location > self.wanted:
                return

    def _frame_address(self, op: int, cursor: Cursor) -> bool:
        """DW_CFA_def_cfa and its kind."""
        row = self.row
        if op == 0x0C:
            row.cfa = (cursor.uleb(), cursor.uleb())
        elif op == 0x0D:
            row.cfa = (cursor.uleb(), row.based()[1])
        elif op == 0x0E:
            row.cfa = (row.based()[0], cursor.uleb())
        elif op == 0x0F:
            row.cfa = cursor.block()
        elif op == 0x12:
            row.cfa = (cursor.uleb(), cursor.sleb() * self.cie.data_align)
        elif op == 0x13:
            row.cfa = (row.based()[0], cursor.sleb() * self.cie.data_align)
        else:
            return False
        return True

    def _rule(self, op: int, cursor: Cursor) -> bool:
        """DW_CFA_offset and the other rules of one register."""
        rules, align = self.row.rules, self.cie.data_align
        if op not in (0x05, 0x07, 0x08, 0x09, 0x10, 0x11, 0x14, 0x15, 0x16, 0x2F):
            return False
        register = cursor.uleb()
        if op == 0x05:
            rules[register] = ("offset", cursor.uleb() * align)
        elif op in (0x07, 0x08):
            rules[register] = ("undefined" if op == 0x07 else "same", 0)
        elif op == 0x09:
            rules[register] = ("register", cursor.uleb())
        elif op in (0x10, 0x16):
            rules[register] = ("expression" if op == 0x10 else "value expression", cursor.block())
        elif op == 0x11:
            rules[register] = ("offset", cursor.sleb() * align)
        elif op in (0x14, 0x15):
            rules[register] = ("value", (cursor.uleb() if op == 0x14 else cursor.sleb()) * align)
        else:  # DW_CFA_GNU_negative_offset_extended
            rules[register] = ("offset", -cursor.uleb() * align)
        return True

    def _state(self, op: int, cursor: Cursor) -> bool:
        """DW_CFA_remember_state, _restore_state and instructions that change no rule."""
        row = self.row
        if op == 0x06:
            self._restore(cursor.uleb())
        elif op == 0x0A:
            self.stack.append((row.cfa, dict(row.rules)))
        elif op == 0x0B:
            if self.stack:
                row.cfa, row.rules = self.stack.pop()
        elif op == 0x2E:  # DW_CFA_GNU_args_size
            cursor.uleb()
        elif op not in (0x00, 0x2C, 0x2D):  # DW_CFA_nop, DW_CFA_AARCH64_negate_ra_state_with_pc, DW_CFA_AARCH64_negate_ra_state
            return False
        return True

    def _restore(self, register: int) -> None:
        if self.initial and register in self.initial:
            self.row.rules[register] = self.initial[register]
        else:
            self.row.rules.pop(register, None)


def table_of(elf: Elf) -> FrameTable | None:
    """The `FrameTable` of a file, kept with its `Elf`; None when it has none."""
    if not elf.frame_table:
        try:
            elf.frame_table = [FrameTable(elf)]
        except _NOT_DECODED as e:
            log.passed_over(e)
            elf.frame_table = [None]
    found: FrameTable | None = elf.frame_table[0]
    return found
