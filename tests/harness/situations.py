"""Random situations (gdb/subjects/situations.py) put to llm-hang."""

import collections
import concurrent.futures
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass

from .answers import answer
from .heartbeats import asleep
from .subjects import SUBJECTS, spawned

ACCUSES = (
    "crashed", "stopped", "lock-cycle", "lock-held", "gil", "dead-thread", "livelock", "loop-blocked", "collective", "kernel",
    "starved", "stuck-requests", "orphaned",
)  # fmt: skip


@dataclass
class Outcome:
    """One situation: `how` "right", "unknown", "imprecise" (a healthy one called the other good word) or "WRONG"."""

    seed: int
    drawn: str
    hung: bool
    right: list
    true: list
    verdict: str
    culprits: list
    evidence: list
    how: str


def judge(truth, said):
    """How an answer compares with what is true. Wrong: a hung one called busy or idle, a healthy one or another one accused."""
    verdict = said["verdict"]
    got = {c.get("tid") or ("task" if c.get("task") else c.get("pid")) or "dead" for c in said["culprits"]}
    named = set(truth["culprits"])
    if verdict in truth["right"] and (not named or got <= named or "dead" in named):
        return "right"
    if verdict == "unknown":
        return "unknown"
    if verdict in ACCUSES or truth["hung"]:
        return "WRONG"
    return "imprecise"


def one(seed, wait=1.0):
    """Lives the situation of a seed and asks about it."""
    words = [sys.executable, os.path.join(SUBJECTS, "situations.py"), str(seed)]
    with spawned(words, ready="{", stderr=subprocess.DEVNULL, start_new_session=True) as child:
        truth = json.loads(child.said)
        if "left_out" in truth:
            return Outcome(seed, "", False, [], [], "", [], [truth["left_out"]], "left out")
        asleep(truth["pid"], seconds=0.3)  # some never do
        time.sleep(0.2)
        pids = [truth["pid"], *truth["pids"], *truth["others"]]
        said = answer(f"llm-hang {' '.join(map(str, pids))} -wait {wait} -json")
        strangers = set(map(str, truth["others"]))
        said = next(v for v in said["verdicts"] if not strangers.issuperset(v["group"]))
        got = [c.get("tid") or c["label"] for c in said["culprits"]]
        how = judge(truth, said)
        return Outcome(
            seed, truth["drawn"], truth["hung"], truth["right"], truth["culprits"], said["verdict"], got, said["evidence"], how
        )


def run(seeds, processes=2):
    """`Outcome` of each seed, some at once."""
    with concurrent.futures.ProcessPoolExecutor(processes) as pool:
        yield from pool.map(one, seeds)


def matrix(found):
    """Lines of a Markdown table: what is true against what was said."""
    said = sorted({o.verdict for o in found})
    rows = collections.defaultdict(collections.Counter)
    for o in found:
        rows["/".join(o.right)][o.verdict] += 1
    lines = ["| true \\ said | " + " | ".join(said) + " |", "|---" * (len(said) + 1) + "|"]
    lines += [f"| {true} | " + " | ".join(str(rows[true][s] or "") for s in said) + " |" for true in sorted(rows)]
    how = collections.Counter(o.how for o in found)
    share = 100 * how["right"] / max(len(found), 1)
    lines.append(f"{len(found)} situations: " + ", ".join(f"{n} {h}" for h, n in how.items()) + f"; {share:.0f} % right")
    return lines
