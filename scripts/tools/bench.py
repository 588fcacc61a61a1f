"""scripts/bench: how long an engine's process stands still, and what a look at it costs, against the tools people use today.

Every tool runs once per round, one after the other, on the same processes, so that what the machine does besides falls on all
alike. Read the ratios, not the seconds: each row is set beside the first one of its table."""

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

from . import (
    bench_agents,
    bench_bounds,
    bench_curves,
    bench_hangs,
    bench_healthy,
    bench_heap,
    bench_layers,
    bench_record,
    bench_stuck,
    bench_tensors,
)
from .engines import START, start_vllm
from .environments import cache_folder, environment
from .say import Failed, say
from .system import need_gdb

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
INIT = os.path.join(ROOT, "gdbext", "init.py")


class PauseMeter(threading.Thread):
    """Adds up how long a process's main thread is in state t or T, looked at every millisecond."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.path, self.seconds, self.over = f"/proc/{pid}/stat", 0.0, threading.Event()

    def run(self):
        last, stopped = time.monotonic(), False
        while not self.over.is_set():
            try:
                with open(self.path, "rb") as f:
                    now_stopped = f.read().rpartition(b")")[2].split()[0] in (b"t", b"T")
            except OSError:
                return
            now = time.monotonic()
            if stopped:
                self.seconds += now - last
            last, stopped = now, now_stopped
            time.sleep(0.001)


def measure(argv, pid=None, timeout=400, said=None):
    """-> {wall, cpu, rss, pause, ok} of one command; `pause` of process `pid`; `said`: a list that gets what it prints."""
    meter = PauseMeter(pid) if pid else None
    if meter:
        meter.start()
    start = time.monotonic()
    # as of an installed pack, whose modules are compiled: the launcher of the scripts lets nothing be written
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    env["PYTHONPYCACHEPREFIX"] = os.path.join(cache_folder(), "bytecode")
    with open(os.devnull, "wb") as nowhere, tempfile.TemporaryFile() as out:
        child = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=nowhere if said is None else out, stderr=nowhere, env=env)
        timer = threading.Timer(timeout, child.kill)
        timer.start()
        _, status, used = os.wait4(child.pid, 0)
        timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(status)
        if said is not None:
            out.seek(0)
            said.append(out.read().decode())
    wall = time.monotonic() - start
    if meter:
        meter.over.set()
        meter.join()
    return {
        "wall": wall,
        "cpu": used.ru_utime + used.ru_stime,
        "rss": used.ru_maxrss / 1024,
        "pause": meter.seconds if meter else 0.0,
        "ok": child.returncode in (0, 3),  # 3: an answer that says what it lacks
    }


def gdb_line(gdb, *commands, arguments=()):
    line = [gdb, "-nx", "-q", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set auto-load off", *arguments]
    for command in commands:
        line += ["-ex", command]
    return line


def tools(gdb, python, pid):
    """{row: command}: the first is what the others are set beside."""
    folder = os.path.dirname(python)
    spy, stack = os.path.join(folder, "py-spy"), os.path.join(folder, "pystack")
    return {
        "gdbext: llm-attach, pybt -all": gdb_line(gdb, f"source {INIT}", f"llm-attach {pid}", "pybt -all", "llm-detach"),
        "gdbext: llm-attach, llm-bt -all": gdb_line(gdb, f"source {INIT}", f"llm-attach {pid}", "llm-bt -all", "llm-detach"),
        "gdbext outside gdb: llm-stacks": [sys.executable, "-m", "gdbext", "llm-stacks", str(pid)],
        "py-spy dump": [spy, "dump", "--pid", str(pid)],
        "py-spy dump --native": [spy, "dump", "--native", "--pid", str(pid)],
        "pystack remote": [stack, "remote", str(pid)],
        "pystack remote --native-all": [stack, "remote", "--native-all", str(pid)],
        "gdb -p, thread apply all bt": gdb_line(gdb, "thread apply all bt", arguments=["-p", str(pid)]),
    }


def core_tools(gdb, python, core, executable):
    """{row: command} on a core file of a process that ran `executable`."""
    quick = ("-iex", "set auto-solib-add off")
    return {
        "gdbext: core-file, llm-bt -all": gdb_line(gdb, f"source {INIT}", "llm-bt -all", arguments=[*quick, "-c", core]),
        "gdbext outside gdb: llm-bt -all -on CORE": [sys.executable, "-m", "gdbext", "llm-bt", "-all", "-on", core],
        "pystack core --native-all": [os.path.join(os.path.dirname(python), "pystack"), "core", "--native-all", core, executable],
        "gdb -c, thread apply all bt": gdb_line(gdb, "thread apply all bt", arguments=[executable, "-c", core]),
    }


def table(title, rows):
    """A Markdown table of medians; `rows`: {name: [measurement]}. × is the pause beside the first row's, or, where nothing is
    stopped, the wall time."""
    middles = {
        name: {k: statistics.median(r[k] for r in runs) for k in ("pause", "wall", "cpu", "rss")} for name, runs in rows.items()
    }
    by = "pause" if any(middle["pause"] for middle in middles.values()) else "wall"
    base = next(iter(middles.values()))[by]
    pause = by == "pause"
    say(f"\n{title}\n")
    say(("| tool | pause s | × | wall s |" if pause else "| tool | wall s | × |") + " CPU s | MB | failed |")
    say("| --- | ---: | ---: | ---: | ---: | ---: |" + (" ---: |" if pause else ""))
    for name, middle in middles.items():
        failed = sum(not r["ok"] for r in rows[name])
        ratio = f"{middle[by] / base:.2f}" if base else "-"
        times = f"{middle['pause']:.3f} | {ratio} | {middle['wall']:.2f}" if pause else f"{middle['wall']:.2f} | {ratio}"
        say(f"| {name} | {times} | {middle['cpu']:.2f} | {middle['rss']:.0f} | {failed or ''} |")


def bench_source(gdb, rounds):
    plain, loaded = [], []
    for _ in range(rounds):
        plain.append(measure(gdb_line(gdb)))
        loaded.append(measure(gdb_line(gdb, f"source {INIT}")))
    cost = statistics.median(r["cpu"] for r in loaded) - statistics.median(r["cpu"] for r in plain)
    table(
        f"Loading the pack ({rounds} rounds): {cost * 1000:.0f} ms of CPU beyond bare gdb",
        {"gdb": plain, "gdb, source gdbext/init.py": loaded},
    )


def bench_stacks(gdb, rounds, label, pid, python):
    lines = tools(gdb, python, pid)
    rows = {name: [] for name in lines}
    for number in range(rounds):
        for name, line in lines.items():
            say(f"  round {number + 1} of {rounds}, {label}: {name}")
            rows[name].append(measure(line, pid))
    table(f"{label} (pid {pid}), median of {rounds} rounds", rows)


def bench_core(gdb, rounds, label, pid, python):
    with tempfile.TemporaryDirectory(prefix="gdbext-bench-") as folder:
        core = os.path.join(folder, "core")
        say(f"  gcore of {label} ...")
        measure(gdb_line(gdb, f"gcore {core}", arguments=["-iex", "set auto-solib-add off", "-p", str(pid)]))
        lines = core_tools(gdb, python, core, os.path.realpath(f"/proc/{pid}/exe"))
        rows = {name: [] for name in lines}
        for number in range(rounds):
            for name, line in lines.items():
                say(f"  round {number + 1} of {rounds}, core of {label}: {name}")
                rows[name].append(measure(line))
        table(f"A core of {label} ({os.stat(core).st_size >> 20} MiB), median of {rounds} rounds", rows)


def bench_kv(gdb, rounds):
    """llm-kv check over large pools: CPU beyond an attach that asks nothing."""
    subject = os.path.join(ROOT, "scripts", "tools", "kv_subject.py")
    for kind, size, option in (("vllm", 100_000, "-pool pool"), ("vllm", 1_000_000, "-pool pool"), ("sglang", 5_000_000, "")):
        child = subprocess.Popen(
            [environment(kind), subject, kind, str(size)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        try:
            if not any(line.startswith("READY") for line in child.stdout):
                raise Failed(f"bench: {kind} with {size} did not start")
            rows = {"llm-attach": [], "llm-attach, llm-kv check": []}
            for _ in range(rounds):
                for name, runs in rows.items():
                    commands = [f"llm-attach {child.pid}", *([f"llm-kv check {option}"] if "check" in name else []), "llm-detach"]
                    runs.append(measure(gdb_line(gdb, f"source {INIT}", *commands), child.pid))
            plain, checked = (statistics.median(r["cpu"] for r in runs) for runs in rows.values())
            table(
                (
                    f"{kind}, {size} {'blocks' if kind == 'vllm' else 'slots'}: llm-kv check "
                    f"{checked - plain:.2f} s of CPU beyond attach"
                ),
                rows,
            )
        finally:
            child.kill()
            child.communicate()


NEVER = {  # an engine's scheduler process, and a function of it that is not called here
    "vllm": ("VLLM::EngineCore", "Scheduler.reset_prefix_cache"),
    "sglang": ("sglang::scheduler_TP0", "Scheduler.flush_cache"),
}


def bench_pybreak(gdb, rounds):
    """Tokens a second of a real engine without gdb, with a Python breakpoint armed that is not reached, and without again."""

    def rate(seconds=8):
        tokens, began = engine.answered()[0], time.monotonic()
        time.sleep(seconds)
        return (engine.answered()[0] - tokens) / (time.monotonic() - began)

    say(
        (
            "\n| engine | tokens/s before | armed, not reached | after | armed ÷ others | set in s | stood still |\n| "
            "--- | ---: | ---: | ---: | ---: | ---: | --- |"
        )
    )
    for name, (title, function) in NEVER.items():
        with START[name](tp=2) as engine:
            engine.wait_ready()
            pid = next(pid for pid, t in engine.titles().items() if t == title)
            free, armed = [rate()], []
            for _ in range(rounds):
                set_it = (
                    f"python import time; T = time.monotonic(); gdb.execute('pybreak {function}'); "
                    f"print('armed', time.monotonic() - T, flush=True)"
                )
                line = gdb_line(gdb, f"source {INIT}", f"llm-attach -libraries none {pid}", set_it, "llm-continue", "llm-detach")
                child = subprocess.Popen(
                    line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
                )
                took = next((float(text.split()[1]) for text in child.stdout if text.startswith("armed ")), None)
                if took is None:
                    raise Failed(f"bench: the breakpoint was not set in {name}")
                time.sleep(1)
                armed.append(rate())
                child.send_signal(signal.SIGINT)
                end = child.communicate(timeout=120)[0].strip().splitlines()[-1]
                time.sleep(1)
                free.append(rate())
            middle = [statistics.median(v) for v in (free[:1], armed, free[1:], free)]
            say(
                (
                    f"| {name} | {middle[0]:.0f} | {middle[1]:.0f} | {middle[2]:.0f} | "
                    f"{middle[1] / middle[3]:.2f} | {took:.2f} | {end.rpartition('  ')[2]} |"
                )
            )


def bench_share(gdb, rounds):
    """What the tools cost beside a vLLM at work that leaves the rest of the machine a share, or leaves it nothing."""
    rows = {}
    for share in ("none", "nice", "quota", "nice quota"):
        with start_vllm(tp=2, env={"GDBEXT_ENGINE_SHARE": share}) as engine:
            engine.wait_ready()
            pid = next(pid for pid, title in engine.titles().items() if title == "VLLM::EngineCore")
            line = gdb_line(gdb, f"source {INIT}", f"llm-attach {pid}", "pybt -all", "llm-detach")
            before, began = engine.answered()[0], time.monotonic()
            runs = [measure(line, pid) for _ in range(rounds)]
            rate = (engine.answered()[0] - before) / (time.monotonic() - began)
        rows[f"{share}: {engine.share or 'nothing done'}; {rate:.0f} tokens/s"] = runs
    table(f"llm-attach, pybt -all beside a vLLM at work ({rounds} rounds)", rows)


def main(words):
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="how often each tool runs")
    parser.add_argument("--pid", type=int, action="append", help="measure on these processes instead of an engine of its own")
    parser.add_argument(
        "--busy", action="store_true", help="with requests in flight; without, the engine has answered some and waits"
    )
    parser.add_argument("--source-only", action="store_true", help="only what loading the pack costs")
    parser.add_argument("--tensors", action="store_true", help="only work with tensors' values")
    parser.add_argument(
        "--kv", action="store_true", help="only llm-kv check over 10^5 and 10^6 vLLM blocks and 5*10^6 SGLang slots"
    )
    parser.add_argument(
        "--pybreak", action="store_true", help="only what an armed Python breakpoint costs vLLM and SGLang at work"
    )
    parser.add_argument("--layers", action="store_true", help="only what a step that llm-layers records takes, on real engines")
    parser.add_argument("--heap", type=int, metavar="N", help="only a look at a Python heap of N objects")
    parser.add_argument(
        "--bounds",
        type=float,
        nargs="?",
        const=1.0,
        metavar="SCALE",
        help="only looks at big processes (stand-ins), or SCALE of them",
    )
    parser.add_argument(
        "--curves",
        type=float,
        nargs="?",
        const=1.0,
        metavar="SCALE",
        help="only how a look grows with threads, frames, ranks, requests, blocks, objects, libraries, mappings, up to SCALE",
    )
    parser.add_argument("--curve", action="append", help="of --curves: only this one")
    parser.add_argument("--picture", metavar="F", help="of --curves: draw it into F (.svg, .png)")
    parser.add_argument("--share", action="store_true", help="only gdb beside a vLLM that leaves others a share of the machine")
    parser.add_argument("--fuzz", type=int, metavar="N", help="only N damaged files of each format that the pack opens")
    parser.add_argument("--mcp-kills", type=int, metavar="N", help="only N clients of `mcp` killed at random moments")
    parser.add_argument("--adverse", action="store_true", help="only looks where they are hard: no memory, no disk, frozen, held")
    parser.add_argument("--healthy", type=int, metavar="N", help="only N looks at each engine at full load: is anybody accused?")
    parser.add_argument("--stuck", type=int, metavar="N", help="only N answers about each fault of real engines, right or wrong")
    parser.add_argument(
        "--hangs", nargs="?", type=int, const=24, metavar="N", help="only N drawn programs that hang and N/2 healthy, by tool"
    )
    parser.add_argument(
        "--tool",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        help="of --hangs: another tool, given pids; it prints {'state': 'hung', 'well' or 'unknown', 'blamed': [tids, pids]}",
    )
    parser.add_argument(
        "--record",
        choices=("all", "shares", "cost", "stalls", "engine"),
        help="only llm-record, beside py-spy record, what was planted, and a vLLM at work",
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="of --record stalls, --hangs: the first seed (default: drawn, and printed)"
    )
    parser.add_argument(
        "--engine", action="append", choices=list(START), help="of --healthy, --stuck and --layers: only this engine"
    )
    parser.add_argument("--gib", type=float, default=1.0, help="size of the tensor of --tensors")
    args = parser.parse_args(words)
    if args.fuzz:
        folder = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        words = [environment("tests"), "-m", "tools.fuzz", str(args.fuzz)]
        return subprocess.run(words, env={**os.environ, "PYTHONPATH": folder}, check=False).returncode
    if args.mcp_kills or args.adverse:  # which use the tests' own subjects
        folders = [os.path.join(bench_agents.ROOT, name) for name in ("", "scripts", "tests")]
        what = ("bench_agents", args.mcp_kills) if args.mcp_kills else ("bench_adverse", args.rounds)
        words = [environment("tests"), "-m", f"tools.{what[0]}", str(what[1])]
        return subprocess.run(words, env={**os.environ, "PYTHONPATH": ":".join(folders)}, check=False).returncode
    if args.record:
        bench_record.main(args.rounds, args.record, args.seed)
        return 0
    if args.hangs:
        seed = args.seed if args.seed is not None else int.from_bytes(os.urandom(2), "little")
        return bench_hangs.main(PauseMeter, args.hangs, args.hangs // 2, seed, args.tool)
    if args.healthy:
        return bench_healthy.main(args.engine, args.healthy)
    if args.stuck:
        return bench_stuck.main(args.engine, args.stuck)
    if args.curves:
        return bench_curves.main(measure, args.curve, args.curves, args.rounds, args.picture)
    if args.heap:
        return bench_heap.main(measure, table, args.heap, args.rounds)
    gdb = need_gdb()[0]
    if args.bounds:
        return bench_bounds.main(
            measure, table, lambda *commands: gdb_line(gdb, f"source {INIT}", *commands), args.bounds, args.rounds
        )
    if args.tensors:
        bench_tensors.main(gdb, args.gib, args.rounds)
        return 0
    if args.pybreak:
        bench_pybreak(gdb, args.rounds)
        return 0
    if args.layers:
        bench_layers.main(lambda *commands: gdb_line(gdb, f"source {INIT}", *commands), args.rounds, args.engine)
        return 0
    if args.share:
        bench_share(gdb, args.rounds)
        return 0
    if args.kv:
        bench_kv(gdb, args.rounds)
        return 0
    bench_source(gdb, 11)
    if args.source_only:
        return 0
    python = environment("tests")
    if args.pid:
        for pid in args.pid:
            bench_stacks(gdb, args.rounds, "process", pid, python)
        return 0
    with start_vllm(tp=2, args=() if args.busy else ("--rest",)) as engine:
        engine.wait_ready()
        titles = {title: pid for pid, title in engine.titles().items()}
        for title in ("VLLM::EngineCore", "VLLM::Worker_TP0"):
            bench_stacks(gdb, args.rounds, title, titles[title], python)
        bench_core(gdb, args.rounds, "VLLM::EngineCore", titles["VLLM::EngineCore"], python)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as e:
        say(str(e))
        sys.exit(1)
