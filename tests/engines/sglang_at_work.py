"""For sglang_objects.py: stand-ins of requests and batches, hashes of pages, and schedulers that are never at rest."""

import dataclasses
import hashlib
import itertools
import json
import os
import time
from array import array

MANY = 500


@dataclasses.dataclass
class Kv:  # ReqKvInfo's fields
    req_pool_idx: object = None
    cache_protected_len: int = 0
    kv_committed_len: int = 0
    kv_allocated_len: int = 0
    mamba_pool_idx: object = None
    mamba_ping_pong_track_buffer: object = None


class Req:
    def __init__(self, rid, tokens):
        self.rid, self.origin_input_ids, self.output_ids, self.kv = rid, array("q", tokens), array("q"), Kv()
        self.finished_reason, self.is_retracted, self.retraction_count, self.lock = None, False, 0, None


@dataclasses.dataclass
class Batch:
    reqs: list


def page_hashes(tokens, prior, page):
    """As `get_hash_str` of 0.5.9, for each page; 0.5.23 would have its own compiled, which gives the same."""
    found = []
    for start in range(0, len(tokens), page):
        prior = hashlib.sha256((prior or b"") + b"".join(t.to_bytes(4, "little") for t in tokens[start : start + page])).digest()
        found.append(prior.hex())
    return found


def move(scheduler):
    """Takes slots for its requests and gives them back, for ever."""
    print(json.dumps({"pid": os.getpid()}), flush=True)
    while True:
        scheduler.forward_ct += 1
        before = [req.kv.kv_allocated_len for req in scheduler.running_batch.reqs]
        scheduler.decode(4)
        for req, have in zip(scheduler.running_batch.reqs, before):
            row = scheduler.req_to_token_pool.req_to_token[req.kv.req_pool_idx]
            scheduler.token_to_kv_pool_allocator.free_segment(row[have : have + 4].long(), start_pos=have)
            req.kv.kv_allocated_len = req.kv.kv_committed_len = have
        time.sleep(0.001)  # the forward pass of a step, which leaves the lists alone


def grow(scheduler, request, evict):
    """Request after request comes and goes: each leaves a node in the prefix tree, and after the first `MANY` an older one is
    evicted for it. `request`: makes one out of its number; `evict`: of so many tokens."""
    for number in itertools.count():
        if number == MANY:
            print(json.dumps({"pid": os.getpid(), "nodes": MANY}), flush=True)
        scheduler.forward_ct += 1
        one = request(number)
        scheduler.start(one)
        scheduler.take(one, one.kv.kv_allocated_len + 1)
        scheduler.end(one)
        if number >= MANY:
            evict(4)
            time.sleep(0.002)
