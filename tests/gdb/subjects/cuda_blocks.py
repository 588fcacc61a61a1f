"""cuda_blocks.py LIBRARY ROW VERSION KIND: the blocks of torch's CUDA caching allocator in the stand-in LIBRARY
(fake_c10_cuda.cpp), where ROW (of layouts/torch_allocator.json) says, for the devices 0 and 2 of three. KIND: whole, torn (a
counter that contradicts the blocks), circle (the last block of a segment leads to the first), gap (a block is smaller than it
was), lost (a free block that is in no list). Says what torch.cuda.memory._snapshot() would (its segments), then waits."""

import ctypes
import json
import os
import random
import struct
import sys
import types

kept = []


def memory(size):
    kept.append(ctypes.create_string_buffer(size))
    return ctypes.addressof(kept[-1])


def put(at, form, *values):
    raw = struct.pack("<" + form, *values)
    ctypes.memmove(at, raw, len(raw))


def table(at, values):
    """A ska::flat_hash_map of tuples of words: some slots empty, one entry that ends it."""
    slots, probes = 1 << max(2, len(values)).bit_length(), 5
    words = len(values[0]) if values else 1
    size = 8 + 8 * words
    entries = memory(size * (slots + probes))
    for i in range(slots + probes - 1):
        put(entries + i * size, "b", -1)
    for i, value in zip(sorted(random.Random(1).sample(range(slots + probes - 1), len(values))), values):
        put(entries + i * size, f"b7x{words}Q", i % 3, *value)
    put(at, "QQBbxxfQ", entries, slots - 1, 61, probes, 0.5, len(values))


def tree(at, values):
    """A std::set of pointers, its header at `at`."""

    def node(part, parent):
        if not part:
            return 0
        here, middle = memory(40), len(part) // 2
        put(here, "QQQQQ", 1, parent, node(part[:middle], here), node(part[middle + 1 :], here), part[middle])
        return here

    put(at, "QQQQQ", 0, node(sorted(values), at), 0, 0, len(values))


def made_up(rng, number):
    """Segments as a snapshot has them; of an expandable one that has a hole, two, of which the second says so (`behind`)."""
    found, at = [], (1 << 44) * (1 + number)
    for pool in ((0, 0), (0, 7), (9, 0)):
        for kind in ("small", "large", "large"):
            for _ in range(rng.randrange(1, 4)):
                at += 1 << 34
                expandable = kind == "large" and rng.random() < 0.3
                for part in range(2 if expandable else 1):
                    at += part << 26
                    blocks, here = [], at
                    for _ in range(rng.randrange(1, 7)):
                        size = 512 * rng.randrange(1, 3000)
                        state = rng.choice(["active_allocated", "active_allocated", "active_pending_free", "inactive"])
                        blocks.append(
                            {
                                "address": here,
                                "size": size,
                                "requested_size": size - rng.randrange(500),
                                "state": state,
                                "frames": [],
                            }
                        )
                        here += size
                    sums = {what: [b["size"] for b in blocks if b["state"] in states] for what, states in STATES.items()}
                    found.append(
                        {
                            "device": number,
                            "address": at,
                            **{what: sum(sizes) for what, sizes in sums.items()},
                            "requested_size": sum(b["requested_size"] for b in blocks if b["state"] != "inactive"),
                            "stream": 16 * rng.randrange(3),
                            "segment_type": kind,
                            "segment_pool_id": list(pool),
                            "is_expandable": expandable,
                            "frames": [],
                            "blocks": blocks,
                            "behind": bool(part),
                        }
                    )
                    found[-1]["stream"] = found[-2]["stream"] if part else found[-1]["stream"]
    return found


ACTIVE = ("active_allocated", "active_pending_free")
STATES = {"total_size": (*ACTIVE, "inactive"), "allocated_size": ACTIVE[:1], "active_size": ACTIVE}


