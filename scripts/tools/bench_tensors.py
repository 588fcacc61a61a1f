"""scripts/bench --tensors: what work with values costs, beside numpy's own work on the same array and beside plainly reading the
memory.

One process holds a float32 tensor of `--gib` GiB and 10,000 small ones; it times numpy on the tensor's array by itself. Then gdb
attaches and each command is timed inside that gdb, with the same machine load. gdb's memory is its own peak."""

import json
import os
import subprocess
import tempfile

from .environments import cache_folder, environment
from .say import say

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INIT = os.path.join(ROOT, "gdbext", "init.py")
SUBJECT = """
import gc, json, sys, time
import numpy, torch
torch.set_num_threads(1)
count = int(float(sys.argv[1]) * (1 << 28))
big = torch.empty(count)
for i in range(0, count, 1 << 24):
    big[i : i + (1 << 24)].normal_()
small = [torch.zeros(8) for _ in range(10000)]

def own(a):
    start = time.monotonic()
    a.min(), a.max(), a.mean(dtype=numpy.float64), a.std(dtype=numpy.float64, ddof=1)
    numpy.isnan(a).sum(), numpy.isinf(a).sum(), a.size - numpy.count_nonzero(a)
    return time.monotonic() - start

def live():
    return sum(isinstance(o, torch.Tensor) for o in gc.get_objects())

print(json.dumps({"address": id(big), "data": big.data_ptr(), "bytes": big.nbytes, "tensors": live()}), flush=True)
for line in sys.stdin:
    print(own(big.numpy()), flush=True)
"""
# Runs inside gdb: reads the tensor's memory as plainly as gdb lets one.
PLAIN = (
    "python [gdb.selected_inferior().read_memory({data} + i, min(1 << 20, {bytes} - i)).tobytes() and None "
    "for i in range(0, {bytes}, 1 << 20)]"
)
CLOCK = (
    "python import time, resource; print('@@clock', time.monotonic(), time.process_time(), "
    "resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
)


def timed(gdb, pid, commands, env):
    """-> ({name: (wall seconds, CPU seconds)}, peak MB) of commands run one after the other in one gdb attached to `pid`."""
    line = [
        gdb,
        "-nx",
        "-q",
        "-batch",
        "-iex",
        "set debuginfod enabled off",
        "-iex",
        "set auto-load off",
        "-iex",
        "set auto-solib-add off",
        "-p",
        str(pid),
        "-ex",
        f"source {INIT}",
        "-ex",
        "pytensor 0x10",
        "-ex",
        CLOCK,
    ]
    for command in commands.values():
        line += ["-ex", command, "-ex", CLOCK]
    done = subprocess.run(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env, timeout=600
    )
    clocks = [[float(w) for w in text.split()[1:]] for text in done.stdout.splitlines() if text.startswith("@@clock")]
    if len(clocks) != len(commands) + 1:
        raise SystemExit(f"bench: gdb did not come to its end:\n{done.stdout[-2000:]}")
    found = {n: (b[0] - a[0], b[1] - a[1]) for n, a, b in zip(commands, clocks, clocks[1:])}
    return found, clocks[-1][2] / 1024, done.stdout


def main(gdb, gib, rounds):
    python = environment("vllm")
    env = {**os.environ, "GDBEXT_DATA": os.environ.get("GDBEXT_DATA") or os.path.join(cache_folder(), "test-data")}
    wheels = [environment("tests"), "-m", "gdbext", "install", "--wheels-only", "--gdb", gdb]
    subprocess.run(wheels, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    with tempfile.NamedTemporaryFile("w", suffix=".py") as f:
        f.write(SUBJECT)
        f.flush()
        process = subprocess.Popen(
            [python, "-W", "ignore", f.name, str(gib)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            truth = json.loads(process.stdout.readline())
            _rounds(gdb, process, truth, rounds, env)
        finally:
            process.kill()
            process.wait()


def _rounds(gdb, process, truth, rounds, env):
    size, address = truth["bytes"] / (1 << 30), truth["address"]
    say(f"a process with a float32 tensor of {size:.2f} GiB and {truth['tensors']} tensors in all")
    rows = {}
    peak = 0.0
    for number in range(rounds):
        say(f"  round {number + 1} of {rounds}")
        process.stdin.write("\n")
        process.stdin.flush()
        rows.setdefault("numpy, in the process", []).append(float(process.stdout.readline()))
        commands = {
            "gdb: read_memory of the tensor": PLAIN.format(**truth),
            "gdb: pytensor -stats": f"pytensor -stats -json {address:#x}",
            "gdb: pytensor -repr": f"pytensor -repr {address:#x}",
            "gdb: pytensors": "pytensors -json",
            "gdb: pytensors -nan": "pytensors -nan -json",
        }
        for name in (
            "gdb: read_memory of the tensor",
            "gdb: pytensor -stats",
            "gdb: pytensor -repr",
            "gdb: pytensors",
            "gdb: pytensors -nan",
        ):
            found, megabytes, text = timed(gdb, process.pid, {name: commands[name]}, env)
            rows.setdefault(name, []).append(found[name][0])
            if name == "gdb: pytensor -stats":
                peak = max(peak, megabytes)
            if name == "gdb: pytensors" and text.count('"address"') < truth["tensors"]:
                raise SystemExit(f"bench: pytensors found too few of {truth['tensors']} tensors")
    middle = {name: sorted(times)[len(times) // 2] for name, times in rows.items()}
    middle["of that, the search itself"] = max(0.0, middle["gdb: pytensors -nan"] - middle["gdb: pytensors"])
    numpy, read = middle["numpy, in the process"], middle["gdb: read_memory of the tensor"]
    say(f"\nTensors, median of {rounds} rounds; stats: gdb's peak memory {peak:.0f} MB\n")
    say("| what | s | × numpy | × reading |")
    say("| --- | ---: | ---: | ---: |")
    for name, seconds in middle.items():
        about_all = name in (
            "numpy, in the process",
            "gdb: read_memory of the tensor",
            "gdb: pytensor -stats",
            "of that, the search itself",
        )
        ratios = (f"{seconds / numpy:.2f}", f"{seconds / read:.2f}") if about_all else ("", "")
        say(f"| {name} | {seconds:.3f} | {ratios[0]} | {ratios[1]} |")
