"""What says "sound", "equal", "the same", "no difference" or "nothing grew" says of what; with one side taken away it is none of
these."""

import types

import pytest
from harness.caches import healthy

from gdbext.answers import kv as shapes
from gdbext.answers import kv_text, layers, tensors
from gdbext.engines import kv_view, rank_weights
from gdbext.heap import growth
from gdbext.kvcache import invariants
from gdbext.kvcache.model import Cache, Group, Pool, Request, Row, Table, Values, Worker
from gdbext.render.text import Style
from gdbext.setup import doctor
from gdbext.torch import layer_compare


def answer(report, cache, ranks):
    data = shapes.check_data(report, cache, ranks)
    return data, kv_text.check_lines(cache, data, Style())


def worker(**more):
    return Worker("TP0", tables=[Table(0, 16, [("r0", [1, 2, 3]), ("r1", [1, 2, 4, 5])])], **more)


# ---- llm-kv check -ranks -------------------------------------------------------------------------------------------------
def test_a_rank_whose_tables_were_compared_is_listed_with_how_much():
    cache = healthy()
    data, lines = answer(invariants.check(cache, [worker()]), cache, True)
    assert data["ok"] is True and data["ranks"] == ["TP0"] and data["not_compared"] == []
    assert data["compared"][0] == {"label": "scheduler", "pools": 1, "blocks": 64, "requests": 2}
    compared = {"label": "TP0", "tables": 1, "rows": 2, "blocks": 7, "counts": 0, "slots": 0, "without": []}
    assert compared.items() <= data["compared"][1].items()
    assert lines[0].endswith("rules: sound") and "compared: TP0: 2 rows with 7 blocks" in lines


TAKEN = {  # what is taken away: the worker that is left, and what is said of it
    "no table": (Worker("TP0"), "it keeps none that can be compared"),
    "on the device": (Worker("TP0", unread=[("block table of group 0", "it is on the device (cuda:0): not compared")]), "device"),
    "rows of others": (Worker("TP0", tables=[Table(0, 16, [("x", [1])])]), "none of their rows is of a request"),
    "no row": (Worker("TP0", tables=[Table(0, 16, [])]), "none of their rows is of a request"),
    "another group": (Worker("TP0", tables=[Table(7, 16, [("r0", [9])])]), "the scheduler has no such group"),
    "counts alone": (
        Worker("TP0", rows={"r0": Row(1, prompt=10)}, unread=[("block table of group 0", "it is on the device")]),
        "device",
    ),
}


@pytest.mark.parametrize("name", TAKEN)
def test_a_rank_whose_tables_were_not_compared_is_no_ok(name):
    cache, (one, why) = healthy(), TAKEN[name]
    report = invariants.check(cache, [one])
    data, lines = answer(report, cache, True)
    assert data["ok"] is None and data["ranks"] == [] and not data["violations"]
    assert any(why in left["why"] and left["label"] == "TP0" for left in data["not_compared"]), data["not_compared"]
    assert "no rank's block tables were compared" in lines[0] and "sound" not in lines[0]
    assert shapes.is_sound(report, False) is True  # the scheduler's side was asked for alone, and was looked at


def test_of_two_ranks_the_one_that_was_compared_is_listed():
    cache = healthy()
    data, lines = answer(invariants.check(cache, [worker(), Worker("TP1", unread=[("block tables", "gone")])]), cache, True)
    assert data["ok"] is True and data["ranks"] == ["TP0"]
    assert data["not_compared"] == [{"label": "TP1", "what": "block tables", "why": "gone"}]
    assert "not compared: TP1: block tables: gone" in lines


def test_an_engine_without_requests_has_empty_tables_that_are_equal():
    cache = healthy(tables=())
    data, _ = answer(invariants.check(cache, [Worker("TP0", tables=[Table(0, 16, [])])]), cache, True)
    assert data["ok"] is True and data["ranks"] == ["TP0"] and data["compared"][1]["rows"] == 0


