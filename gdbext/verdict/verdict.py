"""Why processes hang, from what was seen of them: one verdict of the contract's kinds, its culprits, and the evidence. Pure: works on
`ProcessState` that `from_samples` makes of `sampling.ProcessSamples`, or a test makes up.

The rule is to name nobody rather than the wrong one. What blocks a process by itself (death, a stop, a lock, the GIL) goes before
what it only waits for (a collective, a queue), for those who wait in a collective are victims of the one that is not there.
"""

import re

from ..stacks import tree, waits
from ..stacks.threads import _WAITS

RUNS = 0.3  # of a processor: a thread that uses more is at work
STILL = 0.03  # less: it is not
LOCKS = ("Lock", "RLock", "mutex", "import", "Semaphore")

_COLLECTIVE_FILES = (
    "torch/distributed/distributed_c10d.py",
    "pynccl.py",
    "custom_all_reduce.py",
    "parallel_state.py",
    "cpu_communicator.py",
    "cuda_communicator.py",
    "pymscclpp.py",
    "quick_all_reduce.py",
    "shm_object_storage.py",
)
_COLLECTIVE = re.compile(
    r"(?:^|\.)_?(all_reduce|all_gather\w*|all_to_all\w*|broadcast\w*|reduce|reduce_scatter\w*|barrier|monitored_barrier|gather\w*|scatter\w*|"
    r"send|recv|isend|irecv|send_tensor_dict|recv_tensor_dict|send_object|recv_object|gather_object)$"
)
_NATIVE_COLLECTIVE = re.compile(
    r"nccl(AllReduce|AllGather|ReduceScatter|Broadcast|Send|Recv|GroupEnd|CommInit\w*)|\bgloo::|ProcessGroup(NCCL|Gloo)::"
)
_DEVICE = re.compile(
    r"\b(cu(da)?(Stream|Event|Ctx|Device)Synchronize|cuMemcpy\w*|cudaMemcpy\w*|cuLaunchKernel\w*|hip\w+Synchronize)\b"
)
_STARTUP = re.compile(
    r"(?:^|\.)(init_process_group|_store_based_barrier|rendezvous|_tcp_rendezvous_handler|_env_rendezvous_handler|_create_c10d_store|"
    r"init_distributed_environment|init_worker_distributed_environment|load_model|load_weights|wait_for_engine_startup|wait_for_ready|"
    r"_wait_for_engine_startup|launch_core_engines|initialize_model|_launch_subprocesses|_wait_for_scheduler_ready)$"
)
_STORE = re.compile(
    r"(?:^|\.)(init_process_group|_store_based_barrier|rendezvous|_tcp_rendezvous_handler|_env_rendezvous_handler|_create_c10d_store)$"
)
_SLEEP = re.compile(r"_*(clock_)?nanosleep|time_sleep|pysleep|usleep|sleep$")
_INPUT = re.compile(
    r"_*(epoll_p?wait2?|poll|ppoll|p?select|accept4?|recv(from|msg)?|read|pread64|io_getevents|sigtimedwait|sigwait)$"
)
_ANSWER = re.compile(r"_*(libc_)?recv(from|msg)?$")
_GC = re.compile(r"^(gc_collect|_PyGC_Collect|collect_generations|deduce_unreachable|gc_main|subtract_refs|move_unreachable)")
_RING = re.compile(r"(?:^|\.)(acquire_read|acquire_write)$")
_RING_FILES = re.compile(r"/(vllm|sglang|zmq|torch)/|/(threading|queue|selectors|contextlib|_base)\.py$|multiprocessing/\w+\.py$")
_FULL = re.compile(r"(?:^|\.)acquire_write$")
_RESPONSE = re.compile(r"(?:^|\.)(get_response|collective_rpc|wait_for_response|_wait_for_response)$")


# Where the processes of an engine wait for work: vLLM's core for requests, its workers for the core's broadcast.
_AT_REST = {
    "engine-core": re.compile(r"(?:^|\.)(_process_input_queue|_get_input|wait_for_input|_recv_inputs?)$"),
    "worker": re.compile(r"(?:^|\.)(acquire_read|dequeue|recv_multipart|_recv)$"),
    "scheduler": re.compile(
        r"(?:^|\.)(recv_requests|event_loop_\w+|self_check_during_idle|_maybe_sleep_on_idle|maybe_sleep_on_idle)$"
    ),
}


