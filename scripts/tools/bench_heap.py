"""scripts/bench --heap N: what a look at a Python heap of N objects costs, and how long the process stands still for it."""

import os
import statistics
import subprocess
import tempfile

from .environments import environment
from .say import Failed, say

# Of each three objects two are tracked by the collector: instances, dicts, tuples, lists, sets; texts and numbers are not.
SUBJECT = """
import gc, os, sys
gc.disable()
class Request:
    def __init__(self, i):
        self.request_id, self.tokens, self.state = f"r{i}", [i, i + 1], i
class Slot:
    __slots__ = ("a", "b")
    def __init__(self, a, b):
        self.a, self.b = a, b
kept = []
for i in range(int(sys.argv[1]) // 12):
    request = Request(i)
    row = {"id": i, "x": [i * 1000.5]}
    kept += [request, row, (i, request), Slot(request, row), [request], {i}]
gc.collect()
print("ready", flush=True)
os.read(0, 1)
"""

# The least that a copy's stop can take: the bytes themselves, into memory that is there, while nothing stands still.
FLOOR = """
import sys, time
from gdbext.access import procfs, remote_memory, resident
pid = int(sys.argv[1])
spans = resident.select(pid, procfs.parse_maps(procfs.read_maps(pid)[0]), 16 << 30).spans
runs = [(at, min(32 << 20, end - at)) for start, end in spans for at in range(start, end, 32 << 20)]
buffer, took = remote_memory.ReadBuffer(runs), []
for _ in range(5):
    began = time.monotonic()
    buffer.read(pid)
    took.append(time.monotonic() - began)
print(sum(buffer.got) >> 20, min(took), sorted(took)[2])
"""


def main(measure, table, count, rounds):
    """Prints the table. `measure`, `table`: those of bench.py."""
    python = environment("tests")
    pack = [python, "-m", "gdbext"]
    with tempfile.TemporaryDirectory(prefix="gdbext-bench-") as folder:
        rows, told, floor = {}, "", ""
        for objects in (0, count):
            line = [python, "-c", SUBJECT, str(objects)]
            with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
                try:
                    if child.stdout.readline() != "ready\n":
                        raise Failed("bench: the process with the heap did not start")
                    core = os.path.join(folder, f"{objects}.core")
                    commands = {
                        "llm-snapshot": [*pack, "llm-snapshot", str(child.pid), "-o", core, "-max-bytes", str(16 << 30)],
                        "pyheap of the snapshot": [*pack, "pyheap", "-on", core],
                        "pyheap of the process": [*pack, "pyheap", "-on", str(child.pid)],
                    }
                    for name, command in commands.items():
                        label = f"{name}, {objects} objects"
                        say(f"  {label}")
                        rows[label] = [measure(command, child.pid) for _ in range(rounds if name != "llm-snapshot" else 1)]
                    if objects:
                        told = subprocess.run(
                            commands["pyheap of the snapshot"], stdout=subprocess.PIPE, text=True, check=False
                        ).stdout
                        line = [python, "-c", FLOOR, str(child.pid)]
                        floor = subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True).stdout
                finally:
                    child.kill()
        table(f"A heap of {count} objects", rows)
        least, most = (rows[f"pyheap of the snapshot, {objects} objects"] for objects in (0, count))
        cpu, room = (statistics.median(r[k] for r in most) - statistics.median(r[k] for r in least) for k in ("cpu", "rss"))
        say("\n" + next((line for line in told.splitlines() if "generations" in line), "pyheap failed"))
        say(f"{cpu:.1f} s of CPU and {room:.0f} MB beyond a look at an empty one")
        size, least, middle = map(float, floor.split())
        say(f"to copy its {size:.0f} MiB takes {least:.3f} to {middle:.3f} s: no stop for a copy can be shorter")
    return 0
