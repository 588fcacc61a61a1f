"""Takes secrets out of copied pages of memory: given places, and all copies of given values."""

from __future__ import annotations

import array
import base64
import bisect
from typing import Iterable, Iterator, MutableMapping, Sequence

from .model import GRAIN, PAGE

PIECE = 16  # characters: the size of a vector register
MIN_DISTINCT = 5  # bytes of a piece that are not alike
STRETCH = 256  # pages that are searched at once
GRAM = 8  # characters by which a copy is found
MAX_NEEDLES = 128  # up to so many pieces are searched for one by one: faster than the index
SMALL, ADDRESS = 1 << 16, (1 << 48) - 1  # numbers below it are no text; without a signature of aarch64
BETWEEN = b"\xff" * 8  # no character: stretches of memory that are searched together are kept apart by it
MAX_WINDOWS = 1 << 20  # pieces of secrets in the index; of more characters not each place is in it
FEW = 8  # short secrets that are searched for one by one, in addition to the index

_BYTE = [b"".join(b"\xff" * GRAIN if one >> bit & 1 else bytes(GRAIN) for bit in range(8)) for one in range(256)]

WHOLE = (1 << PAGE // GRAIN) - 1  # the marks of a page of which all is kept


def blank(memory: MutableMapping[int, bytes | memoryview], start: int, end: int) -> None:
    """Zeroes a range of copied pages."""
    for page in range(start & -PAGE, end, PAGE):
        data = memory.get(page)
        if data is not None:
            low, high = max(start - page, 0), min(end - page, PAGE)
            memory[page] = b"".join((data[:low], bytes(high - low), data[high:]))


def fill(memory: MutableMapping[int, bytes | memoryview], start: int, size: int, unit: int = 1, letter: bytes = b"*") -> None:
    """Writes `*`, or another `letter`, over `size` bytes of copied pages, characters of `unit` bytes each."""
    stars = (letter + bytes(unit - 1)) * (size // unit)
    for page in range(start & -PAGE, start + size, PAGE):
        data = memory.get(page)
        if data is not None:
            low, high = max(start - page, 0), min(start + size - page, PAGE)
            memory[page] = b"".join((data[:low], stars[page + low - start : page + high - start], data[high:]))


def keep_marked(memory: MutableMapping[int, bytes | memoryview], page: int, marks: int) -> None:
    """Zeroes all of a copied page but the pieces of GRAIN bytes whose bits are in `marks`."""
    whole = b"".join(_BYTE[one] for one in marks.to_bytes(PAGE // GRAIN // 8, "little"))
    kept = int.from_bytes(memory[page], "little") & int.from_bytes(whole, "little")
    memory[page] = kept.to_bytes(PAGE, "little")


def keep_addresses(
    memory: MutableMapping[int, bytes | memoryview], page: int, marks: int, mapped: Sequence[tuple[int, int]]
) -> None:
    """Zeroes the words of a copied page that are no address in `mapped`, (start, end) in order, and no small number; those of
    `marks` stay. On a stack the rest may be text."""
    words, starts = array.array("Q", bytes(memory[page])), [start for start, _ in mapped]
    for i, word in enumerate(words):
        if word >= SMALL and not marks >> i & 1:
            at = bisect.bisect_right(starts, word & ADDRESS) - 1
            if at < 0 or word & ADDRESS >= mapped[at][1]:
                words[i] = 0
    memory[page] = words.tobytes()


def redact(memory: MutableMapping[int, bytes | memoryview], secrets: Iterable[bytes], perhaps: Iterable[bytes] = ()) -> None:
    """Writes `*` over each copy of a secret, as bytes and as characters of 2 and 4 bytes.

    Remains of a copy with PIECE characters or more are overwritten too. Such parts are left where a thread's vector registers
    were saved on its stack, and where freed memory was used again. Of `perhaps` only whole copies are overwritten. All values are
    searched for in one pass over the memory."""
    sought = _Sought(secrets, perhaps)
    batch: list[list[int]] = []
    for pages in _stretches(memory, -(-4 * sought.longest // PAGE)) if sought.longest else ():
        if sum(map(len, batch)) + len(pages) > STRETCH:
            _redact(memory, batch, sought)
            batch = []
        batch.append(pages)
    _redact(memory, batch, sought)


def _redact(memory: MutableMapping[int, bytes | memoryview], stretches: list[list[int]], sought: _Sought) -> None:
    """As `redact`, of some stretches of adjoining pages, which share none: one search for all of them."""
    data = BETWEEN.join([b"".join([memory[page] for page in pages]) for pages in stretches])
    spans = list(sought.spans(data))
    if spans:
        changed, at = bytearray(data), 0
        for start, end in spans:
            changed[start:end] = b"*" * (end - start)
        for pages in stretches:
            for page in pages:
                memory[page] = bytes(changed[at : at + PAGE])
                at += PAGE
            at += len(BETWEEN)


class _Sought:
    """An index of secrets.

    Runs of text in the secrets' alphabet that are at least as long as the shortest secret are taken out of memory. GRAM
    characters of them are looked up at a time, at places so close together that no part of PIECE characters is missed. Around
    such a place it looks for pieces, and for whole values, that begin there. So a run costs time in proportion to its length,
    however often a secret repeats itself."""

    def __init__(self, secrets: Iterable[bytes], perhaps: Iterable[bytes] = ()) -> None:
        everything = dict.fromkeys(perhaps, False)
        everything.update(dict.fromkeys(secrets, True))
        encoded = {form for value, sure in everything.items() if sure for form in _in_base64(value)} - set(everything)
        self.longest = max(map(len, (*everything, *encoded)), default=0)
        count = sum(3 * (4 if sure else 1) for sure in everything.values()) + len(encoded)
        short = [value for value in everything if len(value) < PIECE]
        few = len(everything) if count <= MAX_NEEDLES else FEW
        alone = {v for v in everything if count <= MAX_NEEDLES and not _repeats(v) or not v.isascii()}
        alone |= {v for v in short if len(short) <= few}
        self.needles = [
            (form, at, piece)
            for v in alone
            for form, unit in _forms(v)
            for at, piece in sorted(set(_pieces(form, unit, everything[v])))
        ]
        if count <= MAX_NEEDLES:
            self.needles += [(form, 0, form) for form in encoded]
            encoded = set()
        self._index({v: sure for v, sure in everything.items() if v not in alone}, encoded)

    def _index(self, values: dict[bytes, bool], encoded: set[bytes]) -> None:
        wholes = [*values, *encoded]
        self.least = min((min(len(value), PIECE) for value in wholes), default=PIECE)
        self.gram = min(GRAM, self.least)
        self.step = self.least - self.gram + 1  # a part of `least` characters has one place of so many
        self.table, self.back = _alphabet(b"".join(wholes))
        self.grams: set[bytes] = set()
        self.pieces: set[bytes] = set()
        self.heads: dict[bytes, list[bytes]] = {}
        every = sum(map(len, values)) // MAX_WINDOWS + 1
        for value in sorted(wholes, key=len, reverse=True):
            form = value.translate(self.table)
            self.heads.setdefault(form[: self.least], []).append(form)
            piecemeal = values.get(value) and not value.startswith(b"/")
            starts = range(0, len(form) - PIECE + 1, every) if piecemeal else ()
            self.pieces.update(form[at : at + PIECE] for at in starts if len(set(form[at : at + PIECE])) >= MIN_DISTINCT)
            last = len(form) - self.gram + 1 if piecemeal else self.step
            self.grams.update(form[at : at + self.gram] for at in range(last))

    def spans(self, data: bytes) -> Iterator[tuple[int, int]]:
        """(start, end) of each secret or part of one in `data`."""
        for form, at, piece in self.needles:
            place = data.find(piece)
            while place >= 0:
                span = _extent(data, place, form, at)
                yield span
                place = data.find(piece, max(place + 1, span[1] - len(piece) + 1))
        found: set[bytes] = set()
        for unit, first in [(u, f) for u in (1, 2, 4) for f in range(u)] if self.heads else ():
            runs = data[first::unit].translate(self.table).split()
            for run in [run for run in runs if len(run) >= self.least]:
                found |= {b"".join(bytes((c,)) + bytes(unit - 1) for c in part) for part in self._parts(run)}
        for part in found:
            at = data.find(part)
            while at >= 0:
                yield at, at + len(part)
                at = data.find(part, at + len(part))

    def _parts(self, run: bytes) -> Iterator[bytes]:
        """The secrets, and parts of them, that a run of text holds: those that overlap or touch are one. The whole run where so
        many values begin alike that to tell them apart takes too long."""
        gram, least, back, start, end, budget = self.gram, self.least, self.step - 1, 0, -1, 1000 + 8 * len(run)
        for place in range(0, len(run) - gram + 1, self.step):
            if run[place : place + gram] not in self.grams:
                continue
            for at in range(max(place - back, 0), place + 1):
                last = at + PIECE if run[at : at + PIECE] in self.pieces else 0
                for value in self.heads.get(run[at : at + least], ()):
                    budget -= 1
                    if run.startswith(value, at):
                        last = max(last, at + len(value))
                        break
                if budget < 0:
                    yield run.translate(self.back)
                    return
                if last:
                    if at > end:
                        if end > start:
                            yield run[start:end].translate(self.back)
                        start = at
                    end = max(end, last)
        if end > start:
            yield run[start:end].translate(self.back)


def _alphabet(text: bytes) -> tuple[bytes, bytes]:
    """A table for `bytes.translate`, and the one that takes it back. After the first `split` gives the runs of characters that
    occur in `text`."""
    blank, used = b" \t\n\r\x0b\x0c", set(text)
    spare = iter([c for c in range(256) if c not in used and c not in blank] or [0])
    instead = {c: next(spare, 0) for c in blank if c in used}
    back = {other: c for c, other in instead.items()}
    return bytes(instead.get(c, c) if c in used else 32 for c in range(256)), bytes(back.get(c, c) for c in range(256))


def _in_base64(value: bytes) -> set[bytes]:
    """What base64 makes of a secret after 0, 1 or 2 other bytes (`user:`), without the characters that its neighbours change."""
    found = set()
    for more in range(3):
        text = base64.b64encode(bytes(more) + value)[(0, 2, 3)[more] : (len(value) + more) * 8 // 6]
        found |= {text, text.replace(b"+", b"-").replace(b"/", b"_")}
    return {text for text in found if len(text) >= GRAM}


def _repeats(value: bytes) -> bool:
    """Whether a piece by which a secret is found occurs in it more than once."""
    return any(value.find(piece, value.find(piece) + 1) >= 0 for at, piece in _pieces(value, 1, True))


def _extent(run: bytes, place: int, value: bytes, at: int) -> tuple[int, int]:
    """(start, end) of the part of a value that a run holds. The value's character `at` is at `place` in the run."""
    start, end = place, place
    while start and start > place - at and run[start - 1] == value[at - (place - start) - 1]:
        start -= 1
    last = min(len(run), place - at + len(value))
    while end < last and run[end] == value[at + end - place]:
        end += 1
    return start, end


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _forms(value: bytes) -> Iterator[tuple[bytes, int]]:
    """(bytes, bytes of one character) of a secret as it may lie in memory: a C string, and characters of 2 and 4 bytes (a wider
    str; wchar_t: sys.orig_argv before Python has decoded it)."""
    yield value, 1
    if _is_text(value):
        yield value.decode().encode("utf-16-le"), 2
        yield value.decode().encode("utf-32-le"), 4


def _pieces(form: bytes, unit: int, piecemeal: bool) -> list[tuple[int, bytes]]:
    """(offset, bytes): the parts by which a form of a secret is found. They are PIECE characters at its beginning and end, and
    those next to them. A path, whose beginning is that of other paths too, and pieces with few different characters are searched
    for as a whole."""
    size = PIECE * unit
    last = len(form) - size
    wanted = {0, min(size, last), last, max(last - size, 0)} if piecemeal and last > 0 and not form.startswith(b"/") else set()
    return [(at, form[at : at + size]) for at in wanted if len(set(form[at : at + size])) >= MIN_DISTINCT] or [(0, form)]


def _stretches(memory: MutableMapping[int, bytes | memoryview], more: int) -> Iterator[list[int]]:
    """The addresses of adjoining pages, STRETCH of them and the `more` that follow at a time."""
    pages: list[int] = []
    for page in sorted(memory):
        if pages and page != pages[-1] + PAGE:
            yield pages
            pages = []
        elif len(pages) >= STRETCH + more:
            yield pages
            pages = pages[STRETCH:]
        pages.append(page)
    if pages:
        yield pages
