"""Threads, tasks and places in words, for evidence."""

from __future__ import annotations

import itertools
import re
from typing import Any, Collection

from ..render.text import thread_text
from . import patterns
from .facts import Facts, Node, ProcessState, ThreadState

AWAITED = {  # what a function of the kernel waits for: kernel/fork.c (vfork)
    "kernel_clone": "a child of its vfork, which has neither ended nor started a program",
    "_do_fork": "a child of its vfork, which has neither ended nor started a program",
}

_LIBC = re.compile(r"lib(c|pthread|rt)[.-]|ld-|\[vdso")
_GLUE = re.compile(r"lib(c|pthread|rt)[.-]|ld-|\[vdso|(lib)?python\d|_ctypes\b|libffi")
_STDLIB = re.compile(r"/python3\.\d+t?/(?!site-packages/|dist-packages/)")
_SUFFIX = re.compile(r"\.(cpython-[\w-]+|abi3)\.so$")


def name_of(facts: Facts, node: Node) -> str:
    """`TP0 thread 4242 (MainThread)`, or `TP0 task worker-3`."""
    if node is None:
        return "no thread"
    if node[1] is None:
        return str(node[0])
    t = facts.thread(node)
    if t is None and isinstance(node[1], str):
        return f"{node[0]} {node[1]}"
    return thread_text(node[1], t.name if t is not None else "", node[0])


def called(f: ProcessState, pid: int) -> str:
    """A process that was not read and that another one waits for: `4242 (sleep, in hrtimer_nanosleep)`."""
    what = f.programs.get(pid, "")
    return f"{pid} ({what})" if what else str(pid)


def describe(t: ThreadState | None) -> str:
    """What a thread does."""
    if t is None:
        return ""
    if t.state in ("Z", "X"):
        return f"{thread_text(t.node[1], t.name, t.node[0])} has ended, others of its process go on"
    load = "" if t.load is None else f", {100 * t.load:.0f} % CPU"
    how = "asks over and over, last" if t.moved and (t.asks_anew or t.tries) else "moves, last" if t.moved else "is"
    wait = f", waits for {t.edge.lock}" if t.edge is not None else ""
    called = f", inside {t.inside}" if t.inside else ""
    called += f", in the handler of {t.handles}" if t.handles else ""
    return f"{thread_text(t.node[1], t.name, t.node[0])} {how} in {t.top}{called}{wait}{load}"


def own_place(t: ThreadState) -> str:
    """Its innermost Python frame outside the standard library, as text; `ThreadState.top` where there is none."""
    own = (frame for frame in t.frames if frame.kind == "python" and not _STDLIB.search(frame.file.replace("\\", "/")))
    frame = next((frame for frame in own if not frame.file.startswith("<frozen")), None)
    return str(frame) if frame is not None else t.top


def blocked_in(t: ThreadState) -> str:
    """Where a thread is below its Python code, by both ends: the function outside libc that it is in, the one that Python called
    with its library, and the file that it waits for: `gomp_team_barrier_wait_end <- sum (omp_fork.c.so)`."""
    below = list(itertools.takewhile(lambda frame: frame.kind != "python", t.frames)) if t.python else list(t.frames)
    called = [frame for frame in below if not _LIBC.match(frame.where)] or below[:1]
    own = [frame for frame in called if not _GLUE.match(frame.where)] or called[-1:]
    ends = list(dict.fromkeys(frame.function or frame.where for frame in (*own[:1], *own[-1:]) if frame.function or frame.where))
    if own and own[-1].function and own[-1].where and not _GLUE.match(own[-1].where):
        ends[-1] += f" ({_SUFFIX.sub('', own[-1].where)})"
    if not ends and t.call is not None and t.call.name:
        ends = [t.call.name]
    files = [source.text for source in t.call.sources[:2]] if t.call is not None else []
    return " <- ".join(ends) + (f" on {', '.join(files)}" if ends and files else "")


def futex_of(t: ThreadState) -> str:
    """A wait in native code for an object that is not known, in words."""
    return f"a futex, in {blocked_in(t)}, called from {own_place(t)}" if t.python else f"a futex, in {blocked_in(t)}"


def kept_line(t: ThreadState) -> str:
    """Where in the kernel a thread in state D is, and what it waits for there where that is known."""
    awaits = f": it waits for {AWAITED[t.kernel]}" if t.kernel in AWAITED else ""
    where = f", in {t.kernel}" if t.kernel else ""
    return f"{describe(t)}: blocked in the kernel, where no signal reaches it (state D){where}{awaits}"


def describe_node(facts: Facts, node: Node) -> str:
    """What a thread or a task does."""
    t = facts.thread(node)
    if t is not None:
        return describe(t)
    task = facts.task(node)
    if task is None:
        return ""
    wait = f", waits for {task.edge.lock if task.edge is not None else task.text}" if task.text or task.edge else ""
    return f"{name_of(facts, node)} is {task.state} in {task.top or 'a place that cannot be named'}{wait}"


def place_of(t: ThreadState, pattern: re.Pattern[str]) -> str:
    """The thread's frame that the pattern matches, else its top, as text."""
    frame = t.find(pattern)
    return f"{frame}" if frame else t.top


def caller_of(t: ThreadState) -> str:
    """The frame that called the collective: the first Python frame outside torch and the communicators."""
    for frame in t.frames:
        path = frame.file.replace("\\", "/")
        if frame.kind == "python" and "/torch/" not in path and not path.endswith(patterns.collective_files()):
            return str(frame)
    return t.top


def waiting(facts: Facts, culprits: Collection[Any]) -> list[str]:
    """Names of processes that are not culprits and whose main thread stands still."""
    return [f.name for f in facts if f not in culprits and f.main is not None and f.main.still]


def blocked(facts: Facts, nodes: Collection[Node], addresses: Collection[int] = ()) -> list[str]:
    """Threads and tasks that are not among `nodes` and wait for one of them, or for a lock at one of `addresses`."""
    return [
        name_of(facts, e.waiter)
        for e in facts.edges
        if e.waiter not in nodes and (e.owner in nodes or e.address and e.address in addresses)
    ]
