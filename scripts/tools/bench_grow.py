"""What `llm-memory -grow` costs the process that it watches: python3 -m tools.bench_grow PAIRS [SECONDS] (in scripts/).

Windows in pairs, with the watch and without, in an order drawn for each pair: the median CPU time of a unit of the program's own
work, some milliseconds. Other programs on the machine lengthen some units; the median hardly.
"""

import fcntl
import mmap
import os
import random
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from gdbext.access import page_faults  # noqa: E402
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
ENABLE, DISABLE = 0x2400, 0x2401  # PERF_EVENT_IOC_
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


def _events(pairs):
    """What the kernel's events add to the CPU time of page faults, one in `period` sampled, by pairs of a millisecond."""
    tid = threading.get_native_id()
    faults = page_faults.PageFaults(os.getpid(), [tid])
    event, pages = faults.threads[tid].file, 512

    def unit():
        began = time.thread_time_ns()
        with mmap.mmap(-1, pages * 4096) as area:
            for at in range(0, pages * 4096, 4096):
                area[at] = 1
        return time.thread_time_ns() - began

    for period in (1, 100, 3000):
        faults.threads[tid].set_period(period)
        found = []
        for _ in range(pairs):
            took = {}
            for on in random.sample([0, 1], 2):
                fcntl.ioctl(event, ENABLE if on else DISABLE, 0)
                took[on] = unit()
            faults.take()
            found.append((took[1] - took[0], took[0]))
        low, more, high = statistics.quantiles([more for more, _ in found], n=4)
        one, error = statistics.median(plain for _, plain in found), 1.25 * (high - low) / 1.35 / pairs**0.5
        said = f"{more / pages:.0f} ± {error / pages:.0f} ns more than {one / pages:.0f} ({100 * more / one:.2f} %)"
        print(f"a page fault, one of {period} sampled: {said}, {pairs} pairs", flush=True)
    faults.close()


def main():
    pairs, seconds = int(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 3.0
    _events(100 * pairs)
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
