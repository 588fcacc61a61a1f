"""SGLang's own pools, allocators and prefix tree of 0.5.23, made on the CPU: pages, a sliding window, Mamba states, host memory.

  sglang_objects.py   run with SGLang's environment; each line of its input, VARIANT [FUNCTION:N], is answered by a process of its
  own

Scheduler, Req and what holds the host pool are FAKES with SGLang's field names, and so is the engine's configuration; what they
hold is SGLang's own. Each of several schedulers lives through the same story (prefix hits, decoding, a request that ends,
eviction); one stays whole, the others are broken by hand in one way. Says in one line which rule, block and pool must be named
first, and what is true of the whole one. With FUNCTION:N it stops in the middle of an update instead: inside FUNCTION after N of
its lines; with `moves` it is at work for ever; with `renamed NAME,...` it makes processes in which one attribute has another name
(renames.py)."""

import json
import os
import signal
import sys
import time
import traceback
import types

import sglang_at_work
import torch
from sglang_at_work import Batch, Kv, Req

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "gdb", "subjects"))
import renames
from sglang.srt.mem_cache import utils
from sglang.srt.mem_cache.allocator import PagedTokenToKVPoolAllocator, TokenToKVPoolAllocator
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import DecLockRefParams, EvictParams, InsertParams, MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.memory_pool import HybridReqToTokenPool, MHATokenToKVPool, ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool
from sglang.srt.mem_cache.unified_cache import components
from sglang.srt.mem_cache.unified_cache.components import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache

SIZE, WINDOW_SIZE, WINDOW, ROWS, WIDTH, STATES = 96, 64, 8, 8, 64, 12
utils.get_native_hash = sglang_at_work.page_hashes
PARTS = {"swa": ComponentType.SWA, "mamba": ComponentType.MAMBA}
HEADS = dict(dtype=torch.float32, head_num=2, head_dim=8, device="cpu", enable_memory_saver=False)


