"""scripts/bench --record: llm-record beside py-spy record on the same processes in the same rounds, what a recording of eight
processes of 20 threads costs, what one costs a vLLM at work, and planted stalls: how many are shown at their time with their
cause."""

from __future__ import annotations

import collections
import contextlib
import json
import math
import os
import random
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, Sequence, Tuple

from .engines import start_vllm
from .environments import environment
from .prepare_tests import MINORS, fetched_pythons
from .say import Failed, say
from .system import find_pythons

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
RATE, SECONDS = 100, 8
WORKS = ("alpha", "beta", "gamma", "delta", "omega")
SHARES = """
import os, sys, time
def inner(n):
    return sum([i for i in range(n)])
def alpha(end):
    while time.perf_counter() < end: pass
def beta(end):
    while time.perf_counter() < end: inner(300)
def yields(end):
    while time.perf_counter() < end: yield 1
def gamma(end):
    for one in yields(end): pass
def down(n, end):
    return down(n - 1, end) if n else alpha(end)
def delta(end):
    while time.perf_counter() < end: inner(20)
def omega(end):
    while time.perf_counter() < end: down(20, min(end, time.perf_counter() + 0.002))
print(os.getpid(), flush=True)
spent, said = {}, os.memfd_create("spent")
while True:
    for work, seconds in ((alpha, .013), (beta, .029), (gamma, .017), (delta, .007), (omega, .011)):
        begin = time.perf_counter()
        work(begin + seconds)
        spent[work.__name__] = spent.get(work.__name__, 0.0) + time.perf_counter() - begin
    os.pwrite(said, " ".join(map(str, spent.values())).ljust(200).encode(), 0)
"""
THREADS = """
import os, threading, time
def deep(n, seconds):
    if n: return deep(n - 1, seconds)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end: pass
def works():
    while True:
        deep(20, 0.0005)
        time.sleep(0.03)
for number in range(19):
    threading.Thread(target=works if number < 10 else threading.Event().wait, daemon=True).start()
print(os.getpid(), flush=True)
while True:
    deep(20, 0.002)
    time.sleep(0.008)
"""


