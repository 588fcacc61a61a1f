"""Random situations (gdb/subjects/situations.py) put to llm-hang."""

import collections
import concurrent.futures
import contextlib
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from gdbext.errors import GdbextError
from gdbext.verdict.kinds import KINDS

from .answers import answer
from .heartbeats import asleep
from .subjects import SUBJECTS, spawned

SECONDS = 300  # that a situation may take to begin
ACCUSES = tuple(kind.name for kind in KINDS if not kind.quiet and kind.name != "unknown")


@dataclass
class Outcome:
    """One situation: `how` "right", "unknown", "imprecise" (a healthy one called the other good word) or "WRONG"."""

    words: str  # a seed, or what it is
    drawn: str
    hung: bool
    right: list
    true: list
    verdict: str
    culprits: list
    evidence: list
    how: str
    end: str = (
        ""  # of a hung one: its own chain ends at who should end it ("named"), or at several of which that is one ("among")
    )


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


class Stage:
    """Where situations are lived, by `python` where that has what they need: `folder` has the sockets of their servers
    (subjects/situation_server.py), one for each of what situations need. `kept`: what is asked about are snapshots. `env`: what
    the environment has too."""

    def __init__(self, folder, python, begin=None, kept=False, env=None):
        self.folder, self.python, self.begin, self.kept, self.env = folder, python, begin, kept, env or {}

    def path(self, needs):
        return os.path.join(self.folder, needs or "plain")

    def server(self, needs):
        """-> a context manager: the server for what situations need; None where no interpreter has it."""
        python = os.environ.get("GDBEXT_TEST_TORCH_PYTHON") if needs else self.python
        words = [python, os.path.join(SUBJECTS, "situation_server.py"), self.path(needs), needs]
        env = {**os.environ, **self.env, "TMPDIR": self.folder}
        return spawned(words, ready="ready", stderr=subprocess.DEVNULL, env=env, preexec_fn=self.begin) if python else None

    @contextlib.contextmanager
    def asked(self, needs, words):
        """-> a file of what a server says."""
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(SECONDS)
            s.connect(self.path(needs))
            s.sendall(f"{words}\n".encode())
            with s.makefile() as said:
                yield said

    def needs(self, words):
        """What a situation needs."""
        with self.asked("", f"? {words}") as said:
            return said.readline().strip()

    @contextlib.contextmanager
    def lived(self, needs, words):
        """-> what a situation says is true of itself, while it is lived."""
        with self.asked(needs, words) as said:
            truth = json.loads(said.readline())
            try:
                yield truth
            finally:
                os.killpg(truth["pid"], signal.SIGKILL)

    def snapshot(self, pid):
        path = os.path.join(self.folder, f"{pid}.core")
        answer(f"llm-snapshot {pid} -o {path} -json")
        return path

    def outcome(self, words, needs, wait=1.0):
        """The `Outcome` of a situation."""
        if not os.path.exists(self.path(needs)):
            return left_out(words, "no interpreter with torch, uvloop and vLLM")
        with self.lived(needs, words) as truth:
            asleep(truth["pid"], seconds=0.3)  # some never do
            time.sleep(0.2)
            pids = [truth["pid"], *truth["pids"], *truth["others"]]
            whom = [self.snapshot(pid) for pid in pids] if self.kept else pids
            said = answer(f"llm-hang {' '.join(map(str, whom))} -wait {wait} -json")
        named = end_named(truth, said["chains"])
        strangers = set(map(str, truth["others"]))
        said = next(v for v in said["verdicts"] if not strangers.issuperset(v["group"]))
        got = [c.get("tid") or c["label"] for c in said["culprits"]]
        how = judge(truth, said)
        return Outcome(
            words,
            truth["drawn"],
            truth["hung"],
            truth["right"],
            truth["culprits"],
            said["verdict"],
            got,
            said["evidence"],
            how,
            named,
        )


def end_named(truth, chains):
    """Whether a chain of the process's main thread, or of a task, ends where it truly does: "named", "among" several, or ""."""
    own = [chain for chain in chains if chain["waiter"]["pid"] == truth["pid"] and _is_main(truth, chain["waiter"])]
    if any(_is_true(truth, chain["end"], last_place(chain)) for chain in own):
        return "named"
    several = [one for chain in own for one in chain["end"].get("any_of", ())]
    return "among" if any(_is_true(truth, one, one["place"]) for one in several) else ""


def last_place(chain):
    """The last thread, task or process that a chain names: what that one waits for may have no place."""
    places = [*(link["place"] for link in chain["through"]), chain["end"]["place"]]
    return next((place for place in reversed(places) if place is not None), None)


def _is_main(truth, waiter):
    return waiter.get("tid") in (None, truth["pid"]) or waiter.get("task") is not None


def _is_true(truth, end, place):
    seen = ("no Python frame that was read names it", "waits for it in turn, but others could end")
    if {"nobody", "ring"} <= set(truth["ends"]) and end["state"] == "unknown" and any(words in end["why"] for words in seen):
        return True  # where a thread may act by itself, that is all that can be known
    at = place or {}
    others = at.get("pid") if at.get("pid") != truth["pid"] else None
    found = {at.get("tid"), others, f"task {at.get('task')}", end["state"]}
    return bool((found - {None}) & set(truth["ends"]))


def left_out(words, why):
    return Outcome(words, "", False, [], [], "", [], [why], "left out")


def told(stage, words, needs):
    """As `Stage.outcome`; a situation that cannot be lived ends none of the others."""
    try:
        return stage.outcome(words, needs)
    except (OSError, ValueError, GdbextError) as e:
        return left_out(words, f"{type(e).__name__}: {e}")


def run(situations, processes=2, python=sys.executable, begin=None, kept=False):
    """`Outcome` of each situation, a seed or words, some at once; lived by `python` where that has what they need. `begin()` is
    called first in the process in which they are lived; `kept`: asked of snapshots."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stage = Stage(folder, python, begin, kept)
        stack.enter_context(stage.server(""))
        drawn = [(words, stage.needs(words)) for words in situations]
        for needs in sorted({needs for _, needs in drawn} - {""}):
            server = stage.server(needs)
            if server is not None:
                stack.enter_context(server)
        pool = stack.enter_context(concurrent.futures.ProcessPoolExecutor(processes, multiprocessing.get_context("fork")))
        stage.begin = None  # what is sent to the pool's workers
        yield from pool.map(told, [stage] * len(drawn), *zip(*drawn))


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
    lines.append(f"{len(found)} situations: " + ", ".join(f"{n} {h}" for h, n in how.items()) + f"; {share:.1f} % right")
    sure = [o for o in found if "unknown" not in o.right and o.how != "left out"]
    told = sum(o.how == "right" for o in sure)
    lines.append(
        f"without those whose truth accepts unknown: {told} of {len(sure)}, {100 * told / max(len(sure), 1):.1f} % right"
    )
    hung = [o for o in found if o.hung and o.how != "left out"]
    ends = collections.Counter((o.how, o.end or "not named") for o in hung)
    true = sum(o.end == "named" for o in hung)
    lines.append(
        f"hung: {len(hung)}; their chain ends where it truly does: {true}, {100 * true / max(len(hung), 1):.1f} %; "
        + ", ".join(f"{how}, end {end}: {n}" for (how, end), n in sorted(ends.items()))
    )
    well = [o for o in found if not o.hung and o.how != "left out"]
    lines.append(f"well: {len(well)}, accused {sum(o.verdict in ACCUSES for o in well)}")
    return lines
