"""bench_watch.py [-first] WHAT ...    -first: with a priority, where others load the machine
bench_watch.py stalls [SEED [COUNT [ENGINES [KIND,...]]]]: plants so many stalls, every kind in turn, in engines with vLLM's own
scheduler (tests/gdb/subjects/engine_of_ranks.py) that one `gdbext watch` follows, and prints what it wrote of each, when, and
what came after.
bench_watch.py engine vllm|sglang [SEED [COUNT]]: the same in a real engine of two ranks, a death as the last one.
bench_watch.py healthy SECONDS [vllm|sglang [AFTER]]: a real engine of two ranks that is well, under one watch: prefills of most
of its context, a pool so small that requests are preempted, gaps without requests, a restart. Whatever is told is wrong.
bench_watch.py short SECONDS [AFTER [ENGINES]]: stand-ins that are well, each for minutes, the same way.
bench_watch.py cost [PAIRS [vllm]]: windows of 10 s with the watch and, while it is stopped, without: steps (of vLLM, tokens) a
second of both, its CPU by process, its memory. bench_watch.py growth [LOOKS]: so many looks without a pause between two, the
watch's memory on the way. bench_watch.py probe [TIMES]: `gdbext probe` so often: exit statuses, and what is left.
bench_watch.py bundle [TIMES]: of a real vLLM of two ranks, beside gcore.

Runs in namespaces of its own: the watch sees these engines alone."""

import collections
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [ROOT, os.path.join(ROOT, "tests"), os.path.join(ROOT, "scripts")]

from harness import planted, releases, served  # noqa: E402

from tools import bench, bench_healthy, engines  # noqa: E402
from tools.environments import existing  # noqa: E402

# the first process of a pid namespace adopts orphans: it is to be nobody's parent
ALONE = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child", "--", "sh", "-c", '"$0" "$@"; exit $?']


def stalls(seed="1", count="100", many="1", kinds=""):
    python = existing("vllm")
    runs = planted.Runs(python, releases.vllm_of("installed", python), said=lambda text: print(text, flush=True))
    kinds = tuple(kinds.split(",")) if kinds else planted.KINDS
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gdbext-watch-") as folder:
        try:
            runs.run(int(seed), int(count), int(many), folder, kinds)
        finally:
            print(runs.log if hasattr(runs, "log") else "", flush=True)
    print("\n".join(planted.table(runs.cases)))
    print(f"seed {seed}, {len(runs.cases)} stalls, {time.monotonic() - began:.0f} s, a load of {os.getloadavg()[0]:.1f}")


def engine(name="vllm", seed="1", count="24"):
    kinds = [kind for kind in planted.KINDS if kind not in (*planted.INSIDE, *planted.ENDS)]
    draw, cases, subject = random.Random(seed), [], os.path.join(ROOT, "tests", "engines", "subject")
    order = [kind for _ in range(int(count)) for kind in draw.sample(kinds, len(kinds))][: int(count) - 1]
    with contextlib.ExitStack() as stack:
        folder, truth = (stack.enter_context(tempfile.TemporaryDirectory(prefix="gdbext-watch-")) for _ in range(2))
        env = {
            "PYTHONPATH": subject,
            "GDBEXT_TRUTH": truth,
            "GDBEXT_ENGINE_SHARE": os.environ.get("GDBEXT_ENGINE_SHARE", "quota"),
        }
        running = stack.enter_context(engines.START[name](tp=2, env=env))
        running.said = running.wait_ready()
        ranks = planted.Real(stack, running, truth)
        watch = planted.Watched(folder, 10.0)
        stack.callback(lambda: print(watch.log(), flush=True))
        stack.callback(watch.end)
        watch.follows(ranks.pids.values())
        main = [who for who in ranks.pids if who.startswith(("EngineCore", "Worker", "scheduler"))]
        for kind in [*order, draw.choice(planted.ENDS)]:
            if not ranks.moves(120):
                print("it does not go on", flush=True)
                break
            time.sleep(draw.uniform(3, 8))
            workers = [who for who in main if not who.startswith("EngineCore")]
            cases.append(planted.watched(watch, ranks, kind, draw.choice(workers if kind in ("memory", "disk") else main)))
            print(len(cases), cases[-1], flush=True)
    print("\n".join(planted.table(cases)))


