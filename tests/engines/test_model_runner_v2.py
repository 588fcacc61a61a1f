"""vLLM 0.32 with model runner V2, which is what GPUs run, on a CPU: its rows, counts, block tables and sampler against what the
parked worker says of itself; faults planted in it; what stops in it."""

import json
import os
import platform

import pytest
from harness.answers import answer
from harness.engines import kv_said, pid_of
from harness.gdb_run import run_gdb

RUNNER = """
while getattr(getattr(frame.f_locals.get("self"), "worker", None), "worker", None) is None:
    frame = frame.f_back
runner = frame.f_locals["self"].worker.worker.model_runner
states, tables = runner.req_states, runner.block_tables
index, names = states.req_id_to_index, sorted(states.req_id_to_index)
row = index[names[0]]
"""
FAULTS = {  # what is done to the worker, and undone: the rule that names it, None for what is no fault
    "first block + 7": ("tables.block_tables[0].gpu[row, 0] += {0}", (7, -7), "worker-table"),
    "a block beyond its length": ("tables.block_tables[0].gpu[row, int(tables.num_blocks.np[0, row])] += {0}", (7, -7), None),
    "prompt": ("states.prompt_len.np[row] += {0}", (1, -1), "worker-length"),
    "total": ("states.total_len.gpu[row] += {0}", (-20, 20), "worker-length"),
    "swapped rows": ("a, b = names[:2]; index[a], index[b] = index[b], index[a]", ("", ""), "worker-rows"),
}


def pids_of(engine):
    return pid_of(engine, "VLLM::EngineCore"), pid_of(engine, "VLLM::Worker")


@pytest.mark.drawn(1, group="engines of one file", unit="model_runner_v2")
def test_rows_counts_and_blocks_are_what_the_worker_says(running, vllm_v2, truth):
    core, worker = pids_of(vllm_v2)
    with truth(worker), truth(core):
        said, scheduler = kv_said(running, worker), kv_said(running, core)
        assert len(said["rows"]) > 1 and said["staged"] == [0]
        check = answer(f"llm-kv check -ranks -json -on {core}")
        summary = answer(f"llm-kv -json -on {worker}")
        name = next(iter(said["rows"]))
        one = answer(f"llm-request {name} -sampling -between 0 -json")
        listed = answer(f"llm-requests -json -between 0 -on {core}")
    assert check["ok"] is True and check["ranks"] == ["Worker"] and check["not_compared"] == [], check
    compared = next(row for row in check["compared"] if row["label"] == "Worker")
    held = {n: row["tables"][0] for n, row in said["rows"].items() if n in scheduler["tables"][0]}
    assert (compared["rows"], compared["blocks"]) == (len(held), sum(map(len, held.values())))
    assert compared["counts"] == len([n for n in said["rows"] if n in scheduler["requests"]])
    assert {"worker-table", "worker-rows", "worker-length", "slot-range"} <= {rule["rule"] for rule in check["rules"]}
    assert summary["layout"]["shape"] == said["layers"][0][1] and summary["layout"]["stride"] == said["layers"][0][2]
    (row,) = one["sampling_rows"]
    assert {k: row[k] for k in said["rows"][name]["sampling"]} == said["rows"][name]["sampling"]
    assert row["row"] == said["rows"][name]["row"] and row["label"] == "Worker" and row["differs"] == []
    hop = next(hop for hop in one["hops"] if hop["label"] == "Worker")
    assert hop["state"] == f"in the batch, row {row['row']}"
    for request in listed["requests"]:
        known = scheduler["requests"].get(request["request_id"])
        if known is not None:
            assert [request["prompt_tokens"], request["computed_tokens"], request["output_tokens"]] == known[1:4]


@pytest.mark.drawn(1, group="engines of one file", unit="model_runner_v2")
def test_faults_in_the_worker_are_named_and_twins_left_alone(running, vllm_v2, truth):
    (core, worker), found = pids_of(vllm_v2), {}

    def do(text):
        with open(os.path.join(running.folder, f"{worker}.do"), "w") as f:
            f.write(RUNNER + text)

    for name, (change, values, rule) in FAULTS.items():
        with truth(core):  # so that the worker gets no other step meanwhile
            do(change.format(values[0]))
            with truth(worker):
                check = answer(f"llm-kv check -ranks -json -on {core}")
            do(change.format(values[1]))
            with truth(worker):
                pass
        found[name] = ([v["rule"] for v in check["violations"]][:1], [rule] if rule else [], check["ok"], check["ranks"])
    assert all(named == wanted and ok is (not wanted) and ranks == ["Worker"] for named, wanted, ok, ranks in found.values()), (
        found
    )


@pytest.mark.drawn(1, group="engines of one file", unit="model_runner_v2")
def test_while_it_runs_nothing_is_broken(vllm_v2):
    core = pid_of(vllm_v2, "VLLM::EngineCore")
    for _ in range(6):
        check = answer(f"llm-kv check -ranks -json -on {core}")
        assert not check["violations"] and check["ok"] is True and check["ranks"] == ["Worker"], check


@pytest.mark.drawn(1, group="engines of one file", unit="model_runner_v2")
@pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")
def test_presets_and_layers_of_the_worker(vllm_v2, gdb_path, tmp_path):
    core, worker = pid_of(vllm_v2, "VLLM::EngineCore"), pid_of(vllm_v2, "VLLM::Worker")
    record = str(tmp_path / "step.jsonl")
    commands = [
        f"llm-attach -libraries none {worker}",
        "llm-break nan",
        "delete",
        f"llm-layers -o {record} -for 120 -json",
        "llm-detach",
        f"llm-attach -libraries none {core}",
        "llm-break step",
        "llm-continue",
        "delete",
        "llm-break request request-",
        "llm-continue",
        "llm-detach",
    ]
    said = run_gdb(gdb_path, commands, timeout=400)
    assert "Sampler.__call__" in said.outputs[1] and "gpu/sample/sampler.py" in said.outputs[1], said.outputs[1]
    assert "Scheduler.schedule at" in said.outputs[7] and "(request-" in said.outputs[10], said.text[-3000:]
    if "needs numpy" in said.outputs[3]:
        pytest.skip("this gdb's Python has no numpy")
    layers = json.loads(said.outputs[3].splitlines()[-1])
    paths = [row["path"] for row in layers["modules"] if row["hash"]]
    assert any(path.endswith("layers.3.self_attn.qkv_proj") for path in paths), paths[:20]
