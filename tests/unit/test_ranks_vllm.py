"""vLLM's processes of every era in a FAKE /proc, and what is found of them."""

import os

from harness.fake_proc import SPAWN, TRACKER, vllm

from gdbext.engines.registry import SPECS
from gdbext.engines.spec import Memory


def test_vllm_with_two_workers_and_the_users_own_process(proc):
    main, core, workers = vllm(proc)
    assert proc.table() == [
        ("frontend", "frontend", main, {}),
        ("EngineCore", "engine-core", core, {}),
        ("TP0", "worker", workers[0], {"tp": 0, "world": 0}),
        ("TP1", "worker", workers[1], {"tp": 1, "world": 1}),
    ]


def test_workers_are_ordered_by_rank_and_not_by_pid(proc):
    core = proc.add(title="VLLM::EngineCore", ppid=proc.add(["/usr/bin/python3", "run.py"]))
    for t in (3, 11, 0, 2):
        proc.add(title=f"VLLM::Worker_TP{t}", ppid=core)
    assert [r.label for r in proc.ranks()] == ["frontend", "EngineCore", "TP0", "TP2", "TP3", "TP11"]


def test_vllm_data_parallel_with_moe_has_global_ranks_over_all_replicas(proc):
    main = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m"])
    proc.add(title="VLLM::DPCoordinator", ppid=main)
    for d in range(2):
        core = proc.add(title=f"VLLM::EngineCore_DP{d}", ppid=main)
        for t in range(2):
            proc.add(title=f"VLLM::Worker_DP{d}_TP{t}_EP{2 * d + t}", ppid=core)
    found = {r.label: r for r in proc.ranks()}
    assert list(found) == [
        "server",
        "DPCoordinator",
        "EngineCore.DP0",
        "EngineCore.DP1",
        "DP0.TP0",
        "DP0.TP1",
        "DP1.TP0",
        "DP1.TP1",
    ]
    assert found["DP1.TP0"].ranks == {"dp": 1, "tp": 0, "ep": 2, "world": 2}


def test_replicas_of_a_dense_model_take_dp_from_their_engine_core(proc):
    main = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m"])
    for d in range(2):
        core = proc.add(title=f"VLLM::EngineCore_DP{d}", ppid=main)
        for t in range(2):
            proc.add(title=f"VLLM::Worker_TP{t}", ppid=core)
    found = {r.label: r.ranks for r in proc.ranks() if r.role == "worker"}
    assert found == {
        "DP0.TP0": {"tp": 0, "world": 0, "dp": 0},
        "DP0.TP1": {"tp": 1, "world": 1, "dp": 0},
        "DP1.TP0": {"tp": 0, "world": 0, "dp": 1},
        "DP1.TP1": {"tp": 1, "world": 1, "dp": 1},
    }


def test_pipeline_parallel_world_rank_only_where_all_ranks_are_here(proc):
    core = proc.add(title="VLLM::EngineCore", ppid=proc.add(["/usr/bin/python3", "run.py"]))
    pids = {(p, t): proc.add(title=f"VLLM::Worker_PP{p}_TP{t}", ppid=core) for p in range(2) for t in range(2)}
    found = {r.label: r.ranks for r in proc.ranks() if r.role == "worker"}
    assert found["PP1.TP0"] == {"pp": 1, "tp": 0, "world": 2}
    os.rename(os.path.join(proc.root, str(pids[0, 0])), os.path.join(proc.root, "gone"))
    found = {r.label: r.ranks for r in proc.ranks() if r.role == "worker"}
    assert found["PP1.TP0"] == {"pp": 1, "tp": 0}, "with a rank missing the titles do not prove the global rank"


def test_newer_title_parts_are_all_ranks(proc):
    core = proc.add(title="VLLM::EngineCore", ppid=proc.add(["/usr/bin/python3", "run.py"]))
    for c in range(2):
        proc.add(title=f"VLLM::Worker_PCP{c}_TP0_DCP0_EP{c}", ppid=core)
    assert [(r.label, r.ranks["dcp"], r.ranks["ep"], r.ranks["pcp"]) for r in proc.ranks() if r.role == "worker"] == [
        ("PCP0.TP0", 0, 0, 0),
        ("PCP1.TP0", 0, 1, 1),
    ]


def test_vllm_0_10_1_workers_forked_with_appended_titles(proc):
    main = proc.add(["/usr/bin/python3", "run.py"])
    core = proc.add(title="VLLM::EngineCore", ppid=main)
    for t in range(2):
        proc.add(title=f"VLLM::EngineCore_TP{t}", ppid=core)
    assert [r.label for r in proc.ranks()] == ["frontend", "EngineCore", "TP0", "TP1"]


def test_vllm_0_10_1_workers_spawned_with_appended_command_lines(proc):
    core = proc.add(title="VLLM::EngineCore", ppid=proc.add(["/usr/bin/python3", "run.py"]))
    for t in range(2):
        proc.add(title=" ".join(SPAWN) + f"_TP{t}", ppid=core)
    proc.add(title=" ".join(SPAWN) + "_TP7", ppid=1)  # nobody's
    assert [(r.label, r.rank_source) for r in proc.ranks()][2:] == [("TP0", "title"), ("TP1", "title")]


def test_vllm_0_10_1_single_worker_with_its_engine_cores_title(proc):
    core = proc.add(title="VLLM::EngineCore", ppid=proc.add(["/usr/bin/python3", "run.py"]))
    worker = proc.add(title="VLLM::EngineCore", ppid=core)
    found = {r.pid: (r.label, r.role) for r in proc.ranks()}
    assert found[core] == ("EngineCore", "engine-core") and found[worker] == ("Worker", "worker")


