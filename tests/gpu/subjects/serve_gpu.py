"""serve_gpu.py FOLDER [OPTION...]: a real engine with random weights, never without requests.

Writes FOLDER/ready (JSON: its pid, seconds of its start, its options) once it has answered, FOLDER/tokens (two u64: tokens,
requests answered) as it goes. The witness (gpu_witness.py) tells the rest. Ends on SIGTERM. Options: see --help; --backend CPU
is a dry run on vLLM for CPUs."""

import argparse
import asyncio
import itertools
import json
import os
import signal
import struct
import sys
import time

MODEL = {  # a Llama of 30 MB whose heads suit FlashAttention 3 and Triton
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2048,
    "num_hidden_layers": 4,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 2048,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "torch_dtype": "bfloat16",
    "bos_token_id": 1,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}
ENVIRON = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "PYTHONUNBUFFERED": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",  # its sampler imports FlashInfer without asking whether it is there
    "VLLM_USE_DEEP_GEMM": "0",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "SGLANG_IS_FLASHINFER_AVAILABLE": "false",
    "NCCL_SOCKET_IFNAME": "lo",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_CUMEM_ENABLE": "0",
    "NCCL_MNNVL_ENABLE": "0",
}


def write(path, data):
    with open(path + ".new", "w") as f:
        json.dump(data, f)
    os.replace(path + ".new", path)


class Served:
    """What has been answered; the first tokens make the engine ready."""

    def __init__(self, options):
        self.options, self.start = options, time.monotonic()
        self.file = open(os.path.join(options.folder, "tokens"), "w+b", buffering=0)  # noqa: SIM115
        self.tokens = self.requests = 0

    def add(self, tokens, requests):
        self.tokens, self.requests = self.tokens + tokens, self.requests + requests
        os.pwrite(self.file.fileno(), struct.pack("<QQ", self.tokens, self.requests), 0)
        if self.tokens >= 5 > self.tokens - tokens:
            said = {"pid": os.getpid(), "seconds": time.monotonic() - self.start, "options": vars(self.options)}
            write(os.path.join(self.options.folder, "ready"), said)


def prompt(options, number):
    return [5 + (number + i) % 64 for i in range(options.prompt)]


def vllm_arguments(o, model):
    words = {
        "model": model,
        "load_format": "dummy",
        "skip_tokenizer_init": True,
        "max_model_len": 2048,
        "enforce_eager": not o.graphs,
        "tensor_parallel_size": o.tp,
        "max_num_seqs": 16,
        "disable_custom_all_reduce": True,
        "seed": 1,
    }
    if o.backend == "CPU":
        return {**words, "dtype": "float32"}
    words.update(dtype="bfloat16", attention_backend=o.backend, kv_cache_memory_bytes=1 << 30, gpu_memory_utilization=0.2)
    if o.tp > 1:
        words["distributed_executor_backend"] = "mp"  # named: it does not count the GPUs
    if o.graphs:  # without torch.compile
        words["compilation_config"] = {"cudagraph_capture_sizes": [1, 2, 4, 8], "mode": 0, "cudagraph_mode": "FULL_DECODE_ONLY"}
    return words


def serve_vllm(o, model):
    from vllm import SamplingParams
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.llm_engine import LLMEngine

    served, names = Served(o), itertools.count()
    engine = LLMEngine.from_engine_args(EngineArgs(**vllm_arguments(o, model)))

    def add():
        n = next(names)
        how = SamplingParams(temperature=0.0, max_tokens=o.answer + 16 * (n % 4), ignore_eos=True, detokenize=False)
        engine.add_request(f"request-{n}", {"prompt_token_ids": prompt(o, n)}, how)

    for _ in range(o.requests):
        add()
    while engine.has_unfinished_requests():
        for output in engine.step():
            served.add(1, bool(output.finished))
            if output.finished and not o.rest:
                add()
    while True:
        signal.pause()


def serve_sglang(o, model):
    import sglang

    served, names = Served(o), itertools.count()
    engine = sglang.Engine(
        model_path=model,
        load_format="dummy",
        skip_tokenizer_init=True,
        attention_backend="triton",
        sampling_backend="pytorch",
        grammar_backend="none",
        disable_cuda_graph=not o.graphs,
        mem_fraction_static=0.2,
        max_total_tokens=1 << 16,
        max_running_requests=16,
        context_length=2048,
        dtype="bfloat16",
        skip_server_warmup=True,
    )

    async def ask():
        for n in names:
            how = {"temperature": 0.0, "max_new_tokens": o.answer, "ignore_eos": True}
            answer = await engine.async_generate(input_ids=prompt(o, n), sampling_params=how, rid=f"request-{n}", stream=True)
            async for _ in answer:
                served.add(1, 0)
            served.add(0, 1)
            if o.rest:
                return

    async def everything():
        await asyncio.gather(*(ask() for _ in range(o.requests)))

    engine.loop.run_until_complete(everything()) if hasattr(engine, "loop") else asyncio.run(everything())
    while True:
        signal.pause()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--engine", default="vllm", choices=["vllm", "sglang"])
    p.add_argument("--backend", default="TRITON_ATTN", help="of vLLM: TRITON_ATTN, FLASH_ATTN, CPU")
    p.add_argument("--graphs", action="store_true", help="CUDA graphs of decoding steps")
    p.add_argument("--tp", type=int, default=1, help="ranks; more than one share the GPU")
    p.add_argument("--requests", type=int, default=4, help="at a time")
    p.add_argument("--prompt", type=int, default=48, help="tokens")
    p.add_argument("--answer", type=int, default=400, help="tokens")
    p.add_argument("--layers", type=int, default=MODEL["num_hidden_layers"])
    p.add_argument("--rest", action="store_true", help="each request once, then nothing more")
    o = p.parse_args()
    model = os.path.join(o.folder, "model")
    os.makedirs(model)
    write(os.path.join(model, "config.json"), {**MODEL, "num_hidden_layers": o.layers})
    for name, value in ENVIRON.items():
        os.environ.setdefault(name, value)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    {"vllm": serve_vllm, "sglang": serve_sglang}[o.engine](o, model)


if __name__ == "__main__":
    main()
