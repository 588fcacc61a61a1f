"""The gate of verdicts that accuse of withholding, on facts made up here: who waits for one at work is not accused, its hung twin
is."""

import os
import subprocess
import time

import pytest
from harness.facts import add, inside, node, process, python

from gdbext.access.proctable import ProcTable
from gdbext.observe.families import Families, Outsider
from gdbext.observe.system_calls import Call, Source
from gdbext.observe.window import SOON
from gdbext.requests.model import Counter
from gdbext.stacks.waits import Edge
from gdbext.torch.collectives import Count
from gdbext.verdict.exchange import facts_data, machine_of
from gdbext.verdict.judge import judge_group as judge

HOLDER = ("front", 7)


def kept(call, others=(), **more):
    """A main thread that waits for a lock, whose owner is in a call; processes that were not sampled."""
    edge = Edge(node("front"), "the Lock x", "Lock", owner=HOLDER, address=1, where="wait (x.py:1)")
    front = process("front", python("wait"), role="", edge=edge)
    front.pid, front.others = 1, {one.pid: one for one in others}
    front.children = {one.pid: one.ran for one in others}
    return add(front, 7, "builds", call=call, frames=python("build"), **more)


WORKS = (
    {"ran": 0.2},
    {"changed": True},
    {"wants": True},
    {"sleeps": SOON / 2},
    {"ran": 0.2, "stopped": [(12, "cc1")]},
)
WAITS = (
    Call("wait", peers=[11]),
    Call("read", [Source("pipe", "pipe:[5]", 5)]),
    Call("recv", [Source("client", "port 1", 4, [5])]),
)


@pytest.mark.parametrize("call", WAITS, ids=lambda call: call.name)
def test_who_waits_for_a_program_at_work_is_not_accused(call):
    def said(**does):
        front = kept(call, [Outsider(11, "sh", **does)])
        front.peers = {5: [(11, True)]}
        return judge([front])

    for does in WORKS:
        found = said(**does)
        busy = does == {"ran": 0.2} and call.name != "recv"  # of a server it is not known for whom it works
        assert (found.kind, found.culprits) == ("busy" if busy else "unknown", []), does
        assert found.unread == busy and any(
            "has the lock and waits for process 11 (sh), which " in line and "slow" in line for line in found.evidence
        )
    for does in ({}, {"sleeps": 7200.0}, {"ran": 0.01}):
        assert (said(**does).kind, said(**does).culprits) == ("lock-held", [HOLDER]), does
    found = said(stopped=[(12, "cc1")])
    assert (found.kind, found.culprits, found.children) == ("stopped", [("cc1 (12)", None)], {"cc1 (12)": 12})
    assert any("cc1 (12), which that started, is stopped" in line for line in found.evidence)


def test_a_program_at_work_acquits_only_who_waits_for_it():
    """Another child of the same process is at work; the holder sleeps, or is at a pipe that this one has not."""
    for call in (Call("nanosleep", seconds=7200), Call("read", [Source("pipe", "pipe:[6]", 6)]), Call("wait", peers=[12])):
        front = kept(call, [Outsider(11, "make", ran=0.9), Outsider(12, "sh")])
        front.peers = {6: [(12, True)]}
        assert judge([front]).kind == "lock-held", call


def test_who_got_what_it_waited_for_or_naps_is_slow():
    got, sleeps = Call("read", [Source("pipe", "pipe:[6]", 6)]), Call("nanosleep", seconds=SOON / 2)
    assert judge([kept(got, woke=2)]).kind == "unknown" and judge([kept(got)]).kind == "lock-held"
    assert judge([kept(sleeps)]).kind == "unknown" and judge([kept(Call("nanosleep", seconds=3600))]).kind == "lock-held"
    assert judge([kept(sleeps, woke=2)]).kind == "lock-held"  # it sleeps over and over, and has the lock all the time


