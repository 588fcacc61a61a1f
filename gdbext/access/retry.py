"""Reading memory that changes under the reader: the one loop that reads again, bounded by a time."""

from __future__ import annotations

import threading
import time
from typing import Callable, Hashable, Sequence, TypeVar

from .. import log
from ..errors import ContradictionError, GdbextError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .base import Target
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)

SECONDS = 5.0  # no read is repeated for longer, if that was time for TRIES
TRIES = 5  # on a machine at full load one read may take seconds: it always has so many, in at most SLOWER times as long
SLOWER = 4
LASTING = 0.3  # an error that stays the same for so long, and LASTING_TRIES times, is not caused by a race
LASTING_TRIES = 8
READINGS = 4  # of memory that changes under the reader, until two agree
_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02


class Budget:
    """The limit for repeating one read: `seconds`, or `TRIES` tries where those take longer. A budget `within` another ends with
    it at the latest, and has no tries of its own after that."""

    def __init__(self, seconds: float = SECONDS, within: Budget | None = None) -> None:
        self.seconds, self.nested = seconds, within is not None
        self.deadline = time.monotonic() + seconds
        if within is not None:
            self.deadline = min(self.deadline, within.deadline)

    def is_spent(self, at: float, tries: int) -> bool:
        """Whether no further try is allowed at the moment `at`, after `tries` tries."""
        late = at - self.deadline
        return late >= 0 and (self.nested or tries >= TRIES or late >= (SLOWER - 1) * self.seconds)


def retry(
    read: Callable[[], T],
    changes: Callable[[], bool],
    budget: Budget,
    before_retry: Callable[[], None] = lambda: None,
    lasting: float = LASTING,
    errors: tuple[type[GdbextError], ...] = (GdbextError,),
) -> T:
    """Return `read()`, called again while it raises one of `errors` and `changes()` says that the memory it reads may change
    meanwhile.

    The last error is raised when `budget` is spent, or as soon as it has been the same for `lasting` seconds. A nested read may
    have spent as large a budget on an error; such an error is not repeated after the deadline. `before_retry` drops cached data.
    """
    first, same, tries, pause = "", 0, 0, 0.0
    since = time.monotonic()
    while True:
        try:
            return read()
        except errors as e:
            now = time.monotonic()
            if str(e) != first:
                first, same, since = str(e), 0, now
            same, tries = same + 1, tries + 1
            is_final = same >= LASTING_TRIES and now - since >= lasting
            is_late = budget.is_spent(now + pause, TRIES if e.spent >= budget.seconds else tries)
            if e.final or is_final or is_late or not changes():
                e.final, e.spent = is_final or e.final, max(e.spent, budget.seconds if is_late else 0.0)
                raise
            log.note("try %d is repeated: %s", tries, e)
        time.sleep(pause)
        pause = min(_LONGEST_PAUSE, 2 * pause or _PAUSE)
        before_retry()


def retry_reading(
    target: Target,
    read: Callable[[], T],
    seconds: float = SECONDS,
    lasting: float = LASTING,
    before_retry: Callable[[], None] | None = None,
    lasts: Callable[[], bool] = lambda: True,
) -> T:
    """`retry` for a read of one process.

    A stopped process is read once. A running one is read again while `lasts()` and it has not ended, and before each try its
    caches are dropped (`before_retry` replaces that). Nested reads of the same process in the same thread end with this budget.
    Reads of other processes, and in other threads, have their own."""
    thread, budgets = threading.get_ident(), target.budgets
    outer = budgets.get(thread)
    budget = budgets[thread] = Budget(seconds, outer)
    try:
        changes = lambda: not target.is_stopped and lasts() and not target.has_ended()  # noqa: E731
        return retry(read, changes, budget, before_retry or target.invalidate, lasting)
    finally:
        if outer is not None:
            budgets[thread] = outer
        else:
            del budgets[thread]


def agreeing(target: Target, read: Callable[[], T], contradictions: Callable[[T], Sequence[str]]) -> T:
    """The result of `read()`, in which nothing contradicts anything else. A running process is read again where something does;
    `ContradictionError` where that helps not. What is of one moment is a fact, whatever it says."""
    for _ in range(READINGS):
        found = read()
        why = [] if target.is_stopped else contradictions(found)
        if not why:
            return found
        log.note("reads again: %s", why[0])
        target.drop_pages()
    raise ContradictionError(f"{target.describe()} runs, and what is read contradicts itself each time: {why[0]}")


def settled(
    target: Target, read: Callable[[], dict[K, T]], agree: Callable[[T, T], bool] = lambda before, now: before == now
) -> tuple[dict[K, T], dict[K, T]]:
    """The results of `read()` that two consecutive readings agree on, by key. -> (those, the last reading)

    A stopped process is read once. In a running process an object may have been freed during the read, and its memory used for
    anything. So each call of `read` follows the whole way again, from objects that last."""
    if target.is_stopped:
        found = read()
        return found, found
    agreed: dict[K, T] = {}
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


def settled_counts(target: Target, read: Callable[[], dict[K, int]], most: int) -> dict[K, int]:
    """Counters of a process, `settled`. Two readings agree on a number where the second is at most `most` above the first. A
    number from reused memory would look like progress, or like none."""
    return settled(target, read, lambda before, now: 0 <= now - before <= most)[0]