def write(row, allocator, segments, harm):
    """Puts the segments into the memory of a DeviceCachingAllocator."""
    offsets, fields = row["DeviceCachingAllocator"], row["Block"]
    pools, graphs = {}, []
    for pool in sorted({tuple(s["segment_pool_id"]) for s in segments}):
        owner = allocator
        if any(pool):
            owner = memory(1024)
            graphs.append((*pool, owner))
        for kind in ("small", "large"):
            pools[pool, kind] = owner + (row["PrivatePool"] if any(pool) else offsets)[f"{kind}_blocks"]
    active, free, before = [], {pool: [] for pool in pools.values()}, 0
    for segment in segments:
        chain = [(b, memory(fields["sizeof"])) for b in segment["blocks"]]
        hole = (
            memory(fields["sizeof"]) if segment["behind"] else 0
        )  # between this part of an expandable segment and the one before
        if hole:
            put(hole + fields["prev"], "Q", before)
            put(hole + fields["next"], "Q", chain[0][1])
            put(before + fields["next"], "Q", hole)
        pool = pools[tuple(segment["segment_pool_id"]), segment["segment_type"]]
        for i, (b, at) in enumerate(chain):
            values = {
                "stream": segment["stream"],
                "size": b["size"],
                "requested_size": b["requested_size"],
                "pool": pool,
                "ptr": b["address"],
            }
            values["prev"] = chain[i - 1][1] if i else hole
            values["next"] = chain[i + 1][1] if i + 1 < len(chain) else 0
            values["expandable_segment_"] = 4096 if segment["is_expandable"] else 0
            for name, value in values.items():
                put(at + fields[name], "Q", value)
            put(at + fields["allocated"], "?", b["state"] == "active_allocated")
            put(at + fields["mapped"], "?", True)
            (free[pool] if b["state"] == "inactive" else active).append(at)
        before = chain[-1][1]
    first, last = next((chain[0], chain[-1]) for chain in [active])
    if harm == "circle":
        put(last + fields["next"], "Q", first)
    if harm == "gap":
        put(first + fields["size"], "Q", 16)
    if harm == "lost":
        next(blocks for blocks in free.values() if blocks).pop()
    table(allocator + offsets["active_blocks"], [(at,) for at in active])
    table(allocator + offsets["graph_pools"], graphs)
    for pool, blocks in free.items():
        tree(pool + row["BlockPool"]["blocks"], blocks)


def count(row, at, segments, harm):
    """The counters of the segments, all as if of large blocks, each its own peak."""
    values = dict.fromkeys(set(row["DeviceStats"]) - {"sizeof", "num_alloc_retries", "num_ooms"}, 0)
    for what, counter in (
        ("total_size", "reserved_bytes"),
        ("allocated_size", "allocated_bytes"),
        ("active_size", "active_bytes"),
    ):
        values[counter] = sum(s[what] for s in segments)
    values["segment"] = len(segments)
    if harm == "torn":
        values["reserved_bytes"] += 512
    for field, value in values.items():
        for pool in (0, 2):
            place = at + row["DeviceStats"][field] + pool * row["Stat"]["sizeof"]
            for what in ("current", "peak"):
                put(place + row["Stat"][what], "Q", value)


def main():
    library, row, version, harm = ctypes.CDLL(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3], sys.argv[4]
    package = types.ModuleType("torch.version")
    package.__version__ = version
    sys.modules["torch.version"] = package
    library.native.restype = ctypes.c_void_p
    at, devices, truth = library.native(), memory(24), []
    for number in (0, 2):
        allocator = memory(1 << 14)
        put(devices + 8 * number, "Q", allocator)
        segments = made_up(random.Random(number), number)
        write(row, allocator, segments, harm)
        count(row, allocator + row["DeviceCachingAllocator"]["stats"], segments, harm)
        truth += segments
    put(at + row["NativeCachingAllocator"]["device_allocator"], "QQQ", devices, devices + 24, devices + 24)
    for segment in truth:
        del segment["behind"]
    print(json.dumps({"segments": truth}), flush=True)
    os.read(0, 1)


if __name__ == "__main__":
    main()
