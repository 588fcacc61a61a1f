"""Scheduler and Req here are FAKES with the field names of SGLang's; the pools, the allocator and the radix cache are a release's
own.

  sglang_release.py FOLDER VERSION

Each cache lives through the same story (prefix hits, requests that run, end, and are evicted); one stays whole, the others are
broken by hand in one way. Says which rule and slot must be named first (null: none), and what is true of the whole one."""

import dataclasses
import inspect
import json
import os
import sys
import time
from array import array

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import older_engine

SIZE, ROWS, WIDTH = 64, 8, 48


class Req:
    """A fake of schedule_batch.Req: what caches and a reader look at."""

    def __init__(self, rid, tokens, version):
        self.rid, self.extra_key, self.priority = rid, None, 0
        self.origin_input_ids = array("q", tokens) if version >= (0, 5, 16) else list(tokens)
        self.output_ids = array("q") if version >= (0, 5, 16) else []
        self.fill_ids = self.origin_input_ids
        self.req_pool_idx = self.last_node = None
        self.finished_reason, self.is_retracted, self.inflight_middle_chunks, self.is_chunked = None, False, 0, 0
        self.last_matched_prefix_len = 0
        if version >= (0, 5, 6):
            self.cache_protected_len = self.kv_committed_len = self.kv_allocated_len = 0

    def get_fill_ids(self):
        return self.fill_ids

    def is_dllm(self):
        return False

    def pop_committed_kv_cache(self):
        return self.kv_committed_len


@dataclasses.dataclass
class Batch:
    reqs: list


class Scheduler:
    """A fake of managers.scheduler.Scheduler: it holds the real parts."""

    def __init__(self, version):
        from sglang.srt.mem_cache import memory_pool, radix_cache

        self.version = version
        try:
            from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
        except ImportError:
            TokenToKVPoolAllocator = memory_pool.TokenToKVPoolAllocator
        import torch

        fill = lambda f, **values: f(**{n: values[n] for n in inspect.signature(f).parameters if n in values})  # noqa: E731
        rows = dict(size=ROWS, max_context_len=WIDTH, device="cpu", enable_memory_saver=False)
        self.req_to_token_pool = fill(memory_pool.ReqToTokenPool, **rows)
        self.token_to_kv_pool_allocator = fill(
            TokenToKVPoolAllocator, size=SIZE, dtype=torch.float32, device="cpu", kvcache=None, need_sort=False
        )
        parts = dict(
            req_to_token_pool=self.req_to_token_pool,
            token_to_kv_pool_allocator=self.token_to_kv_pool_allocator,
            disable=False,
            page_size=1,
        )
        try:
            from sglang.srt.mem_cache.cache_init_params import CacheInitParams

            self.tree_cache = radix_cache.RadixCache(CacheInitParams(**parts))
        except ImportError:
            self.tree_cache = fill(radix_cache.RadixCache, **parts)
        self.max_total_num_tokens, self.max_running_requests = SIZE, ROWS
        self.running_batch, self.waiting_queue, self.chunked_req = Batch([]), [], None

    def key(self, tokens):
        from sglang.srt.mem_cache import radix_cache

        return radix_cache.RadixKey(tokens, None) if hasattr(radix_cache, "RadixKey") else tokens

    def match(self, tokens):
        from sglang.srt.mem_cache import base_prefix_cache

        key = self.key(tokens)
        if hasattr(base_prefix_cache, "MatchPrefixParams"):
            found = self.tree_cache.match_prefix(base_prefix_cache.MatchPrefixParams(key=key))
        else:
            found = self.tree_cache.match_prefix(key)
        return found[0], found[1]

    def alloc(self, count):
        if count > self.token_to_kv_pool_allocator.available_size():
            need = count - self.token_to_kv_pool_allocator.available_size()
            self.evict(need)
        return self.token_to_kv_pool_allocator.alloc(count)

    def evict(self, count):
        from sglang.srt.mem_cache import base_prefix_cache

        if hasattr(base_prefix_cache, "EvictParams"):
            self.tree_cache.evict(base_prefix_cache.EvictParams(num_tokens=count))
        elif "evict_callback" in inspect.signature(self.tree_cache.evict).parameters:
            self.tree_cache.evict(count, self.token_to_kv_pool_allocator.free)
        else:
            self.tree_cache.evict(count)

    def start(self, req):
        """Prefill of a request, as the scheduler does it."""
        tokens = req.origin_input_ids
        req.prefix_indices, req.last_node = self.match(tokens[:-1])
        hit = len(req.prefix_indices)
        self.tree_cache.inc_lock_ref(req.last_node)
        if list(inspect.signature(self.req_to_token_pool.alloc).parameters) == ["reqs"]:
            self.req_to_token_pool.alloc([req])
        else:
            req.req_pool_idx = self.req_to_token_pool.alloc(1)[0]
        self.req_to_token_pool.write((req.req_pool_idx, slice(0, hit)), req.prefix_indices.int())
        self.req_to_token_pool.write((req.req_pool_idx, slice(hit, len(tokens))), self.alloc(len(tokens) - hit).int())
        if hasattr(req, "kv_allocated_len"):
            req.kv_allocated_len = req.kv_committed_len = len(tokens)
            req.cache_protected_len = hit
        req.output_ids.append(7)
        self.tree_cache.cache_unfinished_req(req)
        self.running_batch.reqs.append(req)

    def decode(self):
        for req in self.running_batch.reqs:
            at = len(req.origin_input_ids) + len(req.output_ids) - 1
            self.req_to_token_pool.write((req.req_pool_idx, slice(at, at + 1)), self.alloc(1).int())
            req.output_ids.append(8)
            if hasattr(req, "kv_allocated_len"):
                req.kv_allocated_len = req.kv_committed_len = at + 1

    def end(self, req):
        self.running_batch.reqs.remove(req)
        row = req.req_pool_idx
        if "kv_len_to_handle" in inspect.signature(self.tree_cache.cache_finished_req).parameters:
            self.tree_cache.cache_finished_req(req, kv_len_to_handle=req.kv_committed_len)
        else:
            self.tree_cache.cache_finished_req(req)
        if row not in self.req_to_token_pool.free_slots:  # later releases leave it to the scheduler
            self.req_to_token_pool.free(req)