class Scheduler:
    def __init__(self, variant):
        self._engine_paused = self.skip_tokenizer_init = False
        self.cur_batch_for_debug = self.server_args = None
        self.weight_updater = types.SimpleNamespace(offload_tags=set())
        self.grammar_manager = types.SimpleNamespace(grammar_queue=[])
        self.page = 4 if variant in ("paged", "window-pages", "host") else 1
        self.parts = {"window": ("swa",), "window-pages": ("swa",), "mamba": ("mamba",)}.get(variant, ())
        rows = dict(size=ROWS, max_context_len=WIDTH, device="cpu", enable_memory_saver=False)
        self.req_to_token_pool = mamba_rows(rows) if "mamba" in self.parts else ReqToTokenPool(**rows)
        if "swa" in self.parts:
            pool = SWAKVPool(
                size=SIZE,
                size_swa=WINDOW_SIZE,
                page_size=self.page,
                swa_attention_layer_ids=[0, 2],
                full_attention_layer_ids=[1, 3],
                **HEADS,
            )
            allocator = SWATokenToKVPoolAllocator(SIZE, WINDOW_SIZE, self.page, torch.float32, "cpu", pool, False)
            allocator.swa_attn_allocator.free_pages = allocator.swa_attn_allocator.free_pages.flip(
                0
            )  # so that no token has the same slot in both
        else:
            pool = MHATokenToKVPool(size=SIZE, page_size=self.page, layer_num=2, **HEADS)
            kind = PagedTokenToKVPoolAllocator if self.page > 1 else TokenToKVPoolAllocator
            allocator = kind(*([SIZE] + [self.page] * (self.page > 1)), torch.float32, "cpu", pool, variant == "paged")
        self.token_to_kv_pool_allocator = allocator
        self.tree_cache = UnifiedRadixCache(
            CacheInitParams(
                False,
                self.req_to_token_pool,
                allocator,
                self.page,
                sliding_window_size=WINDOW if "swa" in self.parts else None,
                tree_components=(ComponentType.FULL, *(PARTS[p] for p in self.parts)),
                tree_core_backend="python",
            )
        )
        if variant == "host":
            self.tree_cache.cache_controller = types.SimpleNamespace(mem_pool_host=host_pool(pool, self.page))
        self.max_total_num_tokens, self.max_running_requests, self.forward_ct = SIZE, ROWS, 0
        self.running_batch, self.last_batch, self.waiting_queue, self.chunked_req = Batch([]), None, [], None

    def take(self, req, upto):
        """Slots for the tokens of a request up to there."""
        row, have = self.req_to_token_pool.req_to_token[req.kv.req_pool_idx], req.kv.kv_allocated_len
        if self.page == 1:
            new = self.token_to_kv_pool_allocator.alloc(upto - have)
        else:
            last = torch.tensor([int(row[have - 1]) if have else -1], dtype=torch.int64)
            lengths = [torch.tensor([n], dtype=torch.int64) for n in (have, have, upto, upto)]
            new = self.token_to_kv_pool_allocator.alloc_extend(*lengths, last, upto - have)
        row[have:upto] = new.int()
        req.kv.kv_allocated_len = req.kv.kv_committed_len = upto

    def start(self, req):
        req.kv.req_pool_idx = self.req_to_token_pool.free_slots.pop(0)
        row, tokens = self.req_to_token_pool.req_to_token[req.kv.req_pool_idx], req.origin_input_ids
        found = self.tree_cache.match_prefix(MatchPrefixParams(key=RadixKey(tokens[:-1], None)))
        hit, node = found.device_prefix_len, found.last_device_node
        if hit:
            row[:hit] = values_to(self.tree_cache, node)[:hit].int()
        req.kv.kv_allocated_len = hit
        self.take(req, len(tokens))
        more = {}
        if "mamba" in self.parts:
            req.kv.mamba_pool_idx = self.req_to_token_pool.mamba_allocator.alloc(1)
            more["mamba_value"] = self.req_to_token_pool.mamba_allocator.alloc(1)
        whole = len(tokens) // self.page * self.page
        self.tree_cache.insert(
            InsertParams(key=RadixKey(tokens[:whole], None), value=row[:whole].long(), prev_prefix_len=hit, **more)
        )
        req.kv.cache_protected_len = whole
        node = self.tree_cache.match_prefix(MatchPrefixParams(key=RadixKey(tokens[:whole], None))).last_device_node
        row[:whole] = values_to(self.tree_cache, node).int()  # of what the tree had already, its own slots are kept
        req.lock = self.tree_cache.inc_lock_ref(node)
        self.running_batch.reqs.append(req)

    def decode(self, steps):
        for req in self.running_batch.reqs:
            for _ in range(steps):
                self.take(req, req.kv.kv_allocated_len + 1)
                req.output_ids.append(7)

    def end(self, req):
        """Its own slots are freed, the tree keeps the rest."""
        self.running_batch.reqs.remove(req)
        row = self.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
        self.token_to_kv_pool_allocator.free_segment(
            row[req.kv.cache_protected_len : req.kv.kv_allocated_len].long(), start_pos=req.kv.cache_protected_len
        )
        if "mamba" in self.parts:
            self.req_to_token_pool.mamba_allocator.free(req.kv.mamba_pool_idx)
        lock = req.lock
        self.tree_cache.dec_lock_ref(
            lock.node_id, DecLockRefParams(lock.node_id, lock.skipped_lock_components, lock.component_lock_uuids)
        )
        self.req_to_token_pool.free_slots.append(req.kv.req_pool_idx)


def values_to(cache, node_id):
    """The full slots on the way from the root to a node."""
    node, found = next(n for n in nodes(cache) if n.id == node_id), []
    while node.parent is not None:
        found.insert(0, node.component_data[ComponentType.FULL].value)
        node = node.parent
    return torch.cat(found)


def nodes(cache):
    stack, found = [cache.tree_core.root_node], []
    while stack:
        node = stack.pop()
        found.append(node)
        stack += node.children.values()
    return found


for one in (Kv, Req, Batch, Scheduler):
    one.__module__ = "sglang.stand_ins"


