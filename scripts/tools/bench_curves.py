"""scripts/bench --curves: how a look grows with what it looks at: threads, frames, ranks, requests, blocks, objects, libraries,
mappings. Each curve has its sizes, the command that is asked, and py-spy and pystack where they do the same.

CPU seconds are fitted: cost = base + factor * size ** exponent. The base is what the smallest size costs; where all growth is
less than `NOISE` of it there is nothing to fit, and the curve is flat."""

import contextlib
import json
import math
import os
import statistics
import subprocess
import tempfile

from . import bench_bounds, bench_heap
from .environments import environment
from .say import Failed, say

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NOISE = 0.25  # of the base
LINEAR = 1.15  # exponents up to here are called linear
FRAMES = """
import os, sys, threading
sys.setrecursionlimit(1 << 20)
never, there = threading.Event(), threading.Event()
def deep(left):
    if left:
        return deep(left - 1)
    there.set()
    never.wait()
threading.stack_size(1 << 28)
threading.Thread(target=deep, args=(int(sys.argv[1]),), daemon=True).start()
there.wait()
print(os.getpid(), flush=True)
never.wait()
"""
MAPPINGS = """
import ctypes, mmap, os, sys, threading
count, page = int(sys.argv[1]), mmap.PAGESIZE
memory = mmap.mmap(-1, count * page, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
start, libc = ctypes.addressof(ctypes.c_char.from_buffer(memory)), ctypes.CDLL(None, use_errno=True)
for number in range(1, count, 2):  # every other page is read-only: each is a mapping of its own
    if libc.mprotect(ctypes.c_void_p(start + number * page), ctypes.c_size_t(page), 1):
        sys.exit(os.strerror(ctypes.get_errno()))
print(os.getpid(), flush=True)
threading.Event().wait()
"""


class Curve:
    """`sizes`; `start(size)`: [command lines of the processes that are looked at]; `ask(pids)`: the words of the command;
    `others`: whether py-spy and pystack do the same."""

    def __init__(self, name, sizes, start, ask, others=False):
        self.name, self.sizes, self.start, self.ask, self.others = name, sizes, start, ask, others


def curves(folder):
    """All of them. `folder`: for their libraries."""
    python = environment("tests")
    big = [python, "-c", bench_bounds.SUBJECT]
    requests = os.path.join(ROOT, "tests", "gdb", "subjects", "requests_vllm.py")
    blocks = os.path.join(ROOT, "scripts", "tools", "kv_subject.py")
    stacks, one = (lambda pids: ["llm-stacks", *pids]), (lambda pids: pids[0])
    with open("/proc/sys/vm/max_map_count") as f:
        maps = int(f.read()) - 1000
    return [
        Curve("threads", (10, 100, 500, 2000), lambda n: [[*big, "0", str(n), "0", "0", "10", folder]], stacks, True),
        Curve("frames", (10, 100, 1000, 10_000), lambda n: [[python, "-c", FRAMES, str(n)]], stacks, True),
        Curve("ranks", (1, 4, 16, 64), lambda n: [[*big, "0", "4", "0", "0", "10", folder]] * n, stacks),
        Curve("requests", (10, 1000, 10_000, 100_000), lambda n: [[python, requests, str(n)]],
              lambda pids: ["llm-requests", "-between", "0", one(pids)]),
        Curve("blocks", (10_000, 100_000, 1_000_000, 10_000_000), lambda n: [[environment("vllm"), blocks, "vllm", str(n)]],
              lambda pids: ["llm-kv", "check", "-pool", "pool", "-on", one(pids)]),
        Curve("objects", (100_000, 1_000_000, 10_000_000), lambda n: [[python, "-c", bench_heap.SUBJECT, str(n)]],
              lambda pids: ["pyheap", "-on", one(pids)]),
        Curve("libraries", (10, 100, 500, 2000), lambda n: [[*big, "0", "4", str(n), "0", "10", folder]], stacks, True),
        Curve("mappings", (1000, 10_000, min(100_000, maps)), lambda n: [[python, "-c", MAPPINGS, str(n)]], stacks, True),
    ]  # fmt: skip


@contextlib.contextmanager
def started(lines):
    """Processes that have printed a line; their pids as text. They end with the block."""
    children = []
    try:
        for line in lines:
            quiet = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            children.append(subprocess.Popen(line, text=True, **quiet))
        for child in children:
            if not child.stdout.readline():
                raise Failed(f"bench: a process of {len(children)} did not start: {' '.join(child.args)[-100:]}")
        yield [str(child.pid) for child in children]
    finally:
        for child in children:
            child.kill()
            child.communicate()


def exponent(sizes, costs):
    """The exponent of `cost - costs[0]` in `size - sizes[0]`, by least squares of their logarithms; None where it does not grow,
    nan where one size tells nothing."""
    grown = [(n - sizes[0], c - costs[0]) for n, c in zip(sizes, costs)]
    points = [(math.log(n), math.log(c)) for n, c in grown if n > 0 and c > NOISE * costs[0]]
    if len(points) < 2:
        return math.nan if points else None
    xs, ys = [x for x, _ in points], [y for _, y in points]
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum((x - mean_x) ** 2 for x in xs)


