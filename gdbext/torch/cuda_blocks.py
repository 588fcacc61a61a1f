"""The segments and blocks of torch's CUDA caching allocator, as torch.cuda.memory._snapshot() gives them, read from the process's
own memory.

A segment is the result of one cudaMalloc, or a mapped stretch of an expandable segment. A chain of blocks (`prev`, `next`) fills
it. Blocks in use, and those that wait for an event, are in the hash table `active_blocks` of a device's allocator. Free ones are
in the trees of its two `BlockPool`s, and of each private pool's two (`graph_pools`: CUDA graphs, torch.cuda.MemPool).

layouts/torch_allocator.json has the offsets per torch minor. Trees and vectors are libstdc++'s, the tables ska::flat_hash_map's
(c10/util/flat_hash_map.h). The result is believed only if chains join without a gap and the sums agree with the allocator's own
counters.
"""

from __future__ import annotations

import functools
import json
import struct
from typing import Any, Iterator

from .. import log
from ..access.base import Target
from ..access.retry import retry_reading
from ..cpython.runtime import Runtime
from ..errors import GdbextError, LayoutError
from . import cuda_allocator

MAX_BLOCKS = 1 << 21
MAX_LEVELS = 128  # of a red-black tree
MAX_PROBES = 128  # entries behind a table's slots, at most: the probe length is an i8
SETTINGS = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # torch 2.9 and later read both
SUMS = {"total_size": "reserved_bytes", "allocated_size": "allocated_bytes", "active_size": "active_bytes"}


class Block:
    """`ptr`; `size`, `requested_size` in bytes; `prev`, `next`, `pool`: addresses; `active`: in the table of active blocks."""

    __slots__ = ("stream", "size", "requested_size", "pool", "ptr", "allocated", "mapped", "prev", "next", "expandable", "active")
    stream: int
    size: int
    requested_size: int
    pool: int
    ptr: int
    prev: int
    next: int
    allocated: bool
    mapped: bool
    expandable: bool
    active: bool


def snapshot(target: Target, rt: Runtime | None = None) -> dict[str, Any]:
    """The structure of torch.cuda.memory._snapshot(), without the parts that only a recording has (traces, frames): `{segments,
    device_traces, allocator_settings, external_annotations}`.

    Addresses, sizes and streams are ints. A segment's `segment_pool_id` is (0, 0) or a private pool's. Segments are sorted by
    address. Errors: those of `cuda_allocator.read`, and `LayoutError` where the result is inconsistent.
    """
    row, devices = cuda_allocator.devices_of(target, rt)
    segments: list[dict[str, Any]] = []
    for number, address in devices:
        segments += retry_reading(target, functools.partial(of_device, target, row, number, address))
    try:
        environ = target.environ()
    except GdbextError as e:
        log.passed_over(e)
        environ = {}
    settings = {name: environ[name] for name in SETTINGS if name in environ}
    count = max((number for number, _ in devices), default=-1) + 1
    segments.sort(key=lambda s: s["address"])
    return {
        "segments": segments,
        "device_traces": [[] for _ in range(count)],
        "allocator_settings": settings,
        "external_annotations": [],
    }


def as_json(snapshot: dict[str, Any]) -> bytes:
    """A snapshot as torch.cuda._memory_viz takes it, once it is read."""
    return json.dumps(snapshot).encode()


def of_device(target: Target, row: dict[str, Any], number: int, at: int) -> list[dict[str, Any]]:
    """The segments of the device whose DeviceCachingAllocator is at `at`. `LayoutError` where they and its counters differ."""
    counters = cuda_allocator.of_device(target, row, number, at)
    found = _segments(target, row, number, at)
    sums = {counter: sum(s[field] for s in found) for field, counter in SUMS.items()}
    wrong = [f"{name} {sums[name]}, counted {counters[name]}" for name in sums if sums[name] != counters[name]]
    if len(found) != counters["segments"] and not any(s["is_expandable"] for s in found):
        wrong.append(f"segments {len(found)}, counted {counters['segments']}")
    if wrong:
        raise LayoutError(f"the blocks of torch's CUDA allocator for device {number} contradict its counters: {'; '.join(wrong)}")
    return found


def _segments(target: Target, row: dict[str, Any], number: int, at: int) -> list[dict[str, Any]]:
    offsets = row["DeviceCachingAllocator"]
    pools = {at + offsets[f"{size}_blocks"]: ((0, 0), size) for size in ("small", "large")}
    for first, second, pool in _table(target, at + offsets["graph_pools"], 3):
        pools.update({pool + row["PrivatePool"][f"{size}_blocks"]: ((first, second), size) for size in ("small", "large")})
    active = [value for (value,) in _table(target, at + offsets["active_blocks"], 1)]
    free = [block for pool in pools for block in _tree(target, pool + row["BlockPool"]["blocks"])]
    blocks = _blocks(target, row["Block"], active, free)
    heads = [b for b in blocks.values() if b.prev not in blocks]
    found, seen = [], 0
    for head in sorted(heads, key=lambda b: b.ptr):
        chain = list(_chain(blocks, head))
        seen += len(chain)
        found.append(_segment(number, chain, pools))
    if seen != len(blocks):
        raise LayoutError(f"torch's CUDA allocator for device {number} has {len(blocks)} blocks, of which chains reach {seen}")
    return found


