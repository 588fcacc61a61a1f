"""The KV cache of real engines with two ranks: numbers, block tables and addresses equal what the parked processes say of
themselves; the same from a core."""

import contextlib
import os

import pytest
from harness.engines import kv_said, pid_of, same_requests
from harness.gdb_run import run_gdb


def test_vllm_scheduler_side_live_and_on_a_core(running, vllm, truth, gdb_path, tmp_path):
    pid, core = pid_of(vllm, "VLLM::EngineCore"), str(tmp_path / "core")
    commands = ["llm-kv -json", "llm-kv free -json", "llm-kv check -json", "llm-requests -json", "llm-kv map -json"]
    with truth(pid):
        said = kv_said(running, pid)
        request = said["running"][0]
        block = said["tables"][0][request][0]
        commands += [f"llm-kv request {request} -json", f"llm-kv block {block} -json"]
        live = run_gdb(gdb_path, [f"llm-attach {pid}"] + commands + [f"gcore {core}", "llm-detach"])
    dead = run_gdb(gdb_path, commands, ["-c", core], before=["set auto-solib-add off"])
    os.remove(core)
    for answers in ([live.json(i + 1) for i in range(len(commands))], [dead.json(i) for i in range(len(commands))]):
        summary, free, check, requests, picture, one, owner = answers
        assert (
            summary["num_blocks"] == said["num_blocks"]
            and summary["free"] == said["num_free"]
            and summary["cached"] == len(said["hashed"])
        )
        assert summary["block_size"] == said["block_sizes"][0] and summary["used"] == sum(1 for b in said["ref_cnt"])
        same_requests(summary, said)
        assert free["order"] == said["free"]
        assert check["ok"] and not check["violations"], check
        assert {r["request_id"] for r in requests["requests"] if r["queue"] == "running"} == set(said["running"])
        assert one["request"]["blocks"] == said["tables"][0][request]
        assert (
            request in [o["request_id"] for o in owner["block"]["owners"]]
            and owner["block"]["ref_cnt"] == said["ref_cnt"][str(block)]
        )
        cells = picture["maps"][0]["cells"]
        assert cells.count(".") + cells.count("o") == said["num_free"]
    assert any("core" in reason for reason in dead.json(0)["partial"])
    assert not any("prompt_token_ids" in r for r in live.json(4)["requests"])


