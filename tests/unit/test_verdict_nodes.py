"""One judge over the facts of several machines, as JSON: what is said of processes on one machine is said of them on many; pids,
names and addresses that two machines have are two; facts that are damaged are no verdict."""

import json
import random

import pytest
from harness.facts import SLEEP, inside, process, python

from gdbext import __version__
from gdbext.answers import ranks as shapes
from gdbext.answers.hang_nodes import judged
from gdbext.answers.kv import NUMBERS
from gdbext.answers.locks import merged_edges, merged_lines
from gdbext.answers.request_nodes import ROW, Merged
from gdbext.answers.requests import rows_of
from gdbext.engines.sightings import KEPT, QUEUE, Connector, InStep, Look, Sighting, Transfer
from gdbext.observe.system_calls import Call, Source
from gdbext.render.text import PLAIN
from gdbext.requests.collect import Custody
from gdbext.requests.instances import Side
from gdbext.requests.join import join
from gdbext.stacks.waits import Edge
from gdbext.torch.collectives import Count
from gdbext.verdict.exchange import facts_data, machine_of, sides_data


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
    found, _, data, partial = judged(answers, [])
    return found, data, partial


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
    gone = "nothing listens at 10.0.0.7:5600 any more"  # as its own machine sees it
    move = Transfer(("request", "prefill-1", "p1"), False, "transfer", "prefill-1", "10.0.0.7:5600", heard=gone)
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
    assert len(set(stuck["evidence"])) == len(stuck["evidence"])
    decode = next(v for v in data["verdicts"] if v["verdict"] == "stuck-requests")
    assert [(c["label"], c["node"]) for c in decode["culprits"]] == [("a:EngineCore", "a")]
    _, alone, _ = said_of(answers_of(machines[1:], sides[1:]))
    assert not alone["culprits"] and stuck["evidence"][-1] != gone
    assert alone["requests"][0]["evidence"][-1].endswith(f"10.0.0.7:5600, was not asked: it must act; {gone}")


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
        _, machines, data, _ = judged([whole[0], ("ssh:n1", broken)], failed)
        damaged += len(failed)
        assert json.dumps(data) and len(machines) + len(failed) == 2
        assert all(f["label"] == "ssh:n1" and "\n" not in f["reason"] for f in failed), (failed, key, held[key])
    assert damaged
    _, machines, data, _ = judged([("ssh:n1", {"facts": {**whole[1][1]["facts"], "sides": 3}}), whole[0], whole[1]], [])
    assert [m.name for m in machines] == ["ssh:n0", "ssh:n1"]
    assert [(c["label"], c["pid"], c["node"]) for c in data["culprits"]] == [("R1", 100, "n1")]
    failed = []
    other = {"facts": {**whole[1][1]["facts"], "schema": "llm-observed/9"}}
    assert len(judged([whole[0], ("ssh:n1", other), ("ssh:n2", {"error": "no gdbext"})], failed)[1]) == 1
    assert "another release" in failed[0]["reason"] and failed[1]["reason"] == "no gdbext"


# ---- other commands over several machines ------------------------------------------------------------------------------------
def requests_of(node, look):
    """What `llm-requests -facts` answers on a machine with one instance of one process."""
    held = Custody("vllm", [look], join([look], [look]), [], ["unstopped"])
    held.earlier = [look]
    rows, limits = rows_of(held, [])
    answer = {"requests": rows, "limits": limits, "engine": "vllm", "partial": held.partial}
    return f"ssh:{node}", json.loads(json.dumps({**answer, "facts": sides_data([held.side], node, __version__)}))


def pair_of(stopped="SIGSTOP"):
    """The looks at a sender, which is stopped, and at the reader of one of the two requests whose blocks it keeps."""
    serves = Connector("NixlConnector", "prefill", "prefill-1", "10.0.0.7:5600")
    ended = [
        Sighting(name, "output", "FINISHED", ended=True, transfer=Transfer(("request", "prefill-1", name), True, KEPT))
        for name in ("p1", "forgotten")
    ]
    move = Transfer(("request", "prefill-1", "p1"), False, "transfer", "prefill-1", "10.0.0.7:5600")
    parked = Sighting("d1", QUEUE, "WAITING_FOR_REMOTE_KVS", parked=True, waits_for="transfer: KV", transfer=move)
    return [
        Look("EngineCore", 100, "engine-core", ("scheduler",), ended, stopped=stopped, serves=serves),
        Look("EngineCore", 100, "engine-core", ("scheduler",), [parked]),
    ]


