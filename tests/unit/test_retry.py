"""The one loop that reads changing memory again: what it repeats, what it takes as final, that nested reads of one process share
one budget, and that what runs for minutes, or in two threads, has its own for each read."""

import threading

import pytest

from gdbext.access import retry as retrying
from gdbext.access.fake import FakeTarget
from gdbext.access.retry import LASTING, SECONDS, Budget, retry_reading
from gdbext.access.retry import retry as retry_within
from gdbext.errors import FaultError, GdbextError, NotFoundError
from gdbext.session.command import Command
from gdbext.session.session import Session


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


class Running(FakeTarget):
    """A process that runs on while it is read."""

    is_stopped = False


def retry(read, changes, *drop, **how):
    return retry_within(read, changes, Budget(), *drop, **how)


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


def test_nested_reads_of_one_process_share_the_budget_of_the_outermost(clock):
    target, inner, began = Running(), failing(clock, 10**6, moving_fault), clock.now
    with pytest.raises(FaultError):
        retry_reading(target, lambda: retry_reading(target, lambda: retry_reading(target, inner)), seconds=1.0)
    assert clock.now - began < 1.2  # those in the middle have no tries of their own
    fresh = failing(clock, 40, moving_fault)
    assert retry_reading(target, fresh) == "read"  # the next one has its own time
    assert target.budgets == {}


def test_reads_of_another_process_have_their_own_budget(clock):
    one, other = Running(), Running()

    def outer():
        clock.sleep(SECONDS + 1)
        return retry_reading(other, failing(clock, 20, moving_fault), seconds=1.0)

    assert retry_reading(one, outer) == "read"


def test_an_inner_read_that_spent_its_budget_is_not_repeated(clock):
    target, inner, began, outer = Running(), failing(clock, 10**6, moving_fault), clock.now, []
    with pytest.raises(FaultError):
        retry(lambda: outer.append(0) or retry_reading(target, inner), lambda: True)
    assert len(outer) == 1 and clock.now - began < SECONDS + 0.2


@pytest.mark.parametrize("runs", ["retries", "command"])
def test_a_read_of_a_command_that_has_run_for_minutes_has_its_tries(clock, runs):
    """llm-record, llm-top, llm-watch: each reading is one read, the command is none."""
    target, found = Running(), []

    def record():
        for _ in range(60):
            clock.sleep(2 * SECONDS)
            found.append(retry_reading(target, failing(clock, 3, moving_fault), seconds=0.5))

    class Recorder(Command):
        name = "llm-made-up"

        def run(self, session, args):
            session.moving = True
            return record()

    if runs == "command":
        Recorder().answer(Session(), None)
    else:
        retry(record, lambda: True)
    assert found == ["read"] * 60


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("ends_first", ["first", "second"])
def test_two_threads_that_read_again_leave_nothing_to_each_other(shared, ends_first):
    """In real time: the two reads overlap, and the one that began first ends first, or last."""
    one = Running()
    other = one if shared else Running()
    inside, end = [threading.Event(), threading.Event()], [threading.Event(), threading.Event()]
    nested = []

    def body(number, target):
        def read():
            inside[number].set()
            assert end[number].wait(10)
            calls = []
            nested.append(retry_reading(target, lambda: calls.append(0) or fails_at_first(calls), seconds=1.0))

        retry_reading(target, read, seconds=100.0)

    threads = [threading.Thread(target=body, args=(i, target)) for i, target in enumerate((one, other))]
    for number, thread in enumerate(threads):
        thread.start()
        assert inside[number].wait(10)
    for number in (0, 1) if ends_first == "first" else (1, 0):
        end[number].set()
        threads[number].join(10)
    assert nested == ["read", "read"] and one.budgets == other.budgets == {}
    calls = []
    assert retry_reading(one, lambda: calls.append(0) or fails_at_first(calls)) == "read"


def fails_at_first(calls):
    if len(calls) < 3:
        raise moving_fault(len(calls))
    return "read"


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
