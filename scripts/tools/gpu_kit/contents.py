"""What a kit holds: releases, files, packages. They suit the machine of `HAVE` and each other; another torch wants other
releases."""

HAVE = {"python": "3.12", "torch": "2.11.0", "triton": "3.6.0"}

# Wheels of each engine; patterns of paths in them that stay behind: other GPUs' kernels, tables for mixtures of experts, web
# pages.
ENGINES = {
    "vllm": (
        ["vllm==0.26.0"],
        """vllm/vllm-rs vllm/_flashmla* vllm/_qutlass* vllm/_rust_tool_parser*
        vllm/third_party/fmha_sm100/* vllm/third_party/tml_fa4/*
        vllm/third_party/deep_gemm/* vllm/third_party/flashmla/* vllm/vllm_flash_attn/_vllm_fa2* vllm/vllm_flash_attn/cute/*
        vllm/model_executor/layers/fused_moe/configs/* vllm/model_executor/layers/quantization/utils/configs/*
        vllm/kernels/helion/configs/* vllm/entrypoints/serve/instrumentator/static/* vllm/benchmarks/* *.jpg *.png""".split(),
    ),
    "sglang": (
        ["sglang==0.5.16", "sglang-kernel==0.4.5"],
        """sglang/multimodal_gen/* sglang/test/* sglang/benchmark/* */fused_moe_triton/configs/* */quantization/configs/*
        sgl_kernel/flash_ops* sgl_kernel/infllm_ops* sgl_kernel/flashmla_ops* sgl_kernel/sm100/* *.jpg *.png""".split(),
    ),
}

# Libraries of which one architecture's code stays: path -> names of the kernels that do ('': all of them). FlashAttention 3:
# heads of 128 in bf16, what plans and what combines.
_FA3 = "Li128ENS_10bfloat16_tEfNS_4arch4Sm90|FlashAttnFwdCombine|prepare_varlen_num_blocks"
SLIM = {
    "vllm/_C_stable_libtorch.abi3.so": "",
    "vllm/_moe_C_stable_libtorch.abi3.so": "",
    "vllm/vllm_flash_attn/_vllm_fa3_C.abi3.so": _FA3,
    "sgl_kernel/sm90/common_ops.abi3.so": "",
    "sgl_kernel/spatial_ops.abi3.so": "",
}

# Modules that an engine imports and, as tests/gpu starts it, never calls.
_NAMES = 'def _missing(*args, **kwargs):\n    raise NotImplementedError("an import stub was called")\n\n\n{} = _missing\n'
STUBS = {
    "sglang": {
        "flashinfer/__init__.py": '__version__ = "0.0.0"\n',
        "flashinfer/sampling.py": _NAMES.format("min_p_sampling_from_probs = top_k_top_p_sampling_from_probs"),
        "IPython/__init__.py": "",
        "IPython/display.py": _NAMES.format("HTML = display = clear_output"),
    }
}

# What they import and a machine with torch, Triton and transformers lacks. openai 3 wants httpx2; xgrammar's newer releases want
# another tvm-ffi; SGLang 0.5.16 agrees with no newer transformers.
PACKAGES = {
    "common": """pydantic pydantic-core typing-inspection annotated-types fastapi<0.137 starlette openai<3 jiter distro sniffio
        msgspec pyzmq cachetools pybase64 partial-json-parser setproctitle uvicorn python-multipart annotated-doc
        llguidance<1.8 xgrammar==0.2.8 apache-tvm-ffi==0.1.11 compressed-tensors==0.17.0 openai-harmony dill loguru""".split(),
    "vllm": "cbor2 blake3 lark==1.2.2 outlines-core==0.2.14 prometheus-fastapi-instrumentator depyf==0.20.0 astor ijson".split(),
    "sglang": "orjson interegular gguf soundfile cffi pycparser outlines==0.1.11 transformers==5.12.1 tokenizers==0.22.2".split(),
}
