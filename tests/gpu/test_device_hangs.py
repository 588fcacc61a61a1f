"""On real hardware: a real engine, or two ranks, that a kernel or a collective holds up, and one whose kernel is at fault."""

import glob
import os
import re
import time

import pytest
from harness.answers import answer

OFF = ["set auto-solib-add off"]
CORE = {
    "CUDA_ENABLE_COREDUMP_ON_EXCEPTION": "1",
    "CUDA_COREDUMP_GENERATION_FLAGS": ",".join(f"skip_{what}_memory" for what in ("global", "shared", "local", "constbank")),
}


def hang(pids):
    return answer(f"llm-hang {' '.join(map(str, pids))} -json")


def accused(said):
    return {culprit["pid"] for culprit in said["culprits"]}


def test_a_kernel_that_spins_holds_an_engine_up(vllm_on_gpu, cuda_gdb):
    with vllm_on_gpu(fault="spin") as engine:
        pids, (worker, _) = list(engine.truths()), engine.one("runner")
        engine.fall()
        said = hang(pids)
        assert said["verdict"] == "kernel" and accused(said) == {worker}, said
        seen = cuda_gdb(["llm-bt -json", "info cuda kernels", "detach"], ["-p", str(worker)], before=OFF, timeout=200)
        assert ["spin" in k["function"] for k in seen.json(0)["kernels"]] == [True], seen.text


def test_two_ranks_of_an_engine_share_a_gpu(vllm_on_gpu):
    with vllm_on_gpu("--tp", "2", fault="skip:1") as engine:
        truths = engine.truths()
        ranks = {truth["rank"]: pid for pid, truth in truths.items() if "rank" in truth}
        rows = {row["pid"]: row for row in answer("llm-ranks -json")["ranks"]}
        assert {rank: rows[pid]["ranks"]["tp"] for rank, pid in ranks.items()} == {0: 0, 1: 1}
        assert hang(truths)["verdict"] == "busy"
        engine.fall()
        said = hang(truths)
        assert said["verdict"] == "collective" and accused(said) == {ranks[1]}, said


@pytest.mark.parametrize(
    "how, verdicts", [("none", ["busy"]), ("skip", ["collective"]), ("shape", ["collective", "kernel"]), ("spin", ["kernel"])]
)
def test_two_ranks_with_nccl(two_ranks_on_one_gpu, how, verdicts):
    """From the host alone, ranks whose kernels wait for one another, and one behind a kernel that spins, look alike: who is at
    fault is asked where one rank has not come to the collective."""
    with two_ranks_on_one_gpu(how) as pids:
        time.sleep(5)  # into what they wait in
        said = hang(pids)
    assert said["verdict"] in verdicts, said
    assert how != "skip" or accused(said) == {pids[1]}, said


def test_nccls_kernel_is_on_the_device_in_cuda_gdb(two_ranks_on_one_gpu, cuda_gdb):
    with two_ranks_on_one_gpu("skip") as pids:
        time.sleep(5)
        said = cuda_gdb(["llm-bt -json", "detach"], ["-p", str(pids[0])], before=OFF, timeout=200)
    assert any("nccl" in k["function"].lower() for k in said.json(0)["kernels"]), said.text


def driver_core(folder, seconds=90):
    """The path of the core that the driver writes there, once it grows no more."""
    end, before = time.monotonic() + seconds, {}
    while time.monotonic() < end:
        sizes = {path: os.path.getsize(path) for path in glob.glob(f"{folder}/gpucore.*")}
        if sizes and sizes == before:
            return next(iter(sizes))
        before = sizes
        time.sleep(2)
    raise AssertionError(f"the driver wrote no whole core: {os.listdir(folder)}")


def test_a_core_of_a_faulting_kernel_of_triton(vllm_on_gpu, cuda_gdb, tmp_path):
    """The device's block tables lead outside the cache: the attention kernel is at fault."""
    with vllm_on_gpu(
        "--layers", "2", fault="illegal", env={**CORE, "CUDA_COREDUMP_FILE": f"{tmp_path}/gpucore.%p"}.items()
    ) as engine:
        engine.fall()
        core = driver_core(tmp_path)
    faults = answer(f"llm-gpucore {core} -json")["faults"]
    assert faults and {f["function"] for f in faults} == {"kernel_unified_attention"}
    own = cuda_gdb(["echo", f"target cudacore {core}"], load=False).text
    focus = re.search(r"block \((.*?)\), thread \((.*?)\), device (\d+), sm (\d+), warp (\d+)", own)
    block, sm, warp = [int(n) for n in focus[1].split(",")], int(focus[4]), int(focus[5])
    assert any((f["block"], f["sm"], f["warp"]) == (block, sm, warp) for f in faults), own
    assert int(re.search(r"triggered at PC (0x\w+)", own)[1], 16) in {int(f["pc"], 16) for f in faults}
