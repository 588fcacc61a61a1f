"""Data-parallel replicas that go in step, made up: who is to blame is known by construction; and replicas that are independent,
which look alike. Who is missing at the start."""

import random

import pytest
from harness.facts import SLEEP, add, inside, process, python

from gdbext.engines.sightings import InStep, Look, Start
from gdbext.requests.join import join
from gdbext.stacks.waits import Edge
from gdbext.torch.collectives import Count
from gdbext.verdict.judge import judge

RING = python("acquire_read", "dequeue", file="/x/vllm/distributed/device_communicators/shm_broadcast.py")
REST = python("get", "_process_input_queue", "run_busy_loop")
ANSWER = python("get_response", "collective_rpc", "execute_dummy_batch", "run_busy_loop")
POLL = python("poll", "process_input_socket")


def made(name, role, frames, replica=None, **more):
    found = process(name, frames, role=role, **more)
    found.engine, found.family, found.replica = "vllm", 1, replica
    return found


def core(number, size, frames=REST, step=None, wave=3, runs=False, **more):
    found = made(f"EngineCore_DP{number}", "engine-core", frames, number, **more)
    found.in_step = InStep(number, size, wave, step, runs)
    if frames is REST:
        main = found.threads[0]
        add(found, 7, "input", frames=python("poll", "process_input_sockets"), native=("poll",), idle=True)
        main.edge = Edge(main.node, "the Queue self.input_queue", "Queue", candidates=[(found.name, 7)])
    return found


def coordinator(size, frames=POLL, wave=3, runs=True, **more):
    found = made("DPCoordinator", "coordinator", frames, native=("poll",), **more)
    found.in_step = InStep(None, size, wave, None, runs)
    return found


def worker(number, frames=RING, **more):
    return made(f"DP{number}", "worker", frames, number, **more)


def engine(kind, size, late):
    """-> (processes of an engine of `size` replicas, the verdict, the names of those to blame)"""
    cores = [core(n, size, inside(caller="sync_dp_state"), 33, runs=True) for n in range(size)]
    workers = [worker(n) for n in range(size)]
    top, name = coordinator(size), f"EngineCore_DP{late}"
    if kind == "rest":
        return [*(core(n, size) for n in range(size)), *workers, coordinator(size, runs=False)], ("idle", "unknown"), []
    if kind == "network":
        return [*cores, *workers, top], ("unknown",), []
    if kind == "lock":
        cores[late] = core(late, size, python("schedule", "step"), 32, runs=True)
        cores[late].threads[0].edge = Edge(cores[late].threads[0].node, "the Lock self.lock", "Lock")
        return [*cores, *workers, top], ("collective",), [name]
    if kind == "worker":
        cores[late], workers[late] = core(late, size, ANSWER, 32, runs=True), worker(late, python("throttle"), native=SLEEP)
        return [*cores, *workers, top], ("starved", "collective"), [f"DP{late}"]
    if kind == "experts":  # the others' workers wait for one whose core is not woken
        cores = [core(n, size, ANSWER, 1, runs=True) for n in range(size)]
        workers = [worker(n, inside("all_to_all_single", "dispatch")) for n in range(size)]
        cores[late], workers[late] = core(late, size, wave=2), worker(late)
        return [*cores, *workers, top], ("collective",), [name]
    cores[late] = core(late, size, wave=2)
    if kind == "coordinator":
        top = coordinator(size, python("acquire", "log"), runs=False)
        return [*cores, *workers, top], ("collective",), ["DPCoordinator"]
    return [*cores, *workers, top], ("collective",), [name]  # "asleep": the word of the wave was lost


KINDS = ("rest", "network", "lock", "worker", "experts", "coordinator", "asleep")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size, late", [(2, 1), (2, 0), (4, 2)])
def test_who_does_not_go_in_step_is_named_and_nobody_else(kind, size, late):
    processes, verdicts, blamed = engine(kind, size, late)
    random.Random(size).shuffle(processes)
    said = judge(processes)[0]
    assert said.kind in verdicts and [node[0] for node in said.culprits] == blamed, (said, said.evidence)
    if kind not in ("rest",):
        assert any("ranks that go in step" in line and "EngineCore_DP0" in line for line in said.evidence)


def test_a_rank_that_was_not_asked_is_accused_of_nothing():
    processes, _, _ = engine("lock", 4, 3)
    said = judge([one for one in processes if one.name != "EngineCore_DP3"])[0]
    assert (said.kind, said.culprits, said.not_asked) == ("unknown", [], ["DP3"])
    assert any("rank 3 of 4 was not asked" in line for line in said.evidence)


