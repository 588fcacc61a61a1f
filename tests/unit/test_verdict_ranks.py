"""Rules on ranks of one job, on facts made up here: who is slow, who is no rank, who is of another job."""

import random
import sys

import pytest
from harness.facts import SLEEP, add, inside, node, process, python

from gdbext.observe.system_calls import Call, Source
from gdbext.stacks.waits import Edge
from gdbext.torch.collectives import Count
from gdbext.verdict.chains import chains_of
from gdbext.verdict.facts import Facts
from gdbext.verdict.judge import judge as judge_all
from gdbext.verdict.judge import judge_group as judge
from gdbext.verdict.walk import chain_of


def test_who_moved_between_looks_is_slow_and_not_missing():
    for more in ({"moved": True, "advanced": True, "load": 0.1}, {"state": "D"}, {"state": "R"}, {"wanted": 0.9}):
        late = process("R1", python("load", "main"), role="", world=(1, 2))
        vars(late.threads[0]).update(more)
        said = judge([process("R0", inside("barrier"), role="", world=(0, 2)), late])
        assert (said.kind, said.culprits) == ("unknown", []) and "slow" in said.evidence[-1], more
    reads = process("R1", python("load"), ("read",), role="", world=(1, 2), call=Call("read", [Source("file", "/w")]))
    assert judge([process("R0", inside("barrier"), role="", world=(0, 2)), reads]).kind == "unknown"
    giver = process("R1", python("get"), role="", world=(1, 2))
    giver.threads[0].edge = Edge(node("R1"), "an item of the Queue q", "Queue", how="get", candidates=[("R1", 9)])
    add(giver, 9, "loader", moved=True, advanced=True)
    assert judge([process("R0", inside("barrier"), role="", world=(0, 2)), giver]).kind == "unknown"
    naps = process("R1", python("nap"), SLEEP, role="", world=(1, 2), moved=True)  # turns are no progress
    assert judge([process("R0", inside("barrier"), role="", world=(0, 2)), naps]).kind == "collective"


def test_a_rank_that_waits_for_input_before_it_tells_others_rests():
    def ranks(operation):
        source = process("R0", python("accept"), ("accept",), role="", world=(0, 2))
        source.threads[0].call = Call("recv", [Source("listener", "connections to port 1")])
        return [source, process("R1", inside(operation), role="", world=(1, 2))]

    assert judge(ranks("broadcast")).kind == "idle"
    fed = ranks("broadcast")  # its main thread is given what a thread of its own takes from clients
    fed[0].threads[0].call, fed[0].threads[0].edge = None, Edge(node("R0"), "an item", "Queue", how="get", candidates=[("R0", 9)])
    add(fed[0], 9, "server", call=Call("recv", [Source("listener", "connections to port 1")]), native=("accept",))
    assert judge(fed).kind == "idle" and not judge(fed).culprits
    assert judge(ranks("all_reduce")).kind == "collective"


def test_jobs_of_one_size_are_one_only_by_what_is_exact():
    def job(port, **more):
        link = (f"0100007F:{port}", "0100007F:9999", "net")
        asleep = process(f"R1 {port}", python("sleep"), SLEEP, role="", world=(1, 2), **more)
        found = [process(f"R0 {port}", inside(), role="", world=(0, 2), **more), asleep]
        for f in found:
            f.links = {link}
        return found

    well = job("1F90", moved=True, advanced=True, counts=[Count("gloo group 0 of 2", 0, 2, {"": 3})])
    hung = job("1F91", counts=[Count("gloo group 0 of 2", 0, 2, {"": 3})])
    said = judge_all(well + hung)
    assert [(v.kind, v.culprits, v.processes) for v in said][0] == ("collective", [node("R1 1F91")], ["R0 1F91", "R1 1F91"])
    assert not [v for v in said[1:] if v.culprits]


def test_jobs_are_one_by_the_address_of_their_store_not_by_size():
    def job(port, **more):
        counts = [Count("gloo group 0 of 2", 0, 2, {"": 3})]
        found = [
            process(f"R0 {port}", inside("barrier"), role="", world=(0, 2), counts=counts),
            process(f"R1 {port}", python("load"), SLEEP, role="", world=(1, 2), counts=counts, **more),
        ]
        for f in found:
            f.job = f"127.0.0.1:{port} in one"
        return found

    hung, well = job(1), job(2, moved=True, advanced=True, load=0.5)
    said = {tuple(v.processes): v for v in judge_all([hung[0], well[0], hung[1], well[1]])}
    assert {names: v.kind for names, v in said.items()} == {("R0 1", "R1 1"): "collective", ("R0 2", "R1 2"): "unknown"}
    assert said["R0 1", "R1 1"].culprits == [node("R1 1")] and not said["R0 2", "R1 2"].culprits
    other = job(1, moved=True, advanced=True)
    for f in other:
        f.job, f.name = "127.0.0.1:1 in another", f.name + "'"
    assert len(judge_all([*hung, *other])) == 2  # one address of two network namespaces


