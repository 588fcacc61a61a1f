"""What keeps growing, of made-up looks whose truth is known."""

import math
import random
import time
from types import SimpleNamespace

import pytest

from gdbext.answers import grow
from gdbext.heap import grow_watch, grown
from gdbext.heap.counters import Growth
from gdbext.heap.grown import ANONYMOUS, ARENAS, FILES, HEAP, HUGE, SHARED, Look, Place, Span, Spans, Taken
from gdbext.heap.resident import Piece
from gdbext.render.text import Style

MIB = 1 << 20
LEAK, CHURN = Place("libhook.so", "hook", "pull", "transfer.py", 8), Place("python3", "malloc", "step", "engine.py", 3)


def looks(values, kind=ANONYMOUS, **more):
    known = {"paths": {}, "huge": 0, "locked": 0, "threads": 4, **more}
    return [Look(time, {kind: value, FILES: 50 * MIB}, **known) for time, value in values]


def judged(make, rng):
    counted = [(at, {ANONYMOUS: value}) for at, value in over(60, make, rng, 200)]
    return grown.judge(looks(over(60, make, rng)), [], [], counted)


def over(seconds, function, rng, count=24):
    times = [seconds * (i + (rng.uniform(-0.3, 0.3) if 0 < i < count - 1 else 0)) / (count - 1) for i in range(count)]
    return [(at, int(function(at))) for at in times]


def growers(rng):
    base, rate, noise = rng.uniform(10, 4000) * MIB, rng.uniform(0.2, 20) * MIB, rng.uniform(0, 1) * MIB
    step = rng.uniform(0.05, 6)
    churn = lambda: rng.uniform(0, noise)  # noqa: E731
    yield lambda t: base + rate * t + churn()
    yield lambda t: base + rate * step * int(t / step) + churn()
    yield lambda t: base + rate * t + min(noise, rate * 2) * math.sin(t * rng.uniform(0.9, 1.1))


def healthy(rng):
    base, size, tau = rng.uniform(10, 4000) * MIB, rng.uniform(5, 500) * MIB, rng.uniform(1, 8)
    period = rng.uniform(0.3, 12)
    yield lambda t: base + size * (1 - math.exp(-t / tau))
    yield lambda t: base + min(size, size * t / (2 * tau))
    yield lambda t: base + size * (t % period) / period
    yield lambda t: base + size * (1 + math.sin(2 * math.pi * t / period))
    yield lambda t: base + rng.uniform(0, size)
    yield lambda t: base + (size if t > 3 * tau else 0)
    yield lambda t: base - size / 50 * t / 60


def test_growth_is_told_from_warm_up_and_churn():
    found, named, accused = 0, 0, []
    for seed in range(120):
        rng = random.Random(seed)
        for make in growers(rng):
            found, named = found + 1, named + bool(judged(make, rng))
        for number, make in enumerate(healthy(rng)):
            if judged(make, rng):
                accused.append((seed, number))
    assert not accused and named >= 0.97 * found, (named, found, accused)


def test_few_looks_tell_nothing():
    assert grown.judge(looks([(0, 0), (1, 100 * MIB), (2, 200 * MIB)]), [], []) == []
    assert grown.keeps_growing([]) == 0.0


def taken(place, times, **more):
    return [Taken(at, 7, place, 100, 0x1000 * (i + 1), grown.FAULT, ANONYMOUS, **more) for i, at in enumerate(times)]


def test_the_place_is_the_one_whose_pages_stay():
    growing = looks([(at, 100 * MIB + at * MIB) for at in range(0, 61, 3)])
    churned = taken(CHURN, range(60), stays=False) + taken(CHURN, [59.0, 59.5, 59.9] * 40)  # of the end alone: it is to go
    warmed = taken(CHURN._replace(line=9), [0.5] * 200)
    (row,) = grown.judge(growing, taken(LEAK, range(60)) + churned + warmed, [])
    assert row.place == LEAK and row.since == 0 and row.given_back == 0 and row.per_minute == 60 * MIB and row.tids == [7]
    (row,) = grown.judge(growing, churned, [])
    assert row.place == Place() and row.source == "differences"
    (row,) = grown.judge(growing, taken(LEAK, range(20, 60)) + churned, [])
    assert row.place == LEAK and row.since == 20


@pytest.mark.parametrize("again, place", [(0.0, CHURN), (0.1, CHURN), (0.6, Place()), (1.0, Place())])
def test_who_touches_what_was_free_later_is_said_to_have_touched_it(again, place):
    growing = looks([(at, 100 * MIB + at * MIB) for at in range(0, 61, 3)])
    touched = [one._replace(freed=i % 10 < 10 * again) for i, one in enumerate(taken(CHURN, range(60)))]
    (row,) = grown.judge(growing, touched, [])
    assert row.place == place and row.first == (Place() if place == CHURN else CHURN) and row.bytes == 60 * MIB
    rows = grown.judge(growing, touched + taken(LEAK, [i / 5 for i in range(300)]), [])
    assert {one.place for one in rows} == {LEAK, place} - {Place()}  # who keeps much more than that is named


