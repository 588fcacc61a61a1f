"""scripts/bench --bounds [SCALE]: what an attach, a snapshot and a look for a hang cost on stand-ins for big processes: one with
200 GiB of memory in use, 500 threads, 300 libraries and 10,000,000 objects, and eight with 500 threads each."""

import os
import shutil
import subprocess
import tempfile

from .bench_record import started
from .environments import environment
from .say import Failed, say

GIB, THREADS, LIBRARIES, OBJECTS, RANKS, DEPTH = 200, 500, 300, 10_000_000, 8, 10

# The memory is read, not written: pages of zeros are in use and cost the machine nothing but their tables, and those little
# where the kernel has huge pages.
SUBJECT = """
import ctypes, gc, glob, mmap, os, sys, threading
gib, threads, libraries, objects, depth = map(int, sys.argv[1:6])
gc.disable()
loaded = [ctypes.CDLL(path) for path in sorted(glob.glob(sys.argv[6] + "/*.so"))[:libraries]]
memory = mmap.mmap(-1, gib << 30, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000) if gib else None  # MAP_NORESERVE
if gib:
    memory.madvise(mmap.MADV_HUGEPAGE)
    for at in range(0, gib << 30, 2 << 20):
        memory[at]
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    ctypes.CDLL(None).madvise(ctypes.c_void_p(address), ctypes.c_size_t(gib << 30), 22)  # MADV_POPULATE_READ
kept = [(number + 0.5,) for number in range(objects // 2)]
never = threading.Event()
def deep(left):
    return deep(left - 1) if left else never.wait()
threading.stack_size(256 << 10)
for _ in range(threads):
    threading.Thread(target=deep, args=(depth,), daemon=True).start()
print(os.getpid(), flush=True)
never.wait()
"""


def make_libraries(folder, count):
    """Makes so many libraries, each a copy of one."""
    one = os.path.join(folder, "0.so")
    source = b"int answer(int n) { return n + 1; }"
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", one], input=source, check=True)
    for number in range(1, count):
        shutil.copy(one, os.path.join(folder, f"{number}.so"))


def main(measure, table, gdb_commands, scale, rounds):
    """Prints the tables. `measure`, `table`: those of bench.py; `gdb_commands(*commands)`: the line of a gdb that runs them;
    `scale`: of all numbers but that of ranks."""
    if not shutil.which("gcc"):
        raise Failed("bench: --bounds makes its libraries with gcc, which is not here")
    gib, threads, libraries, objects = (int(n * scale) for n in (GIB, THREADS, LIBRARIES, OBJECTS))
    pack = [environment("tests"), "-m", "gdbext"]
    with tempfile.TemporaryDirectory(prefix="gdbext-bench-") as folder:
        shots = os.path.join(folder, "snapshots")
        os.mkdir(shots)
        make_libraries(folder, libraries)
        big = f"{gib} GiB in use, {threads} threads, {libraries} libraries, {objects:,} objects"
        many = f"{RANKS} processes of {threads} threads"
        for title, count, arguments in ((big, 1, (gib, threads, libraries, objects)), (many, RANKS, (0, threads, 0, 0))):
            say(f"  {title}: started ...")
            with started(environment("tests"), SUBJECT, count, (*arguments, DEPTH, folder)) as pids:
                what = " ".join(map(str, pids))
                attach = gdb_commands(f"llm-attach {what}", "llm-bt" if count == 1 else "info inferiors", "llm-detach")
                commands = {
                    "llm-hang": [*pack, "llm-hang", *map(str, pids)],
                    "llm-stacks": [*pack, "llm-stacks", *map(str, pids)],
                    "llm-snapshot": [*pack, "llm-snapshot", *map(str, pids), "-o", shots],
                    "llm-attach, llm-detach": attach,
                }
                rows = {}
                for name, command in commands.items():
                    say(f"  {title}: {name}")
                    rows[name] = [measure(command, pids[0]) for _ in range(rounds)]
            table(title, rows)
    return 0