class ThreadState:
    """One thread: `node`, `name`, `main`, `frames` innermost first, `python` (has Python frames), `idle`, `moved` (looks differ),
    `load` (of a processor, None: not known), `woke`, `wanted` (the same, with the time it waited for one), `state`, `edge` (what it waits for, or None), `holds`: it had the GIL at every look."""

    def __init__(
        self,
        node,
        name="",
        main=False,
        frames=(),
        python=True,
        idle=False,
        moved=False,
        load=0.0,
        woke=0,
        state="S",
        edge=None,
        native=(),
        sampled=True,
        holds=False,
        wanted=None,
    ):
        self.node, self.name, self.main, self.frames, self.python, self.idle = node, name, main, list(frames), python, idle
        self.moved, self.load, self.woke, self.state, self.edge, self.native, self.sampled = (
            moved,
            load,
            woke,
            state,
            edge,
            list(native),
            sampled,
        )
        self.holds, self.wanted = holds, load if wanted is None else wanted

    @property
    def works(self):
        return self.load is not None and self.load > STILL and self.wanted > RUNS  # on a full machine few get what they want

    @property
    def still(self):
        """It neither moved nor ran."""
        return not self.moved and (self.load is None or self.load < STILL or not self.works and not self.moved)

    def find(self, pattern, kind=None):
        return next((f for f in self.frames if (kind is None or f.kind == kind) and pattern.search(f.function or "")), None)

    @property
    def collective(self):
        """The name of the collective operation it waits in, or ''. Python code of others' inside that (a signal handler, a hook) means that
        it does something else."""
        name = ""
        for frame in self.frames:
            if frame.kind != "python":
                continue
            path = frame.file.replace("\\", "/")
            ours = path.endswith(_COLLECTIVE_FILES)
            if not ours and "/torch/" not in path and not path.endswith("/contextlib.py"):
                break
            found = _COLLECTIVE.search(frame.function) if ours else None
            name = found.group(1) if found else name
        if name:
            return name
        if any(
            f.file.endswith(_COLLECTIVE_FILES) and _COLLECTIVE.search(f.function or "") for f in self.frames if f.kind == "python"
        ):
            return ""
        native = self.find(_NATIVE_COLLECTIVE, "native")
        return native.function.split("(")[0] if native else ""

    @property
    def held_up(self):
        """Whether it waited for its `edge` all the while: a lock that it only happened to wait for at the last look wakes it at once. Who
        waits for the GIL wakes every 5 ms to ask for it, who polls for a file now and then."""
        return (
            self.edge is not None
            and (self.edge.polls or not self.moved)
            and (self.load is None or self.edge.kind == "GIL" or self.edge.polls or self.woke == 0)
        )

    @property
    def victim(self):
        """Whether it stands where ranks wait for others: what it holds meanwhile is not what is wrong."""
        return bool(self.collective) or self.does in ("device", "ring", "startup")

    @property
    def top(self):
        """Its innermost frame of Python code that is not of the standard library's waits, as text."""
        frame = next(
            (f for f in self.frames if f.kind == "python" and not f.file.endswith(("threading.py", "queue.py", "selectors.py"))),
            None,
        )
        frame = frame or next((f for f in self.frames if f.function), None)
        return str(frame) if frame else "a place that cannot be named"

    @property
    def does(self):
        """One word for what it stands in: "sleep", "input", "device", "collective", "ring", "startup", "lock", "queue", "event", "join", "run",
        "disk" or "other"."""
        if self.state == "D":
            return "disk"
        if self.edge is not None:
            kind = self.edge.kind
            if kind in LOCKS or kind == "GIL":
                return "lock"
            return {"Queue": "queue", "Thread": "join", "Process": "join"}.get(kind, "event")
        if self.collective:
            return "collective"
        if self.find(_STORE, "python"):
            return "startup"
        if self.find(_RING, "python") or self.find(_RESPONSE, "python"):
            inner = next((f for f in self.frames if f.kind == "python"), None)
            if _RING_FILES.search(inner.file.replace("\\", "/")):  # else a signal handler, a hook: it does something else
                return "ring"
        if self.find(_DEVICE, "native"):
            return "device"
        inner = [n for n in self.native[:4] if n]
        if any(_SLEEP.match(n) for n in inner):
            return "sleep"
        if any(_INPUT.match(n) for n in inner):
            return "input"
        if self.works or self.state == "R" and self.moved:
            return "run"
        return "wait" if any(_WAITS.match(n) for n in inner) else "other"