def test_two_places_share_a_growth_and_the_functions_lines_are_one():
    growing = looks([(at, 100 * MIB + at * MIB) for at in range(0, 61, 3)])
    other = Place("libother.so", "keep", "", "", 0)
    rows = grown.judge(growing, taken(LEAK, range(60)) + taken(other, [i / 3 for i in range(180)]), [])
    assert [row.place for row in rows] == [other, LEAK] and sum(row.bytes for row in rows) in (60 * MIB, 60 * MIB - 1)
    lines = [one._replace(place=LEAK._replace(line=i % 20)) for i, one in enumerate(taken(LEAK, range(60)))]
    (row,) = grown.judge(growing, lines, [])
    assert row.place.function == "pull" and row.bytes == 60 * MIB


def test_what_the_kernel_fills_has_the_place_of_its_mapping():
    growing = looks([(at, 100 * MIB + at * MIB) for at in range(0, 61, 3)])
    faults = taken(CHURN, range(0, 60, 10))
    made = [one._replace(way=grown.MAPPING, pages=256) for one in taken(LEAK, range(60))]
    (row,) = grown.judge(growing, faults + made, [])
    assert row.place == LEAK and row.source == "mappings"
    later = [one._replace(sure=0) for one in made]  # the thread was looked at too late: it may stand anywhere by then
    (row,) = grown.judge(growing, faults + later, [])
    assert row.place == Place() and row.tids == [7]