def test_counts_of_a_worker_are_compared_where_its_tables_cannot_be():
    cache = healthy()
    gone = [("block table of group 0", "it is on the device")]
    sizes = {0: 16}
    sound = {"r0": Row(1, prompt=10, prefill=10, computed=48, total=15, blocks={0: 3})}
    for change, rule in (
        ({}, None),
        ({"prompt": 11}, "worker-length"),
        ({"computed": 49}, "worker-length"),
        ({"computed": 20}, "worker-length"),
        ({"computed": 47}, None),  # a step behind
        ({"blocks": {0: 4}}, "worker-length"),
        ({"blocks": {0: 2}}, None),
        ({"total": 14}, "worker-length"),
    ):
        row = Row(**{**vars(sound["r0"]), **change})
        report = invariants.check(cache, [Worker("TP0", rows={"r0": row}, unread=gone, sizes=sizes)])
        assert [v.rule for v in report.violations] == ([rule] if rule else []), (change, report.violations)
        assert report.compared[0].counts == 1 and report.ranks == []
    ahead = {"r0": Row(1, prompt=10, computed=60, total=30, blocks={0: 4})}  # the worker was read later, and all of it moves
    report = invariants.check(cache, [Worker("TP0", rows=ahead, unread=gone, sizes=sizes)], moves=True)
    assert report.violations and all(v.at_rest for v in report.violations)
    harmed = {"r0": Row(1, prompt=11)}  # what does not move
    report = invariants.check(cache, [Worker("TP0", rows=harmed, unread=gone, sizes=sizes)], moves=True)
    assert [v.at_rest for v in report.violations] == [False]


def test_what_of_sglang_is_on_a_device_is_named():
    """Free slots and the table of slots are there; how many are free, and how many a request has, is known all the same."""
    pool = Pool("pool", 64, 65, 1, unit="slot", num_free=40, cached_ids=[])
    pool.counters = {"available": 40, "evictable": 0, "protected": 0}
    request = Request("r", "running", "running", 20, 24, 4, row=3, allocated=24, private=0)
    report = invariants.check(Cache("sglang", "0.5.23", [pool], [Group(0, "full", 1)], [request]))
    left = {one.what: one.why for one in report.not_compared}
    assert left == {
        "free list": "it is on the device: only its length is known",
        "tables of 1 requests": "they are on the device",
    }
    assert "slots-lost" in report.rules and not report.violations
    pool.counters["available"] = 39
    assert [v.rule for v in invariants.check(Cache("sglang", "0.5.23", [pool], [Group(0, "full", 1)], [request])).violations] == [
        "slots-lost"
    ]


def test_values_that_nobody_could_read_are_no_ok():
    cache = healthy()
    report = invariants.check(cache, [], Values(looked_at={"TP0": 0}))
    report.values = Values(looked_at={"TP0": 0})
    data, lines = answer(report, cache, False)
    assert data["ok"] is None and "no block's values could be read" in lines[0]
    assert not {"block-nan", "reserved-nan", "prefix-copy", "rank-copy"} & {r["rule"] for r in data["rules"]}
    assert data["not_compared"][-1] == {"label": "TP0", "what": "values of blocks", "why": "none could be read"}


# ---- a process that moves ------------------------------------------------------------------------------------------------
class Views:
    """Readings of a process that runs on, one after the other: each a number of free blocks that the counter is too high (None:
    it was torn), and the length of r0's table."""

    def __init__(self, *readings):
        self.readings, self.partial, self.missed = list(readings), ["unstopped"], []

    def cache(self, as_read=False):
        cache = healthy()
        high, middle = self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]
        cache.pools[0].torn = high is None
        cache.pools[0].num_free += high or 0
        cache.mid_update = middle
        return cache

    def workers(self, num_blocks=None):
        return []


def looked(*readings):
    views = Views(*readings)
    return kv_view.check(views, lambda: views, False)[0]


def test_what_stands_still_in_every_reading_is_a_fault():
    report = looked((3, ""))
    assert [v.rule for v in report.violations] == ["free-count"] and not report.changed


def test_what_is_gone_in_a_later_reading_was_a_change_and_is_named():
    report = looked((3, ""), (3, ""), (0, ""))
    assert not report.violations and not report.changed and shapes.is_sound(report, False) is True
    assert [(left.what, left.why) for left in report.not_compared] == [("free-count", "it changed while it was read")]


def test_what_is_wrong_each_time_in_another_way_is_no_fault_and_not_sound():
    report = looked(*[(n, "") for n in range(1, 40)])
    assert not report.violations and [v.rule for v in report.changed] == ["free-count"]
    assert shapes.is_sound(report, False) is None


def test_a_rule_that_was_left_out_nearly_always_is_not_decided():
    report = looked((3, ""), *[(None, "")] * 40)
    assert not report.violations and [v.rule for v in report.changed] == ["free-count"]


def test_an_update_explains_only_where_the_process_stands_in_it_each_time():
    standing = looked((3, "popleft (kv_cache_utils.py:1)"))
    assert not standing.violations and [v.rule for v in standing.transient] == ["free-count"]
    moving = looked(*[(3, f"popleft (kv_cache_utils.py:{n})") for n in range(40)])
    assert [v.rule for v in moving.violations] == ["free-count"] and not moving.transient