def test_a_rank_before_a_barrier_waits_for_its_compiler():
    def said(**does):
        late = process("R1", python("build"), role="", world=(1, 2), call=Call("wait", peers=[11]))
        late.others = {11: Outsider(11, "ninja", **does)}
        return judge([process("R0", inside("barrier"), role="", world=(0, 2)), late])

    assert [said(**does).culprits for does in WORKS] == [[]] * len(WORKS)
    assert (said().kind, said().culprits) == ("collective", [node("R1")])
    assert said(stopped=[(11, "ninja")]).kind == "stopped"


def ranks(**more):
    return [process("R0", inside("all_reduce", "a"), **more), process("R1", inside("all_gather", "b"), **more)]


def test_ranks_in_different_collectives_are_looked_at_twice_or_denied():
    hung = judge(ranks())
    assert (hung.kind, len(hung.culprits), hung.again) == ("collective", 2, True)
    ready = ranks()
    ready[1].threads[0].state = "R"
    assert judge(ranks(wanted=0.9)).kind == "unknown" and judge(ready).kind == "unknown"
    short = ranks(woke=1)
    short[0].throttled = True
    assert judge(short).kind == "unknown"
    fed = ranks(woke=1, load=0.6)
    fed[0].throttled = True  # it got its part of a CPU before the group's was used up
    assert judge(fed).kind == "collective"
    asleep = ranks()
    asleep[0].throttled = True  # it slept all the time: it wanted none
    assert judge(asleep).kind == "collective"
    begins = ranks()
    begins[1].counters = [Counter("R1", 0, "collectives begun in g", 4, 9)]
    assert judge(begins).kind == "unknown"


def test_ranks_that_wait_crosswise_or_skipped_one_are_looked_at_twice():
    def rank(name, operation, group, begun, **more):
        counts = [Count(f"gloo group {n} of 2", 0, 2, {"": count}) for n, count in enumerate(begun)]
        return process(name, inside(operation), role="", counts=counts, world=(int(name[1]), 2), group=group, **more)

    for more, kind in (({}, "collective"), ({"wanted": 0.9}, "unknown")):
        pair = (
            rank("R0", "all_reduce", "gloo group 0 of 2", (3, 1)),
            rank("R1", "all_reduce", "gloo group 1 of 2", (2, 2), **more),
        )
        found = judge(pair)
        assert (found.kind, found.again) == (kind, kind == "collective")


def in_turn(main=None, **does):
    """Two threads read one socket under a lock, in turn; its giver is a program that was not sampled."""
    front = process("front", python("wait"), ("accept",), role="", call=Call("accept", [Source("listener", "port 1")]))
    front.threads[0].edge = main
    edge = Edge(("front", 8), "the Lock x", "Lock", owner=HOLDER, address=1, where="works (x.py:1)")
    add(front, 7, "reads", call=Call("recv", [Source("unix", "a Unix socket", 5, [6])]), frames=python("works"))
    add(front, 8, "waits", edge, frames=python("works"))
    front.peers, front.others = {6: [(11, True)]}, {11: Outsider(11, "sh", **does)}
    return judge([front])


def test_a_lock_round_the_wait_of_one_at_rest_keeps_nothing():
    assert in_turn(sleeps=300.0).kind != "lock-held"
    assert in_turn(sleeps=7200.0).kind == "lock-held" and in_turn().kind == "lock-held"
    wants = Edge(node("front"), "the Lock x", "Lock", owner=HOLDER, address=1)
    assert in_turn(wants, sleeps=300.0).kind == "lock-held"  # its main thread waits for the lock


def test_a_standby_for_a_thread_that_serves_is_at_rest():
    def said(kind="listener", main=None):
        front = process("front", python("join"), role="", edge=main)
        edge = Edge(("front", 8), "the Lock x", "Lock", owner=HOLDER, address=1)
        add(front, 7, "serves", call=Call("accept", [Source(kind, "port 1", 3)]), native=("accept",), frames=python("serve"))
        return judge([add(front, 8, "standby", edge, frames=python("stand_by"))])

    joins = Edge(node("front"), "the end of serves", "Thread", owner=HOLDER)
    assert said(main=joins).kind != "lock-held"
    assert said(main=Edge(node("front"), "the end of standby", "Thread", owner=("front", 8))).kind == "lock-held"
    assert said("client", joins).kind == "lock-held"