class ProcessState:
    """One process: `name`, `role` ('' where it is no engine's), `state`, `threads` (the main one first), `hog`: (node that holds the GIL and
    never gives it back, [nodes that wait for it]) or None, `world`: (rank, size) or None, `why`: it could not be read."""

    def __init__(
        self,
        name,
        role="",
        state="S",
        threads=(),
        hog=None,
        world=None,
        why="",
        zombies=(),
        pipe="",
        writers=(),
        serves=(),
        rings=(),
        counts=(),
        ended="",
    ):
        self.name, self.role, self.state, self.threads, self.hog, self.world, self.why = (
            name,
            role,
            state,
            list(threads),
            hog,
            world,
            why,
        )
        # what its main thread reads; names of the processes that write to it; its children that do and were not looked at
        self.pipe, self.writers, self.serves = pipe, list(writers), list(serves)
        self.zombies = list(zombies)  # (pid, what) of children that have died
        self.ended = ended  # how, where it has
        self.counts = list(counts)  # `torch.collectives.Count`: what each of its groups has begun
        self.rings = list(rings)  # `engines.shm_rings.Ring`: the ends that it holds

    @property
    def main(self):
        return self.threads[0] if self.threads else None

    def thread(self, node):
        return next((t for t in self.threads if t.node == node), None)


class Verdict:
    """`kind` of the contract, `culprits`: [node, or (process name, None) for a whole process], `evidence`: [text], `victims`: [text]."""

    def __init__(self, kind, culprits=(), evidence=(), victims=()):
        self.kind, self.culprits = kind, list(dict.fromkeys(culprits))
        self.evidence, self.victims = list(dict.fromkeys(e for e in evidence if e)), list(victims)


def judge(all_facts):
    """The `Verdict` on a list of `ProcessState`."""
    for rule in (
        _crashed,
        _stopped,
        _cycle,
        gil_not_released,
        _held,
        _startup,
        _collective,
        _device,
        gil_held_while_blocked,
        _starved,
        _busy,
        _idle,
    ):
        found = rule(all_facts)
        if found is not None:
            if found.kind not in ("busy", "idle", "startup"):
                found.evidence += [line for line in count_lines(all_facts) + ring_lines(all_facts) if line not in found.evidence]
            return found
    outside = [
        f"{_name(all_facts, e.waiter)} waits for {e.lock}: {e.note}; look at that one too"
        for e in _all_edges(all_facts)
        if e.outside
    ]
    answers = outside + [
        f"{f.name} reads what its child {c} is to write: look at that one too" for f in all_facts for c in f.serves
    ]
    return Verdict(
        "unknown",
        [],
        answers
        + [describe(f.main) for f in all_facts if f.main]
        + count_lines(all_facts)
        + ring_lines(all_facts)
        + ["nothing that was seen tells why it stands there"],
    )


# ---- the rules, in the order of their rank ---------------------------------------------------------------------------
def _crashed(facts):
    dead = [f for f in facts if f.state in ("Z", "X")]
    zombies = [(f, pid, what) for f in facts for pid, what in f.zombies]
    if dead:
        words = {"Z": "is a zombie: it has ended and its parent has not asked why", "X": "ended while it was looked at"}
        return Verdict(
            "crashed",
            [(f.name, None) for f in dead],
            [f"{f.name} {words[f.state]}" + (f" ({f.ended})" if f.ended else "") for f in dead],
            _waiting(facts, dead),
        )
    if zombies and not any(t.works or t.moved for f in facts for t in f.threads[:1]):
        return Verdict(
            "crashed",
            [(f"{what} ({pid})", None) for _, pid, what in zombies],
            [f"{f.name}'s child {pid} ({what}) has ended and is a zombie" for f, pid, what in zombies],
            _waiting(facts, ()),
        )
    return None


def _stopped(facts):
    stopped = [f for f in facts if f.state in ("T", "t")]
    if not stopped:
        return None
    words = {
        "T": "is stopped (T): SIGSTOP, or a debugger that was killed; SIGCONT makes it run on",
        "t": "is stopped by a tracer (t)",
    }
    return Verdict(
        "stopped", [(f.name, None) for f in stopped], [f"{f.name} {words[f.state]}" for f in stopped], _waiting(facts, stopped)
    )


def _all_edges(facts):
    return [t.edge for f in facts for t in f.threads if t.edge is not None]


def _cycle(facts):
    found = [c for c in waits.cycles(_all_edges(facts)) if all(_thread(facts, e.waiter).held_up for e in c)]
    if not found:
        return None
    nodes = [e.waiter for c in found for e in c]
    return Verdict(
        "lock-cycle",
        nodes,
        [waits.sentence(c, lambda n: _name(facts, n)) for c in found]
        + [f"{_name(facts, e.waiter)} stands in {e.where}" for c in found for e in c if e.where],
        _blocked(facts, nodes),
    )


