"""Which attributes of SGLang's objects not every release and class has, and the rules that rest on an attribute: data.

Sources: srt/mem_cache/**, srt/managers/*.py, srt/disaggregation/*.py of the releases in docs/sources.md. A release between two of
them may have an attribute already."""

from __future__ import annotations

from ...kvcache import rules
from ..absences import Name

_ALLOCATOR = "BaseTokenToKVPoolAllocator"
_WINDOW = "SWATokenToKVPoolAllocator PureSWATokenToKVPoolAllocator UnifiedSWAAllocatorBase UnifiedMambaTokenToKVPoolAllocator"
_PAGED = "PagedTokenToKVPoolAllocator PageInterleavePoolAllocator"
_KV = "ReqKvInfo Kv"  # of a request; before 0.5.23 they are the request's own
_HYBRID = "HybridReqToTokenPool UnifiedHybridReqToTokenPool"
_UNIFIED = "UnifiedTreeCore UnifiedRadixCache"
_BY_ROLE = "SchedulerOfThatRole"  # set in prefill or decode servers alone
NAMES = {
    "_engine_paused": Name("0.5.9"),
    "_finished": Name("0.4.9"),
    "_terminated_flag": Name("0.5.3"),
    "bootstrap_host": Name("0.4.9"),
    "bootstrap_port": Name("0.4.9"),
    "bootstrap_room": Name("0.4.9"),
    "cache_protected_len": Name("0.5.9", of=_KV),
    "cache_salt": Name("0.5.23"),
    "component_data": Name("0.5.16"),
    "component_evictable_size_": Name("0.5.16", of=_UNIFIED),
    "component_protected_size_": Name("0.5.16", of=_UNIFIED),
    "cur_batch": Name(until="0.5.9"),
    "cur_batch_for_debug": Name("0.5.16"),
    "disagg_decode_prealloc_queue": Name("0.4.9", of=_BY_ROLE),
    "disagg_decode_transfer_queue": Name("0.4.9", of=_BY_ROLE),
    "disagg_prefill_bootstrap_queue": Name("0.4.9", of=_BY_ROLE),
    "disagg_prefill_inflight_queue": Name("0.4.9", of=_BY_ROLE),
    "dispatched": Name("0.5.23"),
    "event_loop": Name("0.4.9"),
    "extra_key": Name("0.5.3"),
    "free_group": Name(of=_ALLOCATOR),
    "free_page_ids_group": Name("0.5.23", of=_PAGED),
    "free_pages": Name("0.4.9", of=_ALLOCATOR),
    "free_slots": Name(of="ReqToTokenPool MambaPool MambaSlotAllocator HostKVCache"),
    "full_attn_allocator": Name("0.4.9", of=_WINDOW),
    "full_lock_ref": Name("0.5.3", "0.5.16"),
    "grammar_manager": Name("0.5.9"),
    "grammar_queue": Name(of="GrammarManager"),
    "hash_value": Name("0.5.3"),
    "host_ref_counter": Name("0.5.3", "0.5.16"),
    "is_bigram": Name("0.5.9"),
    "is_pause": Name("0.5.3"),
    "kv": Name("0.5.23", of="Req"),
    "kv_allocated_len": Name("0.5.9", of=_KV),
    "kv_committed_len": Name("0.5.9", of=_KV),
    "limit": Name("0.5.16"),
    "mamba_allocator": Name("0.5.16", of=_HYBRID),
    "mamba_lock_ref": Name("0.5.9", "0.5.16"),
    "mamba_ping_pong_track_buffer": Name("0.5.9", of=_KV),
    "mamba_pool": Name("0.5.3", of=_HYBRID),
    "mamba_pool_idx": Name("0.5.9", of=_KV),
    "mamba_value": Name("0.5.9", "0.5.16"),
    "page_size": Name("0.4.9"),
    "prefetch_stop_policy": Name("0.5.3"),
    "release_pages": Name("0.5.3", of=_ALLOCATOR),
    "req": Name(of="DecodeRequest"),
    "req_pool_idx": Name(of=_KV),
    "retraction_count": Name("0.5.9"),
    "root_node": Name(of=f"RadixCache UnifiedTreeCore SWARadixCache MambaRadixCache {_UNIFIED}"),
    "staged_pages": Name("0.5.23", of="PagedTokenToKVPoolAllocator"),
    "swa_attn_allocator": Name("0.4.9", of=_WINDOW),
    "swa_free_group": Name("0.5.23", of="SWATokenToKVPoolAllocator"),
    "swa_lock_ref": Name("0.5.3", "0.5.16"),
    "swa_page_ids_group": Name("0.5.23", of="SWATokenToKVPoolAllocator"),
    "swa_tombstone": Name("0.5.3", "0.5.16"),
    "token_ids": Name("0.5.3"),
    "token_to_kv_pool_host": Name(until="0.5.16"),
    "tree_core": Name("0.5.23", of="UnifiedRadixCache"),
    "weight_updater": Name("0.5.23"),
}
VITAL = frozenset(  # without them requests, slots or nodes are missing from every sum
    "component_data component_evictable_size_ component_protected_size_ free_pages free_slots kv kv_allocated_len page_size "
    "release_pages req_pool_idx reqs root_node running_batch size staged_pages token_ids tree_core value".split()
)
_TREE = (rules.TREE_LINK, rules.TREE_KEY, rules.TREE_LOCK, rules.TREE_SIZE, rules.TREE_TWICE)
_SLOTS = (rules.SLOTS_LOST, rules.SLOT_SHARED, rules.FREE_CACHED)
RESTS_ON = {  # attribute -> the rules that cannot be judged without it
    "cache_controller": _TREE,
    "cache_protected_len": _SLOTS,
    "free_group": _SLOTS,
    "free_page_ids_group": _SLOTS,
    "hash_value": (rules.HASH_TOKENS,),
    "host_lock_ref": (rules.TREE_LOCK, rules.TREE_SIZE),
    "is_bigram": (rules.TREE_KEY, rules.HASH_TOKENS),
    "limit": (rules.TREE_KEY, rules.HASH_TOKENS),
    "lock_ref": (rules.TREE_LOCK, rules.TREE_SIZE),
    "mamba_pool_idx": _SLOTS,
    "mamba_ping_pong_track_buffer": _SLOTS,
    "prefix_indices": _SLOTS,
}