def test_replicas_of_dense_models_do_not_wait_for_each_other():
    """Both ranks of one replica are in an all-reduce that does not end; the other replica rests, or is at work."""
    for other in (RING, python("sample")):
        ranks = [worker(n // 2, inside() if n < 2 else other) for n in range(4)]
        for number, rank in enumerate(ranks):
            rank.name, rank.alone = f"DP{number // 2}.TP{number % 2}", True
            rank.threads[0].node = (rank.name, number + 1)
        said = judge(ranks)[0]
        assert (said.kind, said.culprits) == ("unknown", []), said.evidence
        ranks[1].threads[0].frames, ranks[1].threads[0].native = python("throttle"), SLEEP
        said = judge(ranks)[0]
        assert (said.kind, [node[0] for node in said.culprits]) == ("collective", ["DP0.TP1"]), said.evidence


def test_counts_of_two_jobs_are_not_compared_by_their_groups_name():
    ranks = []
    for job in range(2):
        for number in range(2):
            rank = made(f"J{job}R{number}", "scheduler", inside() if job == 0 else REST)
            rank.engine, rank.job = "sglang", f"10.0.0.1:{29500 + job}"
            rank.counts = [Count("gloo group 0 (2 ranks)", number, 2, {"": 40 if job == 0 else 12})]
            ranks.append(rank)
    said = judge(ranks)[0]
    assert (said.kind, said.culprits) == ("unknown", []) and not any("have begun" in line for line in said.evidence)


def test_ranks_that_never_came_are_named_by_number_and_node():
    frames = python("_tcp_rendezvous_handler", "init_process_group", file="/x/torch/distributed/rendezvous.py")
    here = [0, 1, 2, 4, 5]
    ranks = [process(f"R{n}", frames, role="", world=(n, 8)) for n in here]
    for rank in ranks:
        rank.job = "10.0.0.1:29500"
    said = judge(ranks)[0]
    assert said.kind == "startup" and said.not_asked == ["R3", "R6", "R7"] and not said.culprits
    assert any("5 of 8 ranks are here; missing: 3, 6, 7" in line for line in said.evidence)
    for rank in ranks:
        rank.per_node = 2
    assert "R6-7: on node 3 of 4, not asked" in judge(ranks)[0].evidence


def test_engine_cores_that_a_server_waits_for_are_named_with_their_node():
    server = made("APIServer", "api-server", python("poll", "wait_for_engine_startup"))
    server.start = Start(6, here=[1], elsewhere=[4, 5], starting=[2])
    there = made("EngineCore_DP1", "engine-core", python("load_model"), 1)
    said = judge([server, there])[0]
    assert said.kind == "startup" and not said.culprits and said.not_asked == ["DP4", "DP5"]
    assert "APIServer waits for data-parallel engine cores: 3 of 6 are here; missing: 1, 4, 5; 2 still starts" in said.evidence
    assert any("4, 5: to be started on another machine" in line for line in said.evidence)
    server.start = Start(2, starting=[0, 1])  # all are here: which worker does not load is told as without it
    workers = [worker(0, python("load_model")), worker(1, python("throttle"), native=SLEEP)]
    said = judge([server, there, *workers])[0]
    assert said.kind == "startup" and [node[0] for node in said.culprits] == ["DP1"] and not said.not_asked, said


@pytest.mark.parametrize("in_step", [True, False])
def test_a_stopped_replica_is_in_the_way_only_where_they_go_in_step(in_step):
    from gdbext.engines.sightings import RUNNING, Sighting

    def looks(stopped):
        found = []
        for name, role, replica in (("DP0", "engine-core", 0), ("DP1", "engine-core", 1), ("DPCoordinator", "coordinator", None)):
            one = Look(name, 10 + len(found), role, parts=("scheduler",) * (role != "coordinator"), replica=replica)
            if in_step:
                one.in_step = InStep(replica, 2)
            one.stopped = "a signal" if name == stopped else ""
            found.append(one)
        found[0].sightings = [Sighting("r1", RUNNING, "RUNNING")]
        return found

    for stopped in ("DP1", "DPCoordinator"):
        (tracked,) = join(looks(stopped), looks(stopped))
        blamed = tracked.holder.label if tracked.holder is not None else ""
        assert (blamed == stopped) == in_step, tracked
    (tracked,) = join(looks("DP0"), looks("DP0"))
    assert tracked.holder.label == "DP0"


def test_a_replica_whose_others_were_not_asked_waits_for_them():
    alone = [core(0, 2, ANSWER, 1, runs=True), worker(0, inside(caller="_run_ar"))]
    said = judge(alone)[0]
    assert (said.kind, said.culprits, said.not_asked) == ("unknown", [], ["DP1"]), said.evidence
    assert not any("is there: the cause" in line for line in said.evidence)


@pytest.mark.parametrize(
    "stands, blamed",
    [
        ({"TP0": ("all_reduce", True), "TP1": ("throttle", False)}, "TP1"),
        ({"TP0": ("all_reduce", True), "TP1": ("all_reduce", True)}, ""),
        ({"TP0": ("save", False), "TP1": ("throttle", False)}, ""),
        ({}, "core"),
    ],
)
def test_a_core_that_waits_for_its_workers_is_not_to_blame(stands, blamed):
    from gdbext.engines.sightings import WORKER, Keeper
    from gdbext.requests.model import Place
    from gdbext.requests.owing import blamed as who

    looks = [Look(name, n, "worker", ("worker",), rings=("r",)) for n, name in enumerate(stands)]
    for look, (where, meets) in zip(looks, stands.values()):
        look.keepers[WORKER] = Keeper("main", 9, where, meets=meets)
    holder, why = who(Keeper("main", 3, "poll", ring="r"), Place("core", 1), looks)
    assert (holder.label if holder is not None else "") == blamed, why
