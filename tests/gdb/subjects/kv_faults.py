"""Real Schedulers of one vLLM release with their KVCacheManagers, each after the same story and then broken by hand in one way;
one is whole, and one is parked by a trace function in the middle of an update.

  kv_faults.py FOLDER VERSION [FILE:FUNCTION:LINE-OFFSET]

Says for each name in `schedulers` which rule, block and request must be named first (null: none).
"""

import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import older_engine
import vllm_release


def owner(scheduler):
    return scheduler.kv_cache_manager.coordinator.single_type_managers[0]


def pool(scheduler):
    return scheduler.kv_cache_manager.block_pool


def block_in_two_requests(s):
    tables = owner(s).req_to_blocks
    block = tables["req-a"][-1]
    tables["req-d"].append(block)
    block.reset_hash()
    block.ref_cnt += 1
    return ["double-owner", block.block_id, "req-d"]


def block_twice_in_a_table(s):
    table = owner(s).req_to_blocks["req-a"]
    table.append(table[2])
    table[2].ref_cnt += 1
    return ["owned-twice", table[2].block_id, "req-a"]


def freed_while_owned(s):
    block = owner(s).req_to_blocks["req-d"][-1]
    pool(s).free_blocks([block])
    return ["free-owned", block.block_id, "req-d"]


def count_too_low(s):
    block = owner(s).req_to_blocks["req-a"][0]  # shared by three
    block.ref_cnt -= 1
    return ["ref-below-owners", block.block_id, "req-a"]


def count_too_high(s):
    block = owner(s).req_to_blocks["req-c"][-1]
    block.ref_cnt += 1
    return ["ref-above-owners", block.block_id, None]


def table_lost(s):
    """A request forgotten without giving its blocks back."""
    blocks = owner(s).req_to_blocks.pop("req-d")
    return ["ref-above-owners", min(b.block_id for b in blocks), None]


def request_forgotten(s):
    request = s.requests.pop("req-d")
    s.running.remove(request)
    return ["request-unknown", None, "req-d"]


def table_too_short(s):
    block = owner(s).req_to_blocks["req-d"].pop()
    pool(s).free_blocks([block])
    return ["table-short", None, "req-d"]


def stranger_in_a_table(s):
    from vllm.v1.core.kv_cache_utils import KVCacheBlock

    owner(s).req_to_blocks["req-c"][-1] = KVCacheBlock(5)
    return ["table-range", None, "req-c"]


def null_block_given_out(s):
    block = pool(s).null_block
    pool(s).free_block_queue.append(block)
    return ["null-freed", 0, None]


def double_free(s):
    block = owner(s).req_to_blocks["req-d"][-1]
    pool(s).free_blocks([block])
    owner(s).req_to_blocks["req-d"].pop()
    pool(s).free_block_queue.append(block)
    return ["free-list-double", block.block_id, None]


def evicted_but_mapped(s):
    """An evicted block whose hash was taken off without the map being told."""
    block = owner(s).req_to_blocks["req-a"][2]
    block._block_hash = None
    return ["hash-entry", block.block_id, None]


def token_changed(s):
    """A token of a request changed after its block was hashed."""
    s.requests["req-a"]._all_token_ids[20] += 1
    return ["hash-tokens", None, "req-a"]


def stale_hash(s):
    """A block with the hash of what was in it before: it and the prefix map agree, its tokens are others."""
    mapped = pool(s).cached_block_hash_to_block
    mapped = getattr(mapped, "_cache", mapped)
    block = next(b for b in owner(s).req_to_blocks["req-a"][::-1] if b._block_hash is not None and b.ref_cnt == 1)
    stale = bytes([block._block_hash[0] ^ 255]) + block._block_hash[1:]
    mapped[stale] = mapped.pop(block._block_hash)
    block._block_hash = stale
    return ["hash-tokens", block.block_id, "req-a"]


FAULTS = [
    block_in_two_requests,
    block_twice_in_a_table,
    freed_while_owned,
    count_too_low,
    count_too_high,
    table_lost,
    request_forgotten,
    table_too_short,
    stranger_in_a_table,
    null_block_given_out,
    double_free,
    evicted_but_mapped,
    token_changed,
    stale_hash,
]


def say(expected):
    print(json.dumps({"pid": os.getpid(), "expected": expected}), flush=True)


def park_in(scheduler, file, function, count):
    """Runs on until `function` of `file` has executed `count` lines, and stays there."""
    left = [count]

    def trace(frame, event, argument):
        if not frame.f_code.co_filename.endswith("/" + file) or frame.f_code.co_name != function:
            return trace if event == "call" else None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                sys.settrace(None)
                say({})
                while True:
                    time.sleep(1000)
        return trace

    sys.settrace(trace)
    scheduler.finish_requests("req-a", vllm_status("FINISHED_ABORTED"))
    for _ in range(40):
        vllm_release.step(scheduler)
    sys.settrace(None)
    raise SystemExit(f"{function} of {file} never ran {count} lines")


def vllm_status(name):
    from vllm.v1.request import RequestStatus

    return RequestStatus[name]


def main():
    folder, version = sys.argv[1:3]
    older_engine.use(folder, version)
    if len(sys.argv) > 3:
        scheduler = vllm_release.scheduler_of(version, "full")
        vllm_release.story(scheduler)
        file, function, count = sys.argv[3].split(":")
        park_in(scheduler, file, function, int(count))
    schedulers, expected = {}, {}
    for change in [None, *FAULTS]:
        scheduler = vllm_release.scheduler_of(version, "full")
        vllm_release.story(scheduler)
        name = change.__name__ if change else "whole"
        schedulers[name], expected[name] = scheduler, change and change(scheduler)
    say(expected)
    while True:
        time.sleep(1000)


if __name__ == "__main__":
    main()