@contextlib.contextmanager
def serving(name, folder):
    """-> `Served` of a real engine of two ranks, or what has its `traffic`."""
    if name == "vllm":
        how = {"script": "serve_http.py", "config": bench_healthy.SLOW, "args": ("--faults", folder, "--blocks", "20")}
        with engines.start_vllm(tp=2, **how) as engine:
            engine.said = engine.wait_ready()
            yield served.Served(engine, folder)
    else:
        args = ("--tokens", "700", "--requests", "6", "--prompt", "400")
        with engines.start_sglang(tp=2, config=bench_healthy.SLOW, args=args) as engine:
            engine.said = engine.wait_ready()
            yield Rested(engine)


class Rested:
    """An SGLang that asks itself, but between two blocks of `traffic`."""

    def __init__(self, engine):
        self.engine, self.rest = engine, engine.ready_file + ".rest"

    @contextlib.contextmanager
    def traffic(self, count=3, prompt=None):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.rest)
        yield
        open(self.rest, "w").close()


def healthy(seconds, name="vllm", after="10"):
    draw, end, lives = random.Random(1), time.monotonic() + float(seconds), 2
    with tempfile.TemporaryDirectory(prefix="gdbext-watch-") as folder:
        watch, phases = planted.Watched(folder, float(after)), 0
        try:
            for life in range(lives):
                faults = os.path.join(folder, f"faults{life}")
                os.mkdir(faults)
                open(os.path.join(faults, "small-pool"), "w").close()
                with serving(name, faults) as engine:
                    until = end - (lives - 1 - life) * float(seconds) / lives
                    while time.monotonic() < until:
                        with engine.traffic(draw.choice((2, 4, 8)), draw.choice((None, 300, 400))):
                            time.sleep(draw.uniform(20, 90))
                        time.sleep(draw.uniform(1, 40))
                        phases += 1
                        print(f"{time.strftime('%T')} phase {phases}, {told(watch)}", flush=True)
        finally:
            watch.end()
            print(watch.log(), told(watch), sep="\n", flush=True)


def short_lives(seconds, after="4", many="4"):
    """Stand-ins that are well: drawn lengths of a step, rests, ends; each a few minutes at most."""
    python = existing("vllm")
    release, end = releases.vllm_of("installed", python), time.monotonic() + float(seconds)
    steps, lives = [0] * int(many), [0] * int(many)

    def lives_on(number, watch):
        draw = random.Random(f"healthy {number}")
        while time.monotonic() < end:
            with contextlib.ExitStack() as stack:
                ranks = planted.Ranks(stack, python, release, 1 + draw.randrange(2), 0.02)
                until, lives[number] = min(end, time.monotonic() + draw.uniform(60, 200)), lives[number] + 1
                while time.monotonic() < until:
                    for who in ranks.pids:
                        if who != "core":
                            ranks.do(who, f"{draw.choice((0.005, 0.05, 0.3, 0.9)) * draw.uniform(0.5, 1.5):.3f}")
                    if draw.random() < 0.4:
                        ranks.do("core", "rest")
                        time.sleep(draw.uniform(1, 25))
                        ranks.do("core", "work")
                    time.sleep(draw.uniform(5, 30))
                steps[number] += ranks.steps()
                ranks.process.terminate()
                time.sleep(1)

    with tempfile.TemporaryDirectory(prefix="gdbext-watch-") as folder:
        watch = planted.Watched(folder, float(after))
        threads = [threading.Thread(target=lives_on, args=(number, watch)) for number in range(int(many))]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        watch.end()
        print(watch.log(), told(watch), f"{sum(lives)} lives, {sum(steps)} steps, a load of {os.getloadavg()[0]:.1f}", sep="\n")


