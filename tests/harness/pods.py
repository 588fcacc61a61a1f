"""A container's processes with programs outside that have their numbers: who was read, stopped or named, asked from either side.

A situation is drawn from how a parent waits for its child, what the child does, what the programs outside do, how deep the
namespace is, and from where the question is asked.
"""

import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from .gdb_run import ROOT
from .schemas import held
from .subjects import SUBJECTS, spawned

HOWS = ("popen", "popen-limit", "popen-poll", "process", "executor", "pool", "waitpid", "waitid", "pidfd", "task")
WHATS, DECOYS = ("sleeps", "pipe", "lock", "stopped"), ("sleeps", "pipe", "lock", "stopped", "same name")
SPACE = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child", "--"]
WATCH = """
import os, re, sys
def _heard(event, arguments):
    if event == "open" and isinstance(arguments[0], str):
        found = re.match(r"/proc/([0-9]+)/(task/[0-9]+/)?(mem|maps)$", arguments[0])
        if found:
            with open(os.environ["POD_WATCH"], "a") as f:  # each time: helpers close what they were not given
                f.write(found[1] + "\\n")
sys.addaudithook(_heard)
"""  # which processes' memory is opened


@dataclass
class Situation:
    """`how`, `what`: of subjects/pod_parent.py; `decoy`: of the programs that have the container's numbers; `depth`: of its
    namespace; `asked`: "outside", "inside", or "beside", from another container."""

    how: str
    what: str
    decoy: str
    depth: int
    asked: str
    number: int


def draw(seed):
    rng = random.Random(f"pods {seed}")
    return Situation(
        rng.choice(HOWS),
        rng.choice(WHATS),
        rng.choice(DECOYS),
        rng.choice((1, 1, 2)),
        rng.choice(("outside",) * 4 + ("inside", "beside")),
        rng.randrange(20000, 30000),
    )


def numbers(pid):
    with open(f"/proc/{pid}/status") as f:
        return [int(n) for n in re.search(r"^NSpid:(.*)$", f.read(), re.M)[1].split()]


def children(pid):
    with contextlib.suppress(OSError):
        tasks = os.listdir(f"/proc/{pid}/task")
        return [int(n) for tid in tasks for n in open(f"/proc/{pid}/task/{tid}/children").read().split()]
    return []


def family(pid):
    return [pid, *(one for child in children(pid) for one in family(child))]


@contextlib.contextmanager
def decoys(one, wanted):
    """Programs of this side that have some numbers, those of them that are free. -> [pid]"""
    with contextlib.ExitStack() as stack:
        found = []
        for number in wanted:
            if number < 300 or os.path.exists(f"/proc/{number}"):
                continue
            words = [sys.executable, os.path.join(SUBJECTS, "pod_decoy.py"), one.decoy]
            if one.decoy == "same name":
                words = [sys.executable, os.path.join(SUBJECTS, "pod_parent.py"), "0", "child", "sleeps"]
            with open("/proc/sys/kernel/ns_last_pid", "w") as f:
                f.write(str(number - 1))
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
            stack.callback(_end, process)
            if process.pid == number:
                found.append(number)
                _at_rest(number)
        yield found


def _at_rest(pid):
    """Waits until a program has come to where it stays."""
    before, still = None, 0
    while still < 8:
        time.sleep(0.05)
        with open(f"/proc/{pid}/stat") as f:
            rests = f.read().rpartition(") ")[2][0] in "ST"
        now = _switches(pid)
        before, still = now, still + 1 if rests and now == before else 0


def _end(process):
    process.kill()
    process.send_signal(signal.SIGCONT)
    process.wait()
    process.stdout.close()


class Watched:
    """What happens to some processes meanwhile: `traced`: those that a tracer has stopped or that were resumed."""

    def __init__(self, pids):
        self.before = {pid: _switches(pid) for pid in pids}
        self.traced, self._over = set(), threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self):
        while not self._over.wait(0.002):
            for pid in self.before:
                with contextlib.suppress(OSError), open(f"/proc/{pid}/status") as f:
                    if not re.search(r"^TracerPid:\t0$", f.read(), re.M):
                        self.traced.add(pid)

    def end(self):
        self._over.set()
        self._thread.join()
        self.traced |= {pid for pid, count in self.before.items() if _switches(pid) != count}


