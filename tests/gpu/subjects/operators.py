"""operators.py vllm|sglang: some operators of an engine's own compiled kernels beside torch's on the same numbers. The last
line of its output: {operator: relative error}."""

import json
import sys

import torch


def relative(said, wanted):
    return ((said.float() - wanted.float()).norm() / wanted.float().norm()).item()


def numbers(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def vllm():
    from vllm.platforms import current_platform
    from vllm.vllm_flash_attn import flash_attn_varlen_func

    current_platform.import_kernels()
    x, w = numbers(64, 1024), numbers(1024)
    out = torch.full_like(x, float("nan"))
    torch.ops._C.rms_norm(out, x, w, 1e-5)
    found = {"rms_norm": relative(out, torch.nn.functional.rms_norm(x.float(), (1024,), w.float(), 1e-5))}
    q, k, v = numbers(40, 8, 128), numbers(16, 16, 4, 128), numbers(16, 16, 4, 128)
    table = torch.randperm(16, device="cuda", dtype=torch.int32)[:4].reshape(1, 4)
    bounds, length = torch.tensor([0, 40], device="cuda", dtype=torch.int32), torch.tensor([40], device="cuda", dtype=torch.int32)
    how = {
        "max_seqlen_q": 40,
        "cu_seqlens_q": bounds,
        "max_seqlen_k": 40,
        "seqused_k": length,
        "causal": True,
        "block_table": table,
    }
    out = flash_attn_varlen_func(q=q, k=k, v=v, fa_version=3, **how)
    keys, values = (t[table[0].long()].reshape(64, 4, 128)[:40].repeat_interleave(2, 1).transpose(0, 1).float() for t in (k, v))
    wanted = torch.nn.functional.scaled_dot_product_attention(q.transpose(0, 1).float(), keys, values, is_causal=True)
    return {**found, "flash_attn_3": relative(out, wanted.transpose(0, 1))}


def sglang():
    import sgl_kernel

    x, w = numbers(64, 1024), numbers(1024)
    return {
        "rmsnorm": relative(sgl_kernel.rmsnorm(x, w, 1e-5), torch.nn.functional.rms_norm(x.float(), (1024,), w.float(), 1e-5))
    }


print(json.dumps({"vllm": vllm, "sglang": sglang}[sys.argv[1]]()))