def _chain(blocks: dict[int, Block], head: Block) -> Iterator[Block]:
    """The blocks of the segment that begins with `head`, one behind the other."""
    block, end, left = head, head.ptr, len(blocks)
    while True:
        if block.ptr != end or not block.mapped or not left:
            raise LayoutError(f"the segment at {head.ptr:#x} of torch's CUDA allocator has a gap or a circle at {block.ptr:#x}")
        yield block
        end, left = block.ptr + block.size, left - 1
        if block.next not in blocks:  # its end, or a part that is not mapped
            return
        block = blocks[block.next]


def _segment(device: int, chain: list[Block], pools: dict[int, tuple[tuple[int, int], str]]) -> dict[str, Any]:
    head = chain[0]
    if head.pool not in pools:
        raise LayoutError(f"the block at {head.ptr:#x} of torch's CUDA allocator is of no pool of device {device}")
    pool, size = pools[head.pool]
    rows: list[dict[str, Any]] = [
        {
            "address": b.ptr,
            "size": b.size,
            "requested_size": b.requested_size,
            "state": "active_allocated" if b.allocated else "active_pending_free" if b.active else "inactive",
            "frames": [],
        }
        for b in chain
    ]
    return {
        "device": device,
        "address": head.ptr,
        "total_size": sum(b.size for b in chain),
        "allocated_size": sum(b.size for b in chain if b.allocated),
        "active_size": sum(b.size for b in chain if b.active),
        "requested_size": sum(b.requested_size for b in chain if b.active),
        "stream": head.stream,
        "segment_type": size,
        "segment_pool_id": pool,
        "is_expandable": head.expandable,
        "frames": [],
        "blocks": rows,
    }


def _blocks(target: Target, fields: dict[str, int], active: list[int], free: list[int]) -> dict[int, Block]:
    """{address of a Block: its `Block`}."""
    if len(active) + len(free) > MAX_BLOCKS:
        raise LayoutError(f"torch's CUDA allocator has {len(active) + len(free)} blocks, more than are read")
    places, used, found = active + free, set(active), {}
    for place, raw in zip(places, target.read_many([(place, fields["sizeof"]) for place in places])):
        if raw is None:
            raise LayoutError(f"a block of torch's CUDA allocator is said to be at {place:#x}, where nothing can be read")
        block = Block()
        for name in ("stream", "size", "requested_size", "pool", "ptr", "prev", "next"):
            setattr(block, name, struct.unpack_from("<Q", raw, fields[name])[0])
        block.allocated, block.mapped = raw[fields["allocated"]] == 1, raw[fields["mapped"]] == 1
        block.expandable = struct.unpack_from("<Q", raw, fields["expandable_segment_"])[0] != 0
        block.active = place in used
        found[place] = block
    if len(found) != len(places):
        raise LayoutError("a block of torch's CUDA allocator is both in use and free")
    return found


def _table(target: Target, at: int, words: int) -> list[tuple[int, ...]]:
    """The values, `words` words each, of a hash table. Its head: entries, slots - 1, (u8, i8 longest probe, float), count; an
    entry: i8 distance (below 0: empty), then the value at 8."""
    entries, mask, policy, count = struct.unpack("<4Q", target.read(at, 32))
    if not count:
        return []
    slots, size = mask + (policy >> 8 & 0xFF), 8 + 8 * words  # without the entry that ends them
    if mask & (mask + 1) or not count <= mask + 1 <= 4 * MAX_BLOCKS or slots > mask + MAX_PROBES:
        raise LayoutError("torch's CUDA allocator does not have the tables that are known for its release")
    raw = target.read(entries, size * slots)
    found = [struct.unpack_from(f"<{words}Q", raw, i + 8) for i in range(0, len(raw), size) if raw[i] < 0x80]
    if len(found) != count:
        raise LayoutError(f"a table of torch's CUDA allocator counts {count} entries and has {len(found)}")
    return found


def _tree(target: Target, at: int) -> list[int]:
    """The pointers in a std::set whose tree's header is at `at`: color, root, first, last, count; a node: color, parent, left,
    right, value."""
    count, level = target.u64(at + 32), [target.u64(at + 8)]
    found: list[int] = []
    for _ in range(MAX_LEVELS):
        level = [node for node in level if node]
        if not level or len(found) > count or count > MAX_BLOCKS:
            break
        below = []
        for node, raw in zip(level, target.read_many([(node, 40) for node in level])):
            if raw is None:
                raise LayoutError(f"a free block of torch's CUDA allocator is listed at {node:#x}, where nothing can be read")
            left, right, value = struct.unpack("<16x3Q", raw)
            found.append(value)
            below += [left, right]
        level = below
    if len(found) != count:
        raise LayoutError(f"torch's CUDA allocator counts {count} free blocks in a pool and lists {len(found)}")
    return found
