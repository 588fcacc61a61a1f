"""Waits that end at a child, at a lock whose holder has ended, or at an object that only a fork's copy is given: what is said."""

import itertools
import mmap
import os

import pytest
from harness.answers import answer
from harness.subjects import PYTHONS, running

from gdbext.access.proc import ProcTarget
from gdbext.stacks import shared_memory

LONG = bool(os.environ.get("GDBEXT_TEST_LONG"))
CHILDREN = ["task_waits", "waits_with_a_limit", "waits_in_an_executor", "joins_in_turn", "task_waits_with_a_limit"]
FUTURES = ["waits_for_all_of_a_pool", "takes_as_completed"]
HELD = ["shared_lock", "shared_mutex", "shared_semaphore", "queue_lock"]
COPIES = ["put_in_a_fork", "fed_in_the_parent", "set_in_a_fork"]
WELL = ["shared_lock", "queue_lock", "task_waits", "put_in_a_fork", "file_lock", "told_to_end", "joins_in_turn", *FUTURES]


def look(python, kind, state):
    with running(python, "lost_ends.py", kind, state, start_new_session=True) as (_, truth):
        return truth, answer(f"llm-hang {truth['pid']} -wait 0.8 -json")


def some(python, kinds):
    """All of them in a long run; else one, another on each Python."""
    return kinds if LONG else [kinds[PYTHONS.index(python) % len(kinds)]]


def named(said):
    places = [link["place"] for chain in said["chains"] for link in chain["through"]]
    places += [end["place"] for chain in said["chains"] for end in (chain["end"], *chain["end"].get("any_of", ()))]
    return {place[key] for place in places if place for key in ("pid", "tid") if key in place}


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_wait_for_a_child_or_a_pool_leads_there(python):
    for kind in some(python, CHILDREN) + some(python, FUTURES):
        truth, said = look(python, kind, "hang")
        assert said["verdict"] in ("starved", "unknown"), (kind, said["evidence"])
        assert truth["end"] in named(said), (kind, said["chains"])


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_lock_whose_holder_has_ended_is_given_back_by_nobody(python):
    for kind in some(python, HELD):
        truth, said = look(python, kind, "hang")
        end = said["chains"][0]["end"]
        assert said["verdict"] == "lock-held" and end["state"] == "ended", (kind, said["evidence"], end)
        assert "no process is left that could release it" in end["why"] and str(truth["end"]) in end["why"], (kind, end)


def test_the_maps_of_all_processes_are_read_on_a_machine_without_cpu(monkeypatch, tmp_path):
    file = tmp_path / "mapped"
    file.write_bytes(bytes(4096))
    with open(file, "r+b") as f, mmap.mmap(f.fileno(), 4096):
        mapping = next(m for m in ProcTarget(os.getpid()).mappings() if m.path == str(file))
        clock = itertools.count(0.0, 1e-4)
        monkeypatch.setattr(shared_memory.time, "thread_time", lambda: 0.0)
        monkeypatch.setattr(shared_memory.time, "monotonic", lambda: next(clock))
        assert shared_memory.mappers(mapping.device, mapping.inode, [os.getpid()]) == [os.getpid()]
        for spent in ("thread_time", "monotonic"):
            with monkeypatch.context() as patched:
                late = itertools.count(0.0, 2 * shared_memory.LATEST)
                patched.setattr(shared_memory.time, spent, lambda late=late: next(late))
                assert shared_memory.mappers(mapping.device, mapping.inode, [os.getpid()]) is None


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_what_a_fork_gives_to_its_copy_reaches_nobody(python):
    for kind in some(python, COPIES):
        truth, said = look(python, kind, "hang")
        end = said["chains"][0]["end"]
        assert said["verdict"] == "starved" and end["state"] == "nobody", (kind, said["evidence"], end)
        assert f"process {truth['end']}" in end["why"] and "has a copy of it" in end["why"], (kind, end)


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_where_it_goes_on_nobody_is_accused(python):
    for kind in some(python, WELL):
        truth, said = look(python, kind, "well")
        assert said["verdict"] in ("busy", "unknown", "idle"), (kind, said["verdict"], said["evidence"])
        assert not truth["end"] or truth["end"] in named(said), (kind, said["chains"])


def test_a_file_lock_leads_to_the_process_that_inherited_it():
    truth, said = look(PYTHONS[0], "file_lock", "hang")
    assert truth["end"] in named(said), said["chains"]
