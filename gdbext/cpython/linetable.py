"""From a bytecode offset to a source line, in the three encodings that CPython 3.9 to 3.15 use.

Sources: Objects/lnotab_notes.txt (3.9, 3.10), Objects/locations.md (3.11+). Pure functions over bytes.
"""

from __future__ import annotations

from typing import Any, Iterable, Iterator


def lnotab_line(table: bytes, first: int, lasti: int) -> int:
    """3.9: co_lnotab, pairs (bytes, signed lines). `lasti` in bytes; -1 gives `first`."""
    line, at = first, 0
    for i in range(0, len(table) - 1, 2):
        at += table[i]
        if at > lasti:
            break
        delta = table[i + 1]
        line += delta - 256 if delta > 127 else delta
    return line


def linetable_line(table: bytes, first: int, lasti: int) -> int | None:
    """3.10: co_linetable, pairs (length in bytes, signed line, -128 = none). None where the instruction has no line."""
    return _line_at(linetable_spans(table, first), first, lasti)


def location_line(table: bytes, first: int, lasti: int) -> int | None:
    """3.11+: the line of the instruction at byte `lasti`; `first` before the first instruction, None where it has none."""
    return _line_at(positions(table, first), first, lasti)


def _line_at(spans: Iterable[tuple[int, int, int | None, Any]], first: int, lasti: int) -> int | None:
    if lasti < 0:
        return first
    return next((line for start, end, line, _ in spans if start <= lasti < end), None)


def _varint(table: bytes, i: int) -> tuple[int, int]:
    value = shift = 0
    while i < len(table):
        b = table[i]
        i += 1
        value |= (b & 63) << shift
        shift += 6
        if not b & 64 or shift > 60:
            break
    return value, i


def positions(table: bytes, first: int) -> Iterator[tuple[int, int, int | None, tuple[int | None, int | None, int | None]]]:
    """3.11+: yields `(start, end, line, (end line, column, end column))`, start and end in bytes of code. The line is None where
    there is none, a column where the table omits it."""
    line, at, i = first, 0, 0
    while i < len(table):
        head = table[i]
        i += 1
        code, length = head >> 3 & 15, (head & 7) + 1
        shown, last, column, end_column = True, None, None, None
        if code == 15:
            shown = False
        elif code in (13, 14):
            raw, i = _varint(table, i)
            line += -(raw >> 1) if raw & 1 else raw >> 1
            if code == 14:
                last, i = _varint(table, i)
                column, i = _varint(table, i)
                end_column, i = _varint(table, i)
        elif code >= 10:
            line += code - 10
            column, end_column = table[i : i + 2] if i + 2 <= len(table) else (None, None)
            i += 2
        else:
            second = table[i] if i < len(table) else 0
            column = code << 3 | second >> 4
            end_column = column + (second & 15)
            i += 1
        if code == 14:  # these three are kept one larger, so that 0 means none
            column, end_column = column - 1 if column else None, end_column - 1 if end_column else None
        yield at, at + 2 * length, line if shown else None, (line + (last or 0), column, end_column)
        at += 2 * length


def linetable_spans(table: bytes, first: int) -> Iterator[tuple[int, int, int | None, None]]:
    """3.10: as `positions` gives them, without columns."""
    line, at = first, 0
    for i in range(0, len(table) - 1, 2):
        length, delta = table[i], table[i + 1]
        delta = delta - 256 if delta > 127 else delta
        if delta != -128:
            line += delta
        if length:
            yield at, at + length, None if delta == -128 else line, None
        at += length


def lnotab_spans(table: bytes, first: int) -> Iterator[tuple[int, int, int | None, None]]:
    """3.9: as `positions` gives them, without columns. The end of the last one is unknown; it is given as its start + 2."""
    line, at, began = first, 0, 0
    for i in range(0, len(table) - 1, 2):
        step, delta = table[i], table[i + 1]
        at += step
        if step and at > began:
            yield began, at, line, None
            began = at
        line += delta - 256 if delta > 127 else delta
    yield began, began + 2, line, None