def story(version):
    s = Scheduler(version)
    prefix = list(range(100, 108))
    for name, own in (("a", 6), ("b", 9), ("c", 4)):
        s.start(Req(f"req-{name}", prefix + [ord(name)] * own, version))
        s.decode()
    s.end(s.running_batch.reqs[1])
    s.start(Req("req-d", prefix + [98] * 5 + [3] * 10, version))  # shares with the one that ended
    for _ in range(4):
        s.decode()
    s.waiting_queue.append(Req("req-e", prefix + [5] * 30, version))
    return s


def nodes(s):
    stack, found = [s.tree_cache.root_node], []
    while stack:
        node = stack.pop()
        found.append(node)
        stack += node.children.values()
    return found


def leaf(s):
    """An unlocked leaf, which holds slots."""
    return next(n for n in nodes(s) if not n.children and n.lock_ref == 0 and n is not s.tree_cache.root_node)


def free_list(s):
    a = s.token_to_kv_pool_allocator
    return "free_slots" if getattr(a, "free_slots", None) is not None else "free_pages"


def put_free(s, slot):
    import torch

    name, a = free_list(s), s.token_to_kv_pool_allocator
    held = getattr(a, name)
    setattr(a, name, torch.cat((held, torch.tensor([slot], dtype=held.dtype))))


def freed_twice(s):
    slot = int(getattr(s.token_to_kv_pool_allocator, free_list(s))[3])
    put_free(s, slot)
    return ["free-list-double", slot]


def padding_freed(s):
    put_free(s, 0)
    return ["null-freed", 0]


def out_of_range(s):
    put_free(s, SIZE + 5)
    return ["free-list-wild", SIZE + 5]


def freed_in_the_tree(s):
    slot = int(leaf(s).value[0])
    put_free(s, slot)
    return ["free-cached", slot]


def freed_while_used(s):
    req = s.running_batch.reqs[0]
    slot = int(s.req_to_token_pool.req_to_token[req.req_pool_idx, len(req.origin_input_ids) + 1])
    put_free(s, slot)
    return ["free-owned", slot]