def gil_not_released(facts):
    for f in facts:
        if not f.hog:
            continue
        node, waiters = f.hog
        holder = f.thread(node)
        if holder is None or holder.victim:
            continue
        end, way = waits.root(_all_edges(facts), node)
        if way and way[-1].kind in LOCKS:
            return None  # it holds the GIL and waits for a lock itself: the lock's owner is the culprit
        native = next((n for n in holder.native if n), "")
        return Verdict(
            "gil",
            [node],
            [
                f"{_name(facts, node)} holds the GIL at every look and stands in {native or 'native code'}, called from {holder.top}",
                f"{len(waiters)} thread{'s wait' if len(waiters) != 1 else ' waits'} for it and never got it: "
                + ", ".join(_name(facts, w) for w in waiters[:4]),
                "it uses a processor meanwhile"
                if holder.works
                else "it does not run meanwhile: it sleeps, or waits, with the GIL held",
            ],
            _waiting(facts, [f]),
        )
    return None


def gil_held_while_blocked(facts):
    """A main thread that had the GIL at every look and did not run: a call that blocks without giving it back."""
    found = [
        (f, t)
        for f in facts
        for t in f.threads
        if t.holds and not t.moved and t.load is not None and t.load < STILL and not t.victim
    ]
    if not found:
        return None
    return Verdict(
        "gil",
        [t.node for _, t in found],
        [
            f"{_name(facts, t.node)} holds the GIL at every look, does not run, and stands in {next((n for n in t.native if n), 'native code')}, called from {t.top}"
            for _, t in found
        ],
        _waiting(facts, [f for f, _ in found]),
    )


def _held(facts):
    """A lock that blocks a thread which did not move: the end of its chain of owners."""
    edges, found = _all_edges(facts), []
    for f in facts:
        for t in f.threads:
            if not t.held_up or t.edge.kind not in LOCKS + ("GIL", "Thread"):
                continue
            end, way = waits.root(edges, t.node)
            last = way[-1] if way else None
            locked = [e for e in way if e.kind in LOCKS]
            if not locked or any(_thread(facts, e.waiter) is None or not _thread(facts, e.waiter).held_up for e in way):
                continue
            if last.owner is None and last.kind not in LOCKS and last.kind != "GIL":
                last = locked[-1]  # its owner waits for something that has no owner: a queue, an event
                end = last.owner
            if last.kind == "GIL" or (last.owner is None and not last.orphan):
                continue  # nobody can say who has it
            owner = _thread(facts, end) if last.owner is not None else None
            if owner is not None and (owner.victim or (last.polls or not t.main) and (owner.works or owner.moved)):
                continue  # who has it waits for other ranks, or is at work: a helper waits its turn, or others do for what it builds
            found.append((not t.main, f, t, last, way, end))
    if not found:
        return None
    found.sort(key=lambda x: (x[0], x[1].name))
    _, f, t, last, way, end = found[0]
    evidence = [f"{_name(facts, e.waiter)} waits for {e.lock} in {e.where}" for e in way if e.kind in LOCKS + ("GIL", "Thread")]
    if last.owner is None:
        evidence.append(last.note)
        return Verdict("lock-held", [(f.name, None)], evidence, _waiting(facts, [f]) + _blocked(facts, [], {last.address}))
    owner = _thread(facts, end)
    evidence.append(f"{_name(facts, end)} has it" + (f": {last.note}" if last.note else ""))
    if owner is not None:
        evidence.append(describe(owner) + (": it is at work and may only be slow" if owner.works or owner.moved else ""))
    return Verdict("lock-held", [end], evidence, _waiting(facts, [f]) + _blocked(facts, [end]))


def _effective(f, facts):
    """The thread that a process's main thread hangs on: itself, or the end of its chain of joins and locks."""
    if f.main is None:
        return None
    end, _ = waits.root(_all_edges([f]), f.main.node)
    return f.thread(end) or f.main


def _groups(facts):
    """Processes that ought to do the same: the shards of an engine, the ranks of one group."""
    groups = {}
    for f in facts:
        if f.role in ("worker", "scheduler", "rank") or not f.role and f.world is not None:
            groups.setdefault(f.role, []).append(f)
    return [g for g in groups.values() if g]


def _missing(group):
    """Ranks of the group that are not among the processes looked at, where the group tells its size; [] where all are there."""
    worlds = [f.world for f in group if f.world]
    if len(worlds) != len(group) or len({size for _, size in worlds}) != 1:
        return []
    there, size = {rank for rank, _ in worlds}, worlds[0][1]
    return [r for r in range(size) if r not in there] if size < 1 << 16 else []


