"""nccl_rank.py LIBRARY LAYOUT RANK RANKS COUNT...: one rank of a made-up NCCL communicator, as the fake libnccl lists it, LAYOUT
(a row of layouts/nccl.json) says where what stands, and how many of each collective it has begun. Then waits for its device."""

import ctypes
import json
import os
import sys


def communicator(library, row, rank, ranks, counts):
    """Lists a communicator in the fake library; what it is made of must be kept."""
    memory = ctypes.create_string_buffer(row["size"])
    for field, size, value in (
        ("startMagic", 8, 0x0280028002800280),
        ("endMagic", 8, 0x0280028002800280),
        ("commHash", 8, 0xFEED),
        ("rank", 4, rank),
        ("nRanks", 4, ranks),
    ):
        ctypes.memmove(ctypes.addressof(memory) + row[field], value.to_bytes(size, "little"), size)
    for i, count in enumerate(counts):
        ctypes.memmove(ctypes.addressof(memory) + row["seqNumber"] + 8 * i, int(count).to_bytes(8, "little"), 8)
    listed = (ctypes.c_void_p * 2)(None, ctypes.addressof(memory))
    ctypes.c_void_p.in_dll(library, "ncclComms").value = ctypes.addressof(listed)
    ctypes.c_int.in_dll(library, "nNcclComms").value = 2
    return memory, listed


def main():
    library, row, rank, ranks = ctypes.CDLL(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    kept = communicator(library, row, rank, ranks, sys.argv[5:])
    print(json.dumps({"pid": os.getpid()}), flush=True)
    library.cudaStreamSynchronize(None)
    return kept


if __name__ == "__main__":
    main()