def _switches(pid):
    """How often the threads of a process that sleeps have slept: one that is stopped for a moment sleeps once more."""
    with contextlib.suppress(OSError):
        return [
            sum(map(int, re.findall(r"ctxt_switches:\t(\d+)", open(f"/proc/{pid}/task/{tid}/status").read())))
            for tid in sorted(os.listdir(f"/proc/{pid}/task"))
        ]
    return []


@dataclass
class Asked:
    """What came of a situation. `parent`, `child`: their pids as the one who asks has them, `inner`: the child's in there;
    `decoys`: their pids; `answer`: of llm-hang; `opened`: the processes whose memory was opened; `traced`: those stopped."""

    situation: Situation
    parent: int
    child: int
    inner: int
    decoys: list
    answer: dict
    opened: set
    traced: set

    @property
    def named(self):
        """Every number that the answer has, without those that it says are of another namespace."""
        text = re.sub(r'"ns_pid": \d+|\(ns \d+\)', "", json.dumps(self.answer))
        return set(map(int, re.findall(r"\b\d+\b", text)))

    @property
    def touched(self):
        """The programs outside that were read, stopped or named."""
        there = self.opened | self.named if self.situation.asked != "inside" else set()
        return {pid for pid in self.decoys if pid in self.traced | there}

    @property
    def reached(self):
        """The pids in the chains of the parent's main thread."""
        mine = [c for c in self.answer["chains"] if c["waiter"].get("pid") == self.parent]
        at = [p for c in mine for p in [*(t["place"] for t in c["through"]), c["end"].get("place")] if p]
        return {p.get("pid") for p in at}


def ask(one, folder):
    """Makes a situation and asks llm-hang for the parent. -> `Asked`"""
    script = os.path.join(SUBJECTS, "pod_parent.py")
    words = [*SPACE * one.depth, sys.executable, script, str(one.number), one.how, one.what]
    with spawned(words, ready="{", stdin=subprocess.DEVNULL) as process, contextlib.ExitStack() as stack:
        told = json.loads(process.said)
        whole = family(process.pid)[one.depth :]
        parent = whole[0]
        child = next(pid for pid in whole if numbers(pid)[-1] == told["child"])
        wanted = sorted({n for pid in whole for n in numbers(pid)[1:]})
        outside = stack.enter_context(decoys(one, wanted))
        time.sleep(0.7)
        watched = Watched(outside)
        try:
            how, of, mine = _asker(one, stack, parent, child, numbers(parent)[-1])
            answer, opened = _llm_hang(how, of, folder)
        finally:
            watched.end()
    return Asked(one, of, mine, told["child"], outside, answer, opened, watched.traced)


def _asker(one, stack, parent, child, inner):
    """-> (how the asker is started, the parent's pid for it, the child's)"""
    if one.asked == "inside":
        return ["nsenter", "-t", str(parent), "-p", "-m", "--"], inner, numbers(child)[-1]
    if one.asked == "beside":
        beside = stack.enter_context(spawned([*SPACE, "sh", "-c", "echo READY; sleep 7000"], ready="READY"))
        return ["nsenter", "-t", str(children(beside.pid)[0]), "-p", "--"], parent, child
    return [], parent, child


def _llm_hang(how, pid, folder):
    with open(os.path.join(folder, "sitecustomize.py"), "w") as f:
        f.write(WATCH)
    log = os.path.join(folder, "opened")
    env = {**os.environ, "PYTHONPATH": f"{folder}:{ROOT}", "POD_WATCH": log, "PYTHONDONTWRITEBYTECODE": "1"}
    words = [*how, sys.executable, "-m", "gdbext", "llm-hang", str(pid), "--json"]
    done = subprocess.run(words, cwd="/", env=env, capture_output=True, text=True, timeout=300)
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    with open(log) as f:
        opened = set(map(int, f.read().split()))
    os.unlink(log)
    return held(json.loads(done.stdout)), opened
