"""What a whole run draws of tests that are alike."""

from types import SimpleNamespace

import pytest
from harness import samples

PYTHONS = [f"python3.{minor}" for minor in range(9, 16)]
GDBS = ["gdb", "gdb-16", "gdb-17"]


class Item(SimpleNamespace):
    __hash__ = object.__hash__


class SimpleNode:
    def __init__(self, nodeid, *marks):
        self.nodeid, self.get_closest_marker = nodeid, dict.fromkeys(marks, True).get


def item(name, params=None, *marks):
    one = Item(path=SimpleNamespace(name="test_x.py"), originalname=name, nodeid=f"{name}{params}")
    one.iter_markers = lambda wanted: (mark.mark for mark in marks if mark.name == wanted)
    if params is not None:
        one.callspec = SimpleNamespace(params=params)
    return one


def drawn(items, seed=1):
    return samples.of_a_sample(items, seed, GDBS)


@pytest.fixture(autouse=True)
def pythons(monkeypatch):
    monkeypatch.setattr(samples, "PYTHONS", PYTHONS)


def test_the_oldest_or_the_newest_and_one_more_python():
    each = [item("test_a", {"python": python, "case": case}) for case in "xy" for python in PYTHONS]
    seen, ends = set(), set()
    for seed in range(200):
        found = [one.callspec.params for one in drawn(each, seed)]
        for case in "xy":
            of_case = [one["python"] for one in found if one["case"] == case]
            assert len(set(of_case)) == 2 and {PYTHONS[0], PYTHONS[-1]} & set(of_case)
            seen.update(of_case)
            ends.update({PYTHONS[0], PYTHONS[-1]} & set(of_case))
    assert seen == set(PYTHONS) and ends == {PYTHONS[0], PYTHONS[-1]}


def test_the_default_gdb_and_half_of_the_time_one_more():
    each = [item("test_a", {"gdb_path": gdb}) for gdb in GDBS]
    kept = {tuple(one.callspec.params["gdb_path"] for one in drawn(each, seed)) for seed in range(50)}
    assert kept == {("gdb",), ("gdb", "gdb-16"), ("gdb", "gdb-17")}


def test_of_a_group_so_many_units_and_each_whole():
    group = [item(f"test_{unit}{n}", None, pytest.mark.drawn(2, group="g", unit=unit)) for unit in "abc" for n in range(2)]
    alone = [item("test_alone"), item("test_variant", {"case": 1}, pytest.mark.drawn(1))]
    seen = set()
    for seed in range(50):
        kept = drawn([*alone, *group], seed)
        assert kept[:2] == alone and len(kept) == 6 and kept == drawn([*alone, *group], seed)
        seen.add("".join(one.originalname[5] for one in kept[2::2]))
    assert seen == {"ab", "ac", "bc"}


def test_variants_of_one_test_are_a_group():
    each = [item("test_a", {"case": n}, pytest.mark.drawn(3)) for n in range(9)]
    kept = {frozenset(one.callspec.params["case"] for one in drawn(each, seed)) for seed in range(50)}
    assert {len(one) for one in kept} == {3} and frozenset.union(*kept) == set(range(9))


def test_of_what_one_test_asks_one_after_the_other(monkeypatch):
    things = list("abcde")
    monkeypatch.delenv("GDBEXT_TEST_SAMPLE", raising=False)
    assert samples.some(things, 2, "x") == things
    seen = set()
    for seed in range(50):
        monkeypatch.setenv("GDBEXT_TEST_SAMPLE", str(seed))
        kept = samples.some(things, 2, "x")
        assert len(kept) == 2 and kept == sorted(kept) == samples.some(things, 2, "x") and samples.some(things, 9, "x") == things
        seen.update(kept)
    assert seen == set(things)


def test_another_interpreter_has_the_first_row_of_each_test_and_two_more():
    each = [SimpleNode(f"test_{name}[{row}]") for name in "ab" for row in range(9)] + [SimpleNode("test_alone")]
    own = [SimpleNode(f"test_own[{row}]", "own_interpreter") for row in range(9)]
    assert samples.few_of_each(own, 1) == own
    seen = set()
    for seed in range(100):
        kept = [one.nodeid for one in samples.few_of_each(each, seed)]
        assert kept == [one.nodeid for one in samples.few_of_each(each, seed)] and kept[-1] == "test_alone"
        rows = {name: [one for one in kept if one.startswith(f"test_{name}[")] for name in "ab"}
        assert all(len(rows[name]) == 3 and rows[name][0] == f"test_{name}[0]" for name in "ab")
        seen.update(kept)
    assert seen == {one.nodeid for one in each}
