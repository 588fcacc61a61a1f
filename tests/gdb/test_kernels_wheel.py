"""Kernels of real wheels, found and broken at: vLLM's CUDA wheel (looked at, not run) and vLLM's CPU library, loaded and
computing."""

import json
import os
import re
import subprocess
import sys

import pytest
from harness.gdb_run import fetched
from harness.subjects import SUBJECTS, spawned

from gdbext.access import elf
from gdbext.kernels import signatures, stripped


@pytest.fixture(scope="module")
def cuda_wheel():
    """{file name: path} of vLLM 0.11.0's CUDA libraries."""
    folder = fetched("vllm", "vllm")
    if not folder:
        pytest.skip("no CUDA wheel of vLLM: run scripts/get-cuda vllm (400 MB)")
    return {name: os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name.endswith(".so")}


@pytest.fixture(scope="module")
def mapped(cuda_wheel):
    libraries = [cuda_wheel[name] for name in ("_C.abi3.so", "_vllm_fa2_C.abi3.so", "_vllm_fa3_C.abi3.so", "_flashmla_C.abi3.so")]
    with spawned([sys.executable, os.path.join(SUBJECTS, "maplib.py"), *libraries], ready="ready") as process:
        yield process


def instances(library, pattern):
    """How many different host functions a library has by nm, names demangled."""
    text = subprocess.run(["nm", "-C", "--defined-only", library], stdout=subprocess.PIPE, text=True, check=True).stdout
    return len({line.split(None, 2)[2] for line in text.splitlines() if re.search(pattern, line) and line.split()[1] in "tTwW"})


def test_every_instance_of_the_cuda_wheel_is_found_and_watched(gdb, mapped, cuda_wheel):
    said = gdb(
        [
            "llm-kernels -json",
            "llm-break -host -json paged_attention_v1_kernel",
            "llm-break -host -json paged_attention_v2_kernel",
            "maint info breakpoints",
            "llm-break -delete",
            "maint info breakpoints",
            "detach",
        ],
        ["-p", str(mapped.pid)],
        before=["set auto-solib-add off"],
    )
    kernels = {(k["name"], os.path.basename(k["library"])): k for k in said.json(0)["kernels"]}
    for name, library, pattern in (
        ("vllm::paged_attention_v1_kernel", "_C.abi3.so", r" void vllm::paged_attention_v1_kernel<"),
        ("vllm::reshape_and_cache_flash_kernel", "_C.abi3.so", r" void vllm::reshape_and_cache_flash_kernel<"),
        ("flash::flash_fwd_splitkv_kernel", "_vllm_fa2_C.abi3.so", r" void flash::flash_fwd_splitkv_kernel<"),
        ("FlashAttnFwdSm90", "_vllm_fa3_C.abi3.so", r" void cutlass::device_kernel<.*\bFlashAttnFwdSm90<"),
    ):
        assert kernels[name, library]["instances"] == instances(cuda_wheel[library], pattern) > 5, name
    # no runtime is mapped, so there is nothing with a number to stop at yet: the hidden parts, a stub and a host function each,
    # are all there, and one that tells of new libraries
    assert said.json(1)["hidden"] == 2 * kernels["vllm::paged_attention_v1_kernel", "_C.abi3.so"]["instances"] + 1 == 973
    places = {at["address"] for at in kernels["vllm::paged_attention_v1_kernel", "_C.abi3.so"]["locations"]}
    hidden = {hex(int(a, 16)) for a in re.findall(r"^-\d+ +breakpoint +keep y +(0x[0-9a-f]+)", said.outputs[3], re.M)}
    assert places <= hidden and not places & {hex(int(a, 16)) for a in re.findall(r"0x[0-9a-f]+", said.outputs[5])}


def test_registering_code_says_the_same_as_the_symbols(cuda_wheel):
    """What a stripped library is read by, tried where the symbols tell the truth: no host function gets another kernel's name."""
    for library, least in (("_C.abi3.so", 3000), ("_vllm_fa2_C.abi3.so", 1200)):
        found = elf.Elf(cuda_wheel[library])
        hosts = stripped.code_of(found).host_functions()
        assert len(hosts) >= least
        for address, name in hosts.items():  # nvcc makes the host function static where it can: _ZN7cutlassL13device_kernel…
            said, true = signatures.parse(name).path, signatures.parse(found.function_from(address)).path
            assert said == true or said[0][:2] == true[0][:2] == "_Z", (said, true)  # some are too much for the demangler


def test_all_of_attention_is_a_matter_of_seconds(gdb, mapped):
    said = gdb(
        [
            "python import time; t = time.process_time()",
            "llm-break -host -json paged-attention",
            "python print('SECONDS', time.process_time() - t)",
            "llm-break -delete",
        ],
        ["-p", str(mapped.pid)],
        before=["set auto-solib-add off"],
    )
    assert said.json(1)["pending"] and said.json(1)["kernels"] > 10 and said.outputs[2].startswith("SECONDS")
    print(said.outputs[2])