def _startup(facts):
    for group in _groups(facts):
        waiting = [f for f in group if f.main and f.main.find(_STORE, "python") and not f.main.collective]
        if not waiting:
            continue
        others = [f for f in group if f not in waiting and f.main]
        late = [f for f in others if not f.main.collective]
        missing = _missing(group)
        evidence = [f"{f.name} is setting up its process group: {_place(f.main, _STORE)}" for f in waiting[:4]]
        if missing:
            names = tree.rank_set([f"R{r}" for r in missing])
            evidence.append(f"{len(group)} of {group[0].world[1]} ranks are here; not among the processes looked at: {names}")
        evidence += [f"{f.name} has not come to it: {describe(f.main)}" for f in late]
        if not late and not missing and all(f.main.still for f in waiting):
            continue  # all are there and nothing moves: some other rule, or nobody knows
        return Verdict("startup", [f.main.node for f in late] + [(f"R{r}", None) for r in missing], evidence, [])
    loading = [f for f in facts if f.main and f.main.find(_STARTUP, "python")]
    if loading and not any(t.collective for f in facts for t in f.threads[:1]):
        others = [f for f in facts if f.main and f not in loading and f.role in {x.role for x in loading} and f.role]
        return Verdict(
            "startup",
            [f.main.node for f in others],
            [f"{f.name} starts: {_place(f.main, _STARTUP)}" for f in loading[:8]]
            + ["it is at work" if any(f.main.works or f.main.moved for f in loading) else "nothing of it moved"],
        )
    return None


def _collective(facts):
    for group in _groups(facts):
        inside, outside = [], []
        for f in group:
            t = _effective(f, facts)
            if t is None:
                continue
            (inside if t.collective and not t.moved else outside).append((f, t))
        if not inside:
            continue
        ops = {}
        for f, t in inside:
            ops.setdefault((t.collective, _caller(t)), []).append(f)
        seen = [
            f"{tree.rank_set([f.name for f in fs])} wait{'s' if len(fs) == 1 else ''} in {op}, called from {at}"
            for (op, at), fs in ops.items()
        ]
        missing = _missing(group)
        victims = [f.name for f, _ in inside]
        if outside:
            if any(t.collective and t.moved for _, t in outside):
                continue  # some go in and out of it: they make progress
            evidence = seen + [f"{f.name} has not come to it: {describe(t)}" for f, t in outside]
            if any(t.works for _, t in outside):
                evidence.append("it is at work: it may only be slow")
            return Verdict("collective", [t.node for _, t in outside], evidence, victims)
        if missing:
            names = tree.rank_set([f"R{r}" for r in missing])
            evidence = seen + [
                f"{len(group)} of {group[0].world[1]} ranks were looked at; {names} were not: dead, elsewhere, or not named here"
            ]
            return Verdict("collective", [(f"R{r}", None) for r in missing], evidence, victims)
        names = {op for op, _ in ops}
        if len(ops) > 1:
            most = max(len(fs) for fs in ops.values())
            less = [f for fs in ops.values() for f in fs if len(fs) < most]
            if len(names) > 1 or less:
                culprits = less or [f for f, _ in inside]
                if len(names) == 1 and not less:
                    continue
                return Verdict(
                    "collective",
                    [_effective(f, facts).node for f in culprits],
                    seen + ["they are in different collectives: none of these can end"],
                    [v for v in victims if v not in {f.name for f in culprits}],
                )
        return Verdict(
            "unknown",
            [],
            seen
            + [
                "every rank that was looked at is there: what holds it up is not in these processes' stacks "
                "(the network, the device, or unequal shapes)"
            ],
        )
    return None


def _starved(facts):
    for f in facts:
        for t in f.threads:
            if not t.held_up or t.edge.kind != "Queue" or t.edge.how != "put":
                continue
            takers = [f.thread(c) for c in t.edge.candidates]
            takers = [c for c in takers if c is not None and not (c.edge is not None and c.edge.how == "put")]
            evidence = [f"{_name(facts, t.node)} waits for {t.edge.lock} in {t.edge.where}"]
            if any(c.moved or c.works for c in takers):
                return Verdict(
                    "starved",
                    [c.node for c in takers if c.moved or c.works],
                    evidence + [describe(c) for c in takers] + ["it is at work: it may only be slow"],
                )
            if len(takers) == 1:
                return Verdict(
                    "starved",
                    [takers[0].node],
                    evidence + ["who can take from it: " + describe(takers[0])],
                    [_name(facts, t.node)],
                )
            return Verdict(
                "starved",
                [],
                evidence + (["who can reach it: " + describe(c) for c in takers] or ["no thread here takes from it"]),
                [_name(facts, t.node)],
            )
    for f in facts:  # a main thread that waits for what a thread beside it is to give, and that one stands still
        t = f.main
        if (
            t is None
            or not t.held_up
            or t.edge.kind not in ("Queue", "Event", "Future", "Condition", "Barrier")
            or t.edge.how == "put"
        ):
            continue
        givers = [f.thread(c) for c in t.edge.candidates]
        stuck = [c for c in givers if c is not None and c.still and not c.idle and c.does not in ("input", "queue", "event")]
        if len(stuck) == 1 and len([c for c in givers if c is not None]) == 1:
            return Verdict(
                "starved",
                [stuck[0].node],
                [
                    f"{_name(facts, t.node)} waits for {t.edge.lock} in {t.edge.where}",
                    "the only other thread that can reach it: " + describe(stuck[0]),
                ],
                [_name(facts, t.node)],
            )
    for f in facts:
        t, writers = f.main, [o for o in facts if o.name in f.writers and o.main is not None]
        if t is None or t.moved or t.does != "input" or len(writers) != 1:
            continue
        writer = writers[0].main
        if writer.still and not writer.works and writer.does in ("sleep", "event", "other", "wait", "disk"):
            return Verdict(
                "starved",
                [writer.node],
                [f"{describe(t)} and reads {f.pipe}", f"the other end is held by {writers[0].name}: {describe(writer)}"],
                [f.name],
            )
    return _rings(facts)


