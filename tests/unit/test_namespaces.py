"""Whose pid a number in a process's memory is: a made-up /proc with containers, one inside another, and programs of the host that
have the same numbers."""

import os
import random

import pytest
from harness.fake_proc import FakeProc

from gdbext.access import namespaces
from gdbext.access.fake import FakeTarget
from gdbext.access.proc import ProcTarget
from gdbext.errors import GdbextError

HOST, POD, OTHER = 1, 2, 3


@pytest.fixture
def spaces(tmp_path, monkeypatch):
    """A /proc; `add(space, numbers)` adds a process with these pids, ours first, in a pid namespace (None: it may not be looked
    at)."""
    proc, of = FakeProc(tmp_path), {}

    def space(folder, up):
        """As the kernel tells: a namespace and what is above it."""
        pid = int(os.path.basename(folder))
        path = of.get(pid, ())
        return None if path is None else path[-1 - up]

    monkeypatch.setattr(namespaces, "_space", space)

    def add(path, *numbers, **more):
        proc.add(["program"], pid=numbers[0], ns=numbers[1:], **more)
        of[numbers[0]] = path
        return numbers[0]

    add.here = lambda pid, number: namespaces.pid_here(pid, number, str(tmp_path))
    add.all = lambda pid: namespaces.pids_of(pid, str(tmp_path))
    return add


def test_a_number_of_a_container_is_no_number_of_the_host(spaces):
    spaces((HOST,), 7)  # decoys of the host
    spaces((HOST,), 9)
    parent, child = spaces((HOST, POD), 5000, 1), spaces((HOST, POD), 5007, 7)
    spaces((HOST, OTHER), 6007, 7)  # a sibling's
    assert spaces.here(parent, 7) == child and spaces.here(parent, 1) == parent
    assert spaces.here(parent, 9) == 0  # no process of the container has it
    assert spaces.here(7, 9) == 9 and spaces.here(7, 12345) == 12345  # they count as we do
    assert spaces.here(404, 7) is None  # it is gone


def test_a_container_within_a_container_has_numbers_in_each(spaces):
    parent = spaces((HOST, POD), 5000, 1)
    inner = spaces((HOST, POD, 4), 5010, 20, 1)
    spaces((HOST, OTHER, 5), 6010, 20, 1)
    assert spaces.here(parent, 20) == inner and spaces.here(inner, 1) == inner
    assert spaces.here(inner, 20) == 0


def test_a_process_that_may_not_be_looked_at_leaves_it_unknown(spaces):
    parent = spaces((HOST, POD), 5000, 1)
    spaces(None, 5007, 7)
    assert spaces.here(parent, 7) is None and spaces.here(parent, 8) == 0


def test_a_zombie_keeps_its_number_until_it_is_reaped(spaces):
    parent, dead = spaces((HOST, POD), 5000, 1), spaces((HOST, POD), 5002, 2, state="Z")
    assert spaces.here(parent, 2) == dead


def test_a_copy_has_the_numbers_of_its_namespace_alone(spaces):
    host = spaces((HOST,), 7)
    parent, child = spaces((HOST, POD), 5000, 1), spaces((HOST, POD), 5007, 7)
    inner = spaces((HOST, POD, 4), 5010, 20, 1)
    spaces((HOST, OTHER), 6007, 7)
    assert spaces.all(parent) == {1: parent, 7: child, 20: inner}
    assert spaces.all(host) is None  # it counts as we do


@pytest.mark.parametrize("seed", range(40))
def test_drawn_trees_of_namespaces(spaces, seed):
    rng = random.Random(seed)
    next_here, made = rng.randrange(50, 200), []
    trees = {(HOST,): {}}  # path -> {number in it: our pid}
    for _ in range(rng.randrange(4, 30)):
        path = rng.choice([*trees, (*rng.choice([one for one in trees if len(one) < 4]), len(trees) + 10)])
        levels = [path[: n + 1] for n in range(len(path))]
        for level in levels:
            trees.setdefault(level, {})
        next_here += rng.randrange(1, 5)
        free = [rng.choice([n for n in range(1, 260) if n not in trees[level]]) for level in levels[1:]]
        numbers = [next_here, *free]
        spaces(path, *numbers)
        for level, number in zip(levels, numbers):
            trees[level][number] = numbers[0]
        made.append((path, numbers[0]))
    for path, pid in made:
        for number in rng.sample(range(1, 260), 60):
            expected = number if path == (HOST,) else trees[path].get(number, 0)
            assert spaces.here(pid, number) == expected


def test_a_proc_of_other_numbers_is_refused(monkeypatch):
    monkeypatch.setattr(namespaces.os, "readlink", lambda path: "12")
    with pytest.raises(GdbextError, match="/proc is of another pid namespace"):
        ProcTarget(os.getpid())


def test_what_is_no_live_process_counts_as_it_does():
    assert FakeTarget({}).pid_here(7) == 7
