"""What has run out for a process, by the limits that it has."""

import os
from types import SimpleNamespace

import pytest
from harness.facts import process

from gdbext.access import cgroups
from gdbext.stacks import snapshots
from gdbext.verdict import judge, shortages
from gdbext.verdict.facts import Facts


def test_threads_of_a_control_group_are_counted_against_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(cgroups, "folders", lambda pid, controller: [str(tmp_path)])
    for now, most, told in ((10, "10", True), (5, "10", False), (10, "max", False)):
        (tmp_path / "pids.max").write_text(most)
        (tmp_path / "pids.current").write_text(str(now))
        said = [line for line in shortages.of_process(os.getpid()) if "pids.max" in line]
        assert bool(said) is told, (now, most, said)
        assert not told or said[0].startswith("10 of 10 threads")


def test_the_group_whose_quota_is_used_up_is_named_whichever_it_is(tmp_path, monkeypatch):
    """A container and its pod: (the quota in microseconds of 100,000, periods, throttled ones) of each."""
    both = [tmp_path / "pod" / "container", tmp_path / "pod"]
    both[0].mkdir(parents=True)
    monkeypatch.setattr(cgroups, "folders", lambda pid, controller: list(map(str, both)))
    none = ("max", 0, 0)

    def read(*each):
        for folder, (quota, periods, short) in zip(both, each):
            (folder / "cpu.max").write_text(f"{quota} 100000")
            (folder / "cpu.stat").write_text(f"usage_usec 1\nnr_periods {periods + 70}\nnr_throttled {short + 60}\n")
        return cgroups.quotas(1)

    for inner, outer, told in (
        ((400000, 900, 0), (50000, 900, 880), both[1]),
        ((50000, 900, 880), (400000, 900, 0), both[0]),
        ((50000, 900, 880), (50000, 900, 880), both[0]),
        (none, (50000, 900, 880), both[1]),
        ((400000, 900, 3), (400000, 900, 2), None),
        ((50000, 2, 2), (50000, 1, 1), None),
        (none, none, None),
    ):
        before = read((inner[0], 0, 0), (outer[0], 0, 0))  # what was before that says nothing
        said = shortages.throttled(before, read(inner, outer))
        assert bool(said) is bool(told), (inner, outer, said)
        why = f"50 % of a CPU and was throttled in 880 of 900 periods: 98 % of the time that was looked at ({told}/cpu.stat)"
        assert not told or why in said[0], said


def test_a_process_that_is_gone_is_short_of_nothing():
    assert shortages.of_process(1 << 22) == []


def test_processes_of_one_control_group_share_a_line():
    said = "its control group may use 70 % of a CPU and was throttled in {} of 900 periods: 89 % of the time ({}/cpu.stat)"
    facts = [process(name) for name in ("TP0", "TP1", "TP2")]
    for one, line in zip(facts, (said.format(800, "/a"), said.format(801, "/a"), said.format(900, "/b"))):
        one.short = [line]
    assert judge._shortages(Facts(facts)) == [f"TP0, TP1: {said.format(801, '/a')}", f"TP2: {said.format(900, '/b')}"]


@pytest.mark.parametrize("spare, held", [(20, 0), (40, 1), (60, 2), (1000, 3)])
def test_collectors_that_were_started_have_not_taken_their_memory_yet(monkeypatch, spare, held):
    """Each is counted as it is started: all at once, they would be more than a container has room for."""
    started = []
    monkeypatch.setattr(snapshots, "spare", lambda: (spare << 20, "a cgroup"))
    monkeypatch.setattr(snapshots.Held, "add", lambda self, snap, pid, file: started.append(pid) or file.close())
    snapshots.Held([SimpleNamespace(pid=pid) for pid in (7, 8, 9)])
    assert started == [7, 8, 9][:held]
