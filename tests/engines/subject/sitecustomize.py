"""On PYTHONPATH of a test's engine: on SIGUSR2 the process writes the Python stacks of all its threads, as it sees them itself,
to $GDBEXT_TRUTH/PID.json and stands still until one byte comes from the fifo $GDBEXT_TRUTH/PID.go.

Where it holds a scheduler or KV tensors of vLLM or SGLang, it writes what those say of the KV cache to $GDBEXT_TRUTH/PID.kv.json
first.

A file $GDBEXT_TRUTH/PID.do is run before, once, with `frame`: how tests plant faults; PID.undo when the byte has come.

Nothing moves in between: the main thread keeps the GIL from the moment it looks until the byte comes, because it writes and waits
through ctypes.PyDLL, which does not let go of it.
"""

import os
import signal
import sys

FOLDER = os.environ.get("GDBEXT_TRUTH")
UPDATERS = {"block_pool.py", "single_type_kv_cache_manager.py"}  # whoever stands in them may have the cache half updated


def kv_truth(frame):
    """What the engine's own objects, found on this thread's stack, say of the KV cache; None without any."""
    files = set()
    while frame is not None:
        files.add(os.path.basename(frame.f_code.co_filename))
        owner = frame.f_locals.get("self")
        for find in (vllm_scheduler, vllm_worker, sglang_scheduler):
            try:
                found = find(owner)
            except AttributeError:
                continue
            if found:
                return {**found, "updating": sorted(files & UPDATERS)}
        frame = frame.f_back
    return None


def vllm_scheduler(core):
    if not type(core).__name__.endswith("EngineCoreProc"):
        return None
    scheduler = core.scheduler
    pool = scheduler.kv_cache_manager.block_pool
    managers = scheduler.kv_cache_manager.coordinator.single_type_managers
    return {
        "num_blocks": pool.num_gpu_blocks,
        "num_free": pool.get_num_free_blocks(),
        "free": [b.block_id for b in pool.free_block_queue.get_all_free_blocks()],
        "ref_cnt": {b.block_id: b.ref_cnt for b in pool.blocks if b.ref_cnt},
        "hashed": [b.block_id for b in pool.blocks if b.block_hash is not None],
        "hash_entries": len(pool.cached_block_hash_to_block),
        "tables": [{r: [b.block_id for b in blocks] for r, blocks in m.req_to_blocks.items()} for m in managers],
        "block_sizes": [m.block_size for m in managers],
        "kinds": [type(m.kv_cache_spec).__name__ for m in managers],
        "requests": {
            r.request_id: [r.status.name, r.num_prompt_tokens, r.num_computed_tokens, r.num_output_tokens, r.num_preemptions]
            for r in scheduler.requests.values()
        },
        "running": [r.request_id for r in scheduler.running],
        "waiting": [r.request_id for r in scheduler.waiting],
    }


def vllm_worker(proc):
    if type(proc).__name__ != "WorkerProc":
        return None
    runner = proc.worker.worker.model_runner
    if hasattr(runner, "req_states"):
        return runner_v2(runner)
    batch = runner.input_batch
    weights = [*runner.model.parameters(), *runner.model.buffers()]
    held = {t.untyped_storage()._cdata: t.untyped_storage().nbytes() for t in [*weights, *runner.kv_caches]}
    return {
        "weights": [[id(t), list(t.shape), str(t.dtype), t.data_ptr()] for t in weights],
        "kv": [id(t) for t in runner.kv_caches],
        "storages": sum(held.values()),
        "layers": [[t.data_ptr(), list(t.shape), list(t.stride()), str(t.dtype)] for t in runner.kv_caches],
        "rows": [
            {r: t.block_table.np[i, : t.num_blocks_per_row[i]].tolist() for i, r in enumerate(batch._req_ids) if r is not None}
            for t in batch.block_table.block_tables
        ],
        "block_sizes": [t.block_size for t in batch.block_table.block_tables],
        # by torch's own arithmetic: the address of one element of the view
        "element": [t[min(7, t.shape[0] - 1), -1, 3, 5].data_ptr() for t in runner.kv_caches],
    }


