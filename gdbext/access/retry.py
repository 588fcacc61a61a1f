"""Reading memory that changes under the reader: the one loop that reads again, bounded by a time."""

from __future__ import annotations

import contextlib
import time

from .. import log
from ..errors import GdbextError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, Dict, Hashable, Iterator, Optional, Tuple, Type, TypeVar

    from .base import Target

    T = TypeVar("T")
    K = TypeVar("K", bound=Hashable)

SECONDS = 5.0  # no read is repeated for longer, where that was time for TRIES; of nested reads the outermost one's time counts
TRIES = 5  # on a machine at full load one read may take seconds: so many it may always have, in at most SLOWER times as long
SLOWER = 4
LASTING = 0.3  # an error that has said the same for so long, and LASTING_TRIES times, does not come of a race
LASTING_TRIES = 8
READINGS = 4  # of what changes under the reader, until two agree
_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02

_deadline: Optional[float] = None  # of the outermost `retry` that is at work


def retry(
    read: Callable[[], T],
    changes: Callable[[], bool],
    before_retry: Callable[[], None] = lambda: None,
    seconds: float = SECONDS,
    lasting: float = LASTING,
    errors: Tuple[Type[GdbextError], ...] = (GdbextError,),
) -> T:
    """Return `read()`, called again while it raises one of `errors` and `changes()` says that the memory it reads may change
    meanwhile.

    The last error is raised after `seconds` and `TRIES`, or as soon as it has been the same for `lasting` seconds. `before_retry`
    drops what was cached."""
    global _deadline
    outer, began = _deadline, time.monotonic()
    _deadline = began + seconds if outer is None else min(outer, began + seconds)
    first, same, tries, pause = "", 0, 0, 0.0
    since = began
    try:
        while True:
            try:
                return read()
            except errors as e:
                now = time.monotonic()
                if str(e) != first:
                    first, same, since = str(e), 0, now
                same, tries = same + 1, tries + 1
                is_final = same >= LASTING_TRIES and now - since >= lasting
                late = now + pause - _deadline
                is_late = late >= 0 and (outer is not None or tries >= TRIES or late >= (SLOWER - 1) * seconds)
                if e.final or is_final or is_late or not changes():
                    e.final = is_final or e.final
                    raise
                log.note("reads again, for try %d failed: %s", tries, e)
            time.sleep(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause or _PAUSE)
            before_retry()
    finally:
        _deadline = outer


@contextlib.contextmanager
def own_time() -> Iterator[None]:
    """In this `with` block reads have all the time that they ask for: what the outermost one has used went by on purpose, between
    two looks say."""
    global _deadline
    outer, _deadline = _deadline, None
    try:
        yield
    finally:
        _deadline = outer


def retry_reading(target: Target, read: Callable[[], T], seconds: float = SECONDS, lasting: float = LASTING) -> T:
    """`retry` for what is read of one process: once where it is stopped, else again, each time without what was cached of it."""
    return retry(read, lambda: not target.is_stopped, target.invalidate, seconds, lasting)


def settled(
    target: Target, read: Callable[[], Dict[K, T]], agree: Callable[[T, T], bool] = lambda before, now: before == now
) -> Tuple[Dict[K, T], Dict[K, T]]:
    """`read()`, each thing by its key: -> (what two readings, one after the other, agree on, the last reading). One reading does
    where the process is stopped. Where it runs on, an object may have gone while it was read, and anything be in its place:
    `read` goes the whole way anew, from what lasts."""
    if target.is_stopped:
        found = read()
        return found, found
    agreed: Dict[K, T] = {}
    target.drop_pages()
    now = read()
    for _ in range(READINGS):
        before = now
        target.drop_pages()
        now = read()
        agreed.update((key, value) for key, value in now.items() if key in before and agree(before[key], value))
        if agreed.keys() >= now.keys() | before.keys():
            break
        log.note("reads again: two readings agree on %d of %d", len(agreed), len(now.keys() | before.keys()))
    return agreed, now


def settled_counts(target: Target, read: Callable[[], Dict[K, int]], most: int) -> Dict[K, int]:
    """What a process counts, `settled`: two readings agree on a number where the second is at most `most` beyond the first; what
    stands in an object's place would look like progress, or like none."""
    return settled(target, read, lambda before, now: 0 <= now - before <= most)[0]
