"""Greenlets: each with state, thread, and the frames in which it is suspended, as it wrote them itself; gevent's hub by name."""

import os

import pytest
from harness.answers import answer, run
from harness.subjects import running

from gdbext.cpython import greenlets as rooms
from gdbext.cpython.runtime import open_runtime

GREEN = [p for p in os.environ.get("GDBEXT_TEST_GREENLET_PYTHONS", "").split(":") if p]
every = pytest.mark.parametrize("python", GREEN or [None])


@pytest.fixture(autouse=True)
def _needs_greenlet():
    if not GREEN:
        pytest.skip("no interpreter that has greenlet and gevent")


def functions(frames):
    return [[f["function"].rpartition(".")[2], f["line"]] for f in frames]


@every
@pytest.mark.parametrize("how", ["plain", "exposed"])
def test_each_greenlet_stands_where_it_switched_away(python, how):
    with running(python, "greens.py", how) as (target, truth):
        found = {g["address"]: g for g in answer(f"pybt -all -on {target.pid} -json")["greenlets"]}
        one = {name: found[address] for name, address in truth["names"].items()}
        for name in ("parked", "outer", "main", "theirs"):
            assert one[name]["state"] == "suspended"
            assert functions(one[name]["frames"]) == truth["stacks"][truth["names"][name]], name
        assert [one[name]["state"] for name in ("inner", "fresh", "done")] == ["running", "new", "ended"]
        assert not any(one[name]["frames"] for name in ("inner", "fresh", "done"))
        tids = {name: g["tid"] for name, g in one.items()}
        mine, other = truth["main_tid"], truth["other_tid"]
        assert tids == dict(parked=mine, outer=mine, main=mine, inner=mine, theirs=other, fresh=None, done=tids["done"])
        assert {name for name, g in one.items() if g["main"]} == {"main"} and one["theirs"]["type"] == "Named"
        alone = answer(f"pybt -on {target.pid} -json")["greenlets"]
        assert {g["address"] for g in alone} >= {truth["names"][n] for n in ("parked", "outer", "main", "inner")}
        assert truth["names"]["theirs"] not in {g["address"] for g in alone}
        assert any("a greenlet runs in it" in reason for reason in answer(f"llm-stacks {target.pid} -json")["partial"])


@every
def test_the_hub_is_named_and_greenlets_alike_are_one(python):
    with running(python, "gevents.py") as (target, truth):
        found = answer(f"pybt -on {target.pid} -json")["greenlets"]
        states = {g["address"]: g["state"] for g in found}
        assert all(states[address] == "suspended" for address in (*truth["waiting"], truth["sleeping"]))
        assert states[truth["hub"]] == "running" and [g["type"] for g in found if g["state"] == "running"] == ["Hub"]
        stacks = {g["address"]: functions(g["frames"]) for g in found}
        assert all(["holds_up", truth["line"]] in stacks[address] for address in truth["waiting"])
        assert stacks[truth["sleeping"]][-1][0] == "sleeper"
        text = run(f"pybt -on {target.pid}").to_text()
        assert "3 greenlets alike" in text and "Hub, running" in text


@every
def test_a_program_that_only_imports_it_has_no_mark(python):
    code = "import greenlet, time; print('{}', flush=True); time.sleep(1000)"
    with running([python, "-c", code], "greens.py") as (target, _):
        said = answer(f"pybt -all -on {target.pid} -json")
        assert [g for g in said["greenlets"] if not g["main"]] == []
        assert not any("greenlet" in reason for reason in said["partial"] + answer(f"llm-stacks {target.pid} -json")["partial"])


@every
def test_another_layout_is_unknown(python, monkeypatch):
    with running(python, "greens.py", "plain") as (target, _):
        rt = open_runtime(target)
        whole, _ = rooms.greenlets(rt)
        monkeypatch.setattr(rooms, "_BEFORE", tuple(words + 1 for words in rooms._BEFORE))
        damaged, _ = rooms.greenlets(rt)
        states = {g.address: g.state for g in whole}
        assert list(states.values()).count("suspended") == 4
        refused = {g.address for g in damaged if g.state == "unknown" and g.error and not g.frames}
        assert refused >= {address for address, state in states.items() if state in ("suspended", "running")}
        assert not any(g.frames for g in damaged) and len(damaged) == len(whole)