def test_requests_of_several_machines_are_joined():
    prefill, decode = (requests_of(node, look) for node, look in zip("ab", pair_of()))
    for answers in ([prefill, decode], [decode, prefill]):
        rows = {row["request_id"]: row for row in Merged(answers, []).rows}
        assert [rows[name]["node"] for name in ("p1", "forgotten", "d1")] == ["a", "a", "b"]
        assert (rows["d1"]["holder"]["node"], rows["d1"]["holder"]["pid"]) == ("a", 100)
        assert [(w["part"], w["instance"], w["request_id"]) for w in rows["d1"]["way"][1:]] == [
            ("prefill", "a:vllm", "p1"),
            ("transfer", None, None),
            ("decode", "b:vllm", "d1"),
        ]
        assert rows["d1"]["way"] == rows["p1"]["way"] and rows["p1"]["verdict"] == "kept"
        assert rows["forgotten"]["way"][-1]["state"] == "no request here reads them"
    alone = Merged([decode], []).rows[0]
    assert alone["holder"] is None and "10.0.0.7:5600, was not asked" in alone["evidence"][-1]
    failed = []
    broken = {**prefill[1], "requests": [{"request_id": "p1"}]}
    merged = Merged([("ssh:a", broken), decode, ("ssh:c", {"error": "no engine process is running here"})], failed)
    assert [row["request_id"] for row in merged.rows] == ["d1"] and [f["label"] for f in failed] == ["ssh:c", "ssh:a"]
    liar = {**prefill[1], "requests": [{**one, "status": "\x1b[2J", "evidence": [3]} for one in prefill[1]["requests"]]}
    assert {row["status"] for row in Merged([("ssh:a", liar)], []).rows} == {"\\x1b[2J"}
    for wrong in ({"age": "old"}, {"tokens": [1]}, {"blocked_by": 7}):
        liar["requests"] = [{**prefill[1]["requests"][0], **wrong}]
        assert [row["node"] for row in Merged([("ssh:a", liar), decode], []).rows] == ["b"]


def test_nobody_is_accused_of_a_pair_that_goes_on():
    prefill, decode = pair_of(stopped="")
    rows = Merged([requests_of("a", prefill), requests_of("b", decode)], []).rows
    assert [row["holder"] for row in rows] == [None, None, None]


def edge_of(waiter, owner, pid=7):
    at = {"host": "h", "label": "TP0", "pid": pid, "name": "main"}
    data = {"lock": "the Lock a", "kind": "Lock", "where": "put (x.py:3)", "note": "", "orphan": False, "candidates": []}
    return {**data, "waiter": {**at, "tid": waiter}, "owner": {**at, "tid": owner} if owner else None}


def test_locks_of_several_machines_are_one_answer():
    def answer(*edges, cycles=()):
        said = {"edges": list(edges), "cycles": list(cycles), "ranks_read": 1, "ranks_total": 2, "pauses": [], "failed": []}
        return json.loads(json.dumps(said))

    cycle = {"edges": [edge_of(7, 8)], "sentence": "none of them can go on"}
    answers = [("ssh:a", answer(edge_of(7, 8), cycles=[cycle])), ("pod/n/p", answer(edge_of(7, None)))]
    failed = [{"label": "ssh:dead", "pid": None, "reason": "No route"}]
    data, partial = merged_edges([*answers, ("ssh:bad", answer({"waiter": 3}))], failed)
    assert [(e["waiter"]["node"], e["waiter"]["pid"]) for e in data["edges"]] == [("a", 7), ("pod/n/p", 7)]
    assert data["edges"][0]["owner"]["node"] == "a" and data["cycles"][0]["sentence"] == "a: none of them can go on"
    assert (data["ranks_read"], data["ranks_total"]) == (2, 4)
    assert [f["label"] for f in failed] == ["ssh:dead", "ssh:bad"] and len(partial) == 2
    assert merged_lines(data, PLAIN)[:2] == [
        "a:TP0 7 main  waits for the Lock a in put (x.py:3)",
        "  held by a:TP0 8 main",
    ]


def rank_data(number, count, serves="m"):
    instance = {"name": "vllm", "role": "", "engine_id": "", "ports": {}, "serves": serves, "dp_rank": None}
    data = {"engine": "vllm", "role": "worker", "label": f"TP{number}", "pid": 9, "state": "S", "marks": []}
    return {**data, "ranks": {"world": number}, "sizes": {"world": count}, "instance": instance}


