"""Answers in pages of a bounded size. A cursor names the rest of an earlier answer: all pages come from one run of the
command."""

from __future__ import annotations

from ..errors import GdbextError
from ..session.command import finite

PAGE = 8192  # bytes of one answer, with its last line
ROOM = 160  # of them for the line that names the next page
KEPT, MOST = 16, 4 << 20  # answers that are kept for their next pages, and bytes of one


class Pages:
    """Cuts answers into pages of at most `size` bytes, at line ends where there are any."""

    def __init__(self, size: int = PAGE) -> None:
        self.size, self._count = size, 0
        self._kept: dict[int, bytes] = {}

    def first(self, text: str) -> str:
        """The first page of an answer; the other pages are kept."""
        data = text.encode("utf-8", "replace")
        if len(data) <= self.size:
            return text
        self._count += 1
        self._kept[self._count] = data[:MOST]
        while len(self._kept) > KEPT:
            del self._kept[min(self._kept)]
        return self._page(self._count, 0)

    def next(self, cursor: str) -> str:
        """The page that a cursor names; `GdbextError` for an unknown or expired cursor."""
        try:
            number, at = (finite(word, int) for word in cursor.split(":"))
            if 0 <= at < len(self._kept[number]):
                return self._page(number, at)
        except (ValueError, KeyError):
            pass
        raise GdbextError("this cursor is not known any more: ask again without it")

    def _page(self, number: int, at: int) -> str:
        data = self._kept[number]
        end = min(at + self.size - ROOM, len(data))
        if end < len(data):
            cut = data.rfind(b"\n", at + 1, end)
            end = cut + 1 if cut > at + (end - at) // 2 else end
            while data[end] & 0xC0 == 0x80:  # in the middle of a character
                end -= 1
        page = data[at:end].decode("utf-8", "replace")
        if end == len(data):
            return page
        more = f'(bytes {at} to {end} of {len(data)}; go on with {{"cursor": "{number}:{end}"}})'
        return page + ("" if page.endswith("\n") else "\n") + more