# ---- weights, layers, tensors, heaps, doctor -----------------------------------------------------------------------------
def test_weights_that_one_rank_alone_shows_are_compared_with_nothing():
    seen, unseen = {"hash": "a", "why": ""}, {"hash": None, "why": "on the device"}
    assert rank_weights.compared([("TP0", {"w": seen}), ("TP1", {"w": seen})]) == {"w": ["TP0", "TP1"]}
    assert rank_weights.compared([("TP0", {"w": seen}), ("TP1", {"w": unseen})]) == {}
    assert rank_weights.compared([("TP0", {"w": seen})]) == {} and rank_weights.compared([]) == {}


def record(label, *rows):
    return types.SimpleNamespace(label=label, rows=rows, head={}, values=lambda row: None)


def row(path, hash_=None, why=""):
    known = dict(shape=[2], dtype="float32", nan=0, inf=0, min=0.0, max=1.0, mean=0.5)
    facts = known if hash_ else dict.fromkeys(known)
    return {"path": path, "call": 0, "output": "", "type": "Linear", "shard": None, "hash": hash_, "why": why, **facts}


def test_outputs_that_neither_side_could_read_are_not_equal():
    gone = layer_compare._compare_rows(
        [(record("a"), row("x", why="on the device"))], [(record("b"), row("x", why="on the device"))], lambda d: 0
    )
    assert (gone["equal"], gone["different"], gone["compared"]) == (False, False, False)
    assert gone["why"] == "neither could be read: on the device"
    found = {"first": None, "rows": [{**gone, "path": "x", "call": 0, "output": "", "type": "Linear", "made": None}]}
    found.update(compared=0, not_compared=[{"path": "x", "output": "", "why": gone["why"]}])
    text = layers.comparison_text(found, False, Style())
    assert text.startswith("nothing was compared") and "no difference" not in text and "on the device: x" in text
    same = layer_compare._compare_rows([(record("a"), row("x", "1"))], [(record("b"), row("x", "1"))], lambda d: 0)
    assert same["equal"] and same["compared"]


def test_tensors_without_elements_are_not_called_equal():
    text = tensors.comparison_text({"equal": None, "reason": "they have no elements: nothing was compared"}, 0, "X", Style())
    assert "not compared with X" in text and "equal" not in text


def test_heaps_that_have_nothing_in_common_were_not_compared():
    heap, kinds = types.SimpleNamespace(addresses=[16, 32]), [types.SimpleNamespace(name="dict")]
    census = types.SimpleNamespace(heap=heap, container_nodes=lambda: [0, 1], types=lambda: kinds)
    before = growth.Look({32: ("list", 3, 64)}, {"dict": (1, 64)}, True, "7")
    assert growth.compared(before, census) == {"types": 1, "containers": 1}
    assert growth.compared(growth.Look({}, {}, True, "7"), census) == {"types": 0, "containers": 0}


@pytest.mark.parametrize(
    "status,ok",
    [("ok", True), ("warning", False), ("failed", False), (None, False)],
)
def test_without_a_gdb_that_loads_the_pack_nothing_is_ok(status, ok):
    checks = [doctor.Check("python", "ok", "3.11"), doctor.Check("layouts", "ok", "3.11")]
    if status is not None:
        checks.append(doctor.Check("cuda-gdb" + doctor.LOADS, status, "source …"))
    assert doctor.data(checks)["ok"] is ok
    assert ("what gdbext needs is here" in doctor.text(checks, Style())) is ok


class Ranks(Views):
    """As `Views`, of a rank whose count of computed tokens is `ahead` of the scheduler's at each reading."""

    cores = ()

    def __init__(self, *ahead):
        super().__init__((0, ""))
        self.ahead = list(ahead)

    def workers(self, num_blocks=None):
        ahead = self.ahead.pop(0) if len(self.ahead) > 1 else self.ahead[0]
        return [worker(rows={"r0": Row(1, prompt=10, computed=48 + ahead)}, sizes={0: 16})]


def test_a_rank_that_goes_on_while_it_is_read_is_not_ahead():
    views = Ranks(1, 2, 3)
    report = kv_view.check(views, lambda: views, True)[0]
    assert not report.violations and not report.changed and shapes.is_sound(report, True) is True
    views = Ranks(3)
    report = kv_view.check(views, lambda: views, True)[0]
    assert [v.rule for v in report.violations] == ["worker-length"]
