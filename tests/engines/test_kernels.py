"""llm-break on a live vLLM: the worker stops in its CPU attention, the arguments are the model's tensors, and it computes on."""

from harness.gdb_run import run_gdb


def test_a_live_worker_stops_in_its_attention_and_goes_on(gdb_path, vllm):
    ranks = run_gdb(gdb_path, ["llm-ranks -json"]).json()["ranks"]
    worker = next(r for r in ranks if r["label"] == "TP0" and r["engine"] == "vllm")
    said = run_gdb(
        gdb_path,
        [
            "llm-attach TP0",
            "llm-break -json paged-attention",
            "continue",
            "llm-launch -json",
            "llm-launch",
            "llm-bt",
            "llm-break -delete",
            "llm-detach",
        ],
    )
    print("\n".join(said.outputs[3:]))
    assert str(worker["pid"]) in said.outputs[0]
    assert any(b["kernel"] == "cpu_attention_with_kv_cache" for b in said.json(1)["breakpoints"])
    answer = said.json(3)
    assert answer["kernel"].startswith("cpu_attention_with_kv_cache(")
    query, k_cache = answer["args"][0]["points_to"], answer["args"][1]["points_to"]
    assert query["shape"][1:] == [4, 32] and query["dtype"] == "torch.float32"  # 8 heads on two ranks
    assert k_cache["kv"]["part"] == "k" and k_cache["kv"]["block"] == 0 and k_cache["kv"]["rank"] == "TP0"
    assert answer["args"][10]["points_to"]["dtype"] == "torch.int32"  # the block table
    assert "cpu_attention_with_kv_cache" in said.outputs[5] and "Attention" in said.outputs[5]
    assert vllm.alive()
