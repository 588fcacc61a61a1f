"""The one loop of sampling: when a round is due, by a clock that is made up."""

import pytest

from gdbext.observe import loop


class Clock:
    """A clock that goes on only while somebody waits or works; `drawn`: what a random number is."""

    def __init__(self, monkeypatch, drawn=0.0):
        self.now, self.waits = 100.0, []
        monkeypatch.setattr(loop.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(loop.random, "uniform", lambda low, high: drawn * high)

    def wait(self, seconds):
        self.waits.append(round(seconds, 6))
        self.now += seconds

    def begins(self, took, interval, **how):
        """At which seconds rounds begin that take as long as `took` says, the last of it for all that follow."""
        found = []
        for at in loop.rounds(interval, wait=self.wait, **how):
            found.append(round(at, 6))
            self.now += took[min(len(found), len(took)) - 1]
        return found


def test_a_count_of_rounds_is_taken_whole_however_late_they_are(monkeypatch):
    clock = Clock(monkeypatch)
    assert clock.begins([0.01], 1.0, count=3) == [0.0, 1.0, 2.0] and clock.waits == [0.99, 0.99]  # none after the last
    assert Clock(monkeypatch).begins([2.5, 0.25], 1.0, count=4) == [0.0, 2.5, 2.75, 3.0]
    assert Clock(monkeypatch).begins([0.25], 0.0, count=3) == [0.0, 0.25, 0.5]
    assert Clock(monkeypatch).begins([9.0], 1.0, count=1) == [0.0]


def test_rounds_due_during_another_are_left_out_and_the_last_is_at_the_end(monkeypatch):
    assert Clock(monkeypatch).begins([0.0], 0.25, seconds=1.0) == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert Clock(monkeypatch).begins([0.6, 0.0], 0.25, seconds=1.0) == [0.0, 0.6, 0.75, 1.0]
    assert Clock(monkeypatch).begins([0.0], 1.0, seconds=2.5) == [0.0, 1.0, 2.0, 2.5]
    assert Clock(monkeypatch).begins([3.0], 1.0, seconds=2.5) == [0.0]


def test_rounds_are_early_or_late_by_their_jitter_and_none_is_taken_twice(monkeypatch):
    early = Clock(monkeypatch, -1.0).begins([0.0], 1.0, seconds=3.0, jitter=0.3)
    assert early == [0.0, 0.7, 1.7, 2.7, 3.0]
    assert Clock(monkeypatch, 1.0).begins([0.0], 1.0, seconds=3.0, jitter=0.3) == [0.0, 1.3, 2.3, 3.0]


def test_what_is_sampled_has_its_rest_after_a_round(monkeypatch):
    assert Clock(monkeypatch).begins([0.5], 0.1, count=3, rest=lambda took: took) == [0.0, 1.0, 2.0]
    assert Clock(monkeypatch).begins([2.0], 0.5, count=3, rest=lambda took: 0.5) == [0.0, 2.5, 5.0]
    assert Clock(monkeypatch).begins([0.5], 0.1, seconds=0.8, rest=lambda took: took) == [0.0, 0.8]


@pytest.mark.parametrize("cut", [0.001, 0.02])
def test_a_wait_cut_short_brings_rounds_forward_and_leaves_no_gap(monkeypatch, cut):
    clock, begins, cuts = Clock(monkeypatch), [], [cut] * 10

    def key(seconds):
        clock.now += min(seconds, cuts.pop()) if cuts else seconds

    for at in loop.rounds(0.05, seconds=1.0, wait=key):
        begins.append(at)
    gaps = [b - a for a, b in zip(begins, begins[1:])]
    assert max(gaps) <= 0.1 + 1e-9 and begins[-1] == pytest.approx(1.0)


def test_a_wait_may_end_the_loop(monkeypatch):
    Clock(monkeypatch)
    assert list(loop.rounds(1.0, seconds=9.0, wait=lambda seconds: True)) == [0.0]