def _counters(facts):
    """`[(group, operation, {process: how many it has begun})]` of the groups that several of the processes are in."""
    found = {}
    for f in facts:
        for count in f.counts:
            for operation, begun in count.begun.items():
                found.setdefault((count.group, operation), {})[f.name] = begun
    groups = {}
    for f in facts:
        for count in f.counts:
            groups.setdefault(count.group, []).append(f.name)
    return [
        (group, operation, {name: by.get(name, 0) for name in groups[group]})
        for (group, operation), by in found.items()
        if len(groups[group]) > 1
    ]


def count_lines(facts):
    """Where ranks of one group have begun different numbers of collectives, as evidence: who is behind."""
    lines = []
    for group, operation, begun in _counters(facts):
        by_count = {}
        for name, n in begun.items():
            by_count.setdefault(n, []).append(name)
        if len(by_count) > 1:
            said = [
                f"{tree.rank_set(who)} {'has' if len(who) == 1 else 'have'} begun {n}"
                for n, who in sorted(by_count.items(), reverse=True)
            ]
            lines.append(f"{group}: collectives counted in memory{f' ({operation})' if operation else ''}: " + ", ".join(said))
    return lines


def _behind(facts):
    """The processes that have begun fewer collectives of a group than most of its ranks, which wait for them."""
    for _, _, begun in _counters(facts):
        most = max(begun.values())
        late = [name for name, n in begun.items() if n < most]
        if late and len(late) < len(begun) - len(late):
            return [f for f in facts if f.name in late and f.main]
    return []


def _ends(facts):
    """{name of a broadcast ring: ((the ProcessState of its writer, its end) or None, {reader's number: (ProcessState, end)})}"""
    found = {}
    for f in facts:
        for ring in f.rings:
            writer, readers = found.setdefault(ring.name, [None, {}])
            if ring.reader is None:
                found[ring.name][0] = (f, ring)
            else:
                readers[ring.reader] = (f, ring)
    return found


def ring_lines(facts):
    """What lies in the broadcast rings, as evidence: who has not read what, and who cannot write before that."""
    lines = []
    for name, (writer, readers) in _ends(facts).items():
        ring = writer[1] if writer else next(iter(readers.values()))[1]

        def called(numbers):
            return tree.rank_set([readers[i][0].name if i in readers else f"reader {i}" for i in numbers])

        by_count = {}
        for i, count in enumerate(ring.unread):
            by_count.setdefault(count, []).append(i)
        behind = [
            f"{called(who)} {'has' if len(who) == 1 else 'have'} {n} message{'s' * (n != 1)} of it unread"
            for n, who in sorted(by_count.items())
            if n
        ]
        title = f"{writer[0].name if writer else 'somebody'}'s ring {name}"
        if behind:
            rest = [f"{called(by_count[0])} all read"] if 0 in by_count else []
            stuck = [f"its writer cannot write before {called(ring.full)} has read"] if writer and ring.full else []
            lines.append(f"{title}: " + ", ".join(behind + rest + stuck))
        elif ring.hands_out_work:
            lines.append(f"{title}: {called(range(len(ring.unread)))} have read all that was written")
    return lines


