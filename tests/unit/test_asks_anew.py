"""Who waits over and over up to a limit: whether anything came is told by its wakes and the ints of its frames. Timelines drawn
here, with the truth by construction."""

import random
from collections import Counter

import pytest

from gdbext.observe.clocks import Clock
from gdbext.observe.stack_keys import FrameKey
from gdbext.observe.system_calls import Call
from gdbext.observe.window import ThreadWindow

SECONDS = 3.0


def timeline(limit, arrivals, counts, before=0.0):
    """(items, a window) of one that asks up to `limit` s from `before` the window on, where items come at `arrivals`.
    `counts`: what it counts in a variable: "items", "bytes", "turns" or nothing."""
    now, wakes, items, turns, todo = -before, 0, 0, 0, sorted(arrivals)
    while now < SECONDS:
        turns += 1
        if todo and todo[0] <= now:  # it is there already: no wait
            todo.pop(0)
            items += 1
            continue
        end = min(now + limit, todo[0] if todo else now + limit)
        now = end
        wakes += 0 < now < SECONDS
    number = {"items": items, "bytes": 4096 * items, "turns": turns}.get(counts, 0)
    stacks = [(FrameKey(9, 4, b"", ()), FrameKey(1, 8, b"", ((0, n),))) for n in (0, number)]
    window = ThreadWindow(Clock(0.0, 0.0, "S", 0), Clock(0.0, 0.0, "S", wakes), stacks)
    window.call = Call("poll", [], True, seconds=limit)
    return items, window


def drawn(seed):
    rng = random.Random(seed)
    limit = rng.choice([0.05, 0.2, 0.5, 1.0, 2.0, 5.0])
    kind = rng.choice(["none", "none", "often", "bursts", "seldom"])
    period = {"often": limit / rng.uniform(2.5, 9), "bursts": limit / 2, "seldom": rng.uniform(0.5, 2) * limit}.get(kind, 0)
    count = int(SECONDS / period) + 1 if period else 0
    arrivals = [rng.uniform(0, SECONDS) for _ in range(count)] if kind == "often" else [period * (n // 4) for n in range(count)]
    counts = rng.choice(["items", "bytes", "turns", ""]) if kind != "bursts" else rng.choice(["items", "bytes"])
    return kind, *timeline(limit, arrivals, counts, rng.uniform(0, limit))


def test_who_got_nothing_is_seen_to_ask_and_who_gets_often_is_not():
    found = Counter()
    for seed in range(3000):
        kind, items, window = drawn(seed)
        found[kind if items else "none", window.asks_anew(SECONDS)] += 1
    assert found["none", False] == 0 < found["none", True], found
    assert found["often", True] <= 0.02 * found["often", False], found


@pytest.mark.parametrize("name, limit, code", [("read", 1.0, 9), ("futex", 1.0, 9), ("poll", 0.0, 9), ("poll", 1.0, 8)])
def test_no_other_call_no_call_without_a_limit_and_no_other_place(name, limit, code):
    _, window = timeline(1.0, [], "")
    assert window.asks_anew(SECONDS)
    window.call = Call(name, [], bool(limit), seconds=limit)
    window.stacks.append((FrameKey(code, 4, b"", ()),))
    assert not window.asks_anew(SECONDS)