def runner_v2(runner):
    states, tables, found = runner.req_states, runner.block_tables, {}
    samples, penalties = runner.sampler.sampling_states, runner.sampler.penalties_state
    for name, row in states.req_id_to_index.items():
        counts = tables.num_blocks.np[:, row].tolist()
        found[name] = {
            "row": row,
            "prompt": int(states.prompt_len.np[row]),
            "prefill": int(states.prefill_len.np[row]),
            "computed": int(states.num_computed_tokens_np[row]),
            "total": int(states.total_len.gpu[row]),
            "blocks": counts,
            "tables": [t.gpu[row, :n].tolist() for t, n in zip(tables.block_tables, counts)],
            "sampling": {
                "temperature": float(samples.temperature.np[row]),
                "top_p": float(samples.top_p.np[row]),
                "top_k": int(samples.top_k.np[row]),
                "seed": int(samples.seeds.np[row]),
                "repetition_penalty": float(penalties.repetition_penalty.np[row]),
            },
        }
    layers = [[t.data_ptr(), list(t.shape), list(t.stride()), str(t.dtype)] for t in runner.kv_caches]
    return {"rows": found, "staged": [len(t._staged_write_indices) for t in tables.block_tables], "layers": layers}


def sglang_scheduler(scheduler):
    if type(scheduler).__name__ != "Scheduler" or not hasattr(scheduler, "token_to_kv_pool_allocator"):
        return None
    allocator, rows, tree = scheduler.token_to_kv_pool_allocator, scheduler.req_to_token_pool, scheduler.tree_cache
    requests, batched = {}, {}
    for batch in (scheduler.running_batch, scheduler.last_batch, getattr(scheduler, "cur_batch_for_debug", None)):
        if batch is not None and batch.reqs:
            for r, row, length in zip(batch.reqs, batch.req_pool_indices_cpu.tolist(), batch.seq_lens_cpu.tolist()):
                batched.setdefault(r.rid, [row, length])
        for r in batch.reqs if batch is not None else ():
            requests[r.rid] = [
                r.kv.req_pool_idx,
                r.kv.kv_allocated_len,
                r.kv.cache_protected_len,
                len(r.origin_input_ids),
                len(r.output_ids),
                [] if r.kv.req_pool_idx is None else rows.req_to_token[r.kv.req_pool_idx, : r.kv.kv_allocated_len].tolist(),
            ]
    pool = allocator.get_kvcache()
    return {
        "size": allocator.size,
        "page_size": allocator.page_size,
        "available": allocator.available_size(),
        "free": allocator.free_pages.tolist() + allocator.release_pages.tolist(),
        "evictable": tree.evictable_size(),
        "protected": tree.protected_size(),
        "tree": type(getattr(tree, "tree_core", tree)).__name__,
        "rows": list(rows.free_slots),
        "requests": requests,
        "batched": batched,
        "overlap": scheduler.enable_overlap,
        "waiting": [r.rid for r in scheduler.waiting_queue],
        "k": [[t.data_ptr(), list(t.shape), list(t.stride())] for t in pool.k_buffer],
        "k_element": [t[9, 1, 4].data_ptr() for t in pool.k_buffer],
        "v_element": [t[9, 1, 4].data_ptr() for t in pool.v_buffer],
    }


def do(frame, kind="do"):
    path = os.path.join(FOLDER, f"{os.getpid()}.{kind}")
    if os.path.exists(path):
        with open(path) as f:
            exec(f.read(), {"frame": frame})
        os.remove(path)


def tell(number, frame):
    import ctypes
    import json
    import threading
    import time

    do(frame)
    libc = ctypes.PyDLL(None)
    folder, pid = FOLDER.encode(), os.getpid()
    new, said, go = (folder + b"/%d.%s" % (pid, kind) for kind in (b"new", b"json", b"go"))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1000)  # nobody asks this thread for the GIL any more ...
    time.sleep(0.05)  # ... once those who already wait have had their turn
    try:
        kv = kv_truth(frame)  # first: torch lets go of the GIL
        native = {t.ident: t.native_id for t in threading.enumerate()}
        threads = {}
        for ident, top in sys._current_frames().items():
            frames = []
            while top is not None:
                code = top.f_code
                frames.append([getattr(code, "co_qualname", code.co_name), code.co_filename, top.f_lineno])
                top = top.f_back
            threads[native.get(ident, ident)] = frames
        for text, name in ((json.dumps(kv).encode(), folder + b"/%d.kv.json" % pid),) if kv else ():
            fd = libc.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            libc.write(fd, text, len(text))
            libc.close(fd)
        text = json.dumps(threads).encode()
        fd = libc.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        libc.write(fd, text, len(text))
        libc.close(fd)
        libc.rename(new, said)
        fd = libc.open(go, os.O_RDONLY)
        libc.read(fd, ctypes.create_string_buffer(1), 1)
        libc.close(fd)
        do(frame, "undo")
    finally:
        sys.setswitchinterval(before)


if os.environ.get("VLLM_USE_V2_MODEL_RUNNER") == "1":
    import model_runner_v2  # noqa: F401
if FOLDER:
    signal.signal(signal.SIGUSR2, tell)
if os.environ.get("GDBEXT_FAULTS"):
    import sglang_faults  # noqa: F401
