"""The progress of a slow command: one line on a terminal, which is removed at the end."""

from __future__ import annotations

import contextlib
from typing import IO, Callable, Iterator

from .. import log

EVERY = 1.0  # seconds
MOST = 76  # characters of a line, which a terminal does not break


@contextlib.contextmanager
def shown(stream: IO[str] | None, what: str, total: float) -> Iterator[Callable[[float], None]]:
    """-> a function that takes the seconds that have passed of `total`. Nothing is written where `stream` is no terminal."""
    due = 0.0

    def tell(passed: float) -> None:
        nonlocal due
        if passed >= due:
            due = passed + EVERY
            put(f"{what}: {min(passed, total):.0f} of {total:g} s")

    with line(stream) as put:
        yield tell


@contextlib.contextmanager
def line(stream: IO[str] | None) -> Iterator[Callable[[str], None]]:
    """-> a function that shows a line in the place of the last one, where `stream` is a terminal."""
    one = _Line(stream if stream is not None and stream.isatty() else None)
    try:
        yield lambda text: one.put(text[:MOST])
    finally:
        one.put("")


class _Line:
    """A line that the next one is written over."""

    def __init__(self, stream: IO[str] | None) -> None:
        self._stream, self._width = stream, 0

    def put(self, text: str) -> None:
        if self._stream is None or not (text or self._width):
            return
        try:
            self._stream.write("\r" + text.ljust(self._width) + ("" if text else "\r"))
            self._stream.flush()
        except (OSError, ValueError) as e:  # the terminal is gone: the work goes on
            log.passed_over(e)
            self._stream = None
        self._width = len(text)