def test_vllm_workers_tables_layers_and_addresses(running, vllm, truth, gdb_path):
    core, workers = pid_of(vllm, "VLLM::EngineCore"), [pid_of(vllm, f"VLLM::Worker_TP{i}") for i in (0, 1)]
    said = []
    for pid in workers:  # one after the other: a rank that waits for a parked one in a collective runs no handler
        with truth(pid):
            said.append(kv_said(running, pid))
    with truth(core):  # without a scheduler the workers finish their step and stand still
        shape = said[0]["layers"][0][1]
        block = min(7, shape[0] - 1)
        first = run_gdb(
            gdb_path,
            [
                f"llm-kv -json -on {core}",
                f"llm-kv block {block} -json -on {core}",
                f"llm-kv check -ranks -json -on {core}",
                f"llm-kv block {block} -stats -json -on {core}",
            ],
        )
        summary, one, check = (first.json(i) for i in range(3))
        assert summary["layout"]["shape"] == shape and summary["layout"]["stride"] == said[0]["layers"][0][2]
        bases = {(f"TP{rank}", layer): t[0] for rank, s in enumerate(said) for layer, t in enumerate(s["layers"])}
        assert check["ranks"] == ["TP0", "TP1"] and check["ok"], check
        step = said[0]["layers"][0][2][0] * 4
        assert {(a["rank"], a["layer"]): int(a["k"], 16) for a in one["block"]["addresses"]} == {
            k: b + block * step for k, b in bases.items()
        }
        stats = [] if "needs numpy" in first.text else first.json(3)["block"]["stats"]
        assert (
            not stats
            or len(stats) == len(bases)
            and all(s["k"]["nan"] == 0 and s["v"]["count"] == shape[1] * shape[2] * shape[3] // 2 for s in stats)
        )
        # one element's address, by torch's own indexing: [block, last head, 3, 5] lies in the K half of the CPU's slabs
        at = said[1]["element"][2]
        place = run_gdb(gdb_path, [f"llm-addr {at:#x} -json -on {workers[1]}"]).json()
        assert (
            place["kind"] == "kv" and place["kv"]["rank"] == "TP1" and place["kv"]["layer"] == 2 and place["kv"]["block"] == block
        )
        assert place["kv"]["head"] == shape[1] - 1 and place["kv"]["part"] == "k"
        spot = "layer=2,block={block},slot={slot},head={head},element={element},part={part},rank=TP1".format(**place["kv"])
        back = run_gdb(gdb_path, [f"llm-addr -kv {spot} -json -on {core}"]).json()
        assert [int(a["address"], 16) for a in back["addresses"]] == [at]
        rows = {r: b for s in said for table in s["rows"] for r, b in table.items()}
        held = kv_said(running, core)["tables"][0]
        assert any(r in held for r in rows)


@contextlib.contextmanager
def parked_at_work(running, truth, pid):
    """SGLang's scheduler parked while it runs a request: between two it has none for a moment."""
    for _ in range(50):
        with truth(pid):
            said = kv_said(running, pid)
            holders = {rid: r for rid, r in said["requests"].items() if r[0] is not None}
            if holders:
                yield said, holders
                return
    raise AssertionError("no request was running, however often it was parked")


def test_sglang_rows_slots_and_addresses(running, sglang, truth, gdb_path, tmp_path):
    pid, core = pid_of(sglang, "sglang::scheduler_TP0"), str(tmp_path / "core")
    with parked_at_work(running, truth, pid) as (said, holders):
        request, (row, allocated, protected, prompt, output, slots) = next(iter(holders.items()))
        commands = [
            "llm-kv -json",
            "llm-kv free -json",
            "llm-kv check -json",
            f"llm-kv request {request} -json",
            f"llm-kv block {slots[-1]} -json",
            f"llm-addr {said['k_element'][1]:#x} -json",
            f"llm-addr {said['v_element'][2]:#x} -json",
        ]
        live = run_gdb(gdb_path, [f"llm-attach {pid}"] + commands + [f"gcore {core}", "llm-detach"])
    dead = run_gdb(gdb_path, commands, ["-c", core], before=["set auto-solib-add off"])
    os.remove(core)
    for offset, run in ((1, live), (0, dead)):
        summary, free, check, one, block, k, v = (run.json(i + offset) for i in range(len(commands)))
        assert (
            summary["num_blocks"] == said["size"]
            and summary["free"] == said["available"]
            and summary["block_size"] == said["page_size"] == 1
        )
        assert sorted(free["order"]) == sorted(said["free"])
        assert check["ok"], check
        assert one["request"]["blocks"] == slots and one["request"]["row"] == row
        assert (one["request"]["prompt_tokens"], one["request"]["output_tokens"]) == (prompt, output)
        assert request in [o["request_id"] for o in block["block"]["owners"]] and block["block"]["free"] is False
        if summary["pools"][0]["counters"]["tree"] == "RustUnifiedTreeCore" and not check["mid_update"]:
            assert summary["cached"] == said["evictable"] + said["protected"]
        for answer, layer, part in ((k, 1, "k"), (v, 2, "v")):
            kv = answer["kv"]
            assert (kv["layer"], kv["part"], kv["block"], kv["head"], kv["element"]) == (layer, part, 9, 1, 4)
    addresses = {a["layer"]: int(a["k"], 16) for a in live.json(5)["block"]["addresses"] if a["rank"] == "TP0"}
    assert addresses == {i: t[0] + slots[-1] * t[2][0] * 4 for i, t in enumerate(said["k"])}


@pytest.mark.parametrize("name,title", [("vllm", "VLLM::EngineCore"), ("sglang", "sglang::scheduler_TP0")])
def test_a_running_engine_read_without_stopping_it_is_sound(name, title, running, gdb_path):
    pid = pid_of(running.get(name), title)
    said = run_gdb(
        gdb_path,
        [f"llm-kv check -json -on {pid}"] * 8 + [f"llm-requests -json -on {pid}", f"llm-kv check -ranks -json -on {pid}"],
    )
    for index in range(8):
        answer = said.json(index)
        assert answer["ok"] and "unstopped" in answer["partial"], answer
    assert said.json(8)["requests"] and said.json(9)["ok"], said.json(9)
