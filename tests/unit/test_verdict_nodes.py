"""One judge over the facts of several machines, as JSON: what is said of processes on one machine is said of them on many; pids,
names and addresses that two machines have are two; facts that are damaged are no verdict."""

import json
import random

import pytest
from harness.facts import SLEEP, inside, process, python

from gdbext.answers.hang_nodes import judged, machines_of
from gdbext.engines.sightings import KEPT, QUEUE, Look, Sighting, Transfer
from gdbext.observe.system_calls import Call, Source
from gdbext.requests.instances import Side
from gdbext.requests.join import join
from gdbext.stacks.waits import Edge
from gdbext.torch.collectives import Count
from gdbext.verdict.exchange import facts_data


def count(rank, size, begun, number=0):
    return Count(f"gloo group {number} of {size}", rank, size, {"": begun})


def rank_of(number, size, frames, begun=(3,), job="10.0.0.1:29500", **more):
    counts = [count(number, size, n, i) for i, n in enumerate(begun)]
    found = process(f"R{number}", frames, role="", world=(number, size), counts=counts, **more)
    found.pid, found.job, found.links = 100, job, set()  # every machine has the same pids
    found.threads[0].node = (found.name, 100)
    return found


def a_job(kind, size):
    """-> (ranks, the verdict, the ranks that are to blame)"""
    last = size - 1
    if kind == "crossed":
        ranks = [rank_of(r, size, inside(), (3, 4) if r == last else (4, 3)) for r in range(size)]
        return ranks, "collective", None
    if kind == "network":
        return [rank_of(r, size, inside(), (4,)) for r in range(size)], "unknown", []
    if kind == "idle":
        leader = rank_of(0, size, python("accept"), native=("accept",), call=Call("recv", [Source("listener", "port 1")]))
        return [leader, *(rank_of(r, size, inside("broadcast"), (4,)) for r in range(1, size))], "idle", []
    ranks = [rank_of(r, size, inside(), (4,)) for r in range(last)]
    if kind == "work":
        return [*ranks, rank_of(last, size, python("load"), moved=True, advanced=True, load=0.3)], "unknown", []
    late = rank_of(last, size, python("throttle"), native=SLEEP)
    if kind == "lock":
        late.threads[0].native, late.threads[0].edge = (), Edge((late.name, 100), "the Lock lock", "Lock")
    return [*ranks, late], "collective", [f"R{last}"]


def answers_of(machines, sides=()):
    """What machines `[(node, [ProcessState])]` answer, through JSON."""
    found = []
    for node, processes in machines:
        facts = facts_data(processes, [s for name, s in sides if name == node], node, "0")
        found.append((f"ssh:{node}", json.loads(json.dumps({"facts": facts}))))
    return found


def said_of(answers):
    failed = []
    return judged(machines_of(answers, failed), failed)


KINDS = ("crossed", "network", "idle", "work", "lock", "sleep")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [2, 5])
def test_a_job_over_nodes_is_judged_as_on_one_machine(kind, size):
    ranks, verdict, blamed = a_job(kind, size)
    found, data, partial = said_of(answers_of([(f"n{i}", [r]) for i, r in enumerate(ranks)]))
    assert data["verdict"] == verdict and len(data["verdicts"]) == 1, data["evidence"]
    if blamed is not None:
        assert [c["label"] for c in data["culprits"]] == blamed
    for c in data["culprits"]:
        assert (c["pid"], c["node"]) == (100, f"n{c['label'][1:]}")
    alone = said_of(answers_of([("n0", ranks[:1])]))[1]
    assert not alone["culprits"] and alone["verdict"] in ("unknown", "idle")


