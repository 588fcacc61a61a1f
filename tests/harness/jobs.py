"""Gloo jobs (gdb/subjects/job_machine.py) over two machines that are namespaces of this one, each with an address of its own, put
to llm-hang: over both nodes, of one of them, and on one machine."""

import collections
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

from .gdb_run import ROOT
from .heartbeats import eventually
from .schemas import held
from .situations import ACCUSES
from .subjects import SUBJECTS, spawned

ADDRESSES = ("10.77.0.1", "10.77.0.2", "10.77.0.3", "10.77.0.4")
ALONE = ("lock", "own lock", "sleep", "pipe", "stopped")  # one rank keeps away
SLEEPS = ("sleep", "message", "beside")
HUNG = (*ALONE, "message", "beside", "crossed", "skipped", "network")
KINDS = (*HUNG, "idle", "work", "slow")
OPS = ("all_reduce", "all_gather", "barrier")
PIPELINES = ("stage", "head")  # one of its stages stands; its first one waits for a client: not drawn
QUIET = (*HUNG, *PIPELINES, "idle")  # none of its threads goes on
WAYS = ("nodes", "node 0", "node 1", "one machine")
SSH = """#!/bin/sh
while [ "$1" != "--" ]; do shift; done
exec nsenter -t $(cat {folder}/"$2") -p -m -u -n -- sh -c "$3"
"""
NAMESPACES = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--uts", "--net", "--kill-child", "--"]


@dataclass
class Job:
    """One job: `at`, the machine of each rank; `odd`, the rank that does not do as the others do."""

    kind: str
    at: list
    odd: int
    op: str
    store: str
    named: bool  # its ranks have RANK among their variables, as torchrun's do, and are called by it
    pids: dict = field(default_factory=dict)  # {(machine, pid there): rank}

    def to_blame(self):
        return (self.odd + 1) % len(self.at) if self.kind == "beside" else self.odd

    def over_nodes(self):
        return len(set(self.at)) > 1


@dataclass
class Situation:
    way: str
    names: list  # of the machines
    jobs: list

    def words(self):
        return f"{self.way}: " + " | ".join(f"{j.kind} {j.op} odd {j.odd} at {j.at} {j.store}" for j in self.jobs)

    def asked(self):
        """The machines that are asked."""
        return [int(self.way[-1])] if self.way[-1].isdigit() else list(range(len(self.names)))


