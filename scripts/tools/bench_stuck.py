"""scripts/bench --stuck N: real engines with one fault after the other, each asked about N times as a user would, in a process of
its own: how long llm-requests and llm-hang take, how long a process stands still for it, and whether the right requests and the
right process are named."""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from .bench_healthy import STUCK
from .engines import START
from .environments import environment
from .say import Failed, say

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SUBJECT = os.path.join(ROOT, "tests", "engines", "subject")


class Case:
    """A fault that is there now. `wanted`: {part of a request's id: its verdict}, None where no engine is left to ask;
    `accused`: pids one of which each stuck request names, empty where none is to be named; `verdicts`: what llm-hang may say;
    `culprits`: the pids that it is to name."""

    def __init__(self, name, wanted, accused, verdicts, culprits):
        self.name, self.wanted, self.accused, self.verdicts, self.culprits = name, wanted, accused, verdicts, culprits

    def requests_are_right(self, said):
        stuck = {r["request_id"]: r for r in said.get("requests", ()) if r["verdict"] in STUCK}
        for part, verdict in self.wanted.items():
            mine = [name for name in stuck if part in name]
            if not mine or any(stuck[name]["verdict"] != verdict for name in mine):
                return False
            if self.accused and any((stuck[name]["holder"] or {}).get("pid") not in self.accused for name in mine):
                return False
            for name in mine:
                del stuck[name]
        return not stuck

    def hang_is_right(self, said):
        named = {c["pid"] for c in said.get("culprits", ())} if said.get("verdict") not in ("busy", "idle") else set()
        return said.get("verdict") in self.verdicts and named == set(self.culprits)


def ask(command, pids):
    """-> (the answer, seconds, seconds of CPU of all its processes)"""
    line = [environment("tests"), "-m", "gdbext", command, *map(str, pids), "--json"]
    began = time.monotonic()
    with subprocess.Popen(line, cwd=ROOT, stdout=subprocess.PIPE) as process:
        text = process.stdout.read()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return json.loads(text), time.monotonic() - began, used.ru_utime + used.ru_stime


def measure(case, pids, front, rounds):
    """Asks, and prints a row of the table. -> answers that were wrong"""
    cells, pause, wrong = [], 0.0, 0
    if case.wanted is None:
        cells = [""] * 4
    for command, what, is_right in (
        ("llm-requests", [front] if front else pids, case.requests_are_right),
        ("llm-hang", pids, case.hang_is_right),
    )[case.wanted is None :]:
        took, cpu, right = [], [], 0
        for _ in range(rounds):
            said, seconds, used = ask(command, what)
            good = is_right(said)
            right += good
            if not good:
                short = {r["request_id"]: (r["verdict"], r["holder"]) for r in said.get("requests", ())}
                say(f"    {command}: {said.get('error') or said.get('verdict')} {said.get('culprits')} {short} {said['partial']}")
            took.append(seconds)
            cpu.append(used)
            pause = max([pause, *(p["seconds"] for p in said.get("pauses", ()))])
        wrong += rounds - right
        cells += [
            f"{right} of {rounds}",
            f"{statistics.median(took):.1f} s",
            f"{max(took):.1f} s",
            f"{statistics.median(cpu):.1f} s",
        ]
    say(f"| {case.name} | {' | '.join(cells)} | {pause * 1000:.0f} ms |")
    return wrong


# ---- vLLM ------------------------------------------------------------------------------------------------------------------
def vllm_cases(served):
    """Each fault of tests/engines/faults/vllm_faults.py in turn, as (Case, pids); the last ones stay."""
    pids = served.pids()
    core, worker, front = pids["EngineCore"], pids["Worker"], served.engine.said["pid"]
    everybody = list(pids.values())

    def are(**wanted):
        """Waits until the requests have these verdicts, one in each of two answers."""
        for _ in range(2):
            served.until(
                lambda found: all(any(n in i and r["verdict"] == v for i, r in found.items()) for n, v in wanted.items())
            )

    yield Case("at rest", {}, (), ("idle",), ()), everybody
    with served.traffic():
        served.until(lambda found: sum(r["status"] == "RUNNING" for r in found.values()) > 1)
        yield Case("well, at full load, preempted", {}, (), ("busy", "unknown"), ()), everybody
    served.until(lambda found: not set(found))
    with served.asked("large", prompt=300), served.asked("after"):
        are(large="never-fits", after="behind")
        yield (
            Case("prompt larger than the pool", {"large": "never-fits", "after": "behind"}, (), ("stuck-requests",), ()),
            everybody,
        )
    served.until(lambda found: not found)
    with served.fault("connector"), served.asked("remote", prompt=40):
        are(remote="parked")
        yield Case("connector that never delivers", {"remote": "parked"}, (worker,), ("stuck-requests",), (worker,)), everybody
    served.until(lambda found: not found)
    rule = {"structured_outputs": {"regex": "w[0-9]+"}}
    with served.fault("grammar"), served.asked("compiled", **rule):
        are(compiled="parked")
        yield Case("grammar that is never compiled", {"compiled": "parked"}, (core,), ("stuck-requests",), (core,)), everybody
    served.until(lambda found: not found)
    with served.fault("input-loops"), served.asked("poison"), served.asked("after"):
        are(poison="behind", after="behind")
        both = {"poison": "behind", "after": "behind"}
        yield Case("input thread in an endless loop", both, (core,), ("stuck-requests", "livelock"), (core,)), everybody
    served.until(lambda found: not found)
    with served.fault("connector"), served.asked("remote-kept", prompt=40):
        are(kept="parked")
        with served.fault("block-loop"), served.asked("blocks", fault="block-loop"):
            server = served.happened("block-loop")
            os.unlink(os.path.join(served.faults, "connector"))
            are(kept="behind")
            kinds = ("stuck-requests", "loop-blocked")
            yield Case("blocked event loop of the API server", {"kept": "behind"}, (server,), kinds, (server,)), everybody
            open(os.path.join(served.faults, "connector"), "w").close()
    served.until(lambda found: not found)
    open(os.path.join(served.faults, "lost-answer"), "w").close()
    with served.asked("unanswered"):
        are(unanswered="lost")
        yield (
            Case("answer lost between worker and core", {"unanswered": "lost"}, (worker,), ("stuck-requests",), (worker,)),
            everybody,
        )
    open(os.path.join(served.faults, "input-dies"), "w").close()
    with served.asked("poison"), served.asked("after"):
        are(poison="lost", after="lost")
        two = {"poison": "lost", "after": "lost", "unanswered": "zombie"}
        yield Case("input thread that has ended", two, (core,), ("stuck-requests",), (core,)), everybody
    os.kill(front, signal.SIGKILL)
    end = time.monotonic() + 60
    while set(served.pids()) - {"EngineCore", "Worker"}:
        if time.monotonic() > end:
            raise Failed(f"bench: processes of a server that was killed are still there: {served.pids()}")
        time.sleep(0.2)
    yield Case("server killed", None, (), ("orphaned",), (core, worker)), [core, worker]