@contextlib.contextmanager
def started(python: str, program: str, count: int = 1, arguments: Sequence[object] = ()):
    """-> pids of processes that are at work, as each says first."""
    line = [python, "-c", program, *map(str, arguments)]
    children = [subprocess.Popen(line, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    try:
        said = [child.stdout.readline() for child in children]
        if not all(said):
            raise Failed("bench: a process did not start (no memory?)")
        pids = [int(line) for line in said]
        time.sleep(0.5)
        yield pids
    finally:
        for child in children:
            child.kill()
            child.communicate()


def timed(lines: List[List[str]]) -> Tuple[float, bool]:
    """Runs commands at the same time. -> (seconds of CPU of all, whether all succeeded)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = {**os.environ, "PYTHONPATH": ROOT}
    running = [subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env) for line in lines]
    ended = [child.wait() for child in running]
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, set(ended) <= {0, 3}


def says(pid: int) -> Dict[str, float]:
    """The seconds that the program of `SHARES` has spent on each work so far, by its own clock."""
    for name in os.listdir(f"/proc/{pid}/fd"):
        path = f"/proc/{pid}/fd/{name}"
        if "memfd:spent" in os.readlink(path):
            with open(path) as f:
                return dict(zip(WORKS, map(float, f.read().split())))
    return {}


def counted(path: str) -> Dict[str, float]:
    """The shares of the works in a file of collapsed stacks."""
    found: Dict[str, float] = collections.defaultdict(float)
    with open(path) as f:
        for line in f:
            names, _, count = line.rpartition(" ")
            calls = [word for name in names.split(";") for word in re.split(r"[ :.]", name)]
            found[next((word for word in calls if word in WORKS), "")] += float(count)
    whole = sum(found.values()) or 1.0
    return {name: found[name] / whole for name in WORKS}


def recorders(pids: List[int], folder: str, python: str, version: Tuple[int, int]) -> Dict[str, List[List[str]]]:
    """{name: command lines that record all of the processes}; from 3.15 on CPython has a sampling profiler of its own."""
    spy = os.path.join(os.path.dirname(environment("tests")), "py-spy")
    what, each = [str(pid) for pid in pids], ["-r", str(RATE), "-d", str(SECONDS), "-f", "raw"]
    own = [sys.executable, "-m", "gdbext", "llm-record", "-force", "-rate", str(RATE), "-for", str(SECONDS)]
    newer = [python, "-m", "profiling.sampling", "attach", "--collapsed", "-a", "-r", f"{RATE}hz", "-d", str(SECONDS)]
    builtin = [
        [*newer, "-o", os.path.join(folder, f"profiling.sampling{'' if i == 0 else pid}.collapsed"), pid]
        for i, pid in enumerate(what)
    ]
    return {
        **({"profiling.sampling": builtin} if version >= (3, 15) else {}),
        "llm-record": [[*own, "-o", os.path.join(folder, "llm-record.collapsed"), *what]],
        "py-spy record": [
            [spy, "record", *each, "-F", "-p", pid, "-o", os.path.join(folder, "py-spy record.collapsed" if i == 0 else pid)]
            for i, pid in enumerate(what)
        ],
    }


def bench_shares(pythons: Dict[Any, str], rounds: int) -> None:
    """Shares of time and CPU of both recorders, with what the program itself says of the same time."""
    error = 2 * math.sqrt(0.25 / (RATE * SECONDS * rounds))
    say(f"\nShares of time, {RATE} looks a second, {rounds} rounds of {SECONDS} s; two sigma of a half: {error:.3f}\n")
    say("| CPython | recorder | " + " | ".join(f"{w} (truth)" for w in WORKS) + " | largest error in sigma | CPU s |")
    say("| --- | --- |" + " ---: |" * (len(WORKS) + 2))
    for version, python in sorted(pythons.items()):
        found: Dict[str, List[Dict[str, float]]] = collections.defaultdict(list)
        truth: Dict[str, List[Dict[str, float]]] = collections.defaultdict(list)
        cpu: Dict[str, float] = collections.defaultdict(float)
        with started(python, SHARES) as pids, tempfile.TemporaryDirectory(prefix="gdbext-bench-") as folder:
            for _ in range(rounds):
                for name, lines in recorders(pids, folder, python, version).items():
                    before = says(pids[0])
                    spent, good = timed(lines)
                    if good:
                        passed = {w: seconds - before[w] for w, seconds in says(pids[0]).items()}
                        truth[name].append({w: seconds / sum(passed.values()) for w, seconds in passed.items()})
                        found[name].append(counted(os.path.join(folder, name + ".collapsed")))
                        cpu[name] += spent
        for name in ("llm-record", "py-spy record", *(["profiling.sampling"] if version >= (3, 15) else [])):
            if not found[name]:
                say(f"| {'%d.%d' % version} | {name} | cannot |")
                continue
            means = {w: sum(one[w] for one in found[name]) / len(found[name]) for w in WORKS}
            count = RATE * SECONDS * len(found[name])
            true = {w: sum(one[w] for one in truth[name]) / len(truth[name]) for w in WORKS}
            worst = max(abs(means[w] - true[w]) / math.sqrt(true[w] * (1 - true[w]) / count) for w in WORKS)
            shares = " | ".join(f"{means[w]:.3f} ({true[w]:.3f})" for w in WORKS)
            say(f"| {'%d.%d' % version} | {name} | {shares} | {worst:.1f} | {cpu[name] / len(found[name]):.2f} |")


def bench_cost(pythons: Dict[Any, str], rounds: int) -> None:
    """CPU of recording eight processes of 20 threads, half of which work now and then."""
    say(f"\nEight processes of 20 threads, {RATE} looks a second, {SECONDS} s, median of {rounds} rounds\n")
    say("| CPython | recorder | CPU s | of a processor, each process |\n| --- | --- | ---: | ---: |")
    for version, python in sorted(pythons.items()):
        with started(python, THREADS, 8) as pids, tempfile.TemporaryDirectory(prefix="gdbext-bench-") as folder:
            spent: Dict[str, List[float]] = collections.defaultdict(list)
            for _ in range(rounds):
                for name, lines in recorders(pids, folder, python, version).items():
                    cpu, good = timed(lines)
                    spent[name] += [cpu] if good else []
            for name, each in spent.items():
                if not each:
                    say(f"| {'%d.%d' % version} | {name} | cannot | |")
                    continue
                middle = sorted(each)[len(each) // 2]
                say(f"| {'%d.%d' % version} | {name} | {middle:.2f} | {100 * middle / SECONDS / 8:.1f} % |")
    bench_native(pythons, rounds)


def record(pids: List[int], *options: str) -> Dict[str, Any]:
    """What `llm-record -json` says."""
    line = [sys.executable, "-m", "gdbext", "llm-record", "-for", str(SECONDS), "-json", *options, *map(str, pids)]
    done = subprocess.run(line, stdout=subprocess.PIPE, check=False, text=True, env={**os.environ, "PYTHONPATH": ROOT})
    return json.loads(done.stdout)


def bench_native(pythons: Dict[Any, str], rounds: int) -> None:
    """What -native costs the same processes: CPU of the recorder, and how long they stand still."""
    say(f"\nThe same with -native, 10 looks a second, {rounds} rounds; the pauses are those of all processes and rounds\n")
    say("| CPython | looks a second | of a processor, each process | median pause | longest | of the time | Python alone |")
    say("| --- |" + " ---: |" * 6)
    for version, python in sorted(pythons.items()):
        with started(python, THREADS, 8) as pids:
            said = [record(pids, "-native") for _ in range(rounds)]
        own = [process["native"] for one in said for process in one["processes"]]
        middle = statistics.median(n["pause"]["median"] for n in own)
        part = statistics.mean(n["pause"]["part"] for n in own)
        say(
            f"| {'%d.%d' % version} | {statistics.median(one['rate']['reached'] for one in said):.1f} | "
            f"{100 * statistics.median(one['cost']['per_process'] for one in said):.1f} % | {1000 * middle:.2f} ms | "
            f"{1000 * max(n['pause']['longest'] for n in own):.1f} ms | {100 * part:.2f} % | "
            f"{sum(n['unstopped'] for n in own)} of {sum(one['samples'] for one in said)} |"
        )


def bench_engine(rounds: int) -> None:
    """Tokens a second of a vLLM at work, by turns in each round without a recorder (twice: the difference of the two is the
    noise), with llm-record and with llm-record -native."""
    ways = {"nothing": None, "nothing again": None, "llm-record": (), "llm-record -native": ("-native",)}
    speeds: Dict[str, List[float]] = collections.defaultdict(list)
    reached: Dict[str, List[float]] = collections.defaultdict(list)
    with start_vllm(tp=1) as engine:
        engine.wait_ready()
        pids = [pid for pid, title in engine.titles().items() if "::" in title or pid == engine.pid]
        for number in range(rounds):
            for name in random.sample(list(ways), len(ways)):
                before, began = engine.answered()[0], time.monotonic()
                options = ways[name]
                if options is None:
                    time.sleep(SECONDS)
                else:
                    reached[name].append(record(pids, *options)["rate"]["reached"])
                speeds[name].append((engine.answered()[0] - before) / (time.monotonic() - began))
            say(f"  round {number + 1} of {rounds}: " + ", ".join(f"{name} {each[-1]:.1f}" for name, each in speeds.items()))
    say(f"\nvLLM at work, {len(pids)} processes, windows of {SECONDS} s, {rounds} rounds, load {os.getloadavg()[0]:.1f}\n")
    say("| beside it | looks a second | tokens a second | least to most | beside nothing, same round: median | least to most |")
    say("| --- |" + " ---: |" * 5)
    for name in ways:
        each, ratios = speeds[name], [own / base for own, base in zip(speeds[name], speeds["nothing"])]
        looks = f"{statistics.median(reached[name]):.1f}" if reached[name] else ""
        spread = f"{min(ratios):.3f} to {max(ratios):.3f}"
        say(
            f"| {name} | {looks} | {statistics.median(each):.1f} | {min(each):.1f} to {max(each):.1f} | "
            f"{statistics.median(ratios):.3f} | {spread} |"
        )


def bench_stalls(pythons: Dict[Any, str], seeds: List[int], each: int) -> None:
    """Planted stalls of every kind, what was shown for them, and what was shown besides; recorded with -realtime, as what other
    work keeps the recorder from seeing says nothing of its rules."""
    sys.path[:0] = [os.path.join(ROOT, "tests"), ROOT]
    from harness.stalls import judge

    table: Dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    planted = right = true = seen = seen_true = seconds = 0
    besides: collections.Counter = collections.Counter()
    for version, python in sorted(pythons.items()):
        with tempfile.TemporaryDirectory(prefix="gdbext-bench-", dir=os.path.expanduser("~")) as folder:
            for seed in seeds:
                found = judge(python, folder, seed, each=each, realtime=True)
                planted, right, seconds = planted + found.planted, right + found.right, seconds + found.recording.seconds
                true, seen, seen_true = true + found.true, seen + found.seen, seen_true + found.seen_true
                besides.update(stall.cause for stall in found.false)
                for kind, row in found.table.items():
                    table[kind].update(row)
                reached, load = found.recording.reached, os.getloadavg()[0]
                say(
                    f"  {'%d.%d' % version}, seed {seed}: {found.right} of {found.planted}, {found.true} by what subjects say "
                    f"of themselves; {len(found.false)} besides; {reached:.0f} of 100 looks a second, load {load:.1f}"
                )
    causes = sorted({cause for row in table.values() for cause in row})
    say(f"\n{right} of {planted} planted stalls ({100 * right / max(1, planted):.1f} %) shown at their time with their cause")
    say(f"{true} with what the subjects say of themselves; {seen_true} of the {seen} that were looked at at least every 50 ms\n")
    say("| planted | " + " | ".join(causes) + " |\n| --- |" + " ---: |" * len(causes))
    for kind, row in sorted(table.items()):
        say(f"| {kind} | " + " | ".join(str(row[cause] or "") for cause in causes) + " |")
    say(f"| nothing ({seconds:.0f} s) | " + " | ".join(str(besides[cause] or "") for cause in causes) + " |")
    rest = {cause: n for cause, n in besides.items() if cause not in causes}
    if rest:
        say(f"besides: {rest}")


def main(rounds: int, part: str, seed: int | None = None) -> None:
    """`part`: "shares", "cost", "stalls", "engine" or "all"; `seed`: the first of those of the stalls, drawn where None."""
    pythons = find_pythons(MINORS[0], more=fetched_pythons())
    if part in ("shares", "all"):
        bench_shares(pythons, rounds)
    if part in ("cost", "all"):
        bench_cost({v: pythons[v] for v in (max(v for v in pythons if v <= (3, 13)), max(pythons))}, rounds)
    if part in ("stalls", "all"):
        first = random.randrange(1, 1_000_000) if seed is None else seed
        say(f"\nPlanted stalls, --seed {first}\n")
        bench_stalls(pythons, list(range(first, first + rounds)), 2)
    if part in ("engine", "all"):
        bench_engine(rounds)