def fitted(sizes, costs):
    """How a cost grows, in a word or by its exponent."""
    found = exponent(sizes, costs)
    if found is None:
        return "flat"
    if math.isnan(found):
        return "grows at the last size only"
    return f"linear ({found:.2f})" if found <= LINEAR else f"**{found:.2f}**"


def short(number):
    """1e5 as 10^5, and 2000 as it is."""
    power = round(math.log10(number))
    return f"10^{power}" if number == 10**power and power > 3 else f"{number:,}"


def row(curve, sizes, rows):
    """A line of the table. `rows`: {who: [measurement of each size]}; the pack's are the first."""
    ours, *others = rows.values()
    cells = [curve.name, ", ".join(map(short, sizes)), ", ".join(f"{m['cpu']:.2f}" for m in ours)]
    cells += [fitted(sizes, [m["cpu"] for m in ours]), f"{ours[0]['rss']:.0f} to {ours[-1]['rss']:.0f}"]
    cells.append(f"{1000 * ours[0]['pause']:.0f} to {1000 * ours[-1]['pause']:.0f}")
    cells.append("; ".join(f"{who} {', '.join(m_text(m) for m in one)}" for who, one in zip(list(rows)[1:], others)))
    return "| " + " | ".join(cells) + " |"


def m_text(measured):
    """CPU seconds, or that there was no answer."""
    return f"{measured['cpu']:.2f}" if measured["ok"] else "failed"


DRAW = """
import json, sys
import matplotlib
matplotlib.use("svg")
matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "curves"})
from matplotlib import pyplot
found = json.load(sys.stdin)
figure, places = pyplot.subplots(2, (len(found) + 1) // 2, figsize=(14, 6), squeeze=False)
for (name, sizes, rows), place in zip(found, places.flat):
    for who, cpu in rows.items():
        place.loglog(*zip(*[(n, max(c, 0.01)) for n, c in zip(sizes, cpu) if c is not None]), "o-", label=who)
    place.set_title(name)
    place.set_ylabel("CPU s")
    place.legend(fontsize=7)
for place in list(places.flat)[len(found):]:
    place.set_axis_off()
figure.tight_layout()
figure.savefig(sys.argv[1], metadata={"Date": None} if sys.argv[1].endswith(".svg") else None)
"""


def picture(path, found):
    """Draws the curves by the matplotlib of the tests' environment. `found`: [(curve, sizes, rows)]"""
    data = [
        (curve.name, sizes, {who: [m["cpu"] if m["ok"] else None for m in one] for who, one in rows.items()})
        for curve, sizes, rows in found
    ]
    data = [(name, sizes, {who: cpu for who, cpu in rows.items() if any(cpu)}) for name, sizes, rows in data]
    done = subprocess.run([environment("tests"), "-c", DRAW, path], input=json.dumps(data), text=True)
    if done.returncode:
        raise Failed("bench: --picture needs the matplotlib of the tests' environment; the table is above")
    say(f"written: {path}")


def main(measure, names, scale, rounds, path):
    """Prints the table of the curves in `names` (all without), up to `scale` of their largest sizes, and draws it to `path`."""
    pack = [environment("tests"), "-m", "gdbext"]
    folder_of = os.path.dirname(environment("tests"))
    tools = {
        "py-spy --native": ["py-spy", "dump", "--native", "--pid"],
        "pystack --native-all": ["pystack", "remote", "--native-all"],
    }
    found = []
    with tempfile.TemporaryDirectory(prefix="gdbext-bench-") as folder:
        every = [c for c in curves(folder) if not names or c.name in names]
        if any(c.name == "libraries" for c in every):
            bench_bounds.make_libraries(folder, 2000)
        for curve in every:
            sizes, rows = [n for n in curve.sizes if n <= max(curve.sizes) * scale], {}
            for size in sizes:
                say(f"  {curve.name}: {size:,}")
                with started(curve.start(size)) as pids:
                    commands = {"gdbext": [*pack, *curve.ask(pids)]}
                    for who, line in tools.items() if curve.others else ():
                        commands[who] = [os.path.join(folder_of, line[0]), *line[1:], pids[0]]
                    if not rows:
                        measure(commands["gdbext"])  # which compiles what it loads
                    for who, line in commands.items():
                        runs = [measure(line, int(pids[0])) for _ in range(rounds)]
                        middle = {k: statistics.median(r[k] for r in runs) for k in ("cpu", "rss", "pause")}
                        rows.setdefault(who, []).append({**middle, "ok": all(r["ok"] for r in runs)})
            found.append((curve, sizes, rows))
            say(row(*found[-1]))
    say("\n| curve | sizes | CPU s | grows | memory MB | pause ms | CPU s of others |")
    say("| --- | --- | --- | --- | ---: | ---: | --- |")
    for one in found:
        say(row(*one))
    if path:
        picture(path, found)
    return 0