# ---- SGLang ----------------------------------------------------------------------------------------------------------------
def sglang_cases(engine):
    """Each fault of tests/engines/subject/sglang_faults.py in turn, as (Case, pids); the last one stays. Two requests are always
    there."""
    from harness.engines import pid_of
    from harness.served_sglang import sent, steadily

    server, scheduler = engine.said["pid"], pid_of(engine, "sglang::scheduler")
    detokenizer = pid_of(engine, "sglang::detokenizer")
    everybody = [server, scheduler, detokenizer]
    others = ("request-0", "behind"), ("request-1", "behind")

    steadily(engine, moving=True)
    yield Case("well, at full load", {}, (), ("busy", "unknown"), ()), everybody
    with sent(engine, ("lost", 32, 8), ("mute", 32, 8)):
        steadily(engine, ("lost", "lost"), ("mute", "lost"), moving=True)
        yield Case("requests lost on two ways", {"lost": "lost", "mute": "lost"}, (), ("stuck-requests",), ()), everybody
    with sent(engine, ("zombie", 32, 3600)):
        steadily(engine, ("zombie", "zombie"), moving=True)
        yield Case("zombie", {"zombie": "zombie"}, (scheduler,), ("stuck-requests",), (scheduler,)), everybody
    for name, title, pid in (
        ("text-loops", "detokenizer in an endless loop", detokenizer),
        ("step-loops", "scheduler in an endless loop", scheduler),
        ("server-loops", "blocked event loop of the server", server),
    ):
        with sent(engine, (name, 32, 8)):
            steadily(engine, (name, "behind"), *others)
            kinds = ("stuck-requests", "livelock", "loop-blocked")
            yield Case(title, {name: "behind", "request-": "behind"}, (pid,), kinds, (pid,)), everybody
        steadily(engine, moving=True)
    with sent(engine, ("too-large", 5000, 8)):
        steadily(engine, ("too-large", "never-fits"), *others)
        wanted = {"too-large": "never-fits", "request-": "behind"}
        yield Case("prompt larger than the pool", wanted, (), ("stuck-requests",), ()), everybody
    steadily(engine, moving=True)
    with sent(engine, ("deaf", 32, 8), forgotten=False):
        steadily(engine, ("deaf", "lost"), ("request-0", "lost"), ("request-1", "lost"))
        yield (
            Case(
                "task that took answers in has ended",
                {"deaf": "lost", "request-": "lost"},
                (server,),
                ("stuck-requests",),
                (server,),
            ),
            everybody,
        )


# ---- the whole -------------------------------------------------------------------------------------------------------------
@contextlib.contextmanager
def started(name, folder):
    """The engine, ready, as what its cases are made of."""
    from harness.served import Served

    if name == "vllm":
        open(os.path.join(folder, "small-pool"), "w").close()
        how = {"script": "serve_http.py", "args": ("--faults", folder)}
    else:
        how = {"args": ("--text", "--context", "8192", "--requests", "2", "--faults", folder, "--events")}
    share = os.environ.get("GDBEXT_ENGINE_SHARE", "nice")  # in a quota a thread stops at its turn
    env = {"PYTHONPATH": SUBJECT, "GDBEXT_TRUTH": folder, "GDBEXT_ENGINE_SHARE": share}
    with START[name](tp=1, env=env, **how) as engine:
        engine.said, engine.faults = engine.wait_ready(), folder
        yield Served(engine, folder) if name == "vllm" else engine


def main(names, rounds):
    """Exit status: 1 where any answer was wrong."""
    sys.path[:0] = [ROOT, os.path.join(ROOT, "tests")]
    wrong = 0
    for name in names or START:
        with tempfile.TemporaryDirectory(prefix="gdbext-bench-") as folder, started(name, folder) as subject:
            say(f"{name}, {rounds} answers each; a load of {os.getloadavg()[0]:.1f}")
            say("| fault | llm-requests: right | takes | at most | CPU | llm-hang: right | takes | at most | CPU | stood still |")
            say("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
            cases, front = (vllm_cases, subject.engine.said["pid"]) if name == "vllm" else (sglang_cases, subject.said["pid"])
            for case, pids in cases(subject):
                wrong += measure(case, pids, front, rounds)
    return 1 if wrong else 0