def told(watch):
    """How many of what kind was told."""
    return dict(collections.Counter(one["kind"] for one in watch.events()))


@contextlib.contextmanager
def counted(name):
    """-> (a function that counts what it has done, how many processes it has, words that mean it) of an engine at work."""
    with contextlib.ExitStack() as stack:
        if name == "vllm":
            engine = stack.enter_context(engines.start_vllm(tp=2))
            engine.said = engine.wait_ready()
            yield lambda: engine.answered()[0], 3
        else:
            python = existing("vllm")
            ranks = planted.Ranks(stack, python, releases.vllm_of("installed", python))
            ranks.moves()
            yield ranks.steps, 3


def used(pid):
    """Seconds of CPU, and resident bytes."""
    with open(f"/proc/{pid}/stat") as f:
        words = f.read().rpartition(")")[2].split()
    return sum(map(int, words[11:13])) / os.sysconf("SC_CLK_TCK"), int(words[21]) * os.sysconf("SC_PAGE_SIZE")


def cost(pairs="10", name="ranks", window=10.0):
    with tempfile.TemporaryDirectory(prefix="gdbext-watch-") as folder, counted(name) as (count, processes):
        watch, ratios, shares = planted.Watched(folder, 60.0), [], []
        pid = watch.process.pid
        time.sleep(15)
        try:
            for number in range(int(pairs)):
                rates = {}
                for with_it in (number % 2 == 0, number % 2 == 1):
                    os.kill(pid, signal.SIGCONT if with_it else signal.SIGSTOP)
                    time.sleep(1)
                    before, cpu, began = count(), used(pid)[0], time.monotonic()
                    time.sleep(window)
                    took = time.monotonic() - began
                    rates[with_it] = (count() - before) / took
                    if with_it:
                        shares.append((used(pid)[0] - cpu) / took / processes)
                ratios.append(rates[True] / rates[False])
                print(
                    f"with {rates[True]:.1f}/s, without {rates[False]:.1f}/s, {100 * shares[-1]:.2f} % of a CPU a rank",
                    flush=True,
                )
            os.kill(pid, signal.SIGCONT)
            memory = used(pid)[1]
        finally:
            watch.end()
    median = statistics.median
    print(
        f"{name}: {len(ratios)} pairs, ratio {median(ratios):.4f} ({min(ratios):.3f} to {max(ratios):.3f}), "
        f"{100 * median(shares):.3f} % of a CPU a rank, {memory >> 20} MiB, a load of {os.getloadavg()[0]:.1f}"
    )


def bundle(rounds="3"):
    """Of a real vLLM of two ranks at work, and gcore of the same processes."""
    with tempfile.TemporaryDirectory(prefix="gdbext-watch-") as folder, engines.start_vllm(tp=2) as engine:
        engine.wait_ready()
        pids = [pid for pid, title in engine.titles().items() if "::" in title]
        print("| tool | bytes | largest process, MB | CPU s | wall s | stop of each process, ms |\n" + "|---" * 6 + "|")
        for number in range(int(rounds)):
            made = os.path.join(folder, f"{number}.gdbext")
            words = ["-m", "gdbext", "bundle", *map(str, pids), "-o", made, "--json"]
            used = bench.measure([sys.executable, *words], said=(said := []))
            stops = " ".join(f"{1000 * one['seconds']:.0f}" for one in json.loads(said[0])["pauses"])
            row("gdbext bundle", sum(os.path.getsize(os.path.join(folder, one)) for one in os.listdir(folder)), used, stops)
            for pid in pids if number == 0 else ():
                meter = bench.PauseMeter(pid)
                meter.start()
                used = bench.measure(["gdb", "-nx", "-q", "-batch", "-p", str(pid), "-ex", f"gcore {folder}/core"])
                meter.over.set()
                row("gcore of one", os.path.getsize(f"{folder}/core"), used, f"{1000 * meter.seconds:.0f}")
                os.unlink(f"{folder}/core")


