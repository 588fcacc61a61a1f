"""On real hardware: a SGLang at work on a GPU, Triton's attention in its decoding steps."""

import pytest
from harness.answers import answer

OFF = ["set auto-solib-add off"]


@pytest.fixture(scope="module")
def engine(sglang_on_gpu):
    with sglang_on_gpu("--answer", "1500") as running:
        yield running


def test_who_is_there_and_at_work(engine):
    pid, _ = engine.one("scheduler")
    rows = {row["pid"]: row for row in answer("llm-ranks -json")["ranks"]}
    assert rows[pid]["engine"] == "sglang" and rows[pid]["gpus"] == [0]
    assert answer(f"llm-hang {' '.join(map(str, engine.truths()))} -json")["verdict"] == "busy"
    assert engine.goes_on()


def test_requests_and_the_kv_cache(engine):
    for _ in range(6):
        pid, before = engine.one("scheduler")
        said = answer(f"llm-requests {pid} -json")["requests"]
        _, after = engine.one("scheduler")
        if sorted(before["scheduler"]["running"]) == sorted(after["scheduler"]["running"]):
            break
    assert sorted(r["request_id"] for r in said if r["queue"] == "running") == sorted(after["scheduler"]["running"]), said
    assert answer(f"llm-kv check -on {pid} -json")["ok"] is True


def test_its_decode_kernel_is_stopped_in_and_focused(sglang_on_gpu, cuda_gdb):
    with sglang_on_gpu() as engine:
        pid, _ = engine.one("scheduler")
        commands = ["llm-break paged-attention", "continue", "llm-bt -json", "llm-focus -seq 1 -head 2 -json", "print blockIdx"]
        said = cuda_gdb([*commands, "llm-break -delete", "detach"], ["-p", str(pid)], before=OFF, timeout=200)
    assert any("_fwd_grouped_kernel_stage1" in k["function"] for k in said.json(2)["kernels"]), said.text
    assert "x = {}, y = {}".format(*said.json(3)["block"]) in said.outputs[4]
