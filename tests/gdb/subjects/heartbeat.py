"""heartbeat.py FILE [THREADS]: every thread counts its turns in FILE, 64-bit words; the word after them is the longest gap in
microseconds that the last thread saw between two turns. A test reads FILE without touching the process."""

import mmap
import struct
import sys
import threading
import time


def beat(page, index, gap_at):
    last, longest, count = time.monotonic(), 0, 0
    while True:
        count += 1
        struct.pack_into("<Q", page, 8 * index, count)
        now = time.monotonic()
        if gap_at and int((now - last) * 1e6) > longest:
            longest = int((now - last) * 1e6)
            struct.pack_into("<Q", page, gap_at, longest)
        last = now
        time.sleep(0.001)


def main(path, threads=4):
    with open(path, "wb") as f:
        f.truncate(4096)
    with open(path, "r+b") as f:
        page = mmap.mmap(f.fileno(), 4096)
    for i in range(1, threads):
        threading.Thread(target=beat, args=(page, i, 8 * threads if i == threads - 1 else 0), daemon=True).start()
    beat(page, 0, 0)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:3]))