def slot_of_two(s):
    one, other = s.running_batch.reqs[:2]
    table = s.req_to_token_pool.req_to_token
    slot = int(table[one.req_pool_idx, len(one.origin_input_ids)])
    table[other.req_pool_idx, len(other.origin_input_ids)] = slot
    return ["slot-shared", slot]


def lost_slots(s):
    name, a = free_list(s), s.token_to_kv_pool_allocator
    setattr(a, name, getattr(a, name)[2:])
    return ["slots-lost", None]


def row_freed_twice(s):
    s.req_to_token_pool.free_slots.append(s.req_to_token_pool.free_slots[0])
    return ["row-free", None]


def row_freed_while_used(s):
    s.req_to_token_pool.free_slots.append(s.running_batch.reqs[0].req_pool_idx)
    return ["row-free", None]


def row_of_two(s):
    s.running_batch.reqs[1].req_pool_idx = s.running_batch.reqs[0].req_pool_idx
    return ["row-shared", None]


def wrong_parent(s):
    leaf(s).parent = leaf(s)
    return ["tree-link", None]


def negative_lock(s):
    leaf(s).lock_ref = -1
    return ["tree-lock", None]


def unlocked_above(s):
    locked = next(
        n
        for n in nodes(s)
        if n.lock_ref and n.parent is not None and n.parent is not s.tree_cache.root_node and n.parent.parent is not None
    )
    locked.parent.lock_ref = 0
    return ["tree-lock", None]


def wrong_size(s):
    s.tree_cache.evictable_size_ += 3
    return ["tree-size", None]


def short_value(s):
    node = leaf(s)
    node.value = node.value[:-1]
    return ["tree-key", None]


def slot_in_two_nodes(s):
    node, other = leaf(s), next(n for n in nodes(s) if n.lock_ref and n.parent is s.tree_cache.root_node)
    node.value[0] = other.value[0]
    return ["tree-twice", int(other.value[0])]


def misfiled(s):
    children = s.tree_cache.root_node.children
    key = next(iter(children))
    children[key + 1 if isinstance(key, int) else (key, 1)] = children.pop(key)
    return ["tree-key", None]


FAULTS = [
    freed_twice,
    padding_freed,
    out_of_range,
    freed_in_the_tree,
    freed_while_used,
    slot_of_two,
    lost_slots,
    row_freed_twice,
    row_freed_while_used,
    row_of_two,
    wrong_parent,
    negative_lock,
    unlocked_above,
    wrong_size,
    short_value,
    slot_in_two_nodes,
    misfiled,
]


def truth(s):
    held = (
        getattr(s.token_to_kv_pool_allocator, free_list(s)).tolist()
        + getattr(s.token_to_kv_pool_allocator, "release_pages", held_none()).tolist()
    )
    table = s.req_to_token_pool.req_to_token
    lengths = {r.rid: len(r.origin_input_ids) + len(r.output_ids) - 1 for r in s.running_batch.reqs}
    tree = [n for n in nodes(s) if n is not s.tree_cache.root_node]
    return {
        "free": held,
        "tables": {r.rid: table[r.req_pool_idx, : lengths[r.rid]].tolist() for r in s.running_batch.reqs},
        "cached": sorted(int(i) for n in tree for i in n.value),
        "evictable": s.tree_cache.evictable_size(),
        "protected": s.tree_cache.protected_size(),
        "nodes": len(tree) + 1,
        "free_rows": s.req_to_token_pool.free_slots,
        "waiting": [r.rid for r in s.waiting_queue],
    }


def held_none():
    import torch

    return torch.empty(0)


def main():
    folder, version = sys.argv[1:3]
    older_engine.use(folder, version, "sglang", older_engine.SGLANG)
    numbers = tuple(int(n) for n in version.split(".")[:3] if n.isdigit())
    schedulers, expected = {}, {}
    for change in [None, *FAULTS]:
        scheduler = story(numbers)
        name = change.__name__ if change else "whole"
        schedulers[name], expected[name] = scheduler, change and change(scheduler)
    scheduler = schedulers["whole"]
    print(json.dumps({"pid": os.getpid(), "expected": expected, **truth(scheduler)}), flush=True)
    while True:
        time.sleep(1000)


main()
