"""Data parallel 2, two groups, and preemption on a real vLLM: each engine core and its worker say what is theirs while they are
parked, and so does a core of one."""

import os
import time

import pytest
from harness.engines import kv_said, pid_of, same_requests
from harness.gdb_run import run_gdb

pytestmark = pytest.mark.drawn(1, group="engines of one file", unit="kv_replicas")

LIMIT = 300


def test_each_replica_is_read_as_it_says_of_itself(running, replicas, truth, gdb_path, tmp_path):
    cores = [pid_of(replicas, f"VLLM::EngineCore_DP{i}") for i in (0, 1)]
    ranks = {r["pid"]: r for r in run_gdb(gdb_path, ["llm-ranks -json"]).json()["ranks"]}
    workers = [next(pid for pid, r in ranks.items() if r["role"] == "worker" and r["ppid"] == core) for core in cores]
    for number, (core, worker) in enumerate(zip(cores, workers)):
        assert (ranks[core]["role"], ranks[core]["label"], ranks[core]["ranks"]["dp"]) == (
            "engine-core",
            f"EngineCore.DP{number}",
            number,
        )
        assert (ranks[worker]["label"], ranks[worker]["ranks"]["dp"]) == (f"DP{number}", number)
        end = time.monotonic() + LIMIT
        while True:  # until one of its requests has lost its blocks to another, and one is longer than the window
            with truth(core):
                said = kv_said(running, core)
                preempted = [name for name, r in said["requests"].items() if r[0] == "PREEMPTED"]
                windowed = any(0 in table for table in said["tables"][0].values())
                if preempted and said["running"] and windowed and not said["updating"]:
                    one_replica(running, gdb_path, core, worker, number, said, preempted, truth, str(tmp_path / "core"))
                    break
            assert time.monotonic() < end, f"nothing was preempted in {LIMIT} s: {said['requests']}"
            time.sleep(0.3)  # while it is parked it does no work


def as_the_core_says(answers, request, said, preempted, core):
    """What a live core (its pid) or its dump (None) is answered with, against what the core says of itself."""
    summary, check, requests, free, one = answers
    assert [g["kind"] for g in summary["groups"]] == ["sliding-window", "full"]
    assert (summary["num_blocks"], summary["free"], summary["cached"]) == (20, said["num_free"], len(said["hashed"]))
    same_requests(summary, said)  # outside the window there is the null block, which is nobody's
    assert check["ok"] and not check["passing"], check
    if core:  # the whole engine's: the front end has those of both replicas
        labels = {h["label"] for r in requests["requests"] for h in r["hops"]}
        assert labels >= {"frontend", "EngineCore.DP0", "EngineCore.DP1"}
    found = {
        r["request_id"]: r for r in requests["requests"] if r["status"] and (not core or core in [h["pid"] for h in r["hops"]])
    }
    assert {n: (r["status"], r["preemptions"]) for n, r in found.items()} == {
        n: (r[0], r[4]) for n, r in said["requests"].items()
    }
    assert [n for n, r in found.items() if r["queue"] == "running"] == said["running"]
    assert [n for n, r in found.items() if r["queue"] == "waiting"] == said["waiting"] and set(preempted) <= set(said["waiting"])
    assert found[said["waiting"][0]]["blocked_by"].startswith(("blocks: needs", "the next step")), found[said["waiting"][0]]
    assert free["order"] == said["free"]
    assert one["request"]["tables"] == {str(g): table[request] for g, table in enumerate(said["tables"]) if request in table}


def one_replica(running, gdb_path, core, worker, number, said, preempted, truth, dump):
    with truth(worker):
        held = kv_said(running, worker)
        request = said["running"][0]
        block = said["tables"][1][request][-1]  # of the full layers
        commands = [
            "llm-kv -json",
            "llm-kv check -json",
            "llm-requests -json",
            "llm-kv free -json",
            f"llm-kv request {request} -json",
        ]
        more = ["llm-kv check -ranks -json", f"llm-kv block {block} -group 1 -json"]
        live = run_gdb(
            gdb_path,
            [
                f"llm-attach {core}",
                *commands,
                *more,
                f"llm-kv -json -on {worker}",
                f"llm-addr {held['element'][3]:#x} -json -on {worker}",
                f"gcore {dump}",
                "llm-detach",
            ],
        )
    dead = run_gdb(gdb_path, commands, ["-c", dump], before=["set auto-solib-add off"])
    os.remove(dump)
    for offset, run in ((1, live), (0, dead)):
        answers = [run.json(offset + i) for i in range(len(commands))]
        as_the_core_says(answers, request, said, preempted, core if run is live else None)
    ranked, owner, sibling, place = (live.json(6 + i) for i in range(4))
    assert ranked["ok"] and ranked["ranks"] == [f"DP{number}"], ranked
    assert request in [o["request_id"] for o in owner["block"]["owners"]]
    step = held["layers"][1][2][0] * 4
    assert {a["layer"]: int(a["k"], 16) for a in owner["block"]["addresses"]} == {
        i: held["layers"][i][0] + block * step for i in (1, 3)
    }
    assert sibling["free"] == said["num_free"] and {r["request_id"] for r in sibling["requests"]} == {
        n for t in said["tables"] for n in t
    }
    assert (
        held["element"][2] == held["element"][3]
    )  # a layer of each group in the same memory: who has the block says which it is
    owners = [sorted(n for n, blocks in table.items() if 7 in blocks) for table in said["tables"]]
    assert (place["kv"]["layer"], place["kv"]["rank"], place["kv"]["block"]) == (3 if owners[1] else 2, f"DP{number}", 7)
    assert sorted(o["request_id"] for o in place["kv"]["owners"]) == (owners[1] or owners[0])