def _rings(facts):
    """A full broadcast ring, whose writer waits for a reader. An engine core that waits for its workers' answer, and a worker that is not
    waiting for work."""
    for writer, readers in _ends(facts).values():
        if writer and writer[0].main and writer[0].main.find(_FULL, "python") and writer[1].full:
            late = [readers[i][0] for i in writer[1].full if i in readers and readers[i][0].main]
            if any(f.main.moved or f.main.works for f in late):
                continue  # they come to read it
            nodes = [f.main.node for f in late] + [(f"reader {i}", None) for i in writer[1].full if i not in readers]
            return Verdict(
                "starved",
                nodes,
                [describe(writer[0].main)] + [describe(f.main) for f in late],
                [f.name for f in facts if f not in late],
            )
    cores = [
        f
        for f in facts
        if f.role == "engine-core" and f.main and any(t.find(_RESPONSE, "python") or t.find(_RING, "python") for t in f.threads)
    ]
    workers = [f for f in facts if f.role == "worker" and f.main]
    late = [f for f in workers if not f.main.find(_RING, "python") and not f.main.moved and not f.main.works]
    if cores and late:
        return Verdict(
            "starved",
            [f.main.node for f in late],
            [f"{c.name} waits for its workers: {c.main.top}" for c in cores] + [describe(f.main) for f in late],
            [f.name for f in facts if f not in late],
        )
    waiting = [f for f in workers if f.main.find(_RING, "python")]
    stuck = [
        f
        for f in facts
        if f.role == "engine-core"
        and f.main
        and f.main.still
        and not f.main.works
        and not f.main.victim
        and not f.main.find(_AT_REST["engine-core"], "python")
    ]
    if stuck and waiting and len(waiting) == len(workers):
        return Verdict(
            "starved",
            [f.main.node for f in stuck],
            [f"{tree.rank_set([f.name for f in waiting])} wait for the core's next step"] + [describe(f.main) for f in stuck],
            [f.name for f in facts if f not in stuck],
        )
    return None


def _device(facts):
    waiting = [(f, t) for f in facts for t in f.threads[:1] if t.does == "device" and not t.moved]
    if not waiting:
        return None
    alike = [f for f in facts if f.role == waiting[0][0].role]
    if len(waiting) < len(alike):
        others = [f.main for f in alike if f.main and f not in [w for w, _ in waiting]]
        if all(o.still for o in others):
            return Verdict(
                "collective",
                [o.node for o in others],
                [f"{f.name} waits for its device: {_place(t, _DEVICE)}" for f, t in waiting[:4]]
                + [f"{describe(o)}" for o in others],
                [f.name for f, _ in waiting],
            )
        return None
    late = _behind(facts)
    if late and all(f in [w for w, _ in waiting] for f in late):
        return Verdict(
            "collective",
            [f.main.node for f in late],
            [f"{f.name} waits for its device: {_place(t, _DEVICE)}" for f, t in waiting[:8]],
            [f.name for f, _ in waiting if f not in late],
        )
    return Verdict(
        "kernel",
        [],
        [f"{f.name} waits for its device and did not move: {_place(t, _DEVICE)}" for f, t in waiting[:8]]
        + ["which kernel runs there cannot be seen without cuda-gdb"],
    )


def _busy(facts):
    working = sorted((t for f in facts for t in f.threads if t.works), key=lambda t: -t.load)
    if working:
        top = working[0]
        culprits = [t.node for t in working[:4]]
        evidence = [
            f"{_name(facts, t.node)} used {100 * t.load:.0f} % of a processor, in {t.top}"
            + ("" if t.moved or not t.sampled or not t.python else "; the same place at every look")
            for t in working[:4]
        ]
        if any(t.find(_GC, "native") for t in working):
            evidence.append(
                "the garbage collector is at work: " + next(_name(facts, t.node) for t in working if t.find(_GC, "native"))
            )
        elif not top.moved and top.python:
            evidence.append("whether its loop ends cannot be told from here")
        return Verdict("busy", culprits, evidence)
    moving = [t for f in facts for t in f.threads if t.moved]
    if moving and not all(t.does in ("input", "queue", "ring") for t in moving):
        return Verdict(
            "busy",
            [t.node for t in moving[:4]],
            [f"{_name(facts, t.node)} moves from look to look, last in {t.top}" for t in moving[:4]],
        )
    if moving and any(t.load is not None and t.load > STILL for t in moving):
        return Verdict(
            "busy",
            [t.node for t in moving[:4]],
            [f"{_name(facts, t.node)} moves from look to look, last in {t.top}" for t in moving[:4]],
        )
    return None


def _idle(facts):
    mains = [(f, _effective(f, facts)) for f in facts if f.main]
    if not mains:
        return None
    evidence = []
    for f, t in mains:
        waits_for = t.does
        if f.serves or any(_ANSWER.match(n) for n in t.native[:3] if n):
            return None  # it waits for the answer of somebody, who may hang
        if f.role in _AT_REST and not t.find(_AT_REST[f.role], "python"):
            return None  # an engine's process rests in one place only
        if t.edge is not None and t.edge.kind == "Queue" and t.edge.how in ("get",):
            evidence.append(f"{_name(facts, t.node)} waits for {t.edge.lock} in {t.edge.where}")
        elif waits_for in ("input", "ring"):
            evidence.append(f"{_name(facts, t.node)} waits for input in {t.top}" + (f" from {f.pipe}" if f.pipe else ""))
        elif waits_for == "sleep" and (t.woke > 1 or t.moved):
            evidence.append(f"{_name(facts, t.node)} sleeps and wakes again ({t.woke} times) in {t.top}")
        elif t.moved and not t.works:
            evidence.append(f"{_name(facts, t.node)} goes round slowly in {t.top}")
        else:
            return None
    return Verdict("idle", [], evidence + ["nothing runs, and nobody waits for another"])


