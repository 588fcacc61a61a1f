"""Ranks of jobs of torch.distributed in a FAKE /proc, known by their environment, and the labels and families they get."""

import random

from gdbext.access.proctable import ProcTable
from gdbext.engines.routers import pids_of
from gdbext.engines.what import resolve

TORCH = "7f00-7f01 r-xp 0 00:00 0 /x/torch/lib/libtorch_cpu.so\n"


def variables(rank, size, port=29500):
    return {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": port}


def trainer(proc, rank, size, port=29500, ppid=1, argv=("/usr/bin/python3", "train.py"), maps=TORCH, **more):
    return proc.add(list(argv), ppid=ppid, environ=variables(rank, size, port), maps=maps, **more)


def test_the_ranks_of_two_jobs_are_two_families(proc):
    launcher = proc.add(["/usr/bin/python3", "-m", "torch.distributed.run", "train.py"], maps=TORCH)
    ours = [trainer(proc, n, 2, ppid=launcher) for n in range(2)]
    theirs = [trainer(proc, n, 2, 29600) for n in range(2)]
    found = proc.ranks()
    assert [(r.engine, r.role, r.pid, r.ranks["world"]) for r in found] == [
        ("torchrun", "rank", pid, n) for pids in (ours, theirs) for n, pid in enumerate(pids)
    ]
    assert [r.family for r in found] == [0, 0, 1, 1] and {r.short for r in found} == {"R0", "R1"}
    assert len({r.label for r in found}) == 4
    assert [one.rank for one in resolve("all", found)] == [None] * 4  # judged as any others: no engine's


def test_what_a_rank_has_started_is_none(proc):
    shell = proc.add(["/bin/sh", "-c", "python train.py"], environ=variables(0, 1), exe="/bin/dash", rss=1 << 20)
    rank = trainer(proc, 0, 1, ppid=shell)
    loader = trainer(proc, 0, 1, ppid=rank)
    trainer(proc, 0, 1, ppid=loader)
    assert [(r.label, r.pid) for r in proc.ranks()] == [("R0", rank)]


def test_drawn_processes_that_are_no_ranks(proc):
    """One thing is missing of each: a variable, a sound number, torch, the size of a Python that has it, Python itself."""
    draw = random.Random("torchrun")
    for _ in range(60):
        environ, more = variables(draw.randrange(4), 4), {}
        kind = draw.randrange(5)
        if kind == 0:
            del environ[draw.choice(["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])]
        elif kind == 1:
            environ.update(draw.choice([{"RANK": "4"}, {"RANK": "x"}, {"WORLD_SIZE": "-1"}, {"RANK": "-0"}, {"MASTER_ADDR": ""}]))
        elif kind == 2:
            more["rss"] = 1 << 20
        elif kind == 3:
            more["exe"] = "/usr/bin/gdb"
        maps = "7f00-7f01 r-xp 0 00:00 0 /x/numpy/core.so\n" if kind == 4 else TORCH
        proc.add(["/usr/bin/python3", "train.py"], environ=environ, maps=maps, **more)
    assert proc.ranks() == []


def test_an_engines_process_with_such_variables_stays_the_engines(proc):
    main = proc.add(["/usr/bin/python3", "run.py"], environ=variables(0, 1), maps=TORCH)
    core = proc.add(title="VLLM::EngineCore", ppid=main, environ=variables(0, 1), maps=TORCH)
    assert {r.pid: r.engine for r in proc.ranks()} == {main: "vllm", core: "vllm"}


def test_routers_that_are_pythons_are_found_by_their_titles(proc):
    router, other = proc.add(title="vllm::router"), proc.add(["/usr/bin/python3", "-m", "sglang_router.launch_router"])
    proc.add(["/usr/local/bin/sglang-router"], exe="/usr/local/bin/sglang-router")
    assert pids_of(ProcTable(proc.root), []) == [router, other]