def drawn(seed):
    """A `Situation`."""
    draw = random.Random(f"jobs {seed}")
    way = draw.choice(WAYS[:1] * 2 + WAYS)
    there = [0] if way == "one machine" else [int(way[-1])] if way[-1].isdigit() else [0, 1]
    names = draw.choice([["node", "node"], ["n0", "n1"]])
    jobs = []
    for number in range(draw.choice([1, 1, 1, 2])):
        size = draw.choice([2, 2, 3, 4])
        if way == "one machine" or draw.random() < 0.2:
            at = [draw.choice(there)] * size
        else:
            at = [rank * 2 // size for rank in range(size)]
        kinds = [kind for kind in KINDS if kind != "network" or len(set(at)) > 1 and not jobs]
        kinds = [kind for kind in kinds if kind != "beside" or size > 2]
        store = f"{ADDRESSES[at[0]]}:{29500 + number}" if len(set(at)) > 1 else f"127.0.0.1:{29500 + (at[0] in used(jobs))}"
        jobs.append(Job(draw.choice(kinds), at, draw.randrange(size), draw.choice(OPS), store, not jobs and draw.random() < 0.7))
        if jobs[0].kind == "network":
            break  # the other job's network would be down too
    return Situation(way, names, jobs)


def used(jobs):
    return {job.at[0] for job in jobs}


class Machines:
    """Machines, joined by a cable; more than two by a switch in the first."""

    def __init__(self, folder, python, count=2):
        self.folder, self.stack = str(folder), contextlib.ExitStack()
        script = os.path.join(SUBJECTS, "job_machine.py")
        started = []
        for _ in range(count):
            more = {"stderr": subprocess.DEVNULL, "start_new_session": True}
            started.append(self.stack.enter_context(spawned([*NAMESPACES, python, script], ready="up", **more)))
        self.agents = started
        self.pids = [below(process.pid) for process in started]
        with open(os.path.join(self.folder, "ssh"), "w") as f:
            f.write(SSH.format(folder=self.folder))
        os.chmod(f.name, 0o755)
        if count > 2:
            self.inside(0, "ip", "link", "add", "veth0", "type", "bridge")
        for number in range(1, count):
            peer = "veth0" if count == 2 else f"port{number}"
            self.inside(
                0, "ip", "link", "add", peer, "type", "veth", "peer", "name", f"veth{number}", "netns", str(self.pids[number])
            )
            if count > 2:
                self.inside(0, "ip", "link", "set", peer, "master", "veth0", "up")
        for number in range(count):
            self.inside(number, "ip", "addr", "add", f"{ADDRESSES[number]}/24", "dev", f"veth{number}")
            self.inside(number, "ip", "link", "set", "lo", "up")
        self.cable("up")

    def inside(self, number, *words):
        subprocess.run(["nsenter", "-t", str(self.pids[number]), "-u", "-n", "--", *words], check=True, capture_output=True)

    def command(self, number, *words):
        """The words of gdbext on a machine."""
        return ["nsenter", "-t", str(self.pids[number]), "-p", "-m", "-u", "-n", "--", sys.executable, "-m", "gdbext", *words]

    def cable(self, state):
        for number in range(len(self.pids)):
            self.inside(number, "ip", "link", "set", f"veth{number}", state)

    @contextlib.contextmanager
    def lived(self, situation):
        """A situation, until all that it does has begun."""
        for number, name in enumerate(situation.names):
            self.inside(number, "hostname", name)
        try:
            for job in situation.jobs:
                self._begin(job)
            if any(job.kind == "network" for job in situation.jobs):
                self.cable("down")
            there = [self.outer(*place) for job in situation.jobs if job.kind in QUIET for place in job.pids]
            eventually(lambda: settled(there), "ranks to come to where they stay")
            yield
        finally:
            for agent in self.agents:
                agent.stdin.write("end\n")
                agent.stdin.flush()
            for agent in self.agents:
                while not agent.stdout.readline().startswith("ended"):
                    pass
            self.cable("up")

    def _begin(self, job):
        told = {"size": len(job.at), "store": job.store, "kind": job.kind, "odd": job.odd, "op": job.op, "named": job.named}
        for rank, number in enumerate(job.at):
            interface = f"veth{number}" if job.over_nodes() else "lo"
            self.agents[number].stdin.write(json.dumps({**told, "rank": rank, "interface": interface}) + "\n")
            self.agents[number].stdin.flush()
        for number in job.at:
            line = self.agents[number].stdout.readline()
            match = re.match(r"ready (\d+) (\d+)", line)
            assert match, (line, job)
            job.pids[number, int(match[2])] = int(match[1])

    def outer(self, number, pid):
        """The pid here of a process of a machine."""
        inside = os.stat(f"/proc/{self.pids[number]}/ns/pid").st_ino
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.stat(f"/proc/{name}/ns/pid").st_ino == inside:
                    with open(f"/proc/{name}/status") as f:
                        if re.search(rf"^NSpid:.*\t{pid}$", f.read(), re.M):
                            return int(name)
        raise AssertionError(f"no process {pid} on machine {number}")

    def ask(self, situation):
        """-> (what llm-hang says, {(node, pid): (job's number, rank)})"""
        nodes = [f"m{number}" for number in range(len(self.pids))]
        for number, pid in enumerate(self.pids):
            with open(os.path.join(self.folder, nodes[number]), "w") as f:
                f.write(str(pid))
        places, words = {}, []
        for index, job in enumerate(situation.jobs):
            for (number, pid), rank in job.pids.items():
                if number in situation.asked():
                    here = situation.way == "one machine"
                    pid = self.outer(number, pid) if here else pid
                    places["" if here else nodes[number], pid] = index, rank
                    words.append(str(pid) if here else f"{pid}@ssh:{nodes[number]}")
        env = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}"}
        command = [sys.executable, "-m", "gdbext", "llm-hang", *words, "--json"]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
        assert done.stdout.startswith("{"), done.stderr
        return held(json.loads(done.stdout)), places

    def close(self):
        self.stack.close()


def settled(pids):
    """Whether the main threads sleep and go on sleeping; gloo's own threads look around all the time."""

    def switches():
        found = []
        for pid in pids:
            with open(f"/proc/{pid}/task/{pid}/status") as f:
                found.append(re.findall(r"State:\t(\w)|voluntary_ctxt_switches:\t(\d+)", f.read()))
        return found

    before = switches()
    time.sleep(0.3)
    return switches() == before and all(one[0][0] in "ST" for one in before)