@pytest.fixture(scope="module")
def attention(torch_python, tmp_path_factory):
    """vLLM's CPU attention in a process of its own, waiting for a line of input."""
    if subprocess.run(
        [torch_python, "-c", "import torch, os, vllm"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ).returncode:
        pytest.skip("no vLLM in the environment with torch")
    truth = tmp_path_factory.mktemp("attention") / "truth.json"
    with spawned([torch_python, os.path.join(SUBJECTS, "cpu_attention.py"), str(truth)], ready="ready") as process:
        yield process, truth


# what cpu_attention.py passes, in order: names of tensors in its truth, or values; None, an optional without one
PASSED = (
    "query", "key_cache", "value_cache", "output", "query_start_loc", "seq_lens", 0.125, True, None, -1, "block_table", 0.5,
    "scheduler_metadata", None, None, 1.0, 2.0, "auto",
)  # fmt: skip


@pytest.mark.every_gdb
def test_vllms_cpu_attention_is_stopped_at_and_every_argument_is_right(gdb, attention):
    process, truth = attention
    said = gdb(
        [
            "llm-kernels -json",
            "llm-break -host -json paged-attention",
            f"shell echo > /proc/{process.pid}/fd/0",
            "continue",
            "llm-launch -json",
            "llm-launch -values",
            "llm-bt -json",
            "llm-break -delete",
            "detach",
        ],
        ["-p", str(process.pid)],
        before=["set auto-solib-add off"],
        timeout=120,
    )
    names = {k["name"]: k for k in said.json(0)["kernels"]}
    assert names["cpu_attention_with_kv_cache"]["where"] == "host" and names["cpu_attn_reshape_and_cache"]["role"] == "cache"
    assert "cpu_attention_with_kv_cache" in {b["kernel"] for b in said.json(1)["breakpoints"]}
    answer, told = said.json(4), json.loads(truth.read_text())
    assert answer["kernel"].startswith("cpu_attention_with_kv_cache(") and answer["arguments_counted"] and answer["partial"] == []
    assert len(answer["args"]) == len(PASSED)
    for got, wanted in zip(answer["args"], PASSED):
        if wanted in told:
            to = got["points_to"]
            assert (to["shape"], to["dtype"], int(to["data_ptr"], 16)) == (
                told[wanted]["shape"],
                told[wanted]["dtype"],
                told[wanted]["data_ptr"],
            ), wanted
        elif wanted is None:
            assert got["points_to"]["kind"] == "none"
        elif wanted == "auto":
            assert got["points_to"]["text"] == '"auto"'
        else:
            assert got["value"] == wanted
    assert answer["args"][0]["points_to"]["variable"] == "query" and answer["args"][0]["points_to"]["function"] == "forward"
    assert "%.4e" % told["query"]["values"][0] in said.outputs[5] and "tensor([[4, 2]], dtype=torch.int32)" in said.outputs[5]
    frames = said.json(6)["threads"][0]["frames"]
    assert frames[0]["function"].startswith("cpu_attention_with_kv_cache(") and [
        f["function"] for f in frames if f["kind"] == "python"
    ][-2:] == ["forward", "<module>"]
    assert process.stdout.readline() == "done True\n"


def test_conditions_counts_and_logs_of_a_cpu_kernel(gdb, attention):
    process, _ = attention
    go = f"shell echo > /proc/{process.pid}/fd/0"
    said = gdb(
        [
            "llm-break -host cpu_attention_with_kv_cache if grid.x == 1",
            go,
            "continue",
            "llm-break -delete",
            "llm-break -host cpu_attention_with_kv_cache if args[6] == 0.25",
            "llm-break -host -trace 1 cpu_attn_reshape_and_cache",
            "llm-break -host -json cpu_attention_with_kv_cache if 'kv_cache' in name and args[6] == 0.125 and args[9] == -1",
            "ignore 4 1",
            go,
            go,
            "continue",
            "llm-break -json",
            "llm-break -delete",
            "detach",
        ],
        ["-p", str(process.pid)],
        before=["set auto-solib-add off"],
        timeout=120,
    )
    assert "is a function of the CPU and has no grid" in said.outputs[2] and said.json(6)["breakpoints"][0]["number"] == 4
    assert said.outputs[10].startswith("[1] cpu_attn_reshape_and_cache") and "hit Breakpoint 4" in said.outputs[10]
    assert [(w["stops"], w["logged"], w["launches_looked_at"]) for w in said.json(11)["set"]] == [(0, 0, 2), (0, 1, 1), (1, 0, 2)]
    for _ in range(3):
        assert process.stdout.readline() == "done True\n"
