"""Which process a command takes: the only engine by itself, candidates by name, two engines' labels told apart."""

import pytest

from gdbext.access import proctable
from gdbext.api import choosing
from gdbext.commands import table
from gdbext.engines import discover, what
from gdbext.engines.processes import ProcessRef, ranks_of
from gdbext.engines.rank import Rank
from gdbext.engines.spec import Match
from gdbext.errors import GdbextError, NotFoundError
from gdbext.session.session import Session
from gdbext.setup import outside
from gdbext.stacks import snapshots


def rank(index, label, engine="vllm", role="worker", family=1, process=None):
    found = Rank(process or next(iter(proctable.ProcTable())), engine, Match(role, {}), "title")
    found.label, found.index, found.family = label, index, family
    return found


@pytest.fixture
def machine(monkeypatch):
    """What discover finds: a list of ranks that a test fills."""
    ranks = []
    monkeypatch.setattr(discover, "discover", lambda *_, **__: (ranks, None))
    return ranks


def test_the_one_scheduler_is_taken_by_itself(machine):
    machine += [rank(0, "EngineCore", role="engine-core"), rank(1, "TP0"), rank(2, "api", role="api-server")]
    assert choosing.only_scheduler(Session()) is machine[0]


def test_of_schedulers_that_are_ranks_of_one_model_the_first_is_taken(machine):
    machine += [rank(n, f"TP{n}", "sglang", "scheduler", 2) for n in (0, 1)]
    assert choosing.only_scheduler(Session()) is machine[0]
    for one, dp in zip(machine, (0, 1)):
        one.ranks["dp"] = dp
    with pytest.raises(GdbextError, match=r"2 schedulers run here"):
        choosing.only_scheduler(Session())


def test_of_several_schedulers_none_is_taken_and_all_are_named(machine):
    machine += [rank(0, "EngineCore", role="engine-core"), rank(1, "TP0", "sglang", "scheduler", 2)]
    with pytest.raises(GdbextError, match=r"2 schedulers run here.* vllm:EngineCore \(pid .*sglang:TP0"):
        choosing.only_scheduler(Session())


def test_without_an_engine_that_is_said(machine):
    with pytest.raises(NotFoundError, match="no engine's scheduler is running here"):
        choosing.only_scheduler(Session())
    status, _, error = outside.perform(table.load("llm-kv"), "", Session())
    assert status == 1 and "no engine's scheduler is running here" in error
    assert not outside.needs_gdb(table.load("llm-requests"), "")
    assert not outside.needs_gdb(table.load("pytensors"), "-ranks") and outside.needs_gdb(table.load("pytensors"), "-nan")


def test_a_label_of_two_engines_is_named_by_engine():
    ranks = [rank(0, "TP0"), rank(1, "TP0", "sglang")]
    assert ranks_of(what.resolve("sglang:TP0", ranks)) == [ranks[1]]
    with pytest.raises(GdbextError, match="say vllm:TP0 or sglang:TP0"):
        what.resolve("TP0", ranks)


def test_an_engine_is_all_of_its_processes():
    ranks = [rank(0, "TP0"), rank(1, "TP1"), rank(2, "TP0", "sglang")]
    assert ranks_of(what.resolve("vllm", ranks)) == ranks[:2] and ranks_of(what.resolve("SGLang", ranks)) == ranks[2:]
    with pytest.raises(NotFoundError, match="nothing is named rtp"):
        what.resolve("rtp", ranks)


def test_a_number_that_is_nothing_any_more_is_said_so():
    with pytest.raises(
        NotFoundError, match=r"4194300 is no process here \(it may have ended\), and no index of llm-ranks, which has 0 alone"
    ):
        what.resolve("4194300", [rank(0, "TP0")])


def test_labels_of_two_engines_do_not_mix():
    ranks = [rank(0, "TP0"), rank(1, "TP1"), rank(2, "TP0", "sglang", family=2)]
    assert [s.name for s in snapshots.snapshots_of(map(ProcessRef.of_rank, ranks))] == ["vllm:TP0", "TP1", "sglang:TP0"]
    twice = [rank(0, "TP0"), rank(1, "TP0", family=2)]
    assert [s.name for s in snapshots.snapshots_of(map(ProcessRef.of_rank, twice))] == [f"TP0-{r.pid}" for r in twice]


@pytest.mark.parametrize("name", ["pybreak", "pycatch", "pytrace", "pylog", "pynext", "llm-break"])
def test_what_sets_breakpoints_refuses_outside_gdb_and_says_how(name, capsys):
    from gdbext.__main__ import main

    assert main([name, "f"]) == 1
    assert "is typed in gdb; `" in capsys.readouterr().err
