"""The paths of vLLM V1's objects, by release: data. The attributes of an object decide; the release says since when they exist.

Sources: vllm/v1/core/block_pool.py, kv_cache_utils.py, kv_cache_manager.py, single_type_kv_cache_manager.py, sched/scheduler.py,
worker/block_table.py.
"""

from __future__ import annotations

from ...cpython.objects import Object
from ..objects import first_present

# name -> ((first release, path), ...), the newest first
PATHS = {
    "manager": (("0.6.6", "kv_cache_manager"),),
    "pool": (("0.9.2", "coordinator.block_pool"), ("0.8.5", "block_pool")),
    "managers": (("0.9.2", "coordinator.single_type_managers"),),
    "blocks": (("0.8.5", "blocks"), ("0.6.6", "block_pool")),
    "head": (("0.10.0", "fake_free_list_head"), ("0.6.6", "free_list_head")),
    "tail": (("0.10.0", "fake_free_list_tail"), ("0.6.6", "free_list_tail")),
    "hash map": (("0.11.2", "cached_block_hash_to_block._cache"), ("0.6.6", "cached_block_hash_to_block")),
    "config": (("0.9.2", "kv_cache_config"),),
    "table array": (("0.11.2", "block_table.np"), ("0.8.5", "block_table_np")),
    "table tensor": (("0.11.2", "block_table.cpu"), ("0.8.5", "block_table_cpu")),
    "slot tensor": (("0.11.2", "slot_mapping.gpu"), ("0.9.2", "slot_mapping")),
    "request ids": (("0.8.5", "_req_ids"), ("0.6.6", "req_ids")),
}
# objects that a frame may hold -> the path from there to the scheduler
ROOTS = {
    "EngineCoreProc": "scheduler",
    "DPEngineCoreProc": "scheduler",
    "EngineCore": "scheduler",
    "EngineCoreActor": "scheduler",
    "DPMoEEngineCoreActor": "scheduler",
    "InprocClient": "engine_core.scheduler",
    "LLMEngine": "engine_core.engine_core.scheduler",
    "LLM": "llm_engine.engine_core.engine_core.scheduler",
    "Scheduler": "",
    "AsyncScheduler": "",
}
WORKER_ROOTS = {  # frame's self -> path to the model runner
    "WorkerProc": "worker.worker.model_runner",
    "EngineCoreProc": "model_executor.driver_worker.worker.model_runner",
    "DPEngineCoreProc": "model_executor.driver_worker.worker.model_runner",
    "EngineCore": "model_executor.driver_worker.worker.model_runner",
    "GPUModelRunner": "",
    "CPUModelRunner": "",
    "LLM": "llm_engine.engine_core.engine_core.model_executor.driver_worker.worker.model_runner",
    "LLMEngine": "engine_core.engine_core.model_executor.driver_worker.worker.model_runner",
}
WAITING = ("waiting", "kv_holding_waiting", "skipped_waiting")  # queues of the scheduler that a release may have
KINDS = {
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "mla",
    "SlidingWindowSpec": "sliding-window",
    "SlidingWindowMLASpec": "sliding-window",
    "ChunkedLocalAttentionSpec": "chunked",
    "MambaSpec": "mamba",
    "CrossAttentionSpec": "cross",
    "SinkFullAttentionSpec": "full",
    "RSWASpec": "full",
    "EncoderOnlyAttentionSpec": "other",
}
# managers that count a reference for each block of their tables but those that the pool names as lent (its reuse watchers)
KEEPING = frozenset(
    "FullAttentionManager SlidingWindowManager ChunkedLocalAttentionManager MambaManager CrossAttentionManager RSWAManager "
    "SinkFullAttentionManager HiSparseSourceManager HiSparseResidentManager HiSparseHotManager".split()
)
SPEC_FIELDS = ("num_kv_heads", "head_size", "head_size_v", "sliding_window", "attention_chunk_size")
FOLDERS = ("/v1/core",)
V2_FOLDER = "/v1/worker/gpu"  # of model runner V2
UPDATING = (
    "block_pool.py",
    "kv_cache_utils.py",
    "single_type_kv_cache_manager.py",
    "specialized_manager.py",
    "kv_cache_coordinator.py",
)
READING = {
    "get_num_free_blocks",
    "get_cached_block",
    "get_usage",
    "get_all_free_blocks",
    "iter_blocks_after",
    "find_longest_cache_hit",
    "get_one_block",
    "contain",
    "block_hash",
    "get_blocks",
    "get_num_common_prefix_blocks",
    "get_num_blocks_to_allocate",
    "request_block_hasher",
    "hash_block_tokens",
}
CPU_TRANSPOSED = ("vec",)  # ISAs of the CPU backend that store K element by element (proved by marks that a test wrote)
MAX_REQUESTS = 100_000
SAMPLING = {  # a parameter by its name in SamplingParams: its name in the sampler of model runner V2
    **{n: n for n in ("temperature", "top_p", "top_k", "min_p")},
    "seed": "seeds",
    "logprobs": "num_logprobs",
    **{n: n for n in ("repetition_penalty", "frequency_penalty", "presence_penalty")},
}
FIRST_TOKENS = 4096  # of a request, that are compared with its worker's


def known(obj: Object, what: str) -> Object | None:
    """The first of `PATHS[what]` that exists, None when none does."""
    return first_present(obj, PATHS[what])
