"""The one loop that reads changing memory again: what it repeats, what it takes as final, and that nested ones share one
deadline."""

import pytest

from gdbext.access import retry as retrying
from gdbext.access.retry import LASTING, SECONDS, own_time, retry
from gdbext.errors import FaultError, GdbextError, NotFoundError


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """A clock that only sleeping and reading move; each read takes 10 ms."""

    class Clock:
        now = 100.0

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            self.now += seconds

    found = Clock()
    monkeypatch.setattr(retrying, "time", found)
    return found


def failing(clock, times, error, value="read"):
    """A read that raises `error(n)` so many times before it gives `value`; `calls` counts."""

    def read():
        read.calls += 1
        clock.now += 0.01
        if read.calls <= times:
            raise error(read.calls)
        return value

    read.calls = 0
    return read


def moving_fault(n):
    return FaultError(0x1000 * n, 8)


def test_memory_that_changes_is_read_again_after_the_caches_are_dropped(clock):
    read, dropped = failing(clock, 40, moving_fault), []
    assert retry(read, lambda: True, lambda: dropped.append(read.calls)) == "read"
    assert read.calls == 41 and dropped == list(range(1, 41))


def test_memory_that_stands_still_is_read_once(clock):
    read = failing(clock, 1, moving_fault)
    with pytest.raises(FaultError):
        retry(read, lambda: False)
    assert read.calls == 1


def test_an_error_that_stays_the_same_is_final(clock):
    read, began = failing(clock, 10**6, lambda n: NotFoundError("no name 'nope'")), clock.now
    with pytest.raises(NotFoundError) as caught:
        retry(read, lambda: True)
    assert caught.value.final and LASTING <= clock.now - began < 2 * LASTING


def test_errors_that_keep_changing_end_with_the_time(clock):
    read, began = failing(clock, 10**6, moving_fault), clock.now
    with pytest.raises(FaultError):
        retry(read, lambda: True)
    assert SECONDS - 0.1 < clock.now - began < SECONDS + 0.05


def test_a_slow_machine_gets_as_many_tries(clock):
    slow = failing(clock, retrying.TRIES - 1, lambda n: setattr(clock, "now", clock.now + 3) or moving_fault(n))
    assert retry(slow, lambda: True) == "read" and slow.calls == retrying.TRIES
    for_ever, began = failing(clock, 10**6, lambda n: setattr(clock, "now", clock.now + 12) or moving_fault(n)), clock.now
    with pytest.raises(FaultError):
        retry(for_ever, lambda: True)
    assert clock.now - began < retrying.SLOWER * SECONDS + 13


def test_nested_reads_share_the_time_of_the_outermost(clock):
    inner, began = failing(clock, 10**6, moving_fault), clock.now
    with pytest.raises(FaultError):
        retry(lambda: retry(lambda: retry(inner, lambda: True), lambda: True), lambda: True, seconds=1.0)
    assert clock.now - began < 1.2  # those in the middle have no tries of their own
    fresh = failing(clock, 40, moving_fault)
    assert retry(fresh, lambda: True) == "read"  # the next one has its own time


def test_a_read_after_a_pause_has_its_own_time(clock):
    def look(read):
        clock.sleep(SECONDS + 1)  # on purpose
        return retry(read, lambda: True, seconds=1.0)

    def own(read):
        with own_time():
            return look(read)

    with pytest.raises(FaultError):
        retry(lambda: look(failing(clock, 20, moving_fault)), lambda: False)
    assert retry(lambda: own(failing(clock, 20, moving_fault)), lambda: False) == "read"
    late = failing(clock, 20, moving_fault)
    with pytest.raises(FaultError):
        retry(lambda: (own(failing(clock, 1, moving_fault)), look(late)), lambda: False)
    assert late.calls == 1  # outside of it, the outermost one's time counts as before


def test_what_an_inner_read_took_as_final_is_not_repeated(clock):
    inner, outer = failing(clock, 10**6, lambda n: NotFoundError("gone")), []
    with pytest.raises(NotFoundError):
        retry(lambda: outer.append(0) or retry(inner, lambda: True), lambda: True)
    assert len(outer) == 1


def test_other_errors_leave_at_once(clock):
    read = failing(clock, 1, lambda n: GdbextError("a wrong option"))
    with pytest.raises(GdbextError):
        retry(read, lambda: True, errors=(FaultError,))
    assert read.calls == 1