def test_old_vllm_without_titles_by_command_line_and_order_of_start(proc):
    main = proc.add(["/usr/bin/python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m", "-tp", "2"])
    proc.add(TRACKER, ppid=main)
    core = proc.add(SPAWN, ppid=main)
    workers = [proc.add(SPAWN, ppid=core), proc.add(SPAWN, ppid=core)]
    assert [(r.label, r.pid, r.rank_source) for r in proc.ranks()] == [
        ("server", main, "argv"),
        ("EngineCore", core, "argv"),
        ("TP0", workers[0], "argv"),
        ("TP1", workers[1], "argv"),
    ]


def test_old_vllm_v0_whose_driver_is_rank_0(proc):
    main = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m", "--tensor-parallel-size=4"])
    driver = proc.add(SPAWN, ppid=main)
    for _ in range(3):
        proc.add(SPAWN, ppid=driver)
    found = proc.ranks()
    assert [(r.role, r.ranks.get("tp")) for r in found if r.pid != main] == [
        ("engine-core", 0),
        ("worker", 1),
        ("worker", 2),
        ("worker", 3),
    ]


def test_old_vllm_with_a_missing_worker_gets_no_guessed_ranks(proc):
    main = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m", "-tp", "8"])
    core = proc.add(SPAWN, ppid=main)
    for _ in range(3):
        proc.add(SPAWN, ppid=core)
    assert all(not r.ranks for r in proc.ranks())


def test_old_vllm_in_a_users_script_is_known_by_its_libraries(proc):
    lib = "7f00-7f01 r-xp 0 0:0 1 /v/lib/python3.11/site-packages/vllm/_C.abi3.so\n"
    main = proc.add(["/usr/bin/python3", "run.py"])
    core = proc.add(SPAWN, ppid=main)
    workers = [proc.add(SPAWN, ppid=core, maps=lib) for _ in range(2)]
    proc.add(["/usr/bin/python3", "other.py"])
    assert {r.pid for r in proc.ranks()} == {main, core, *workers}


def test_an_orphaned_engine_core_without_titles_is_no_frontend(proc):
    lib = "7f00-7f01 r-xp 0 0:0 1 /v/lib/python3.11/site-packages/vllm/_C.abi3.so\n"
    core = proc.add(SPAWN, ppid=1)
    worker = proc.add(SPAWN, ppid=core, maps=lib)
    assert [(r.pid, r.role, r.orphan) for r in proc.ranks()] == [(core, "engine-core", True), (worker, "worker", False)]


def test_an_engine_in_the_users_own_process_is_no_orphan_of_the_shell(proc, monkeypatch):
    shell = proc.add(["bash"], exe="/bin/bash")
    pid = proc.add(["/usr/bin/python3", "run.py"], ppid=shell, maps="1-2 r-xp 0 0:0 1 /v/site-packages/vllm/_C.abi3.so\n")
    monkeypatch.setattr(SPECS["vllm"], "ranks_in_memory", lambda rt, rank: Memory("engine-core", {"world": 0}, {"world": 1}))
    assert [(r.pid, r.label, r.marks) for r in proc.ranks(runtime_of=lambda p: p)] == [(pid, "EngineCore", [])]


def test_torchrun_ranks_come_from_the_environment(proc):
    lib = "7f00-7f01 r-xp 0 0:0 1 /v/lib/python3.11/site-packages/vllm/_C.abi3.so\n"
    run = proc.add(["/usr/bin/python3", "/usr/bin/torchrun", "train.py"])
    for n in range(2):
        proc.add(["/usr/bin/python3", "train.py"], ppid=run, maps=lib, environ={"RANK": n, "LOCAL_RANK": n, "X": "RANK=9"})
    assert [(r.role, r.ranks, r.rank_source) for r in proc.ranks()] == [
        ("worker", {"world": 0, "local": 0}, "environ"),
        ("worker", {"world": 1, "local": 1}, "environ"),
    ]


def test_workers_of_a_raylet_are_of_the_engine_whose_rings_they_map(proc):
    """One engine's rings are no other's; a worker that maps none of them, or those of two engines, stays alone."""

    def maps(*names):
        return "".join(f"7f0000000000-7f0000001000 rw-s 00000000 00:19 {n} /dev/shm/psm_{n:08x}\n" for n in names)

    raylet, truth = proc.add(["/opt/ray/raylet"], exe="/opt/ray/raylet"), []
    for d in range(2):
        server = proc.add(["/usr/bin/python3", "/usr/bin/vllm", "serve", "m"])
        core = proc.add(title="VLLM::EngineCore", ppid=server, maps=maps(10 + d, 20 + d))
        workers = [proc.add(title=f"VLLM::Worker_TP{t}", ppid=raylet, maps=maps(10 + d, 30 + 2 * d + t)) for t in range(2)]
        truth.append({server, core, *workers})
    alone = [proc.add(title="VLLM::Worker_TP0", ppid=raylet, maps=maps(*names)) for names in ((99,), (10, 11), ())]
    groups = {}
    for rank in proc.ranks():
        groups.setdefault(rank.family, set()).add(rank.pid)
    assert [g for g in groups.values() if len(g) > 1] == truth, groups
    assert all({pid} in groups.values() for pid in alone), groups