def test_ranks_of_several_machines_are_one_list_the_missing_are_named():
    def answer(*ranks):
        return json.loads(json.dumps({"ranks": ranks, "processes": 5, "routers": []}))

    one, two = ("ssh:a", answer(rank_data(0, 4), rank_data(1, 4))), ("ssh:b", answer(rank_data(2, 4)))
    data, partial = shapes.merged([one, two], [{"label": "ssh:c", "pid": None, "reason": "no answer in 120 s"}])
    assert [(r["node"], r["index"], r["label"]) for r in data["ranks"]] == [("a", 0, "TP0"), ("a", 1, "TP1"), ("b", 2, "TP2")]
    assert data["missing"] == [{"engine": "vllm", "group": "world", "size": 4, "ranks": [3]}]
    assert partial == ["ssh:c: no answer in 120 s"]
    assert any("rank 3 of 4: on no machine that was asked" in line for line in shapes.lines(data, PLAIN))
    whole = [one, ("ssh:b", answer(rank_data(2, 4), rank_data(3, 4)))]
    assert shapes.merged(whole, [])[0]["missing"] == []
    copies = [("ssh:a", answer(rank_data(0, 4))), ("ssh:b", answer(rank_data(0, 4), rank_data(1, 4)))]
    assert shapes.merged(copies, [])[0]["missing"] == []  # two jobs of one model: whose the missing ones are is not known
    failed = []
    assert shapes.merged([one, ("ssh:x", {"ranks": [{"label": 3}]})], failed)[0]["processes"] == 5
    assert [f["label"] for f in failed] == ["ssh:x"]


def test_a_request_that_is_kept_is_so_while_a_workers_batch_still_has_it():
    (scheduler, _), worker = pair_of(), Look("Worker", 101, "worker", ("worker",), [Sighting("p1", "worker", "in the batch")])
    found = {t.request_id: t.verdict for t in join([scheduler, worker], [scheduler, worker])}
    assert found == {"p1": "kept", "forgotten": "kept"}


@pytest.mark.parametrize("kind", ["lock", "sleep", "crossed"])
def test_two_jobs_of_one_node_with_equal_ranks_are_placed_right(kind):
    ill, verdict, blamed = a_job(kind, 2)
    well, _, _ = a_job("work", 2)
    for rank in well:
        rank.job, rank.pid = "10.0.0.2:29500", 700
        rank.threads[0].node = (rank.name, 700)
    for first, second in ((ill, well), (well, ill)):
        machines = [(f"n{i}", [first[i], second[i]]) for i in range(2)]
        _, data, _ = said_of(answers_of(machines))
        assert data["verdict"] == verdict
        accused = [(c["node"], c["pid"]) for v in data["verdicts"] if v["verdict"] == verdict for c in v["culprits"]]
        assert accused == [(f"n{name[1:]}", 100) for name in (blamed or ["R0", "R1"])], data["culprits"]


def test_each_number_of_a_request_comes_from_machines_a_new_one_may_lack():
    """Another machine may have an older pack: only what the first release to answer over machines had may be required."""
    first = {"tokens", "prompt_tokens", "computed_tokens", "output_tokens", "in_flight_tokens", "draft_tokens"}
    required = {field.name for field in ROW if field.must}
    assert NUMBERS.names <= ROW.names and not required & (NUMBERS.names - first)


def test_what_processes_and_instances_say_alike_is_the_same_again():
    """Both are written by one hand and read by one: frames and addresses that are equal are sent once over all of them."""
    hosts = {rank: f"10.0.0.{rank // 8}" for rank in range(16)}
    seen = []
    for number in range(2):
        one = process(f"R{number}", inside(), role="")
        one.pid, one.hosts = 100 + number, dict(hosts)
        seen.append(one)
    looks = [Look(f"DP{n}", 200 + n, "engine-core") for n in range(2)]
    for n, look in enumerate(looks):
        look.in_step = InStep(n, 16, hosts=dict(hosts))
    data = json.loads(json.dumps(facts_data(seen, [Side("vllm", looks, [], looks)], "h", __version__)))
    made = machine_of("ssh:a", 1, data, [])
    assert [one.hosts for one in made.processes] == [hosts] * 2
    assert [one.threads[0].frames[0].function for one in made.processes] == ["c10d::Work::wait"] * 2
    assert [look.in_step.hosts for look in (*made.sides[0].looks, *made.sides[0].earlier)] == [hosts] * 4
