"""Facts for the rules of llm-hang, made up."""

from gdbext.observe.clocks import Clock
from gdbext.observe.window import ThreadSample
from gdbext.stacks.threads import Frame
from gdbext.verdict.facts import ProcessState, ThreadState

C10D = "/x/torch/distributed/distributed_c10d.py"


def python(*names, file="/x/vllm/engine.py"):
    return [Frame("python", n, file, 1) for n in names]


def inside(op="all_reduce", caller="forward"):
    return [Frame("native", "c10d::Work::wait", "libtorch_cpu.so"), *python(op, file=C10D), *python(caller, "loop")]


def process(
    name,
    frames=(),
    native=(),
    edge=None,
    role="worker",
    state="S",
    world=None,
    gil_hog=None,
    zombies=(),
    rings=(),
    counts=(),
    **main,
):
    tid = sum(map(ord, name)) * 100
    main.setdefault("load", 0.0)
    threads = [ThreadState((name, tid), "MainThread", True, frames, edge=edge, native=native, **main)]
    return ProcessState(name, role, state, threads, gil_hog, world, dead_children=zombies, rings=rings, counts=counts)


def node(name):
    return (name, sum(map(ord, name)) * 100)


def add(facts, tid, name, edge=None, **more):
    more.setdefault("load", 0.0)
    facts.threads.append(ThreadState((facts.name, tid), name, False, more.pop("frames", python("helper")), edge=edge, **more))
    return facts


SLEEP, READ, EPOLL = ("clock_nanosleep",), ("read",), ("epoll_wait",)


def sample(stack, runs=False, ran=None, tid=1):
    """Of a thread: the key of its stack, whether it is ready to run, seconds that it ran so far."""
    return ThreadSample(tid, None if ran is None else Clock(ran, 0.0, "R" if runs else "S"), stack)
