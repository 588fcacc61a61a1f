"""What an engine gets done, from two looks that are made up: rates, counts, and who has stood longest."""

from types import SimpleNamespace

import pytest

from gdbext.answers import top
from gdbext.engines.shm_rings import Ring
from gdbext.engines.sightings import QUEUE, RUNNING, Look, Sighting
from gdbext.kvcache.model import Pool
from gdbext.render.text import Style, visible_length
from gdbext.requests import meter
from gdbext.timeline.live import Row
from gdbext.timeline.recording import Frame


def look(steps, tokens):
    """A scheduler that has made so many steps; `tokens`: {request: (its stage, tokens so far)}."""
    found = Look("EngineCore", 7, "engine-core", parts=("scheduler",), counters={"scheduler steps": steps})
    for name, (stage, count) in tokens.items():
        found.sightings.append(Sighting(name, stage, "", progress=(count,), tokens=count))
    return found


@pytest.fixture
def metered(monkeypatch):
    """-> read(look, at): the next `Reading` of one engine."""
    now, looks = [0.0], []
    rank = SimpleNamespace(label="EngineCore", pid=7)
    engine = SimpleNamespace(name="vllm", labels=lambda: ["EngineCore"], with_role=lambda *r: [rank], target=lambda r: None)
    engine.replicas = lambda: [[rank]]
    monkeypatch.setattr(meter, "looks_at", lambda e: ([looks[-1]], ["unstopped"]))
    pool = Pool("0", 100, 100, 16, num_free=75)
    view = SimpleNamespace(cache=lambda: SimpleNamespace(pools=[pool]))
    monkeypatch.setattr(meter.kv_view, "View", lambda target, engine: view)
    ring = Ring("psm_1", None, 1, "rpc_broadcast_mq", [(True, [True, False]), (True, [False, False])])
    monkeypatch.setattr(meter, "open_runtime", lambda target: target)
    monkeypatch.setattr(meter.shm_rings, "find", lambda rt: [ring])
    monkeypatch.setattr(meter, "retry_reading", lambda target, read, seconds: read())
    own = meter.EngineMeter(engine, clock=lambda: now[0])

    def read(one, at):
        now[0] = at
        looks.append(one)
        return own.read()

    return read


def test_rates_are_those_of_the_time_between_two_readings(metered):
    first = metered(look(10, {"a": (RUNNING, 5), "b": (RUNNING, 50), "c": (QUEUE, 0)}), 100.0)
    assert (first.running, first.waiting, first.tokens_per_second, first.step_rate) == (2, 1, None, None)
    assert (first.blocks, first.free, first.partial) == (100, 75, [])
    assert first.counted == {(7, "scheduler steps"): 10, (7, "unread in ring rpc_broadcast_mq"): 2}
    then = metered(look(50, {"a": (RUNNING, 45), "b": (RUNNING, 50), "d": (RUNNING, 3), "c": (QUEUE, 0)}), 102.0)
    assert then.tokens_per_second == (40 + 3) / 2 and then.steps == {7: 20.0} and then.step_rate == 20.0
    assert then.oldest == ("b", 2.0)
    last = metered(look(60, {"a": (RUNNING, 55), "b": (RUNNING, 51), "c": (QUEUE, 0)}), 103.0)
    assert last.oldest == ("c", 3.0) and last.tokens_per_second == 11.0


def test_where_no_scheduler_is_no_number_of_requests_is_said(metered):
    """An engine whose scheduler is on another machine, or could not be read; one that is there and empty has 0."""
    found = metered(Look("Worker", 8, "worker", parts=("worker",)), 100.0)
    assert (found.running, found.waiting) == (None, None)
    (line, *_) = top.frame_lines(top.frame_data([], [found], [])[0], Style(False, 0))
    assert "no scheduler was read" in line and "running" not in line
    assert not {"requests running", "requests waiting"} & meter.counters(found).keys()
    empty = metered(look(10, {}), 101.0)
    assert (empty.running, empty.waiting) == (0, 0)


def test_a_counter_that_stands_while_answers_grow_is_no_step(metered):
    metered(look(0, {"a": (RUNNING, 5)}), 100.0)
    found = metered(look(0, {"a": (RUNNING, 25)}), 101.0)
    assert found.steps == {} and found.step_rate == 20.0


def test_a_frame_is_told_and_hostile_names_stay_text(metered):
    reading = metered(look(10, {"\x1b[2Jevil\n": (RUNNING, 5)}), 1.0)
    evil = Frame("\x1b]0;evil\x07f", "/x/\x1b[31m.py", 3)
    one = {
        "label": "TP\x1b0",
        "pid": 7,
        "alive": True,
        "threads": 3,
        "state": "running",
        "stack": [evil],
        "part": 0.5,
        "gil": 0.25,
    }
    one.update(holder="m\x07", waits=0.1, gc=0.0, cpu=0.9, rss=1 << 20)
    gone = {"label": "TP1", "pid": 8, "alive": False, "threads": 0, "state": "ended", "stack": [], "part": 0.0, "gil": 0.0}
    gone.update(holder="", waits=0.0, gc=0.0, cpu=1.5, rss=2 << 20)
    rows = [Row(**one), Row(**gone)]
    data, partial = top.frame_data(rows, [reading], [{"label": "TP2", "pid": 9, "reason": "no Python"}])
    assert partial == ["TP2: no Python"] and data["engines"][0]["kv_use"] == 0.25
    assert data["ranks"][0]["steps_per_second"] is None and data["ranks"][1]["function"] is None
    lines = top.frame_lines(data, Style(), 1) + top.stack_lines(rows[0], 9)
    assert "\x1b" not in "".join(lines) and "\x07" not in "".join(lines) and "\x1b" not in str(data)
    assert lines[0].startswith("vllm  1 running, 0 waiting  KV 25 %") and lines[3].startswith("> TP1")
    for by, first in (("order", 7), ("cpu", 8)):
        top.sort(data, by)
        assert data["ranks"][0]["pid"] == first
    assert all(visible_length(top.cut(line, 40)) <= 40 for line in lines)
