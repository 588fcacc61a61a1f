"""What scripts/bench --kv looks at: a vLLM BlockPool, or SGLang's allocator with a radix cache, of a given size and half in use;
then it waits.

kv_subject.py vllm|sglang SIZE   Scheduler and Batch of sglang are FAKES; the pools, the allocator and the tree are SGLang's own
"""

import sys
import time


def vllm_pool(size):
    from vllm.v1.core.block_pool import BlockPool
    from vllm.v1.core.kv_cache_utils import make_block_hash_with_group_id

    pool = BlockPool(num_gpu_blocks=size, enable_caching=True, hash_block_size=16)
    taken = pool.get_new_blocks(size // 2)
    for number, block in enumerate(taken[: size // 4]):
        pool._insert_block_hash(make_block_hash_with_group_id(b"%032d" % number, 0), block, num_tokens=16)
    pool.free_blocks(taken[::-1])
    return pool


class Batch:
    def __init__(self, reqs):
        self.reqs = reqs


class Scheduler:
    def __init__(self, size):
        import torch
        from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
        from sglang.srt.mem_cache.base_prefix_cache import InsertParams
        from sglang.srt.mem_cache.cache_init_params import CacheInitParams
        from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
        from sglang.srt.mem_cache.radix_cache import RadixCache, RadixKey

        self.req_to_token_pool = ReqToTokenPool(size=16, max_context_len=1024, device="cpu", enable_memory_saver=False)
        self.token_to_kv_pool_allocator = TokenToKVPoolAllocator(size, torch.float32, "cpu", None, False)
        self.tree_cache = RadixCache(CacheInitParams(False, self.req_to_token_pool, self.token_to_kv_pool_allocator, 1))
        for number in range(size // 2 // 2000):
            tokens = [number] * 2000
            self.tree_cache.insert(InsertParams(key=RadixKey(tokens, None), value=self.token_to_kv_pool_allocator.alloc(2000)))
        self.max_total_num_tokens, self.max_running_requests = size, 16
        self.running_batch, self.waiting_queue, self.chunked_req = Batch([]), [], None


def main():
    kind, size = sys.argv[1], int(sys.argv[2])
    pool = vllm_pool(size) if kind == "vllm" else None
    scheduler = Scheduler(size) if kind == "sglang" else None
    assert pool or scheduler
    print("READY", flush=True)
    while True:
        time.sleep(1000)


main()