def below(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as f:
        return int(f.read().split()[0])


# ---- what was said against what is true ------------------------------------------------------------------------------
def expected(situation, job):
    """-> (verdicts that are right; ranks one of which an accusation has to name, all of which it may name; ranks that were not
    asked)"""
    seen = {rank for (number, _), rank in job.pids.items() if number in situation.asked()}
    away = set(job.pids.values()) - seen
    if job.kind in ("work", "slow"):
        return ("busy",), set(), away
    if job.kind in ("idle", "head"):
        return ("idle",) if job.odd in seen else ("idle", "unknown"), set(), away
    if job.kind == "network" or job.to_blame() not in seen or job.kind in ("crossed", "skipped") and len(seen) == 1:
        return ("unknown",), set(), away
    if job.kind in SLEEPS and seen == {job.to_blame()}:
        return ("unknown",), set(), away  # nothing that was asked waits for it
    return ACCUSES, {job.to_blame()}, away


def judged(situation, said, places):
    """`[(job, verdict, how, evidence)]`: how each of the jobs that were asked was answered."""
    found = []
    labels = {name: at for (node, pid), at in places.items() for name in (f"{node}:{pid}", str(pid) if not node else "")}
    alone = collections.Counter(pid for _, pid in places)
    labels.update({str(pid): at for (_, pid), at in places.items() if alone[pid] == 1})
    for (node, _), at in places.items():
        if situation.jobs[at[0]].named:
            labels.update({f"R{at[1]}": at, f"{node}:R{at[1]}": at})
    for index, job in enumerate(situation.jobs):
        mine = [v for v in said.get("verdicts", ()) if any(labels.get(name, (None,))[0] == index for name in v["group"])]
        if index not in {at[0] for at in places.values()}:
            continue
        jobs = {labels[name][0] for v in mine for name in v["group"] if name in labels}
        accused = {places.get((c.get("node", ""), c["pid"])) for v in mine if v["verdict"] in ACCUSES for c in v["culprits"]}
        kinds = [v["verdict"] for v in mine]
        right, named, away = expected(situation, job)
        ring = set(range(len(job.at))) if job.kind in ("crossed", "skipped") else named
        ranks = {at[1] for at in accused if at is not None and at[0] == index}
        true = len(ranks) == len(accused) and named <= ranks <= ring if named else not accused
        not_asked = any(v["not_asked"] for v in mine) or not away
        told = {int(re.findall(r"\d+", one["rank"])[0]): one["address"] for v in mine for one in v["not_asked_at"]}
        true = true and all(rank in away and ADDRESSES[job.at[rank]] == address for rank, address in told.items())
        # a group without one rank has numbers of its own; what no one waits for is no part of a verdict
        placed = job.over_nodes() and job.kind not in ("beside",) and any(v["not_asked"] for v in mine)
        not_asked = not_asked and (not placed or told.keys() == away)
        if "error" in said:  # a machine that is too busy to answer says so
            how, kinds = "no answer", [said["error"]]
        elif jobs != {index} or len(mine) != 1:
            how = "WRONG"  # judged with another job's ranks, or in two parts
        elif kinds[0] in right and true and (kinds[0] != "unknown" or not_asked):
            how = "right"
        elif kinds[0] == "unknown" and not accused:
            how = "unknown"
        elif accused or kinds[0] in ACCUSES or job.kind in HUNG:
            how = "WRONG"
        else:
            how = "imprecise"
        found.append((job, kinds, how, [line for v in mine for line in v["evidence"]]))
    return found


def run(seeds, python):
    """`[(Situation, [(job, verdicts, how, evidence)])]` of each seed."""
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Machines(folder, python)) as machines:
        for seed in seeds:
            situation = drawn(seed)
            with machines.lived(situation):
                yield situation, judged(situation, *machines.ask(situation))


def matrix(found):
    """Lines: for each kind of job, what was said of it; and the sum."""
    rows = collections.defaultdict(collections.Counter)
    every = [one for _, jobs in found for one in jobs]
    for job, kinds, how, _ in every:
        rows[job.kind][f"{'+'.join(kinds)} {how}"] += 1
    how = collections.Counter(one[2] for one in every)
    lines = [f"{kind}: {dict(rows[kind])}" for kind in sorted(rows)]
    return [*lines, f"{len(every)} jobs: {dict(how)}; {100 * how['right'] / max(len(every), 1):.1f} % right"]