def mamba_rows(rows):
    from sglang.srt.configs.mamba_utils import Mamba2CacheParams, Mamba2StateShape

    components.mamba.mamba_cache_chunk_size = lambda: 64  # of the engine's configuration, which there is none of
    components.mamba.mamba_checkpoint_grid = lambda page: 1
    components.mamba.get_exec = lambda: types.SimpleNamespace(mamba=types.SimpleNamespace(mamba_max_states_per_path=-1))
    shape = Mamba2StateShape.create(
        tp_world_size=1, intermediate_size=16, n_groups=1, num_heads=2, head_dim=8, state_size=4, conv_kernel=4
    )
    return HybridReqToTokenPool(
        mamba_size=STATES,
        mamba_spec_state_size=STATES,
        cache_params=Mamba2CacheParams(shape=shape, layers=[0, 2]),
        mamba_layer_ids=[0, 2],
        enable_mamba_extra_buffer=False,
        enable_overlap_schedule=False,
        **rows,
    )


def host_pool(pool, page):
    from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost

    return MHATokenToKVPoolHost(
        pool._mha_buffer_info(),
        2.0,
        0,
        page,
        "layer_first",
        pin_memory=False,
        device="cpu",
        device_capacity_tokens=SIZE,
        start_layer=0,
        end_layer=2,
    )


def story(variant, until=None):
    s = Scheduler(variant)
    prefix = list(range(100, 112))
    for name, own in (("a", 8), ("b", 5), ("c", 4)):
        s.start(Req(f"req-{name}", prefix + [ord(name)] * own))
        s.decode(1)
    if until == "before the end":
        return s
    s.end(s.running_batch.reqs[1])
    s.decode(5)
    if "swa" in s.parts:  # what leaves the window
        row = s.req_to_token_pool.req_to_token[s.running_batch.reqs[0].kv.req_pool_idx]
        s.token_to_kv_pool_allocator.free_swa_segment(row[20 : 20 + max(2, s.page)].long(), start_pos=20)
    s.waiting_queue.append(Req("req-d", prefix + [5] * 30))
    for node in nodes(s.tree_cache)[1:]:  # as where KV events are on
        node.hash_value = utils.compute_node_hash_values(node, s.page)
    if variant == "host":  # what was backed up to host memory
        pool = s.tree_cache.cache_controller.mem_pool_host
        for node in nodes(s.tree_cache)[1:]:
            data = node.component_data[ComponentType.FULL]
            data.host_value = pool.alloc(len(data.value))
    return s


# ---- faults: [rule, block, pool] that must be named first; None where the variant has no such thing ----
def lists_of(s, pool):
    """(the object that has a pool's free list, the attribute)"""
    allocator = s.token_to_kv_pool_allocator
    if pool == "mamba":
        return s.req_to_token_pool.mamba_allocator, "free_slots"
    if pool == "host":
        return s.tree_cache.cache_controller.mem_pool_host, "free_slots"
    if "swa" in s.parts:
        return (allocator.swa_attn_allocator if pool == "swa" else allocator.full_attn_allocator), "free_pages"
    return allocator, "free_pages"


def pools_of(s):
    return ["pool", *s.parts] + (["host"] if hasattr(s.tree_cache.cache_controller, "mem_pool_host") else [])


def put_free(s, pool, block):
    owner, name = lists_of(s, pool)
    held = getattr(owner, name)
    new = torch.arange(block * s.page, (block + 1) * s.page) if pool == "host" else torch.tensor([block])
    if getattr(owner, "staged_pages", None):
        owner.staged_pages.append(new)
        owner.num_staged_pages += 1
    else:
        setattr(owner, name, torch.cat((held, new.to(held.dtype))))


def freed_twice(s, pool):
    owner, name = lists_of(s, pool)
    block = int(getattr(owner, name)[0]) // (s.page if pool == "host" else 1)
    put_free(s, pool, block)
    return ["free-list-double", block, pool]


def freed_while_used(s, pool):
    req = s.running_batch.reqs[0]
    row = s.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
    slot = int(row[req.kv.kv_allocated_len - 1])
    if pool == "mamba":
        block = int(req.kv.mamba_pool_idx[0])
    elif pool == "swa":
        block = int(s.token_to_kv_pool_allocator.full_to_swa_index_mapping[slot]) // s.page
    elif pool == "host":
        return None
    else:
        block = slot // s.page
    put_free(s, pool, block)
    return ["free-owned", block, pool]


def data_of(pool, node):
    data = node.component_data[PARTS.get(pool, ComponentType.FULL)]
    return data.host_value if pool == "host" else data.value


