"""From a bytecode offset to a source line, in the three encodings that CPython 3.9 to 3.15 use.

Sources: Objects/lnotab_notes.txt (3.9, 3.10), Objects/locations.md (3.11+). Pure functions over bytes.
"""


def lnotab_line(table, first, lasti):
    """3.9: co_lnotab, pairs (bytes, signed lines). `lasti` in bytes; -1 gives `first`."""
    line, at = first, 0
    for i in range(0, len(table) - 1, 2):
        at += table[i]
        if at > lasti:
            break
        delta = table[i + 1]
        line += delta - 256 if delta > 127 else delta
    return line


def linetable_line(table, first, lasti):
    """3.10: co_linetable, pairs (length in bytes, signed line, -128 = none). None where the instruction has no line."""
    if lasti < 0:
        return first
    line, end = first, 0
    for i in range(0, len(table) - 1, 2):
        length, delta = table[i], table[i + 1]
        delta = delta - 256 if delta > 127 else delta
        if delta != -128:
            line += delta
        end += length
        if end > lasti:
            return None if delta == -128 else line
    return None


def _varint(table, i):
    value = shift = 0
    while i < len(table):
        b = table[i]
        i += 1
        value |= (b & 63) << shift
        shift += 6
        if not b & 64 or shift > 60:
            break
    return value, i


def locations(table, first):
    """3.11+: yields `(start, end, line)` in bytes of code, line None where there is none."""
    line, at, i = first, 0, 0
    while i < len(table):
        head = table[i]
        i += 1
        code, length = head >> 3 & 15, (head & 7) + 1
        shown = True
        if code == 15:
            shown = False
        elif code in (13, 14):
            raw, i = _varint(table, i)
            line += -(raw >> 1) if raw & 1 else raw >> 1
            if code == 14:
                for _ in range(3):
                    _, i = _varint(table, i)
        elif code >= 10:
            line += code - 10
            i += 2
        else:
            i += 1
        yield at, at + 2 * length, line if shown else None
        at += 2 * length


def location_line(table, first, lasti):
    """3.11+: the line of the instruction at byte `lasti`; `first` before the first instruction, None where it has none."""
    if lasti < 0:
        return first
    for start, end, line in locations(table, first):
        if start <= lasti < end:
            return line
    return None
