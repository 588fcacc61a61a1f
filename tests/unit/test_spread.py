"""Engines that are started on several machines: one machine alone, or some, name the ranks that are elsewhere; a rank that is to
be here and is not is named too."""

import random

import pytest
from harness.fake_proc import FakeProc

from gdbext.answers import ranks as shapes


def machine(proc, engine, sizes, node, nodes, without=()):
    """The processes of one machine, with their titles; `without`: ranks that have not started there."""
    tp, pp = sizes
    each = tp * pp // nodes
    words = ["--tp", str(tp), "--pp-size", str(pp), "--nnodes", str(nodes), "--node-rank", str(node)]
    if engine == "vllm":
        words = ["-tp", str(tp), "--pipeline-parallel-size", str(pp), "--nnodes", str(nodes), "--node-rank", str(node)]
        main = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m", *words, "--master-addr", "10.0.0.1"])
        parent, title = proc.add(title="VLLM::EngineCore", ppid=main), "VLLM::Worker"
    else:
        words += ["--dist-init-addr", "10.0.0.1:5000", "--model-path", "m"]
        parent = proc.add(["/usr/bin/python3", "-m", "sglang.launch_server", *words])
        title = "sglang::scheduler"
    for rank in sorted({*range(node * each, (node + 1) * each)} - {*without}):
        part = f"_PP{rank // tp}" if pp > 1 else ""
        proc.add(title=f"{title}{part}_TP{rank % tp}", ppid=parent)
    return [shapes.RANK.data(r) for r in proc.ranks()]


@pytest.fixture
def make_proc(tmp_path):
    """Makes a FAKE /proc of another machine each time."""

    def make():
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        folder.mkdir()
        return FakeProc(folder)

    return make


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
@pytest.mark.parametrize("seed", range(6))
def test_ranks_on_machines_that_were_not_asked_are_named(engine, seed, make_proc):
    draw = random.Random(f"{engine} {seed}")
    nodes = draw.choice([2, 4])
    sizes = draw.choice([(8, 1), (4, 2), (2, 4)]) if nodes == 2 else draw.choice([(8, 1), (4, 2)])
    size, each = sizes[0] * sizes[1], sizes[0] * sizes[1] // nodes
    answers = []
    for node in range(nodes):
        ranks = machine(make_proc(), engine, sizes, node, nodes)
        answers.append((f"ssh:n{node}", {"ranks": ranks, "processes": len(ranks), "routers": []}))
        (said,) = shapes.missing(ranks)  # of this machine alone
        away = [rank for rank in range(size) if rank // each != node]
        assert (said["ranks"], said["size"], said["nodes"], said["expected"]) == (away, size, nodes, False), said
        assert said["head"].startswith("10.0.0.1") and "on no machine that was asked" in shapes.missing_line(said)
    assert shapes.merged(answers, [])[0]["missing"] == []
    gone = draw.randrange(nodes)
    (said,) = shapes.merged(answers[:gone] + answers[gone + 1 :], [])[0]["missing"]
    assert said["ranks"] == list(range(gone * each, (gone + 1) * each))


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_rank_that_is_to_be_here_and_is_not_is_named(engine, make_proc):
    ranks = machine(make_proc(), engine, (4, 1), 1, 2, without=[3])
    here, away = shapes.missing(ranks)
    assert (here["ranks"], here["expected"], away["ranks"], away["expected"]) == ([3], True, [0, 1], False)
    assert shapes.missing_line(here) == f"{engine}: rank 3 of 4: expected here, not running"


def test_data_parallel_cores_elsewhere_are_named(make_proc):
    proc = make_proc()
    words = ["--data-parallel-size", "4", "--data-parallel-size-local", "2", "--data-parallel-address", "10.0.0.9"]
    main = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m", *words, "--headless", "--data-parallel-start-rank=2"])
    for rank in (2, 3):
        proc.add(title=f"VLLM::EngineCore_DP{rank}", ppid=main)
    (said,) = shapes.missing([shapes.RANK.data(r) for r in proc.ranks()])
    assert (said["group"], said["ranks"], said["head"]) == ("dp", [0, 1], "10.0.0.9")
    proc = make_proc()
    for rank in range(2):  # each behind a balancer of the user's own
        words = ["--data-parallel-size", "2", "--data-parallel-rank", str(rank), "--port", str(8000 + rank)]
        main = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m", *words])
        proc.add(title=f"VLLM::EngineCore_DP{rank}", ppid=main)
    assert shapes.missing([shapes.RANK.data(r) for r in proc.ranks()]) == []


@pytest.mark.parametrize(
    "words", [[], ["-tp", "2"], ["--nnodes", "1"], ["--data-parallel-size", "2"], ["--nnodes", "x"], ["--nnodes"]]
)
def test_an_engine_of_one_machine_lacks_nobody(words, make_proc):
    proc = make_proc()
    main = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m", *words])
    core = proc.add(title="VLLM::EngineCore", ppid=main)
    for rank in range(2 if "-tp" in words else 1):
        proc.add(title=f"VLLM::Worker_TP{rank}", ppid=core)
    ranks = [shapes.RANK.data(r) for r in proc.ranks()]
    assert shapes.missing(ranks) == [] and all(one["instance"]["spread"] is None for one in ranks)
