"""A real vLLM worker's tensors: every weight and KV cache is listed once, with the bytes that torch counts and a path that leads
to it."""

import json
import os

from harness.engines import kv_said, pid_of
from harness.gdb_run import run_gdb


def test_every_weight_and_kv_cache_of_a_vllm_worker(running, vllm, truth, gdb_path, tmp_path):
    pid, saved = pid_of(vllm, "VLLM::Worker_TP0"), str(tmp_path / "list.json")
    with truth(pid):
        said = kv_said(running, pid)
        live = run_gdb(
            gdb_path, [f"llm-attach {pid}", f"pytensors -json -save {saved}", "pytensors -nan -min-bytes 1 -json", "llm-detach"]
        )
    data = live.json(1)
    rows = {int(r["address"], 16): r for r in data["tensors"]}
    assert data["partial"] == [] and len(rows) == len(data["tensors"])
    for address, shape, dtype, pointer in said["weights"]:
        row = rows[address]
        assert (row["shape"], row["dtype"], int(row["data_ptr"], 16)) == (shape, dtype, pointer) and row["owner"], row
    assert all("kv_cache" in rows[a]["owner_shown"] for a in said["kv"])
    known = {a for a, *_ in said["weights"]} | set(said["kv"])
    storages = {r["storage"]: r["storage_bytes"] for a, r in rows.items() if a in known}
    assert sum(storages.values()) == said["storages"] <= data["total_bytes"]
    # an owner's path, asked by itself while the process runs, is the same tensor
    some = [rows[a] for a in list(known)[:: max(1, len(known) // 5)]]
    asked = run_gdb(gdb_path, [f"pytensor -json -on {pid} {r['owner']}" for r in some])
    assert [asked.json(i)["address"] for i in range(len(some))] == [r["address"] for r in some]
    with open(saved) as f:
        assert json.load(f)["total_bytes"] == data["total_bytes"]
    os.remove(saved)
