"""On real hardware: a vLLM at work on a GPU, read from outside without a debugger, against what its own processes say."""

import json

import pytest
from harness.answers import answer

EACH = 6  # times that an engine is asked until nothing ended or began meanwhile


@pytest.fixture(scope="module")
def engine(vllm_on_gpu):
    """Eager, Triton's attention, four long requests at a time."""
    with vllm_on_gpu("--answer", "1900") as running:
        yield running


def between(engine, ask):
    """(answer, truth before, truth after) of a time in which the same requests ran."""
    for _ in range(EACH):
        _, before = engine.one("scheduler")
        said = ask()
        _, after = engine.one("scheduler")
        if before["scheduler"]["running"] == after["scheduler"]["running"]:
            return said, before["scheduler"], after["scheduler"]
    raise AssertionError(f"requests ended each of {EACH} times that the engine was asked")


def test_who_is_there(engine):
    truths = engine.truths()
    rows = {row["pid"]: row for row in answer("llm-ranks -json")["ranks"]}
    assert set(truths) <= set(rows)
    assert rows[engine.process.pid]["role"] == "frontend"
    worker, _ = engine.one("runner")
    assert rows[worker]["gpus"] == [0] and rows[worker]["role"] == "engine-core"  # of one rank the worker is in its process


def test_requests_and_their_blocks(engine):
    pid, _ = engine.one("scheduler")
    said, before, after = between(engine, lambda: answer(f"llm-requests {pid} -json"))
    rows = {row["request_id"]: row for row in said["requests"] if row["status"] == "RUNNING"}
    assert sorted(rows) == sorted(before["running"]) and len(rows) == 4
    for name, row in rows.items():
        assert len(before["blocks"][name][0]) <= row["blocks"] <= len(after["blocks"][name][0])
        assert before["computed"][name] <= row["computed_tokens"] <= after["computed"][name]


def test_the_kv_cache(engine):
    pid, _ = engine.one("scheduler")
    said, before, after = between(engine, lambda: answer(f"llm-kv -on {pid} -json"))
    assert said["num_blocks"] == before["total"] and said["free"] + said["used"] + said["reserved"] == before["total"]
    assert after["free"] <= said["free"] <= before["free"]  # the same requests grow
    assert answer(f"llm-kv check -on {pid} -json")["ok"] is True


def test_the_cache_lies_where_torch_has_it(engine):
    pid, truth = engine.one("runner")
    caches = truth["runner"]["kv_caches"]
    said = answer(f"llm-kv -on {pid} -json")["layout"]
    assert len(caches) == 4 and said["shape"] == caches[0]["shape"] and said["stride"] == caches[0]["stride"]
    inside = answer(f"llm-addr -on {pid} -json {caches[1]['ptr'] + 64:#x}")
    assert inside["kv"]["layer"] == 1 and inside["kv"]["block"] == 0, inside


def test_a_workers_tables_are_compared_or_not_called_sound(engine):
    """What is on the device alone cannot be compared from outside: then no rank is named."""
    pid, truth = engine.one("runner")
    said = answer(f"llm-kv check -ranks -on {pid} -json")
    rules = {row["rule"] for row in said["rules"]}
    assert not said["violations"] and truth["runner"]["v2"]
    assert bool(said["ranks"]) == bool(rules & {"worker-table", "worker-length", "worker-range"}), said


def test_the_allocators_counters_segments_and_owners(engine, tmp_path):
    pid, truth = engine.one("runner")
    (rank,) = answer(f"llm-memory {pid} -o {tmp_path}/gpu.json -json")["ranks"]
    segments = json.loads((tmp_path / "gpu.json").read_text())["segments"]
    shapes = [
        {(s["address"], s["total_size"], s["stream"], tuple(s["segment_pool_id"])) for s in some}
        for some in (segments, truth["segments"])
    ]
    assert shapes[0] == shapes[1]
    blocks = [(b["address"], b["address"] + b["size"], b["owner"]) for s in segments for b in s["blocks"]]
    wanted = {t["ptr"]: "parameter" for t in truth["runner"]["parameters"].values()}
    wanted.update({t["ptr"]: "kv-cache" for t in truth["runner"]["kv_caches"]})
    assert {at: owner for at in wanted for begin, end, owner in blocks if begin <= at < end} == wanted
    assert sum(p["bytes"] for p in rank["gpu_blocks"][0]["parts"]) == truth["memory_stats"]["reserved_bytes.all.current"]
    (gpu,), stats = rank["cuda_allocator"], truth["memory_stats"]
    assert gpu["reserved_bytes"] == stats["reserved_bytes.all.current"]
    assert gpu["segments"] == stats["segment.all.current"] == len(truth["segments"])
    assert gpu["ooms"] == stats["num_ooms"] == 0


def test_an_engine_at_work_does_not_hang(engine):
    pids = " ".join(map(str, engine.truths()))
    said = answer(f"llm-hang {pids} -json")
    assert said["verdict"] == "busy", said
    assert engine.goes_on()


def test_which_kernels_it_has(engine):
    pid, truth = engine.one("runner")
    names = {row["name"] for row in answer(f"llm-kernels -on {pid} -json")["kernels"]}
    assert "kernel_unified_attention" in truth["triton"] and "kernel_unified_attention" in names
    assert any("reshape_and_cache_flash" in name for name in names)  # vLLM's own library's