def unlocked(s, pool):
    """A node that no request has locked and that holds something of the pool."""
    return next(
        n for n in nodes(s.tree_cache)[1:] if data_of(pool, n) is not None and not n.component_data[ComponentType.FULL].lock_ref
    )


def freed_in_the_tree(s, pool):
    block = int(data_of(pool, unlocked(s, pool))[0]) // (1 if pool == "mamba" else s.page)
    put_free(s, pool, block)
    return ["free-cached", block, pool]


def lost(s, pool):
    owner, name = lists_of(s, pool)
    if pool == "host":
        return None  # what a transfer holds is in no list of the engine's
    setattr(owner, name, getattr(owner, name)[1:])
    return ["slots-lost", None, pool]


def wrong_size(s, pool):
    if pool == "host":
        return None
    s.tree_cache.tree_core.component_evictable_size_[PARTS.get(pool, ComponentType.FULL)] += 1
    return ["tree-size", None, pool]


def of_two(s, pool):
    one, other = s.running_batch.reqs[:2]
    if pool == "mamba":
        other.kv.mamba_pool_idx = one.kv.mamba_pool_idx.clone()
        return ["slot-shared", int(one.kv.mamba_pool_idx[0]), pool]
    if pool == "swa":
        mapping, table = s.token_to_kv_pool_allocator.full_to_swa_index_mapping, s.req_to_token_pool.req_to_token
        slots = [int(table[r.kv.req_pool_idx, r.kv.kv_allocated_len - 1]) // s.page * s.page for r in (one, other)]
        mapping[slots[1] : slots[1] + s.page] = mapping[slots[0] : slots[0] + s.page].clone()
        return ["slot-shared", int(mapping[slots[0]]) // s.page, pool]
    return None


def short_value(s, pool):
    if pool == "mamba":
        return None
    node = unlocked(s, pool)
    data = node.component_data[PARTS.get(pool, ComponentType.FULL)]
    if pool == "host":
        data.host_value = data.host_value[: -s.page]
    else:
        data.value = data.value[: -s.page]
    return ["tree-key", None, pool]


def in_two_nodes(s, pool):
    first, second = [n for n in nodes(s.tree_cache)[1:] if data_of(pool, n) is not None][:2]
    data_of(pool, second)[: s.page if pool != "mamba" else 1] = data_of(pool, first)[: s.page if pool != "mamba" else 1]
    return ["tree-twice", int(data_of(pool, first)[0]) // (1 if pool == "mamba" else s.page), pool]


def stale_hash(s, pool):
    if pool != "pool":
        return None
    node, other = unlocked(s, pool), nodes(s.tree_cache)[1]
    node.hash_value[-1] = next(h for n in (other, *other.children.values()) if n is not node for h in n.hash_value)
    return ["hash-tokens", int(data_of(pool, node)[-1]) // s.page, pool if len(pools_of(s)) == 1 else ""]


FAULTS = [stale_hash, freed_twice, freed_while_used, freed_in_the_tree, lost, wrong_size, of_two, short_value, in_two_nodes]


def truth(s):
    """What the engine's own objects say, for each pool: free and cached blocks, and sizes of the tree."""
    said, core = {}, s.tree_cache.tree_core
    for pool in pools_of(s):
        owner, name = lists_of(s, pool)
        free = owner.get_all_free_pages() if hasattr(owner, "get_all_free_pages") else getattr(owner, name)
        page = s.page if pool == "host" else 1
        per = 1 if pool == "mamba" else s.page
        kind = PARTS.get(pool, ComponentType.FULL)
        held = [data_of(pool, n) for n in nodes(s.tree_cache)[1:]]
        said[pool] = {
            "size": owner.size // per,
            "free": sorted({int(n) // page for n in free}),
            "cached": sorted({int(n) // per for v in held if v is not None for n in v}),
            "available": owner.available_size(),
            "nodes": len(held) + 1,
            "sizes": None if pool == "host" else [core.component_evictable_size_[kind], core.component_protected_size_[kind]],
        }
    tables = {}
    for r in s.running_batch.reqs:
        row = s.req_to_token_pool.req_to_token[r.kv.req_pool_idx, : r.kv.kv_allocated_len]
        tables[r.rid] = {"0": list(dict.fromkeys((row // s.page).tolist()))}
        if "swa" in s.parts:
            tables[r.rid]["1"] = (
                s.token_to_kv_pool_allocator.translate_loc_from_full_to_swa(row[:: s.page].long()) // s.page
            ).tolist()
        if "mamba" in s.parts:
            tables[r.rid]["2"] = r.kv.mamba_pool_idx.tolist()
    return {"pools": said, "tables": tables, "layers": layers(s)}


def layers(s):
    """[layer, group, part, address of [slot 9, last head, element 4], statistics of the block that slot lies in], which is
    written first."""
    pool, found = s.token_to_kv_pool_allocator.get_kvcache(), []
    places = {
        layer: (pool.swa_kv_pool if window else pool.full_kv_pool, at, int(window))
        for layer, (at, window) in getattr(pool, "layers_mapping", {}).items()
    }
    for layer, (holder, at, group) in (places or {0: (pool, 0, 0), 1: (pool, 1, 0)}).items():
        for buffers, part in ((holder.k_buffer, "k"), (holder.v_buffer, "v")):
            t = buffers[at]
            view = t[9 // s.page * s.page :][: s.page]
            view.copy_(torch.arange(view.numel()).reshape(view.shape) * (layer + 1) - 7)
            view[0, 0, 1], view[0, 1, 2] = float("nan"), float("inf")
            real = view[torch.isfinite(view)]
            found.append(
                [
                    layer,
                    group,
                    part,
                    t[9, 1, 4].data_ptr(),
                    {
                        "min": float(real.min()),
                        "max": float(real.max()),
                        "nan": 1,
                        "inf": 1,
                        "zeros": int((view == 0).sum()),
                        "count": view.numel(),
                    },
                ]
            )
    return found


def park_in(variant, function, count):
    """Stands still inside a function of SGLang's memory cache after so many of its lines."""
    scheduler, left = story(variant, "before the end"), [count]

    def trace(frame, event, arg):
        if "/mem_cache/" not in frame.f_code.co_filename or frame.f_code.co_name != function:
            return trace if event == "call" else None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                sys.settrace(None)
                rest(scheduler, {"pid": os.getpid()})
        return trace

    sys.settrace(trace)
    scheduler.end(scheduler.running_batch.reqs[1])
    scheduler.start(Req("req-e", list(range(100, 107)) + [9] * 9))
    scheduler.decode(3)
    scheduler.tree_cache.evict(EvictParams(num_tokens=8, swa_num_tokens=4))
    sys.settrace(None)
    raise SystemExit(f"{function} never ran {count} lines")


def rest(scheduler, said):
    print(json.dumps(said), flush=True)
    while True:
        time.sleep(1000)


def whole_and_broken(variant):
    scheduler = story(variant)
    schedulers, expected = {"whole": scheduler}, {"whole": None}
    for change in FAULTS:
        for pool in pools_of(scheduler):
            broken = story(variant)
            wanted = change(broken, pool)
            if wanted:
                schedulers[f"{change.__name__} {pool}"], expected[f"{change.__name__} {pool}"] = broken, wanted
    rest(scheduler, {"pid": os.getpid(), "expected": expected, **truth(scheduler)})


def main():
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    for line in sys.stdin:
        variant, _, stop = line.strip().partition(" ")
        if os.fork():
            continue
        try:
            if stop.startswith("renamed "):
                renames.hold("sglang", story(variant), stop.partition(" ")[2].split(","))
            if stop == "moves":
                sglang_at_work.move(story(variant, "before the end"))
            if stop == "grows":
                globals()["SIZE"] = 8 * sglang_at_work.MANY
                at_work = story(variant)
                sglang_at_work.grow(
                    at_work,
                    lambda number: Req(f"req-{number}", [*range(100, 104), *[1000 + number] * 4, 0]),
                    lambda count: at_work.tree_cache.evict(EvictParams(num_tokens=count, swa_num_tokens=0)),
                )
            if stop:
                function, _, count = stop.partition(":")
                park_in(variant, function, int(count))
            whole_and_broken(variant)
        except BaseException:
            print(json.dumps({"error": traceback.format_exc()}), flush=True)
            os._exit(1)


main()