# ---- words -----------------------------------------------------------------------------------------------------------
def _thread(facts, node):
    return next((t for f in facts for t in f.threads if t.node == node), None)


def _name(facts, node):
    t = _thread(facts, node)
    if node is None:
        return "nobody"
    return f"{node[0]} thread {node[1]}" + (f" ({t.name})" if t is not None and t.name else "")


def describe(t):
    """What a thread does, for evidence."""
    if t is None:
        return ""
    load = "" if t.load is None else f", {100 * t.load:.0f} % of a processor"
    how = "moves, last" if t.moved else "stands"
    wait = f", waits for {t.edge.lock}" if t.edge is not None else ""
    return f"{t.node[0]} thread {t.node[1]}{f' ({t.name})' if t.name else ''} {how} in {t.top}{wait}{load}"


def _place(t, pattern):
    frame = t.find(pattern)
    return f"{frame}" if frame else t.top


def _caller(t):
    """The frame that called the collective: the first Python frame outside torch and the communicators."""
    for frame in t.frames:
        path = frame.file.replace("\\", "/")
        if frame.kind == "python" and "/torch/" not in path and not path.endswith(_COLLECTIVE_FILES):
            return str(frame)
    return t.top


def _waiting(facts, culprits):
    """Names of processes that are not culprits and whose main thread stands still."""
    return [f.name for f in facts if f not in culprits and f.main is not None and not f.main.moved and not f.main.works]


def _blocked(facts, nodes, addresses=()):
    """Threads that wait for one of `nodes`, or for a lock at one of `addresses`, without being one."""
    found = []
    for f in facts:
        for t in f.threads:
            if t.edge is not None and t.node not in nodes and (t.edge.owner in nodes or t.edge.address in addresses):
                found.append(_name(facts, t.node))
    return found


# ---- from what was seen ----------------------------------------------------------------------------------------------
def from_samples(seen):
    """`ProcessState` of an `sampling.ProcessSamples`."""
    role = seen.rank.role if seen.rank is not None else ""
    if seen.view is None:
        return ProcessState(seen.name, role, seen.state or "?", [], why=seen.why, ended=seen.ended)
    edges, found, total = {e.waiter: e for e in seen.edges}, [], seen.window
    for th in seen.view.threads:
        node = (seen.view.name, th.tid)
        ran = seen.ran(th.tid)
        after = seen.after.get(th.tid)
        found.append(
            ThreadState(
                node,
                th.name,
                th is seen.view.main,
                th.frames,
                bool(th.python),
                th.idle,
                seen.moved(th.tid),
                ran / total if ran is not None and total else None,
                seen.woke(th.tid),
                after.state if after else th.state or "S",
                edges.get(node),
                [n.function for n in th.native],
                len(seen.stacks.get(th.tid, ())) > 1,
                bool(seen.gil and seen.gil.count and seen.gil.held.get(th.tid, 0) == seen.gil.count),
                seen.wanted(th.tid) / total if ran is not None and total else None,
            )
        )
    return ProcessState(
        seen.view.name,
        role,
        seen.state,
        found,
        _unreleased_gil(seen, found),
        seen.world,
        zombies=seen.zombies,
        pipe=seen.pipe,
        writers=[w.name for w in seen.writers],
        serves=seen.serves,
        rings=seen.rings,
        counts=seen.counts,
    )


def _unreleased_gil(seen, found):
    """(node, waiters) where one thread held the GIL at every look while others, that never had it, waited at half of them or more: a
    waiter asks again every 5 ms, and on a machine at work it is some time until it waits again. Python makes a thread give
    the GIL back after 5 ms when another asks, so one that runs and never does is in C code; one that was not given a processor
    is no hog."""
    got = seen.gil
    if got is None or got.count < 6 or got.free or len(got.held) != 1:
        return None
    tid = next(iter(got.held))
    waiters = [t for t, n in got.waited.items() if n >= 0.5 * got.count and t not in got.held]
    ran = seen.ran(tid)
    holder = next((t for t in found if t.node[1] == tid), None)
    if not waiters or holder is None or holder.moved:
        return None
    state = seen.after[tid].state if tid in seen.after else "S"
    if state == "R" and (ran is None or ran < 0.05):
        return None
    return holder.node, [(seen.view.name, t) for t in waiters]
