"""Whether a sampled stack ends at its thread's root: the rule of `cpython.whole_stacks`, for many samples a second.

A stack that ends where the one before it did is whole. Any other is doubted and read again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Callable, Iterable

from ..cpython.whole_stacks import AGREE, SPAN

if TYPE_CHECKING:
    Root = tuple[int, int]  # the addresses of the outermost frame and of its code


class Roots:
    """The outermost frame of one thread. `known`: that of its stacks, None until one is proven."""

    def __init__(self) -> None:
        self.known: Root | None = None
        self._last: Root | None = None
        self._count, self._since = 0, 0.0

    def prove(self, root: Root | None, alike: int, plain: bool, asleep: Callable[[], bool]) -> bool:
        """Whether a stack that does not end at the known root is whole all the same. `root`: None of an empty stack. `alike`: so
        many readings with the same result are enough, 0 where they must span a time too. `plain`: that frame may be a root, and
        is not a generator's. `asleep()`: the thread slept while it was read, so nothing changed."""
        now = time.monotonic()
        if not self._count or self._last != root:
            self._last, self._count, self._since = root, 0, now
        self._count += 1
        agree = plain and 0 < alike <= self._count or self._count >= AGREE and now - self._since >= SPAN
        if not agree and not asleep():
            return False
        if root is not None:
            self._count = 0
            if plain:
                self.known = root
        return True

    def seen(self) -> None:
        """Notes that a stack ended at the known root: a doubted root before it is not the thread's."""
        self._count = 0


class RootCodes:
    """The code objects of outermost frames. One that is known to be a thread's root, and that nothing was ever seen to call, is
    the root of other threads too (`Thread._bootstrap`): a thread may end before its own root is proven."""

    def __init__(self) -> None:
        self._proven: set[int] = set()
        self._called: set[int] = set()
        self._doubted: dict[int, tuple[int, float]] = {}  # how often, since when

    def called(self, codes: Iterable[int]) -> None:
        """Takes in the code objects of frames that others called."""
        self._called.update(codes)

    def seen(self, code: int, proven: bool) -> None:
        """Takes in a reading that ended at a frame of `code`. `proven`: and is whole."""
        count, since = self._doubted.get(code, (0, time.monotonic()))
        self._doubted[code] = count + 1, since
        if proven or count + 1 >= AGREE and time.monotonic() - since >= SPAN:
            self._proven.add(code)

    def knows(self, code: int) -> bool:
        """Whether a stack that ends at a frame of this code object is whole."""
        return code in self._proven and code not in self._called

    def forget(self, codes: Iterable[int]) -> None:
        """Forgets code objects that were replaced."""
        for code in codes:
            self._proven.discard(code)
            self._called.discard(code)
            self._doubted.pop(code, None)
