"""Reads thousands of requests of a running process in batches: only those that changed meanwhile are read again."""

from __future__ import annotations

import contextlib
import gc
from functools import partial
from typing import Callable, Collection, Hashable, Iterator, Sequence, TypeVar

from .. import log
from ..access.retry import retry_reading
from ..cpython.runtime import Runtime
from ..errors import GdbextError

M = TypeVar("M", bound=Hashable)
T = TypeVar("T")

SMALLEST, LARGEST = 128, 2048  # members of a batch: the first ones are those that are served and leave, so they are read soonest
PARTS = 4  # that a batch is read in which changed under the reader
MOMENT = 0.5  # seconds for which one member is read again


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """A block without garbage collection: it would look through a million new tuples again and again, and none of them is
    garbage."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def read_in_batches(
    rt: Runtime, listed: Sequence[M], members: Callable[[], Collection[M]], read: Callable[[list[M]], list[T]]
) -> list[T]:
    """The results of `read` for the objects `listed`, in that order. Objects that left the `members` while they were read are
    left out: they cannot be read any more. An object that cannot be read and is still a member is an error."""
    if rt.target.is_stopped:
        return read(list(listed))
    found: list[T] = []
    torn: list[tuple[int, M]] = []  # where in `found` each belongs

    def there(batch: Sequence[M]) -> list[M]:
        rt.target.drop_pages()
        now = set(members())
        return [one for one in batch if one in now]

    first, size = 0, SMALLEST
    while first < len(listed):
        batch = list(listed[first : first + size])
        first, size = first + size, min(2 * size, LARGEST)
        try:
            found += read(batch)
        except GdbextError as e:
            log.passed_over(e)
            _read_parts(rt, there(batch), read, found, torn)
    left = set(there([one for _, one in torn])) if torn else set()
    for at, one in reversed(torn):
        if one in left:
            found[at:at] = retry_reading(rt.target, partial(read, [one]), MOMENT, before_retry=rt.target.refresh_pages)
    return found


def _read_parts(
    rt: Runtime, batch: list[M], read: Callable[[list[M]], list[T]], found: list[T], torn: list[tuple[int, M]]
) -> None:
    try:
        found += read(batch)
    except GdbextError as e:
        log.passed_over(e)
        if len(batch) == 1:
            torn.append((len(found), batch[0]))
            return
        rt.target.drop_pages()
        size = -(-len(batch) // PARTS)
        for first in range(0, len(batch), size):
            _read_parts(rt, batch[first : first + size], read, found, torn)