def row(name, size, used, stops):
    print(f"| {name} | {size} | {used['rss']:.0f} | {used['cpu']:.2f} | {used['wall']:.1f} | {stops} |", flush=True)


def growth(looks="50000"):
    """In this process: the watch's own loop, and no time between two looks."""
    from gdbext.engines.targets import Targets  # noqa: F401  (what a look needs is there before it is measured)
    from gdbext.session.session import Session
    from gdbext.watch import loop

    with counted("ranks"):
        found = Session().resolve("all")
        hands = loop.Hands(lambda refs, lasted: None, lambda refs: "busy", lambda why, verdict, watch: None)
        watch, marks = loop.Watch(found, None, hands, loop.Settings(after=1e9)), {100, 300, 1000, 3000, 10000, 30000, int(looks)}
        for number in range(1, int(looks) + 1):
            look = watch.take()
            if number in marks:
                print(
                    f"{number} looks: {look.memory / (1 << 20):.1f} MiB, history {look.box >> 10} KiB, "
                    f"{1000 * look.cost / number / len(found):.2f} ms of CPU a look and process",
                    flush=True,
                )
            time.sleep(0.0005)


def probe(times="1000"):
    """Of an engine at work, stopped, and none."""
    statuses = collections.Counter()
    with contextlib.ExitStack() as stack:
        python = existing("vllm")
        ranks = planted.Ranks(stack, python, releases.vllm_of("installed", python))
        ranks.moves()
        before = left()
        for number in range(int(times)):
            stopped = number % 10 == 9
            if stopped:
                os.kill(ranks.pids["core"], signal.SIGSTOP)
            words = ["all"] if number % 7 else ["no-such-engine"]
            line = [sys.executable, "-m", "gdbext", "probe", *words]
            done = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=False)
            wanted = "none" if words != ["all"] else "stopped" if stopped else "at work"
            statuses[wanted, done.returncode, done.stdout.partition(":")[0]] += 1
            if stopped:
                os.kill(ranks.pids["core"], signal.SIGCONT)
            if number % 100 == 99:
                print(number + 1, dict(statuses), f"left: {left() - before}", flush=True)
        print(dict(statuses), f"goes on: {ranks.moves()}, left: {left() - before}, tracers: {traced(ranks)}")


def left():
    """Files, descriptors of this process and processes, that may be left over."""
    places = [os.path.join(tempfile.gettempdir(), name) for name in os.listdir(tempfile.gettempdir()) if "gdbext" in name]
    places += [f"/dev/shm/{name}" for name in os.listdir("/dev/shm") if "gdbext" in name]
    return len(places) + len(os.listdir("/proc/self/fd")) + sum(name.isdigit() for name in os.listdir("/proc"))


def traced(ranks):
    """How many of its processes somebody traces."""
    return sum("TracerPid:\t0\n" not in open(f"/proc/{pid}/status").read() for pid in ranks.pids.values())


WHAT = {
    "stalls": stalls,
    "engine": engine,
    "healthy": healthy,
    "short": short_lives,
    "cost": cost,
    "bundle": bundle,
    "growth": growth,
    "probe": probe,
}


def main():
    words = sys.argv[1:]
    if words[:1] == ["-first"]:  # on a machine that others load: before them
        words.pop(0)
        with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as f:
            f.write("-15")
        os.nice(-15)
    if not words or words[0] not in WHAT:
        sys.exit(__doc__)
    if os.environ.pop("GDBEXT_ALONE", "") != "1":
        os.environ["GDBEXT_ALONE"] = "1"
        os.execvp(ALONE[0], [*ALONE, sys.executable, os.path.abspath(__file__), *words])
    with contextlib.suppress(KeyboardInterrupt):
        WHAT[words[0]](*words[1:])


if __name__ == "__main__":
    main()
