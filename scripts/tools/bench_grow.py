"""What `llm-memory -grow` costs the process that it watches: python3 -m tools.bench_grow PAIRS [SECONDS] (in scripts/).

Windows in pairs, with the watch and without, in an order drawn for each pair: the median CPU time of a unit of the program's own
work, some milliseconds. Other programs on the machine lengthen some units; the median hardly.
"""

import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from gdbext.access.proc import ProcTarget  # noqa: E402
from gdbext.heap import grow_watch  # noqa: E402

# Full work, which writes when each unit ended and what CPU time it took. `touches`: a unit takes 4 MB and gives them back.
SUBJECT = """
import mmap, struct, sys, time
touches, table = sys.argv[2] == "touches", {}
with open(sys.argv[1], "wb", 0) as f:
    while True:
        began = time.thread_time()
        for i in range(100):
            table[i] = sum(x * x for x in range(100)), str(i) * 3
        if touches:
            with mmap.mmap(-1, 4 << 20) as area:
                for at in range(0, 4 << 20, 4096):
                    area[at] = 1
        took = time.thread_time() - began
        f.write(struct.pack("<dd", time.monotonic(), took))
"""
BEGIN = 1.0  # seconds of a window that do not count: the first samples come faster


def _window(pid, file, seconds, faults):
    """The median CPU seconds of a unit of work. `faults`: None: nobody watches."""
    began = time.monotonic() + BEGIN
    if faults is None:
        time.sleep(BEGIN + seconds)
    else:
        watch = grow_watch.GrowWatch(ProcTarget(pid), "", seconds + BEGIN, faults)
        began = time.monotonic() + BEGIN
        grow_watch.run([watch], seconds + BEGIN)
        watch.finish()
    with open(file, "rb") as f:
        units = list(struct.iter_unpack("<dd", f.read()[-(1 << 20) :]))
    return statistics.median(took for at, took in units if began < at < began + seconds)


def main():
    pairs, seconds = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 3.0
    for kind in ("touches", "computes"):
        with tempfile.NamedTemporaryFile() as file:
            with subprocess.Popen([sys.executable, "-c", SUBJECT, file.name, kind]) as child:
                time.sleep(1)
                for way, faults in (("samples", True), ("-no-perf", False)):
                    costs = []
                    for _ in range(pairs):
                        order = random.sample([None, faults], 2)
                        unit = {one: _window(child.pid, file.name, seconds, one) for one in order}
                        costs.append(100 * (unit[faults] / unit[None] - 1))
                    low, middle, high = statistics.quantiles(costs, n=4)
                    error = 1.25 * (high - low) / 1.35 / pairs**0.5  # of a median, of a normal spread
                    spread = f"quartiles {low:.2f} {high:.2f}, {pairs} pairs"
                    print(f"{kind}, {way}: {middle:.2f} % ± {error:.2f}, {spread}", flush=True)
                child.kill()


if __name__ == "__main__":
    main()
