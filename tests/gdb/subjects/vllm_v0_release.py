"""A vLLM V0 release's own Scheduler, block manager and sequences at work: shared prefixes, decoding, a fork, a preemption; then
it waits.

  vllm_v0_release.py FOLDER VERSION naive|cached [v1]      v1: BlockSpaceManagerV1, which 0.6.0 has beside the other

Says what is true of its objects by following them itself.
"""

import inspect
import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import older_engine
from older_engine import Config
from vllm_release import fill

BLOCK, BLOCKS = 16, 24


class Inputs(dict):
    """What a prompt becomes: its keys, and in later releases its attributes."""

    def __getattr__(self, name):
        return self.get(name)


def scheduler_of(cached, old):
    from vllm.core.scheduler import Scheduler

    return Scheduler(
        Config(
            max_num_seqs=8,
            max_num_batched_tokens=512,
            max_model_len=256,
            use_v2_block_manager=not old,
            policy="fcfs",
            num_lookahead_slots=0,
            embedding_mode=False,
            task="generate",
            runner_type="generate",
            delay_factor=0.0,
            chunked_prefill_enabled=False,
            is_multi_step=False,
            max_num_partial_prefills=1,
            long_prefill_token_threshold=0,
            max_long_partial_prefills=1,
            send_delta_data=False,
        ),
        Config(
            num_gpu_blocks=BLOCKS,
            num_cpu_blocks=4,
            block_size=BLOCK,
            enable_prefix_caching=cached,
            sliding_window=None,
            is_attention_free=False,
        ),
        None,
    )


class Worker:
    """A FAKE of vllm.worker.worker.Worker: it holds the release's own cache engine."""

    def __init__(self):
        import torch
        from vllm.worker.cache_engine import CacheEngine

        model = Config(
            dtype=torch.float32,
            get_head_size=lambda: 8,
            get_num_layers_by_block_type=lambda *names: 3,
            get_num_attention_layers=lambda *names: 3,
            get_num_layers=lambda *names: 3,
            get_num_kv_heads=lambda *names: 2,
            get_num_attention_heads=lambda *names: 2,
            get_sliding_window=lambda: None,
        )
        cache = Config(block_size=BLOCK, num_gpu_blocks=BLOCKS, num_cpu_blocks=4, cache_dtype="auto")
        self.cache_engine = [CacheEngine(cache, model, Config(pipeline_parallel_size=1), Config(device_type="cpu"))]

    def wait(self, said):
        print(json.dumps(said), flush=True)
        while True:
            time.sleep(1000)

    def places(self):
        """[[pool, layer, part, address of [block 3, slot 5, head 1, element 2]]], by torch's own arithmetic."""
        engine = self.cache_engine[0]
        return [
            [pool, layer, "kv"[part], t[part, 3, 5, 1, 2].data_ptr()]
            for pool, held in enumerate((engine.gpu_cache, engine.cpu_cache))
            for layer, t in enumerate(held)
            for part in (0, 1)
        ]


def group_of(number, tokens):
    from vllm.sequence import Sequence, SequenceGroup

    inputs = Inputs(type="token", prompt_token_ids=tokens, prompt="", multi_modal_placeholders={})
    seq = Sequence(number, inputs, BLOCK)
    return fill(
        SequenceGroup,
        request_id=f"req-{chr(96 + number)}",
        seqs=[seq],
        arrival_time=time.time(),
        sampling_params=Config(n=1, best_of=1),
    )


def step(scheduler):
    scheduler.schedule()
    for group in scheduler.running:
        for seq in group.get_seqs():
            if seq.status.name != "RUNNING":
                continue
            seq.data.update_num_computed_tokens(seq.get_len() - seq.data.get_num_computed_tokens())
            seq.append_token_id(7, {7: Config(logprob=0.0)})
    if scheduler.block_manager.enable_caching and hasattr(scheduler.block_manager, "mark_blocks_as_computed"):
        for group in scheduler.running:
            mark(scheduler.block_manager, group)


def mark(manager, group):
    wants = len(inspect.signature(manager.mark_blocks_as_computed).parameters)
    manager.mark_blocks_as_computed(group, 0) if wants > 1 else manager.mark_blocks_as_computed(group)


def story(scheduler):
    prefix = list(range(100, 132))
    for number, own in ((1, 20), (2, 40), (3, 8)):
        scheduler.add_seq_group(group_of(number, prefix + [number] * own))
        step(scheduler)
    for _ in range(10):
        step(scheduler)
    fork(scheduler)
    scheduler.abort_seq_group("req-b")
    step(scheduler)
    for number, own in ((4, 70), (5, 80), (6, 150)):
        scheduler.add_seq_group(group_of(number, prefix + [number] * own))
    for _ in range(60):
        before = len(scheduler.running)
        step(scheduler)
        if len(scheduler.running) < before:
            break


def fork(scheduler):
    """A second sequence of the last group, as beam search makes one: it shares every block."""
    group = scheduler.running[-1]
    if not hasattr(group, "add"):
        return  # beams are requests of their own, from 0.6.4 on
    parent = group.get_seqs()[0]
    child = parent.fork(9)
    group.add(child)
    scheduler.fork_seq(parent, child)


def pools_of(manager):
    found = []
    if hasattr(manager, "block_allocator"):
        for device in ("GPU", "CPU"):
            one = next(a for d, a in manager.block_allocator._allocators.items() if d.name == device)
            counts = one._refcounter._refcounts
            base = min(counts)
            free = [
                i
                for i in sorted(one._all_block_indices if hasattr(one, "_all_block_indices") else one.all_block_ids)
                if counts[i] == 0
            ]
            assert len(free) == one.get_num_free_blocks()
            cached = sorted(b - base for b in getattr(one, "_cached_blocks", {}).values())
            found.append(
                {
                    "size": len(counts),
                    "free": [i - base for i in free],
                    "ref_cnt": [counts[base + i] for i in range(len(counts))],
                    "cached": cached,
                }
            )
        return found
    for allocator in (manager.gpu_allocator, manager.cpu_allocator):
        size = allocator.num_blocks
        found.append({"size": size, "num_free": allocator.get_num_free_blocks()})
    return found


def truth(scheduler):
    manager = scheduler.block_manager
    tables = {}
    for group in [*scheduler.running, *scheduler.waiting, *scheduler.swapped]:
        for seq in group.get_seqs():
            if seq.seq_id in manager.block_tables:
                name = group.request_id if len(group.get_seqs()) == 1 else f"{group.request_id}/{seq.seq_id}"
                tables[name] = manager.get_block_table(seq)
    groups = [*scheduler.running, *scheduler.waiting, *scheduler.swapped]
    seqs = {(g.request_id if len(g.get_seqs()) == 1 else f"{g.request_id}/{s.seq_id}"): s for g in groups for s in g.get_seqs()}
    return {
        "pools": pools_of(manager),
        "tables": tables,
        "running": [g.request_id for g in scheduler.running],
        "waiting": [g.request_id for g in scheduler.waiting],
        "requests": {
            n: {
                "status": s.status.name,
                "prompt_tokens": s.get_prompt_len(),
                "output_tokens": s.get_output_len(),
                "computed_tokens": s.data.get_num_computed_tokens(),
            }
            for n, s in seqs.items()
        },
    }


def main():
    folder, version, kind = sys.argv[1:4]
    older_engine.use(folder, version)
    scheduler = scheduler_of(kind == "cached", "v1" in sys.argv[4:])
    story(scheduler)
    worker = Worker()
    worker.wait({"pid": os.getpid(), "places": worker.places(), **truth(scheduler)})


if __name__ == "__main__":
    main()
