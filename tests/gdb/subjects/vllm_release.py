"""A vLLM release's own Scheduler, KVCacheManager and Requests at work: shared prefixes, decoding, a preemption, an abort; then it
waits.

  vllm_release.py FOLDER VERSION [GROUPS]      GROUPS: full | none (no prefix caching) | hybrid | mamba | pools (0.32 on) |
                                               keys (one request has a cache salt, one a LoRA adapter) | stale (and the salt
                                               is another since its blocks were hashed) | draft (speculative decoding: of the
                                               tokens that are guessed from none to all are taken) | cut, cut-unsaid (a prompt
                                               is cut) | lent, lent-unsaid (a page is given back and stays) | renamed NAME,…
                                               (a process each in which one attribute has another name)

Says what is true of its objects by following them itself.
"""

import inspect
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import older_engine
import renames
from older_engine import Config

BLOCK, BLOCKS = 16, 24
DRAFTS = 3  # tokens that are guessed for each step of a request, of the kind "draft"


def fill(function, **values):
    """Calls it with those of `values` that it has parameters for; what else it must have is None."""
    parameters = inspect.signature(function).parameters
    wanted = {n: p for n, p in parameters.items() if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    return function(**{n: values.get(n) for n, p in wanted.items() if n in values or p.default is p.empty})


def specs(interface, kind):
    import torch

    common = dict(block_size=BLOCK, num_kv_heads=2, head_size=8, dtype=torch.float32, use_mla=False)
    full = fill(interface.FullAttentionSpec, **common)
    if kind == "pools":
        return [full, fill(interface.FullAttentionSpec, **common)]
    if kind == "hybrid":
        return [full, fill(interface.SlidingWindowSpec, sliding_window=32, **common)]
    if kind == "mamba":
        return [
            full,
            fill(interface.MambaSpec, shapes=((8, 16),), dtypes=(torch.float32,), block_size=BLOCK, page_size_padded=None),
        ]
    return [full]


def config_of(kind):
    """As much of a VllmConfig as the schedulers of all releases ask for."""
    return Config(
        scheduler_config=Config(
            max_num_seqs=8,
            max_num_batched_tokens=512,
            max_model_len=256,
            policy="fcfs",
            long_prefill_token_threshold=0,
            enable_chunked_prefill=True,
            chunked_prefill_enabled=True,
            watermark=0.0,
            max_num_encoder_input_tokens=0,
            encoder_cache_size=0,
        ),
        cache_config=Config(
            num_gpu_blocks=BLOCKS,
            block_size=BLOCK,
            enable_prefix_caching=kind != "none",
            prefix_caching_hash_algo="builtin",
            sliding_window=None,
        ),
        parallel_config=Config(
            data_parallel_rank=0,
            data_parallel_index=0,
            pipeline_parallel_size=1,
            decode_context_parallel_size=1,
            prefill_context_parallel_size=1,
        ),
        model_config=Config(max_model_len=256, is_encoder_decoder=False),
        observability_config=Config(),
        max_concurrent_batches=1,
        num_speculative_tokens=DRAFTS if kind == "draft" else 0,
        speculative_config=Speculation() if kind == "draft" else None,
        num_prefill_lookahead_tokens=0,
        num_lookahead_tokens=0,
        aux_output_config=Config(),
        ec_manager_config=Config(get_encoder_cache_manager_obj=lambda: None),
    )


class Speculation(Config):
    """A SpeculativeConfig of EAGLE: it uses nothing else."""

    def __init__(self):
        super().__init__(num_speculative_tokens=DRAFTS, max_num_new_slots_for_drafting=DRAFTS, method="eagle")

    def use_eagle(self):
        return True

    def __getattr__(self, name):
        return (lambda: False) if name.startswith("use") else super().__getattr__(name)


def scheduler_of(version, kind):
    config = config_of(kind)
    try:
        from vllm.v1.core.sched.scheduler import Scheduler
    except ImportError:
        from vllm.v1.core.scheduler import Scheduler
    values = dict(
        vars(config),
        vllm_config=config,
        structured_output_manager=older_engine.stub("manager"),
        block_size=BLOCK,
        hash_block_size=BLOCK,
        log_stats=True,
    )
    values["lora_config"] = None
    if "kv_cache_config" in inspect.signature(Scheduler.__init__).parameters:
        from vllm.v1 import kv_cache_interface as interface

        groups = [
            interface.KVCacheGroupSpec([f"layers.{g}.{i}" for i in range(2)], s) for g, s in enumerate(specs(interface, kind))
        ]
        values["kv_cache_config"] = fill(
            interface.KVCacheConfig, num_blocks=BLOCKS, tensors={}, kv_cache_tensors=[], kv_cache_groups=groups
        )
    scheduler = fill(Scheduler, **values)
    if kind == "pools":  # the second group gets a pool of its own, as 0.32's host tier does
        from vllm.v1.core.single_type_kv_cache_manager import HiSparseSourceManager

        HiSparseSourceManager.bind_host_pool(scheduler.kv_cache_manager.coordinator.single_type_managers[1], 2 * BLOCKS)
    return scheduler


def request_of(name, tokens, **extra):
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.request import Request

    hasher = None
    if hasattr(kv_cache_utils, "get_request_block_hasher"):
        hasher = kv_cache_utils.get_request_block_hasher(BLOCK, older_engine.sha256_bytes)
    sampling = Config(max_tokens=200)
    inputs = Config(
        prompt_token_ids=tokens,
        prompt=None,
        multi_modal_data=None,
        mm_inputs=None,
        mm_hashes=None,
        mm_placeholders=None,
        multi_modal_inputs=None,
        multi_modal_hashes=None,
        multi_modal_placeholders=None,
    )
    return fill(
        Request,
        request_id=name,
        prompt_token_ids=tokens,
        sampling_params=sampling,
        arrival_time=time.time(),
        block_hasher=hasher,
        inputs=inputs,
        **extra,
    )


def step(scheduler):
    """One step: the scheduler plans, and each request whose tokens are all computed gets a new one."""
    plan = scheduler.schedule()
    planned, drafts = plan.num_scheduled_tokens, getattr(plan, "scheduled_spec_decode_tokens", {})
    getattr(scheduler, "scheduled_req_ids", set()).clear()  # as update_from_output of 0.7 does
    worker, count = getattr(scheduler, "worker", None), getattr(scheduler, "num_spec_tokens", 0)
    for request in list(scheduler.running):
        if request.request_id in planned and not hasattr(scheduler, "_update_after_schedule") and advances_late(scheduler):
            request.num_computed_tokens += planned[request.request_id]
        if hasattr(request, "num_in_flight_tokens"):
            request.num_in_flight_tokens = 0
        if request.request_id not in planned:
            continue
        ready = request.num_computed_tokens >= request.num_tokens
        guessed = len(drafts.get(request.request_id, ())) if ready else 0
        taken = request.num_output_tokens % (guessed + 1)
        computed, total = request.num_computed_tokens - (guessed - taken), request.num_tokens + (taken + 1) * ready
        following = [total + i for i in range(count if ready and request.status.name == "RUNNING" else 0)]
        if worker is not None:  # it has them before the scheduler hears of them
            worker.sampled(request.request_id, computed, total, following or request.spec_token_ids)
        request.num_computed_tokens = computed  # as update_from_output does
        for _ in range(total - request.num_tokens):
            request.append_output_token_ids([7]) if takes_list(request) else request.append_output_token_ids(7)
        if following:
            request.spec_token_ids = following
    if hasattr(scheduler, "processed_step_seq"):
        scheduler.processed_step_seq = scheduler.sched_step_seq
    return planned


def advances_late(scheduler):
    """Releases whose update_from_output, not schedule, counts computed tokens."""
    return "num_computed_tokens += " not in inspect.getsource(type(scheduler).schedule)


def takes_list(request):
    return "list" in str(inspect.signature(request.append_output_token_ids)).lower() or "Sequence" in str(
        inspect.signature(request.append_output_token_ids)
    )


def story(scheduler, kind="full"):
    from vllm.v1.core import kv_cache_utils

    if hasattr(kv_cache_utils, "init_none_hash") and not hasattr(kv_cache_utils, "NONE_HASH"):  # once in a process, as engines do
        kv_cache_utils.init_none_hash(older_engine.sha256_bytes)
    prefix = list(range(100, 132))  # two blocks that all share
    for name, own in (("a", 20), ("b", 40), ("c", 8)):
        scheduler.add_request(request_of(f"req-{name}", prefix + [ord(name)] * own))
        step(scheduler)
    for _ in range(20 if kind != "draft" else 8):
        step(scheduler)
    from vllm.v1.request import RequestStatus

    scheduler.finish_requests("req-b", RequestStatus.FINISHED_ABORTED)
    extra = {}
    if kind in ("keys", "stale"):
        adapter = Config(lora_name="adapter", lora_path="/adapters/one", lora_int_id=3, adapter_id=3)
        extra = {"d": {"cache_salt": "salt"}, "e": {"lora_request": adapter}}
    for name, own in (("d", 70), ("e", 80), ("f", 150)):
        scheduler.add_request(request_of(f"req-{name}", prefix + [ord(name)] * own, **extra.get(name, {})))
    for _ in range(60):  # more than the pool holds: some are preempted, some wait
        step(scheduler)
        if any(r.status.name == "PREEMPTED" for r in scheduler.waiting):
            break


def pools_of(manager):
    if not hasattr(manager, "coordinator"):
        pool = manager.block_pool
        return [pool] if hasattr(pool, "free_block_queue") else [manager]
    found = {}
    for one in manager.coordinator.single_type_managers:
        found[id(one.block_pool)] = one.block_pool
    return list(found.values())


def truth_of_pool(pool):
    blocks = pool.block_pool if isinstance(getattr(pool, "block_pool", None), list) else pool.blocks
    queue, free = pool.free_block_queue, []
    at = queue.fake_free_list_head.next_free_block if hasattr(queue, "fake_free_list_head") else queue.free_list_head
    while at is not None and at.block_id >= 0:
        free.append(at.block_id)
        at = at.next_free_block
    assert len(free) == queue.num_free_blocks
    return {
        "size": len(blocks),
        "free": free,
        "ref_cnt": [b.ref_cnt for b in blocks],
        "hashed": [b.block_id for b in blocks if b._block_hash is not None],
    }


def truth(scheduler):
    manager = scheduler.kv_cache_manager
    owners = manager.coordinator.single_type_managers if hasattr(manager, "coordinator") else [manager]
    tables = [{r: [b.block_id for b in blocks] for r, blocks in one.req_to_blocks.items()} for one in owners]
    requests = [*scheduler.running, *scheduler.waiting]
    return {
        "pools": [truth_of_pool(p) for p in pools_of(manager)],
        "tables": tables,
        "running": [r.request_id for r in scheduler.running],
        "waiting": [r.request_id for r in scheduler.waiting],
        "requests": {
            r.request_id: {
                "status": r.status.name,
                "prompt_tokens": r.num_prompt_tokens,
                "computed_tokens": r.num_computed_tokens,
                "output_tokens": r.num_output_tokens,
                "draft_tokens": len(r.spec_token_ids) if hasattr(r, "spec_token_ids") else None,
            }
            for r in requests
        },
    }


def cut_prompt(scheduler, said):
    """The last waiting request loses the end of its prompt, as a connector takes it for a prefill (`said`), and has another
    token in its place: the hash of that block is the cut prompt's. -> its name"""
    request = list(scheduler.waiting)[-1]
    whole = request.num_prompt_tokens // BLOCK * BLOCK - 1
    request.prompt_token_ids = request.prompt_token_ids[:whole]
    request.num_prompt_tokens = whole
    request._all_token_ids[whole] = 0
    request.kv_transfer_params = {"do_remote_decode": True, **({"_p_side_truncated": True} if said else {})}
    return request.request_id


def lend(scheduler, said):
    """The last page of a running request is given back and stays in its table: as HiSparse does once its copy on the host is
    whole (`said`), or by a mistake. -> its block"""
    manager, pool = scheduler.kv_cache_manager.coordinator.single_type_managers[0], scheduler.kv_cache_manager.block_pool
    block = next(b[-1] for b in manager.req_to_blocks.values() if b and b[-1].ref_cnt == 1)
    if said:
        pool.unpin_blocks([block], lambda block: None)
    else:
        pool.free_blocks([block])
    return block.block_id


def main():
    folder, version, kind = sys.argv[1], sys.argv[2], (sys.argv[3:] or ["full"])[0]
    older_engine.use(folder, version)
    scheduler = scheduler_of(version, kind)
    story(scheduler, kind)
    if kind == "renamed":
        renames.hold("vllm", scheduler, sys.argv[4].split(","))
    if kind == "stale":
        next(r for r in [*scheduler.running, *scheduler.waiting] if r.cache_salt).cache_salt = "other"
    cut = cut_prompt(scheduler, kind == "cut") if kind.startswith("cut") else None
    cut = lend(scheduler, kind == "lent") if kind.startswith("lent") else cut
    print(json.dumps({"pid": os.getpid(), "cut": cut, **truth(scheduler)}), flush=True)
    while True:
        time.sleep(1000)


if __name__ == "__main__":
    main()
