"""scripts/bench --healthy N: N looks, by llm-hang and llm-requests in turn, at an engine that is well: at full load, with long
prefills, and with a pool so small that requests are preempted. Any verdict that names somebody, and any request that is called
stuck, is wrong."""

import collections
import json
import os
import statistics
import sys
import time

from .engines import CONFIG, START
from .say import say

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FINE = ("busy", "idle", "startup", "unknown")
STUCK = ("behind", "parked", "never-fits", "lost", "zombie")
SLOW = {**CONFIG, "hidden_size": 1024, "intermediate_size": 2816, "head_dim": 128}  # a long prefill takes a good part of a second
HOW = {
    "vllm": {"tp": 1, "config": SLOW, "args": ("--blocks", "20", "--requests", "6", "--prompt", "200")},
    "sglang": {"tp": 1, "config": SLOW, "args": ("--text", "--tokens", "700", "--requests", "6", "--prompt", "200")},
}


class Looks:
    """What was said of one engine: `verdicts`: {command: Counter}, `accusations`: [text], `cpu`: {command: [seconds]},
    `pauses`: seconds, of each process and look that stopped it."""

    def __init__(self):
        self.verdicts, self.cpu = collections.defaultdict(collections.Counter), collections.defaultdict(list)
        self.accusations, self.pauses = [], []

    def add(self, command, said, cpu):
        """Takes one answer in."""
        self.cpu[command].append(cpu)
        self.pauses += [p["seconds"] for p in said.get("pauses", ())]
        groups, requests = said.get("verdicts", ()), said.get("requests", ())
        self.verdicts[command].update(v["verdict"] for v in groups)
        if command == "llm-requests":
            self.verdicts[command].update(r["verdict"] or "unknown" for r in requests)
        wrong = [(v["verdict"], v["evidence"]) for v in groups if v["verdict"] not in FINE]
        wrong += [(f"{r['request_id']} {r['verdict']}", r["evidence"]) for r in requests if r["verdict"] in STUCK]
        for who, evidence in wrong:
            self.accusations.append(f"{command}: {who}: {'; '.join(evidence[:4])}")
            say(f"  {self.accusations[-1]}")


def told(pauses):
    """How long processes were paused."""
    if not pauses:
        return "no process was paused"
    by_length = sorted(pauses)
    middle, late, longest = (1000 * by_length[int(part * (len(pauses) - 1))] for part in (0.5, 0.95, 1))
    return f"{len(pauses)} pauses: median {middle:.0f} ms, 95th percentile {late:.0f} ms, longest {longest:.0f} ms"


def look_often(engine, count):
    """-> the `Looks`."""
    from harness.answers import answer

    from gdbext.errors import GdbextError

    found = Looks()
    for number in range(count):
        command, began = ("llm-hang", "llm-requests")[number % 2], time.process_time()
        pids = [pid for pid, title in engine.titles().items() if "::" in title or pid == engine.said["pid"]]
        what = " ".join(map(str, pids)) if command == "llm-hang" else str(engine.said["pid"])
        try:
            said = answer(f"{command} {what} -json")
        except GdbextError as e:
            found.verdicts[command][f"error: {e}"] += 1
            continue
        found.add(command, said, time.process_time() - began)
    return found


def main(names, count):
    """Exit status: 1 where anybody was accused."""
    sys.path[:0] = [ROOT, os.path.join(ROOT, "tests")]
    wrong = 0
    for name in names or HOW:
        with START[name](**HOW[name]) as engine:
            engine.said = engine.wait_ready()
            before, began = engine.answered(), time.monotonic()
            found = look_often(engine, count)
            tokens, requests = (b - a for a, b in zip(before, engine.answered()))
        wrong += len(found.accusations)
        say(
            f"{name}: {count} looks in {time.monotonic() - began:.0f} s at a load of {os.getloadavg()[0]:.0f}, while it answered "
            f"{requests} requests ({tokens} tokens): {len(found.accusations)} accusations; {told(found.pauses)}"
        )
        for command, counted in found.verdicts.items():
            cpu = statistics.median(found.cpu[command] or [0])
            say(f"  {command}, {cpu:.2f} s of CPU: {json.dumps(dict(counted.most_common()))}")
    return 1 if wrong else 0