@pytest.mark.parametrize("swing, grows", [(1, True), (40, False)])
def test_a_kind_that_rises_less_than_all_goes_up_and_down_is_not_judged(swing, grows):
    values = [(at, 100 * MIB + at * MIB // 12) for at in range(0, 61, 3)]
    counted = [(at / 4, {ANONYMOUS: 300 * MIB + int(at / 4 * MIB / 12) + (at % 5) * swing * MIB // 4}) for at in range(240)]
    assert bool(grown.judge(looks(values, HEAP), [], [], counted)) == grows


def test_looks_at_a_thread_speak_only_where_they_agree():
    growing = looks([(at, 100 * MIB + at * MIB) for at in range(0, 61, 3)])
    seen = [Taken(at, 7, CHURN, 256, sure=0) for at in range(60)]
    three = [Taken(at, 7, LEAK, 256, sure=1) for at in (5, 30, 50)]
    split = [*three[:2], Taken(55, 7, CHURN, 600, sure=1)]
    two = [three[0], Taken(55, 7, CHURN, 60, sure=1)]
    for more, place in ((three, LEAK), (three[:2], LEAK), (three[:1], Place()), (two, Place()), (split, Place())):
        (row,) = grown.judge(growing, sorted(seen + more), [])
        assert row.place._replace(library="", native="") == place._replace(library="", native=""), more


@pytest.mark.parametrize("churner, times, place", [(8, 10, LEAK), (7, 10, Place()), (7, 3, Place()), (8, 3, LEAK), (7, 0, LEAK)])
def test_who_touches_far_more_than_grows_is_not_named_by_looks(churner, times, place):
    growing = looks([(at, 100 * MIB + at * MIB) for at in range(0, 61, 3)])
    counts = [Taken(at, tid, Place(), 256 * n, sure=0) for at in range(60) for tid, n in ((7, 1), (churner, times)) if n]
    seen = [Taken(at, 7, LEAK, 256, sure=1) for at in range(0, 60, 9)]
    seen += [Taken(at, churner, CHURN, 256 * times, sure=1) for at in range(0, 60, 7) if times]
    rows = grown.judge(growing, sorted(counts + seen), [])
    found = {row.place._replace(library="", native="") for row in rows}
    assert found <= {place._replace(library="", native=""), Place()} and (place == Place() or len(rows) <= 2), rows


def test_kinds_of_memory():
    word = {64 << 20: (64 << 20) + 0x30, 128 << 20: 0x6C}
    kinds = [
        grown.kind_of(Piece(start, start + MIB, perms, path), lambda at: word.get(at, 0))
        for start, perms, path in (
            (64 << 20, "rw-p", ""),
            (192 << 20, "rw-p", ""),
            (MIB, "rw-s", "/dev/shm/x"),
            (MIB, "rw-s", "/tmp/x (deleted)"),
            (MIB, "r--p", "/lib/x.so"),
            (MIB, "rw-p", "[heap]"),
            (MIB, "rw-p", "/dev/nvidia0"),
        )
    ]
    assert kinds == [ARENAS, ANONYMOUS, SHARED, SHARED, FILES, grown.HEAP, grown.OTHER]


def test_huge_pages_locked_memory_files_and_threads_are_named():
    values = [(at, 100 * MIB + at * MIB) for at in range(0, 61, 3)]
    for name, more in ((HUGE, {"huge": 1}), (ANONYMOUS + ", locked", {"locked": 1})):
        own = [look._replace(**{key: int(look.time) * MIB for key in more}) for look in looks(values)]
        assert grown.judge(own, [], [])[0].kind == name
    own = [look._replace(paths={"/dev/shm/a": 5 * MIB, "/dev/shm/b": int(look.time) * MIB}) for look in looks(values, SHARED)]
    assert grown.judge(own, [], [])[0].path == "/dev/shm/b"
    born = [Taken(at, 7, LEAK, 1, 1000 + at) for at in range(60)]
    own = [look._replace(threads=4 + int(look.time)) for look in looks([(at, 9 * MIB + at * 50000) for at in range(0, 61, 3)])]
    (row,) = grown.judge(own, taken(CHURN, range(60)), born)
    assert (row.kind, row.place, row.samples) == (grown.STACKS, LEAK, 60) and row.bytes


def test_rates_of_two_cheap_looks():
    assert grown.rates({"anonymous": 0, "files": MIB}, {"anonymous": MIB, "files": MIB, "locked": 4}, 30) == {
        "anonymous": 2 * MIB,
        "files": 0,
    }


def test_a_rise_is_of_the_line_that_is_stayed_in_or_moved_through():
    work, before, after = (Place("", "", name, "a.py", line) for line, name in enumerate(("leak", "before", "after"), 1))
    spans = Spans()
    for i in range(9):  # it is seen between its neighbours now and then; these are alone far more often
        for first, then, rise in ((after, before, 0), (before, work, 4), (work, after, 4), (after, after, 0)):
            spans.add(i, Span(7, first, then, rise))
    assert {place for _, _, place, _ in spans.told()} == {work} and sum(rise for *_, rise in spans.told()) == 72
    spans.add(10, Span(7, after, after, 5))
    assert spans.told()[-1] == (10, 7, after, 5)
    hidden = Spans()  # never seen itself: no neighbour is accused
    for i in range(20):
        for first, then, rise in ((after, before, 0), (before, after, 4)):
            hidden.add(i, Span(7, first, then, rise))
    once = Spans()
    once.add(0, Span(7, before, work, 4))
    assert hidden.told() == [] and once.told() == []


@pytest.mark.parametrize("seed", range(6))
def test_the_watch_tells_what_keeps_growing_for_minutes(seed):
    rng = random.Random(seed)
    rate, base = rng.randrange(4 * MIB, 60 * MIB), rng.randrange(50 * MIB, 900 * MIB)
    begins = rng.choice([0, 300])  # after five minutes of calm too
    one = Growth(0)
    for at in range(0, 900, 5):
        noise = rng.randrange(rate // 20)
        leak = base + max(0, at - begins) * rate // 60 + noise
        one.take(at, {"anonymous": leak, "files": base + noise, "shared memory": min(at, 30) * MIB, "locked": 0})
        if at < 60:
            assert one.grows is None
        elif at > begins + 200:
            assert one.grows["files"] == one.grows["shared memory"] == one.grows["locked"] == 0
            assert 0.5 * rate < one.grows["anonymous"] < 1.6 * rate, (at, rate, one.grows)


def test_processes_without_samples_are_followed_in_turns_to_the_end():
    turns, ended = [], []

    def made(name, hot, rounds):
        def spots(tids, until, look):
            turns.append((name, tids, until - time.monotonic()))
            time.sleep(max(0.0, until - time.monotonic()))

        def step():
            one.ended = (rounds.pop() if rounds else 0) == 1

        follower = SimpleNamespace(spots=spots, end=lambda: ended.append(name), share=0.004)
        one = SimpleNamespace(follower=follower, hot=hot, ended=False, faults=None, spot=None, round=step)
        one.share_with = lambda count: setattr(follower, "share", follower.share / count)
        return one

    watches = [made("a", [1], []), made("b", [2, 3], []), made("calm", [], []), made("gone", [4], [1])]
    grow_watch.run(watches, 0.4)
    assert {name for name, *_ in turns} == {"a", "b"} and all(left <= grow_watch.TURN for *_, left in turns)
    assert ended == ["a", "b", "calm", "gone"] and watches[0].follower.share == 0.001

    def breaks():
        raise KeyboardInterrupt

    watches[0].round = breaks
    with pytest.raises(KeyboardInterrupt):
        grow_watch.run(watches, 5)
    assert len(ended) == 8  # whatever ends it, it takes the CPUs again that it left


@pytest.mark.parametrize("count, rises, said", [(3, 24, "short to judge: 24.0 MiB more"), (3, 0, "nothing"), (9, 24, "nothing")])
def test_a_window_too_short_to_judge_is_not_one_without_growth(count, rises, said):
    """As of a process that the kernel killed for its memory while it was watched."""
    curve = [{"kinds": {"heap": (70 + rises * at // (count - 1)) << 20}} for at in range(count)]
    source = {"source": "page faults", "used": True, "why": None, "cannot_see": ""}
    one = {
        "label": "x",
        "pid": 7,
        "seconds": 3.0,
        "cpu_seconds": 0.0,
        "curve": curve,
        "grows": [],
        "sources": [source],
        "next": "",
    }
    assert said in grow.grow_text(one, Style(False, 0))
