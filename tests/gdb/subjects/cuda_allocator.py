"""cuda_allocator.py LIBRARY ROW VERSION KIND: torch's CUDA caching allocator as the stand-in LIBRARY has it, its counters where
ROW (of layouts/torch_allocator.json) says, for the devices 0 and 2 of three. KIND: native, malloc_async, none (CUDA was not
initialised), torn (a counter that contradicts the others) or moved (no list of devices where ROW says one is). Says what the
counters are, then waits."""

import ctypes
import json
import os
import random
import sys
import types

STATS = ("allocation", "segment", "active", "inactive_split", "inactive_split_bytes")
BYTES = ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes")


def counters(row, rng):
    """-> (bytes of a DeviceStats, {field: (current, peak)} over all blocks, retries, ooms)"""
    fields, stat = row["DeviceStats"], row["Stat"]
    blob, truth, less = bytearray(fields["sizeof"]), {}, [0, 0]
    for field in STATS + BYTES:
        pools = [rng.randrange(1 << 20) for _ in range(2)]
        if field in BYTES or field == "active":  # each of BYTES is at least the one before it, active at least allocation
            before = less if field in BYTES else kept
            pools = [p + b for p, b in zip(pools, before)]
        if field in BYTES:
            less = pools
        if field == "allocation":
            kept = pools
        peaks = [p + rng.randrange(1 << 20) for p in pools]
        for pool, (current, peak) in enumerate([(sum(pools), sum(peaks)), *zip(pools, peaks)]):
            for what, value in (("current", current), ("peak", peak), ("allocated", 3 * peak), ("freed", 3 * peak - current)):
                at = fields[field] + pool * stat["sizeof"] + stat[what]
                blob[at : at + 8] = value.to_bytes(8, "little")
        truth[field] = [sum(pools), sum(peaks)]
    for field in ("num_alloc_retries", "num_ooms"):
        truth[field] = rng.randrange(1 << 10)
        blob[fields[field] : fields[field] + 8] = truth[field].to_bytes(8, "little")
    return blob, truth


def main():
    library, row, version, kind = ctypes.CDLL(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3], sys.argv[4]
    package = types.ModuleType("torch.version")
    package.__version__ = version
    sys.modules["torch.version"] = package
    kept, truth = [], {}
    if kind != "none":
        make = library.malloc_async if kind == "malloc_async" else library.native
        make.restype = ctypes.c_void_p
        at, devices = make(), (ctypes.c_uint64 * 3)()
        for number in (0, 2):
            blob, truth[number] = counters(row, random.Random(number))
            if kind == "torn":
                blob[row["DeviceStats"]["segment"]] ^= 1
            memory = ctypes.create_string_buffer(row["DeviceCachingAllocator"]["stats"] + len(blob))
            ctypes.memmove(ctypes.addressof(memory) + row["DeviceCachingAllocator"]["stats"], bytes(blob), len(blob))
            devices[number] = ctypes.addressof(memory)
            kept.append(memory)
        words = ctypes.addressof(devices)
        vector = (ctypes.c_uint64 * 3)(words, words + (20 if kind == "moved" else 24), words + 24)
        ctypes.memmove(at + row["NativeCachingAllocator"]["device_allocator"], vector, 24)
        kept.append(devices)
    print(json.dumps(truth), flush=True)
    os.read(0, 1)
    return kept


if __name__ == "__main__":
    main()
