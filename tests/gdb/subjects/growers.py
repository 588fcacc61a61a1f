"""Programs that make memory grow, and healthy ones: growers.py NAME SEED FOLDER (of libpump.so and libhook.so; it works there).

Sizes and rates are drawn by the seed. It prints what is true: {"grows", "kind", "libraries", "lines", "functions"}: either the
library or the line is a right answer."""

import collections
import ctypes
import gc
import inspect
import json
import math
import mmap
import os
import random
import sys
import threading
import time

NAME, SEED, FOLDER = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rng = random.Random(f"{NAME} {SEED}")
KIB, MIB = 1 << 10, 1 << 20
RATE = math.exp(rng.uniform(math.log(0.4 * MIB), math.log(8 * MIB)))  # bytes a second
PAUSE = rng.uniform(0.02, 0.3)
STEP = max(int(RATE * PAUSE), 8 * KIB)
pump = ctypes.CDLL(os.path.join(FOLDER, "libpump.so"))
for name in ("keep", "churn", "pump", "pin", "huge"):
    getattr(pump, name).argtypes = [ctypes.c_size_t] * (2 if name in ("keep", "churn") else 1)
kept, table, waiting = [], {}, threading.Event()


def pages(size):
    return max(size // 4096, 1) * 4096


# ---- growers: each function is called in each step -------------------------------------------------------------------
def mmap_hook(number):
    pump.pump(pages(STEP))  # grows


def arena(number):
    pump.keep(max(STEP // BLOCK, 1), BLOCK)  # grows


def pinned(number):
    pump.pin(pages(STEP))  # grows


def shm(number):
    size = pages(STEP)
    os.ftruncate(FILE, (number + 1) * size)
    area = mmap.mmap(FILE, size, offset=number * size)
    area.write(b"x" * size)  # grows
    kept.append(area)


def dictionary(number):
    for i in range(max(STEP // 200, 1)):
        table[number, i] = "value %d" % (number * i)  # grows


def tensors(number):
    block = bytearray(b"x") * STEP  # grows
    kept.append(block)


file_map = shm


def threads(number):
    if number % max(1, int(0.3 / PAUSE)) == 0:
        thread = threading.Thread(target=never, daemon=True)
        thread.start()  # grows


def never():
    waiting.wait()  # grows


def brk(number):
    pump.keep(max(STEP // BLOCK, 1), BLOCK)  # grows


def huge(number):
    if number % max(1, int((2 << 20) / STEP)) == 0:
        pump.huge(max(1, STEP >> 21))  # grows


# ---- growers that keep a part of what another line has given back ----------------------------------------------------
def scratch():
    return len(bytearray(b"x") * BIG)


def part_of_heap(number):
    scratch()
    kept.append(bytearray(b"x") * STEP)  # grows


part_of_arena = part_of_heap


def many():
    return len([[i] for i in range(BIG // 100)])


def part_of_pools(number):
    many()
    kept.append([[i] for i in range(STEP // 100)])  # grows


# ---- healthy ones ----------------------------------------------------------------------------------------------------
BOUND, SECONDS = rng.randrange(20, 90), rng.uniform(2, 6)


def warms_up(number):
    if time.monotonic() - BEGAN < SECONDS:
        kept.append(bytearray(b"x") * STEP)


def fades(number):
    size = int(STEP * 4 * math.exp((BEGAN - time.monotonic()) / SECONDS))
    if size > 4096:
        kept.append(bytearray(b"x") * size)


def churns(number):
    pump.churn(max(8 * STEP // BLOCK, 1), BLOCK)


def lru(number):
    for _ in range(10):
        table[rng.random()] = bytearray(b"x") * (STEP // 20 + 100)
        while len(table) > BOUND * 10:
            table.popitem(last=False)


def preallocates(number):
    at = number * STEP % (len(kept[0]) - STEP)
    kept[0][at : at + STEP] = bytes(STEP)


def sawtooth(number):
    for _ in range(50):
        one = [bytearray(b"x") * (STEP // 50 + 100)]
        one.append(one)


def compiles(number):
    while len(table) < BOUND * 4 * min(1, (time.monotonic() - BEGAN) / SECONDS):
        names = {}
        exec("def f%d(x):\n" % number + "".join("    x = x * %d + %d\n" % (i, number) for i in range(60)), names)
        table[len(table)] = names
    for one in list(table.values())[:20]:
        next(v for k, v in one.items() if k.startswith("f"))(3)


def breathes(number):
    wanted = int(BOUND * (1 + math.sin(2 * math.pi * (time.monotonic() - BEGAN) / SECONDS)))
    while len(kept) < wanted:
        kept.append(bytearray(b"x") * (STEP + 200 * KIB))
    del kept[wanted:]


def short_threads(number):
    thread = threading.Thread(target=churns, args=(number,))
    thread.start()
    thread.join()


def ring(number):
    size = pages(STEP)
    area = kept[0]
    at = number * size % (len(area) - size)
    area[at : at + size] = b"x" * size


GROWERS = {
    "mmap_hook": ("anonymous", ["libhook.so", "libpump.so"]),
    "arena": ("malloc arenas", ["libpump.so"]),
    "pinned": ("locked", ["libpump.so"]),
    "shm": ("shared memory", []),
    "dictionary": ("anonymous", []),
    "tensors": ("anonymous", []),
    "file_map": ("files", []),
    "threads": ("thread stacks", []),
    "brk": ("brk heap", ["libpump.so"]),
    "huge": ("huge pages", ["libpump.so"]),
    "part_of_heap": ("brk heap", []),
    "part_of_arena": ("malloc arenas", []),
    "part_of_pools": ("anonymous", []),
}
HEALTHY = [warms_up, fades, churns, lru, preallocates, sawtooth, compiles, breathes, short_threads, ring]
BLOCK = rng.randrange(600, 60 * KIB) // 16 * 16
BIG = min(STEP * rng.randrange(5, 20), 24 * MIB)
FILE = -1
if NAME in ("shm", "file_map", "ring"):
    path = f"/dev/shm/growers-{os.getpid()}" if NAME != "file_map" else os.path.join(FOLDER, f"map-{os.getpid()}")
    FILE = os.open(path, os.O_RDWR | os.O_CREAT)
    if NAME != "file_map":
        os.unlink(path)
if NAME == "lru":
    table = collections.OrderedDict()
    for i in range(BOUND * 10):
        lru(i)
elif NAME == "preallocates":
    kept.append(bytearray(b"x") * (STEP + 64 * MIB))
elif NAME == "ring":
    os.ftruncate(FILE, 64 * MIB)
    kept.append(mmap.mmap(FILE, 64 * MIB))
    for i in range(0, 64 * MIB, MIB):
        kept[0][i : i + MIB] = b"x" * MIB
elif NAME == "sawtooth":
    gc.set_threshold(rng.randrange(300, 1500))
step = globals()[NAME]


def lines():
    source, first = inspect.getsourcelines(sys.modules[__name__])
    body, begin = inspect.getsourcelines(step)
    found = [begin + i for i, line in enumerate(body) if "# grows" in line]
    if NAME == "threads":
        body, begin = inspect.getsourcelines(never)
        found += [begin + i for i, line in enumerate(body) if "# grows" in line]
    return found


def other_work():
    return sum(x * x for x in range(3000)), sorted(str(x) for x in range(500))


def main():
    number = 0
    while True:
        step(number)
        other_work()
        number += 1
        time.sleep(PAUSE)


if NAME in ("churns", "short_threads"):
    for i in range(30):
        step(i)
if NAME in ("preallocates",):
    step(0)
kind, libraries = GROWERS.get(NAME, ("", []))
functions = [step.__name__, "never"] if NAME == "threads" else [step.__name__]
truth = {"grows": NAME in GROWERS, "kind": kind, "libraries": libraries, "lines": lines(), "functions": functions, "rate": RATE}
print(json.dumps(truth), flush=True)
BEGAN = time.monotonic()
if NAME.endswith("arena"):
    threading.Thread(target=main, name="pumping", daemon=True).start()
    waiting.wait()
else:
    main()
