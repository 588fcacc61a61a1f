"""Where things hang in SGLang's objects, by release: data (srt/mem_cache/memory_pool.py, allocator/*.py, radix_cache.py,
memory_pool_host.py, pool_host/base.py, unified_cache/unified_tree_core.py, managers/schedule_batch.py)."""

ROOTS = {"Scheduler": ""}
MODELS = {"Scheduler": "tp_worker.model_runner.model|tp_worker.worker.model_runner.model"}  # since 0.5.9 | before
# a request's fields: (first release, where), the newest first
FIELDS = {
    "row": (("0.5.23", "kv.req_pool_idx"), ("0.3.6", "req_pool_idx")),
    "allocated": (("0.5.23", "kv.kv_allocated_len"), ("0.5.6", "kv_allocated_len")),
    "committed": (("0.5.23", "kv.kv_committed_len"), ("0.5.6", "kv_committed_len")),
    "protected": (("0.5.23", "kv.cache_protected_len"), ("0.5.6", "cache_protected_len")),
}
STATES = (("0.5.23", "kv.mamba_pool_idx"), ("0.5.6", "mamba_pool_idx"))
TRACKED = (("0.5.23", "kv.mamba_ping_pong_track_buffer"), ("0.5.9", "mamba_ping_pong_track_buffer"))
MAMBA_POOLS = (("0.5.16", "mamba_allocator"), ("0.5.3", "mamba_pool"))  # of the request pool: the owner of the free states
HOST_POOLS = (("0.5.16", "cache_controller.mem_pool_host"), ("0.4.6", "token_to_kv_pool_host"))  # of the prefix tree
FREE = ("free_pages", "release_pages", "free_slots", "staged_pages")  # tensors, or lists of tensors (staged_pages, 0.5.23)
GROUPS = ("free_group", "free_page_ids_group", "swa_free_group", "swa_page_ids_group")  # frees that wait for the end of a group
LOCKS = {
    "full": ("lock_ref", "full_lock_ref"),
    "swa": ("swa_lock_ref",),
    "mamba": ("mamba_lock_ref",),
}  # of a node of the classic trees
# a batch that is being computed is in cur_batch, which 0.5.23 calls cur_batch_for_debug: a prefill's requests are nowhere
# else then
BATCHES = tuple(("running", name) for name in ("running_batch", "last_batch", "cur_batch", "cur_batch_for_debug"))
FORMING = {"get_next_batch_to_run"}  # inside it, a batch has its slots already and is in none of these
STEP_COUNTER = "forward_ct"  # of a scheduler
MAX_REQUESTS = 100_000
MAX_NODES = 2_000_000
MAX_SLOTS = 1 << 28
COMPONENTS = {"full": 0, "swa": 1, "mamba": 2}  # ComponentType: the index of a node's data for each (0.5.16 on)
UPDATING = (
    "/srt/mem_cache",
    "/srt/mem_cache/allocator",
    "/srt/mem_cache/unified_cache",
    "/srt/mem_cache/unified_cache/components",
    "/srt/mem_cache/pool_host",
)
READING = {
    "available_size",
    "full_available_size",
    "swa_available_size",
    "evictable_size",
    "protected_size",
    "full_evictable_size",
    "swa_evictable_size",
    "total_size",
    "size",
    "get_kvcache",
    "get_key_buffer",
    "get_value_buffer",
    "get_kv_buffer",
    "set_kv_buffer",
    "pretty_print",
    "sanity_check",
    "get_all_free_pages",
    "debug_print",
    "supports_swa",
    "supports_mamba",
    "new_pages_available",
}
CLASSIC = {"full": "value", "swa": "swa_value", "mamba": "mamba_value", "host": "host_value"}
GROUP_SWA, GROUP_MAMBA = 1, 2
GROUP_KINDS = (("full", "full"), ("swa", "sliding-window"), ("mamba", "mamba"))
