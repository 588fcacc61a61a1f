"""vLLM's CPU attention on one sequence in a paged cache, without an engine: writes what it passes to TRUTH, then computes, once
for each line of its input.

    cpu_attention.py TRUTH
"""

import glob
import json
import os
import sys

import torch

torch.set_num_threads(1)
site = next(p for p in sys.path if os.path.isdir(os.path.join(p, "vllm")))
name = ("_C" if torch.cpu._is_avx512_bf16_supported() else "_C_AVX512") if torch.cpu._is_avx512_supported() else "_C_AVX2"
torch.ops.load_library(glob.glob(os.path.join(site, "vllm", name + ".abi3.so"))[0])
ops = torch.ops._C

HEADS, KV_HEADS, SIZE, BLOCK, BLOCKS, TOKENS = 4, 2, 64, 32, 6, 40
k_cache, v_cache = torch.zeros(BLOCKS, KV_HEADS, BLOCK, SIZE), torch.zeros(BLOCKS, KV_HEADS, BLOCK, SIZE)
block_table = torch.tensor([[4, 2]], dtype=torch.int32)


def forward(query, key, value):
    slots = torch.tensor([int(block_table[0, t // BLOCK]) * BLOCK + t % BLOCK for t in range(TOKENS)])
    starts, lengths = torch.tensor([0, TOKENS], dtype=torch.int32), torch.tensor([TOKENS], dtype=torch.int32)
    output = torch.zeros_like(query)
    plan = ops.get_scheduler_metadata(
        1, HEADS, KV_HEADS, SIZE, lengths, query.dtype, starts, True, -1, "vec", False, None, "auto"
    )
    told = {
        name: {"shape": list(t.shape), "dtype": str(t.dtype), "data_ptr": t.data_ptr(), "values": t.flatten()[:3].tolist()}
        for name, t in {
            "query": query,
            "key": key,
            "value": value,
            "key_cache": k_cache,
            "value_cache": v_cache,
            "output": output,
            "slot_mapping": slots,
            "query_start_loc": starts,
            "seq_lens": lengths,
            "block_table": block_table,
            "scheduler_metadata": plan,
        }.items()
    }
    with open(sys.argv[1], "w") as f:
        json.dump(told, f)
    ops.cpu_attn_reshape_and_cache(key, value, k_cache, v_cache, slots, "vec", 1.0, 1.0, "auto")
    ops.cpu_attention_with_kv_cache(
        query,
        k_cache,
        v_cache,
        output,
        starts,
        lengths,
        0.125,
        True,
        None,
        -1,
        block_table,
        0.5,
        plan,
        None,
        None,
        1.0,
        2.0,
        "auto",
    )
    return output


print("ready", flush=True)
for line in sys.stdin:
    torch.manual_seed(6)  # the same each time
    out = forward(*(torch.randn(TOKENS, n, SIZE) for n in (HEADS, KV_HEADS, KV_HEADS)))
    print("done", out.abs().sum().item() > 0, flush=True)
