"""Facts of random processes: threads, tasks and waits of every kind between them, also such as no program has."""

import random

from gdbext.observe.system_calls import Call, Source
from gdbext.stacks.async_waits import LoopState, TaskState
from gdbext.stacks.waits import Edge
from gdbext.verdict.facts import Facts, ProcessState, ThreadState
from harness.facts import python

NATIVE = ("condition", "barrier", "once", "guard", "native", "rwlock", "mutex")
KINDS = (*NATIVE, *"Lock RLock Semaphore Event Condition Queue Future Thread Process Job GIL Value File Barrier import".split())
ASYNC = (*(f"asyncio.{name}" for name in ("Lock", "Event", "Queue", "Condition", "Semaphore", "Future")), "task", "Future")
FILES = ("pipe", "unix", "served", "client", "listener", "terminal", "event", "file")
SHAPES = ("owner", "owner", "candidates", "candidates", "none", "every")
CALLS = ("futex", "nanosleep", "read", "recv", "write", "poll", "epoll", "select", "wait", "pause", "open", "accept")


def facts_of(seed):
    """The facts that a number stands for."""
    rng = random.Random(seed)
    names = "abcd"[: rng.choice([1, 1, 2, 2, 3, 4])]
    drawn = [_process(rng, name, pid, len(names)) for pid, name in enumerate(names, 1)]
    nodes = [t.node for f in drawn for t in f.threads] + [t.node for f in drawn for t in f.tasks]
    for f in drawn:
        own = [node for node in nodes if node[0] == f.name]
        for one in [*f.threads, *f.tasks]:
            is_task = isinstance(one, TaskState)
            if rng.random() < 0.6:
                one.edge = _edge(rng, one.node, own if rng.random() < 0.8 else nodes, ASYNC if is_task else KINDS)
            if not is_task and rng.random() < 0.8 or rng.random() < 0.2:
                one.call = _call(rng, len(names))
        inodes = [inode for one in f.threads for source in (one.call.sources if one.call else ()) for inode in source.peers]
        f.at_ends = {("talks", inode): rng.sample(own, 1) for inode in inodes if rng.random() < 0.3}
        for t in f.threads:
            _held(rng, t)
    return Facts(drawn)


def _process(rng, name, pid, count):
    f = ProcessState(name, rng.choice(["", "", "worker", "engine-core"]), _state(rng), pid=pid)
    tids = [10 * pid + i for i in range(rng.choice([1, 2, 2, 3, 5]))]
    f.threads = [
        ThreadState((name, tid), "", not i, frames=_frames(rng), python=rng.random() < 0.9) for i, tid in enumerate(tids)
    ]
    for t in f.threads:
        t.idle = not t.main and rng.random() < 0.1
    if rng.random() < 0.4:
        tid = rng.choice(tids)
        states = ["waiting"] * 4 + ["ready", "running"]
        f.tasks = [TaskState((name, f"task {i}"), str(i), rng.choice(states), 1) for i in range(rng.choice([1, 2, 3]))]
        f.loops = [LoopState(1, tid, turned=rng.random() < 0.2, main=rng.choice([None, f.tasks[0].node]))]
        for task in f.tasks:
            task.kind = rng.choice(["", "", "", "sleep", "executor"])
            task.seconds, task.for_good = rng.choice([0.1, 50.0, 9000.0]), rng.random() < 0.3
            task.text = rng.choice(["", "x", "serve_forever", "a Stream"])
            task.on = [one.node for one in f.tasks if one is not task and rng.random() < 0.2]
        f.moved_tasks = {task.node for task in f.tasks if rng.random() < 0.15}
    pids = range(1, count + 3)
    f.peers = {inode: [(rng.choice(pids), rng.random() < 0.5) for _ in range(rng.choice([1, 1, 2]))] for inode in range(1, 8)}
    f.children = {one: rng.choice([0.0, 0.0, 2.0]) for one in pids if rng.random() < 0.2}
    f.ancestors = {one for one in pids if one != pid and rng.random() < 0.1}
    f.gone = [one for one in pids if one > count and rng.random() < 0.2]
    f.dead_children = [(one, "killed") for one in f.gone if rng.random() < 0.5]
    f.signals = ["SIGTERM"] if rng.random() < 0.15 else ()
    f.hidden = [99] if rng.random() < 0.05 else []
    f.listens = rng.random() < 0.1
    return f


def _state(rng):
    return rng.choice("SSSSSSSSSSSSSSSSSSTZ")


def _frames(rng):
    return python(rng.choice(["main", "work", "get"]), "run") if rng.random() < 0.9 else ()


def _held(rng, t):
    does = rng.choice(["stands"] * 6 + ["moves", "works", "wakes", "denied", "blocked", "polls", "one look"])
    t.advanced = t.moved = does == "moves"
    t.load = {"works": 0.9, "one look": None}.get(does, 0.0)
    t.woke = 3 if does == "wakes" else 0
    t.state = {"works": "R", "denied": "R", "blocked": "D"}.get(does, "S")
    t.futile = rng.random() < 0.5
    t.polls = does == "polls"
    if t.polls:
        t.load, t.moved, t.asks_anew = rng.choice([0.0, 0.6]), rng.random() < 0.5, rng.random() < 0.3
    t.for_good = rng.random() < 0.4


def _call(rng, count):
    name = rng.choice(CALLS)
    found = Call(name, limited=rng.random() < 0.2, seconds=rng.choice([0.1, 50.0, 9000.0]) if name == "nanosleep" else 0.0)
    if name in ("read", "recv", "write", "poll", "epoll", "select", "open", "accept"):
        for _ in range(rng.choice([1, 1, 1, 2])):
            kind = "fifo" if name == "open" else "listener" if name == "accept" else rng.choice(FILES)
            ends = [rng.randint(1, 7)] if kind in ("unix", "served", "client") else []
            found.sources.append(Source(kind, kind, rng.randint(1, 7), ends))
    if name == "wait":
        found.peers = rng.sample(range(1, count + 3), rng.choice([0, 1, 1, 2]))
    return found


def _edge(rng, waiter, nodes, kinds):
    kind = rng.choice(kinds)
    edge = Edge(waiter, f"the {kind} x", kind, address=rng.choice([0, 7, 8, 9]), where=rng.choice(["", "get"]))
    shapes = ["candidates", "none"] if kind in ("Job", "File") else ["none"] if kind in ("Process", "Value") else SHAPES
    shape = rng.choice(shapes)
    if shape == "owner":
        edge.owner = rng.choice(nodes)
    elif shape != "none":
        edge.candidates = rng.sample(nodes, min(len(nodes), rng.choice([1, 1, 2, 3])))
        edge.bystanders = [node for node in edge.candidates if rng.random() < 0.15]
        edge.every, edge.pool = shape == "every", rng.random() < 0.1
    elif rng.random() < 0.2:
        edge.ended = ["t-9"]
    edge.pid = rng.randint(0, 6) if kind == "Process" else 0
    edge.pids = [rng.randint(1, 6)] if kind == "Job" else []
    edge.limit, edge.polls, edge.doubted = (rng.random() < p for p in (0.15, 0.1, 0.1))
    edge.orphan = edge.owner is None and not edge.candidates and rng.random() < 0.1
    edge.outside = ["x"] if edge.owner is None and rng.random() < 0.03 else []
    edge.unread = [99] if edge.owner is None and rng.random() < 0.03 else []
    edge.open = "it is set" if rng.random() < 0.05 else ""
    return edge