@pytest.mark.parametrize("seed", range(20))
def test_jobs_beside_each_other_are_each_what_they_are(seed):
    """Same pids, labels, group names and sizes: some of the nodes may be silent."""
    draw = random.Random(seed)
    size, nodes, truth = draw.choice([2, 3, 4]), {}, {}
    for number in range(3):
        kind = draw.choice(KINDS)
        ranks, verdict, blamed = a_job(kind, size)
        for i, rank in enumerate(ranks):
            rank.job = f"10.0.0.{number}:29500"
            nodes.setdefault(f"j{number}n{i}", []).append(rank)
        truth[number] = verdict, blamed
    silent = f"j0n{draw.randrange(size)}" if draw.random() < 0.5 else ""
    machines = [(name, held) for name, held in nodes.items() if name != silent]
    draw.shuffle(machines)
    _, data, _ = said_of(answers_of(machines))
    for one in data["verdicts"]:
        (number,) = {int(name[1]) for name in one["group"]}  # no group spans two jobs
        verdict, blamed = truth[number]
        accused = {c["label"].partition(":")[2] for c in one["culprits"]}
        if number == 0 and silent:
            assert not accused - (set(blamed) if blamed is not None else {f"R{r}" for r in range(size)}), one
        else:
            assert one["verdict"] == verdict and (blamed is None or accused == set(blamed)), one


def test_the_way_of_a_request_is_one_over_nodes():
    ended = Sighting("p1", "output", "FINISHED", ended=True, transfer=Transfer(("request", "prefill-1", "p1"), True, KEPT))
    move = Transfer(("request", "prefill-1", "p1"), False, "transfer", "prefill-1", "10.0.0.7:5600")
    parked = Sighting("d1", QUEUE, "WAITING_FOR_REMOTE_KVS", parked=True, waits_for="transfer: KV", transfer=move)
    looks = {
        "a": Look("EngineCore", 100, "engine-core", ("scheduler",), [ended], stopped="SIGSTOP"),
        "b": Look("EngineCore", 100, "engine-core", ("scheduler",), [parked]),
    }
    machines, sides = [], []
    for node, look in looks.items():
        f = process("EngineCore", python("step"), role="engine-core", state="T" if node == "a" else "S")
        f.pid, f.family, f.engine = 100, 0, "vllm"
        machines.append((node, [f]))
        sides.append((node, Side("vllm", [look], join([look], [look]), [look])))
    _, data, _ = said_of(answers_of(machines, sides))
    (stuck,) = data["requests"]
    assert (stuck["request_id"], stuck["holder"]["pid"], stuck["holder"]["node"]) == ("d1", 100, "a"), stuck
    assert stuck["transfer"]["instance"] == "a:vllm" and stuck["transfer"]["request_id"] == "p1"
    decode = next(v for v in data["verdicts"] if v["verdict"] == "stuck-requests")
    assert [(c["label"], c["node"]) for c in decode["culprits"]] == [("a:EngineCore", "a")]
    _, alone, _ = said_of(answers_of(machines[1:], sides[1:]))
    assert not alone["culprits"] and "10.0.0.7:5600, was not asked" in alone["requests"][0]["evidence"][-1]


def test_facts_that_are_damaged_are_named_and_the_others_judged():
    ranks, _, _ = a_job("lock", 2)
    whole = answers_of([("n0", ranks[:1]), ("n1", ranks[1:])])
    draw, damaged = random.Random(7), 0
    for _ in range(60):
        broken = json.loads(json.dumps(whole[1][1]))
        at, key = broken["facts"]["processes"][0], None
        while isinstance(at, (dict, list)) and at and (key is None or draw.random() < 0.8):
            held, key = at, draw.choice(list(at) if isinstance(at, dict) else range(len(at)))
            at = held[key]
        held[key] = draw.choice([None, -1, "x", [], {"c": "Popen"}, {"t": []}, {"d": 3}, 1e99])
        failed = []
        machines = machines_of([whole[0], ("ssh:n1", broken)], failed)
        damaged += len(failed)
        data = judged(machines, failed)[1]
        assert json.dumps(data) and len(machines) + len(failed) == 2
        assert all(f["label"] == "ssh:n1" and "\n" not in f["reason"] for f in failed)
    assert damaged
    failed = []
    other = {"facts": {**whole[1][1]["facts"], "schema": "llm-observed/9"}}
    assert len(machines_of([whole[0], ("ssh:n1", other), ("ssh:n2", {"error": "no gdbext"})], failed)) == 1
    assert "another release" in failed[0]["reason"] and failed[1]["reason"] == "no gdbext"