def test_what_others_did_reaches_the_judge_of_all_machines():
    front = kept(WAITS[0], [Outsider(11, "sh", stopped=[(12, "cc1")])])
    machine = machine_of("n1", 3, facts_data([front], [], "h", "0"), ())
    (there,) = machine.processes
    assert list(there.others) == [3 << 32 | 11] and there.others[3 << 32 | 11].pid == 3 << 32 | 11
    assert judge([there]).kind == "stopped"


def test_a_family_is_at_work_where_a_descendant_is():
    """Also one that comes and goes; a shell that only waits does nothing itself."""
    does = {"spins": "while :; do :; done", "comes": "while :; do /bin/true; done", "sleeps": "sleep 5000", "naps": "sleep 20"}
    begun = {
        name: subprocess.Popen(["sh", "-c", 'sh -c "$0"; true', line], start_new_session=True) for name, line in does.items()
    }
    still = subprocess.Popen(["sh", "-c", 'sh -c "kill -STOP \\$\\$"; true'], start_new_session=True)
    every = {**begun, "stands": still}
    try:
        time.sleep(0.5)
        families = Families(ProcTable(), [os.getpid()])
        for _ in range(60):  # a full machine gives the one that spins its CPU late
            time.sleep(1.0)
            seen = families.seen(ProcTable(), [one.pid for one in every.values()])
            found = {name: seen[one.pid] for name, one in every.items() if one.pid in seen}
            if found["spins"].ran and found["stands"].stopped:
                break
    finally:
        for one in every.values():
            os.killpg(one.pid, 9)
            one.wait()
    assert {name for name, one in found.items() if one.at_work} == {"spins", "comes", "naps"}, found
    assert found["spins"].ran > 0.0 and found["sleeps"].sleeps > SOON
    assert [program for _, program in found["stands"].stopped] == ["sh"] and not found["sleeps"].stopped


@pytest.mark.parametrize("line, at_work", [("while :; do :; done", True), ("kill -STOP $$; exec sleep 5000", False)])
def test_the_end_of_a_pipeline_is_at_work_where_its_first_program_is(line, at_work):
    first = subprocess.Popen(["sh", "-c", line], stdout=subprocess.PIPE)
    through = subprocess.Popen(["cat"], stdin=first.stdout, stdout=subprocess.PIPE)
    last = subprocess.Popen(["cat"], stdin=through.stdout)
    stranger = subprocess.Popen(["sh", "-c", "while :; do :; done"], stdout=subprocess.DEVNULL)
    try:
        time.sleep(0.5)
        families = Families(ProcTable(), [os.getpid()])
        for _ in range(60 if at_work else 2):
            time.sleep(1.0)
            found = families.seen(ProcTable(), [last.pid])[last.pid]
            if found.at_work:
                break
    finally:
        for one in (first, through, last, stranger):
            one.kill()
            one.wait()
        first.stdout.close()
        through.stdout.close()
    assert bool(found.at_work) is at_work and [pid for pid, _ in found.stopped] == ([] if at_work else [first.pid]), found


def test_who_naps_until_a_file_is_there_may_wait_for_a_program_it_started():
    nap = Call("nanosleep", seconds=0.05)
    for does, kind in (({"ran": 0.2}, "unknown"), ({}, "lock-held"), ({"stopped": [(12, "cc1")]}, "stopped")):
        assert judge([kept(nap, [Outsider(11, "sh", **does)], woke=9, polls=True)]).kind == kind, does
    assert judge([kept(Call("nanosleep", seconds=7200.0), [Outsider(11, "sh", ran=0.2)])]).kind == "lock-held"
