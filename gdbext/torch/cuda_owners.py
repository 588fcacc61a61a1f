"""The owners of the blocks of torch's CUDA caching allocator: parts of a GPU's reserved memory, which add up to all of it."""

from __future__ import annotations

import bisect
from typing import Any, Iterable

from .census import Found

# Of several tensors in one block the first of these counts.
CACHE, PARAMETER, POOL, TENSOR = "kv-cache", "parameter", "private-pool", "tensor"
UNTRACKED, PENDING, POOL_FREE, SPLIT, FREE = "untracked", "pending", "private-pool-free", "split", "free"
ORDER = (PARAMETER, CACHE, POOL, TENSOR, UNTRACKED, PENDING, POOL_FREE, SPLIT, FREE)


def name_owners(snapshot: dict[str, Any], tensors: Iterable[Found], caches: Iterable[int]) -> list[dict[str, Any]]:
    """Sets `owner` of each block of a snapshot (cuda_blocks.snapshot):

    - In use: kv-cache (an address in `caches` is in it), parameter, private-pool (neither of these), tensor, untracked (no live
      Python tensor is in it).
    - pending: waits for an event.
    - Free: private-pool-free, split (in a segment with blocks in use: kept by fragmentation), free (a free segment).

    -> per GPU `{device, reserved_bytes, largest_split_bytes, parts: [{owner, pool, bytes, blocks}]}`. The parts add up to
    `reserved_bytes`; `pool` is None or a private pool's id.
    """
    places = {t.storage_data: TENSOR for t in (f.tensor for f in tensors) if t.storage_data and t.device.startswith("cuda")}
    places.update({f.tensor.storage_data: PARAMETER for f in tensors if f.tensor.is_parameter or f.tensor.counts_as_parameter})
    places.update(dict.fromkeys(caches, CACHE))
    held = sorted(places)
    rows: dict[int, dict[str, Any]] = {}
    for segment in snapshot["segments"]:
        row = rows.setdefault(
            segment["device"], {"device": segment["device"], "reserved_bytes": 0, "largest_split_bytes": 0, "parts": {}}
        )
        pool = tuple(segment["segment_pool_id"])
        for block in segment["blocks"]:
            inside = held[bisect.bisect_left(held, block["address"]) : bisect.bisect_left(held, block["address"] + block["size"])]
            owner = block["owner"] = _owner(block["state"], any(pool), segment["active_size"], {places[at] for at in inside})
            key = (owner, pool if owner in (POOL, POOL_FREE) else None)
            part = row["parts"].setdefault(key, {"owner": owner, "pool": key[1], "bytes": 0, "blocks": 0})
            part["bytes"], part["blocks"] = part["bytes"] + block["size"], part["blocks"] + 1
            row["reserved_bytes"] += block["size"]
            if owner == SPLIT:
                row["largest_split_bytes"] = max(row["largest_split_bytes"], block["size"])
    for row in rows.values():
        row["parts"] = sorted(row["parts"].values(), key=lambda p: (ORDER.index(p["owner"]), p["pool"] or ()))
    return [rows[device] for device in sorted(rows)]


def _owner(state: str, pooled: bool, active: int, inside: set[str]) -> str:
    if state == "inactive":
        return POOL_FREE if pooled else SPLIT if active else FREE
    if state != "active_allocated":
        return PENDING
    for owner in (CACHE, PARAMETER):
        if owner in inside:
            return owner
    return POOL if pooled else TENSOR if inside else UNTRACKED
