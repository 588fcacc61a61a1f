"""Looks at threads whose root was not known yet. They are kept aside, and taken in once it is."""

from __future__ import annotations

from ..observe.bulk_stacks import StackReader, ThreadPlaces
from .recording import ProcessTrack, ThreadTrack

MAX_ASIDE = 200_000  # looks


class Aside:
    """A look at a thread whose root was not known yet: its stack, from `look` until before `after`."""

    __slots__ = ("track", "look", "after", "node", "_places", "_root")

    def __init__(self, track: ThreadTrack, places: ThreadPlaces, look: int) -> None:
        self.track, self.look, self.after, self.node = track, look, look + 1, places.stack.node
        self._places, self._root = places, places.root or (0, 0)

    def is_whole(self, reader: StackReader) -> bool:
        """Whether its root is known by now."""
        return self._places.roots.known == self._root or reader.root_codes.knows(self._root[1])


class Kept:
    """The looks of one process that are kept aside."""

    def __init__(self) -> None:
        self._all: list[Aside] = []

    def add(self, one: Aside) -> None:
        """Keeps a look aside, if there is room."""
        if len(self._all) < MAX_ASIDE:
            self._all.append(one)

    def take_in(self, reader: StackReader, process: ProcessTrack) -> None:
        """Puts the looks whose roots are known by now into their tracks."""
        left, taken = [], len(process.begins)
        for one in self._all:
            if one.is_whole(reader):
                end = taken if one.track.ended is None else one.track.ended
                process.dropped -= bool(one.track.put(one.look, one.after, one.node, end))
            else:
                left.append(one)
        self._all = left

    def clear(self) -> None:
        """Forgets all of them."""
        self._all = []