@pytest.mark.parametrize("seed", range(8))
def test_ranks_on_machines_that_were_not_asked_are_named_with_the_address(seed):
    """Ranks of a job on several machines, of which some are asked; each knows the machines of some or all ranks."""
    draw = random.Random(f"machines {seed}")
    size, machines = draw.choice([(4, 2), (8, 2), (8, 4), (6, 3)])
    at = [rank * machines // size for rank in range(size)]
    asked = draw.sample(range(machines), draw.randrange(1, machines))
    knows = set(range(size)) if seed % 2 else set(draw.sample(range(size), size // 2))
    hosts = {rank: f"10.0.0.{at[rank]}" for rank in knows}
    ranks = []
    for rank in (rank for rank in range(size) if at[rank] in asked):
        one = process(f"R{rank}", inside("all_reduce"), role="", world=(rank, size))
        one.job, one.hosts = "10.0.0.0:29500", {**hosts, rank: f"10.0.0.{at[rank]}"}
        ranks.append(one)
    said = judge(ranks)
    away = [rank for rank in range(size) if at[rank] not in asked]
    assert (said.kind, said.culprits, said.not_asked) == ("unknown", [], [f"R{rank}" for rank in away])
    assert said.hosts == {f"R{rank}": hosts[rank] for rank in away if rank in knows}
    for machine in {at[rank] for rank in away if rank in knows}:
        (line,) = [line for line in said.evidence if f"on a node that was not asked (10.0.0.{machine})" in line]
        named = [rank for rank in away if at[rank] == machine and rank in knows]
        assert line.startswith(f"rank {named[0]} of {size} is" if len(named) == 1 else f"R{named[0]}"), line
    assert any("not named here" in line for line in said.evidence) == bool(set(away) - knows)


def test_a_missing_rank_of_an_asked_machine_is_on_no_other_machine():
    ranks = [process(f"R{rank}", inside("all_reduce"), role="", world=(rank, 4)) for rank in (0, 1, 2)]
    for one in ranks:
        one.job, one.hosts = "10.0.0.1:29500", {rank: f"10.0.0.{1 + rank // 2}" for rank in range(4)}
    said = judge(ranks)
    assert (said.kind, said.not_asked, said.hosts) == ("unknown", ["R3"], {})
    assert "rank 3 of 4 was not asked: it has ended, or is elsewhere or not named here" in said.evidence


def test_a_fork_of_a_rank_is_no_rank():
    made = process("R0", inside("barrier"), role="", world=(0, 2), counts=[Count("gloo group 0 of 2", 0, 2, {"": 3})])
    fork = process("fork", python("sleep"), SLEEP, role="", world=(0, 2), counts=[Count("gloo group 0 of 2", 0, 2, {"": 2})])
    other = process("R1", python("sleep"), SLEEP, role="", world=(1, 2), counts=[Count("gloo group 0 of 2", 1, 2, {"": 2})])
    made.pid, fork.pid, fork.ancestors, made.children = 5, 6, {1, 5}, {6: 0.0}
    for f in (made, fork, other):
        f.job = "10.0.0.1:29500"
    (said,) = judge_all([made, fork, other])
    assert (said.kind, said.culprits, said.victims) == ("collective", [node("R1")], ["R0"])


def test_a_rank_that_was_given_something_is_slow_and_not_missing():
    """As seen at full load on a rank that takes pieces of its weights from a queue: samples of it were all alike."""

    def said(giver=None, read=0, **more):
        edge = Edge(node("R1"), "an item of the Queue x (0 items)", "Queue", how="get", candidates=[("R1", 7)])
        late = process("R1", python("get", "load"), role="", world=(1, 2), edge=edge, **more)
        late.read = read
        add(late, 7, "reader", native=SLEEP, call=Call("nanosleep", seconds=3600), **(giver or {}))
        return judge([process("R0", inside("barrier"), role="", world=(0, 2)), late]).kind

    assert said() == "collective"
    for well in ({"read": 64 << 20}, {"woke": 3}, {"giver": {"woke": 4}}, {"giver": {"moved": True}}, {"giver": {"state": "R"}}):
        assert said(**well) == "unknown", well
    assert said(read=4096) == "collective"  # a log, say


def test_a_rank_whose_job_could_not_be_read_is_neither_absent_nor_accused():
    counts = [Count("gloo group 0 of 2", 0, 2, {"": 3})]
    waits = process("R0", inside("barrier"), role="", world=(0, 2), counts=counts)
    late = process("R1", python("nap"), SLEEP, role="", world=(1, 2))
    waits.job = "10.0.0.1:29500"
    for said in judge_all([waits, late]):
        assert not said.culprits and not said.not_asked and "not asked" not in " ".join(said.evidence), said.evidence
    assert any("R1: of which job could not be read" in line for said in judge_all([waits, late]) for line in said.evidence)
    late.job = waits.job
    assert [v.culprits for v in judge_all([waits, late])] == [[node("R1")]]
    late.job = "10.0.0.1:29501"  # of another job: then the rank is elsewhere
    assert "R1" in judge_all([waits, late])[0].not_asked + judge_all([waits, late])[1].not_asked


def member(number, size, begun, waits_in=""):
    """A rank of a job that has `begun` {group: (rank there, size, collectives)}, and waits in one of them."""
    counts = [Count(group, *place, {"": n}) for group, (*place, n) in begun.items()]
    one = process(f"R{number}", inside(), role="", world=(number, size), counts=counts)
    one.job, one.main.group = "10.0.0.1:29500", waits_in
    return one


def test_a_chain_over_a_mesh_names_each_hop():
    """R0 waits in a column for R2, which waits in its row for R3, which waits for a lock: R0 does not wait for R3."""
    first = member(0, 4, {"column 0": (0, 2, 9), "row 0": (0, 2, 4)}, "column 0")
    second = member(2, 4, {"column 0": (1, 2, 8), "row 1": (0, 2, 5)}, "row 1")
    last = member(3, 4, {"column 1": (1, 2, 8), "row 1": (1, 2, 4)})
    last.main.frames = python("put", "step")
    last.main.edge = Edge(last.main.node, "the Lock self.cache_lock", "Lock")
    facts = Facts([first, second, last])
    assert [one for one, _ in chain_of(facts, first.main.node).through] == [second.main.node, last.main.node]
    assert judge([first, second, last]).culprits == [last.main.node]


@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_chains_of_crossed_groups_are_the_ring_that_they_are(size):
    """Each rank waits in a group of it and the next one, which waits in its own with the one after."""
    ranks = []
    for n in range(size):
        own, before = f"pair {n}", f"pair {(n - 1) % size}"
        ranks.append(member(n, size, {own: (0, 2, 6), before: (1, 2, 5)}, own))
    said = judge(ranks)
    assert (said.kind, len(said.culprits), said.again) == ("collective", size, True)
    facts = Facts(ranks)
    assert {chain_of(facts, one.main.node).end.state for one in ranks} == {"ring"}


def calls_of(made, ranks):
    """How many functions are called to judge a job of that many ranks."""
    seen, count = [made(n, ranks) for n in range(ranks)], [0]

    def counted(_, event, __):
        count[0] += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        found = judge_all(seen)
        chains = chains_of(Facts(seen), (), found[0].culprits)
    finally:
        sys.setprofile(None)
    return count[0], found[0], chains


def one_late(n, size):
    late = n == size // 2
    one = member(n, size, {"world": (n, size, 8 - late), f"tp {n // 8}": (n % 8, 8, 3)}, "" if late else "world")
    if late:
        one.main.frames, one.main.edge = python("put"), Edge(one.main.node, "the Lock self.cache_lock", "Lock")
    return one


def all_crossed(n, size):
    odd = n % 2
    return member(n, size, {"world": (n, size, 8 - odd), f"tp {n // 8}": (n % 8, 8, 3 + odd)}, f"tp {n // 8}" if odd else "world")


@pytest.mark.parametrize("made", [one_late, all_crossed])
def test_twice_the_ranks_take_twice_the_work(made):
    (few, _, _), (many, said, chains) = calls_of(made, 64), calls_of(made, 256)
    assert many < 4.6 * few and said.kind == "collective" and chains[0].waiter == said.culprits[0]


def test_the_chain_of_the_culprit_stays_where_thousands_wait():
    _, said, chains = calls_of(one_late, 2100)
    assert said.culprits == [("R1050", said.culprits[0][1])] and chains[0].waits_for == "the Lock self.cache_lock"
