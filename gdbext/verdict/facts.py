"""The input of the rules: threads, tasks, loops and processes as plain facts. `sampling` fills them in from samples; a test makes
them up."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, Sequence

from ..engines import registry, shm_rings
from ..observe.outside import Outside
from ..observe.system_calls import Call, Source
from ..observe.window import RUNS, STILL, Window
from ..primitives import table
from ..stacks import ray_actors
from ..stacks.async_waits import LoopState, TaskState
from ..stacks.threads import ProcessView, waits_in_kernel
from ..stacks.waits import Edge, tell_apart
from ..torch.collectives import Count
from . import patterns

if TYPE_CHECKING:
    from ..engines.rank import Rank
    from ..engines.sightings import InStep, Start
    from ..observe.families import Outsider
    from ..requests.model import Counter
    from ..stacks.snapshots import ProcessSnapshot

LOCKS = (*table.LOCKS, "mutex", "rwlock")
# waits in native code: of none is it known all that could end it
NATIVE = ("condition", *dict.fromkeys(row.kind for row in table.NATIVE))
Node = Any


@dataclass(eq=False)
class ThreadState:
    """One thread during the window."""

    node: Node
    name: str = ""
    main: bool = False
    frames: Sequence[Any] = ()  # innermost first
    python: bool = True  # it has Python frames
    idle: bool = False  # a helper that waits for work
    moved: bool = False  # two samples of its stack differ
    advanced: bool = False  # variables of its frames changed
    load: float | None = 0.0  # part of a CPU that it used, None where that is not known
    woke: int = 0  # how often it went to sleep of itself
    state: str = "S"  # the letter of proc(5)
    edge: Edge | None = None  # its wait
    native: Sequence[str] = ()  # names of its native frames
    handles: str = ""  # the class of the exception whose handler it runs
    holds: bool = False  # it had the GIL in every sample
    wanted: float | None = None  # as `load`, with the time that it waited for a CPU
    call: Call | None = None  # the system call that it is in
    waited: bool = False  # in some sample it was in a wait without a time limit that others end
    futile: bool = False  # it runs, and is known to change nothing
    took: int = 0  # pages of memory that it was given
    alters: bool = False  # it runs, and changes what it can reach beyond its variables
    kernel: str = ""  # of a thread in state D: the kernel function that it is blocked in
    for_good: bool = False  # when its sleep ends, its code only sleeps again
    rounds: bool = False  # it sleeps in a loop that has no way out
    polls: bool = False  # its loop only asks, over and over, for what its `edge` or `call` says
    asks_anew: bool = False  # it waits over and over in its `call`, up to a limit each time, and gets hardly anything
    group: str = ""  # the torch.distributed group in whose collective it waits
    peer: int | None = None  # the rank, among all of its job, to which it sends or from which it receives

    @property
    def blocked(self) -> bool:
        """Whether it was in one uninterruptible wait of the kernel during the whole window. Never true of a core, which is one
        sample."""
        return self.state == "D" and self.load is not None and self.load <= STILL and not self.woke and not self.moved

    @property
    def works(self) -> bool:
        """Whether it ran, or wanted to: on a full machine a thread that works may get little CPU time."""
        wanted = self.load if self.wanted is None else self.wanted
        return self.load is not None and self.load > STILL and (wanted or 0.0) > RUNS

    @property
    def denied(self) -> bool:
        """Whether it wants a CPU and hardly had one. What it would do is not known."""
        return self.load is not None and self.load <= STILL and (self.state == "R" or (self.wanted or 0.0) > RUNS)

    @property
    def still(self) -> bool:
        """Whether it neither moved nor ran, although it could have had a CPU."""
        return not self.moved and not self.works and not self.denied

    @property
    def collects(self) -> bool:
        """Whether it is inside the garbage collector and does not sleep for a lock there: a type's tp_traverse may take one."""
        asleep = self.still and not self.woke and self.call is not None and self.call.name == "futex" and not self.call.limited
        return not asleep and self.find(patterns.COLLECTS, "native") is not None

    @property
    def calls(self) -> bool:
        """Whether it was in one call of native code during the whole window. Python's variables do not show progress inside such
        a call."""
        return not self.moved and bool(self.frames) and self.frames[0].kind == "native"

    def find(self, pattern: re.Pattern[str], kind: str | None = None) -> Any:
        """The innermost frame whose function the pattern matches, or None."""
        return next((f for f in self.frames if (kind is None or f.kind == kind) and pattern.search(f.function or "")), None)

    def stands_in(self, known: Any) -> Any:
        """The innermost Python frame of an engine's own packages whose function `known(function)` accepts, or None."""
        own = (f for f in self.frames if f.kind == "python" and known(f.function or ""))
        return next((f for f in own if registry.owner_of(f.file) is not None), None)

    @property
    def at_store(self) -> Any:
        """The innermost frame of torch in which it sets up a process group with other ranks, or None."""
        own = (f for f in self.frames if f.kind == "python" and patterns.STORE.search(f.function or ""))
        return next((f for f in own if patterns.TORCH.search(f.file.replace("\\", "/"))), None)

    @property
    def collective(self) -> str:
        """The name of the collective operation it waits in, or ''. Other Python code inside the collective (a signal handler, a
        hook) means that the thread does something else."""
        name, files = "", patterns.collective_files()
        for frame in self.frames:
            if frame.kind != "python":
                continue
            path = frame.file.replace("\\", "/")
            ours = path.endswith(files)
            if not ours and "/torch/" not in path and not path.endswith("/contextlib.py"):
                break
            found = patterns.COLLECTIVE.search(frame.function) if ours else None
            name = found.group(1) if found else name
        if name:
            return name
        python = [f for f in self.frames if f.kind == "python"]
        if any(f.file.endswith(files) and patterns.COLLECTIVE.search(f.function or "") for f in python):
            return ""
        if self.at_store:  # gloo connects the ranks of the group that is set up
            return ""
        native = self.find(patterns.NATIVE_COLLECTIVE, "native")
        return native.function.split("(")[0] if native else ""

    @property
    def held_up(self) -> bool:
        """Whether it waited for its `edge` during the whole window. A thread that waits for a lock only by chance at the last
        sample is woken soon. A thread that waits for the GIL wakes every 5 ms to ask for it; one that polls for a file wakes now
        and then."""
        if self.edge is None or self.moved and (not self.edge.polls or self.edge.in_one_call):
            return False
        return self.load is None or self.edge.kind == "GIL" or self.edge.polls or self.woke == 0

    @property
    def takes_tasks(self) -> bool:
        """Whether it is a worker of Ray that waits for its next task, or has just woken to look at its timers."""
        inner = next((f for f in self.frames if f.kind == "python"), None)
        waits = self.call.name == "epoll" if self.call is not None else self.load is not None and self.load <= STILL
        return waits and inner is not None and ray_actors.takes_tasks(inner)

    @property
    def victim(self) -> bool:
        """Whether it is where ranks wait for others. Then the objects it holds are not the cause."""
        return bool(self.collective) or self.does in ("device", "ring", "startup")

    @property
    def tries(self) -> bool:
        """Whether it asks over and over for what its `edge` says."""
        return self.edge is not None and self.edge.polls

    @property
    def top(self) -> str:
        """Its innermost Python frame outside the standard library's waits, as text."""
        outside = (f for f in self.frames if f.kind == "python" and not f"/{f.file}".endswith(table.WAITS))
        frame = next(outside, None)
        frame = frame or next((f for f in self.frames if f.function), None)
        return str(frame) if frame else "a place that cannot be named"

    @property
    def inside(self) -> str:
        """What Python code of the thread was called for by the interpreter itself: "a finalizer", "a signal handler", "a weak
        reference's callback"; '' for none. Known by the interpreter's native frames, of a finalizer by its name too."""
        python = [f for f in self.frames if f.kind == "python"]
        if any((f.function or "").rpartition(".")[2] == "__del__" for f in python):
            return "a finalizer"
        found = (what for name in self.native if python for start, what in patterns.CALLED_FOR if (name or "").startswith(start))
        return next(found, "")

    @property
    def at_ring(self) -> bool:
        """Whether it waits for a message of a ring or for another process's answer, outside signal handlers and hooks."""
        if not self.stands_in(shm_rings.waits_in) and not self.stands_in(registry.waits_for_answer_in):
            return False
        inner = next((f for f in self.frames if f.kind == "python"), None)
        path = inner.file.replace("\\", "/") if inner else ""
        library = path.endswith(table.WAITS) or patterns.LIBRARY_FILES.search(path) is not None
        return library or registry.owner_of(path) is not None

    @property
    def does(self) -> str:
        """One word for what it is in: "sleep", "input", "device", "collective", "ring", "startup", "lock", "queue", "event",
        "join", "run", "disk", "wait" or "other"."""
        if self.state == "D":
            return "disk"
        if self.edge is not None:
            kind = self.edge.kind
            if kind in LOCKS or kind == "GIL":
                return "lock"
            return table.DOES.get(kind, "event")
        if self.collective:
            return "collective"
        if self.at_store:
            return "startup"
        if self.at_ring:
            return "ring"
        if self.find(patterns.DEVICE, "native"):
            return "device"
        inner = [n for n in self.native[:4] if n]
        if self.call is not None and self.call.name == "nanosleep" or any(patterns.SLEEP.match(n) for n in inner):
            return "sleep"
        if any(patterns.INPUT.match(n) for n in inner):
            return "input"
        if self.works or self.state == "R" and self.moved:
            return "run"
        return "wait" if any(waits_in_kernel(n) for n in inner) else "other"


@dataclass(eq=False)
class ProcessState:
    """One process during the window: the facts about it, and the sources of these facts."""

    name: str
    role: str = ""  # in its engine
    state: str = "S"  # the letter of proc(5)
    threads: list[ThreadState] = field(default_factory=list)  # the main one first
    gil_hog: tuple[Node, list[Node]] | None = None  # (the thread that holds the GIL and never releases it, those that wait)
    world: tuple[int, int] | None = None  # (rank, size) of its torch.distributed group
    links: set[Any] | None = None  # its connections, equal at both ends; None where they are not known
    job: str = ""  # where its ranks have found one another: the same for all ranks of one job, and for no other job
    node: str = ""  # the machine, '' for this one
    why: str = ""  # it could not be read
    pid: int = 0
    program: str = ""  # what people call it: its script, module, own title or executable
    engine: str = ""
    family: Any = None  # equal for the processes of one engine
    tasks: list[TaskState] = field(default_factory=list)  # of asyncio
    moved_tasks: set[Node] = field(default_factory=set)
    loops: list[LoopState] = field(default_factory=list)
    counters: list[Counter] = field(default_factory=list)  # what progress changes
    rings: Sequence[Any] = ()  # its ends of rings in shared memory
    shared: set[str] = field(default_factory=set)  # names of its shared memory
    counts: Sequence[Any] = ()  # of collectives
    hosts: dict[int, str] = field(default_factory=dict)  # {rank of its job: the address of that one's machine}
    children: dict[int, float] = field(default_factory=dict)  # {pid of a descendant: seconds that it and its own ran}
    dead_children: Sequence[tuple[int, str]] = ()  # [(pid, what)] that it has not asked about
    ended: str = ""  # how it has ended
    gone: list[int] = field(default_factory=list)  # pids that it waits for and that are no processes any more
    programs: dict[int, str] = field(default_factory=dict)  # {pid that was not read and that it waits for: program and state}
    frozen: str = ""  # what has frozen it
    died: tuple[int, str] | None = None  # of a core: (tid, signal) of the thread whose error ended it
    ancestors: set[int] = field(default_factory=set)  # pids
    asker: set[int] = field(default_factory=set)  # pids of gdbext itself and of its helpers
    born: Any = None  # of a core: who it was, equal for no other process; None where that is not known
    parent: Any = None  # of a core: who its parent was
    peers: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)  # {inode: [(pid that has it, whether for writing)]}
    at_ends: dict[Any, list[Node]] = field(default_factory=dict)  # {an end of `file_ends`: nodes that can reach it}
    hidden: list[int] = field(default_factory=list)  # pids of kin that may have the other ends too, and may not be looked at
    left_out: int = 0  # threads that rest and that its machine did not send
    unsent: int = 0  # how many of them may act by themselves
    stands_for: tuple[int, int] | None = None  # the (rank, size) that its environment gives it
    here: set[int] = field(default_factory=set)  # the ranks of its job that were read, in whatever state
    maybe: dict[int, str] = field(default_factory=dict)  # {rank of its job: a process that may be it, whose job is not known}
    orphan: str = ""  # why nothing can reach it any more
    requests: list[Any] | None = None  # of its engine (`requests.model.Tracked`), None where they are not known
    listens: bool = False  # something in it waits for connections, by epoll
    clients: int = 0  # connections that clients have to its event loops
    unread: int = 0  # how many of them, and of its listeners, have something that was not read
    waiting: list[Source] = field(
        default_factory=list
    )  # with connections not accepted, or bytes not read: at the first sample or the last
    waited: set[int] = field(default_factory=set)  # the inodes of those at both
    served: set[int] = field(default_factory=set)  # the inodes of its clients' connections
    broken: str = ""  # why it serves no requests any more, by its own word
    in_step: InStep | None = None  # how far it is among ranks that go in step
    start: Start | None = None  # the ranks whose start it waits for
    replica: int | None = None  # its number among data-parallel replicas
    alone: bool = False  # its replica never waits for another
    per_node: int = 0  # ranks of its job on each node, 0 where that is not known
    signals: Sequence[str] = ()  # that it has handlers of its own for
    signalled: dict[int, int] = field(default_factory=dict)  # {an object that a handler in Python tells: the signal}
    read: int = 0  # bytes that it read in the window
    wrote: int = 0  # and wrote
    others: dict[int, Outsider] = field(default_factory=dict)  # {pid: what one did that was not sampled}
    uncalled: bool = False  # no Python program, and not asked for: that it rests says nothing of what it owes
    throttled: bool = False  # a quota of CPU time of its control groups was used up in the window
    short: list[str] = field(default_factory=list)  # resources that have run out
    restarts: str = ""  # that children of it fail, one after the other
    free_threaded: bool = False  # it has no GIL: a thread that stays attached while another wants all to stop counts as holder
    # the sources of the facts: no rule reads them, and facts that a test makes up have none
    rank: Rank | None = None
    snapshot: ProcessSnapshot | None = None  # its copy
    view: ProcessView | None = None  # of the copy
    window: Window = field(default_factory=Window)  # what its threads did
    outside: Outside | None = None  # what is known of one that may not be read
    deaf: bool = False  # it alone serves its engine's port, where a request was not read for seconds
    stands: bool = False  # its engine's own port says that requests run and that no token comes
    reach: dict[int, Outside] = field(default_factory=dict)  # {pid: that, and of those that it waits for}
    partial: list[str] = field(default_factory=list)  # why this is not all

    @property
    def number(self) -> int | None:
        """Its number among all ranks of its job, None where it is not known."""
        return self.world[0] if self.world else next((c.rank for c in self.counts if c.default), None)

    @property
    def main(self) -> ThreadState | None:
        return self.threads[0] if self.threads else None

    @property
    def sole(self) -> ThreadState | None:
        """The only thread of its own that is no idle helper, None where there are others: what the process reads and writes is
        its."""
        own = [t for t in self.threads if t.python and not t.idle]
        return own[0] if len(own) == 1 else None

    def spent(self, pids: Iterable[int]) -> float:
        """Seconds of CPU that processes which it knows, with their descendants, used in the window."""
        return sum(self.others[pid].ran if pid in self.others else self.children.get(pid, 0.0) for pid in pids)

    @property
    def edges(self) -> list[Edge]:
        """What its threads wait for, then its tasks."""
        return [t.edge for t in self.threads if t.edge is not None] + [t.edge for t in self.tasks if t.edge is not None]

    def loop_of(self, tid: int) -> LoopState | None:
        """The event loop that a thread runs, None where it runs none."""
        return next((loop for loop in self.loops if loop.tid == tid), None)

    def loop_with(self, address: int) -> LoopState | None:
        """The event loop at an address that runs, None where none does."""
        return next((loop for loop in self.loops if loop.address == address), None)


class Facts:
    """Processes that are judged together: their `ProcessState`s, and each thread and task by its node. Facts do not change."""

    def __init__(self, processes: Iterable[ProcessState] = ()) -> None:
        self._processes = list(processes)
        self._names: dict[str, ProcessState] = {}
        self._threads: dict[Node, ThreadState] = {}
        self._tasks: dict[Node, TaskState] = {}
        self._owners: dict[Node, ProcessState] = {}  # two jobs beside each other have processes of one name
        for f in self._processes:
            self._names.setdefault(f.name, f)
            for thread in f.threads:
                self._threads.setdefault(thread.node, thread)
                self._owners.setdefault(thread.node, f)
            for task in f.tasks:
                self._tasks.setdefault(task.node, task)
                self._owners.setdefault(task.node, f)
        for f in self._processes:
            tell_apart(edge for edge in f.edges if edge.kind in LOCKS)
        self.edges = [edge for f in self._processes for edge in f.edges]
        self._made: dict[Callable[[Facts], Any], Any] = {}

    def once(self, make: Callable[[Facts], Any]) -> Any:
        """What a function makes of these facts; it is called once."""
        if make not in self._made:
            self._made[make] = make(self)
        return self._made[make]

    def __iter__(self) -> Iterator[ProcessState]:
        return iter(self._processes)

    def __len__(self) -> int:
        return len(self._processes)

    def __getitem__(self, index: int) -> ProcessState:
        return self._processes[index]

    @functools.cached_property
    def groups(self) -> dict[tuple[str, str], list[tuple[ProcessState, Count]]]:
        """{`Count.key` of a group: its members with their counts}"""
        found: dict[tuple[str, str], list[tuple[ProcessState, Count]]] = {}
        for f in self._processes:
            for count in f.counts:
                found.setdefault(count.key(f.job), []).append((f, count))
        return found

    @functools.cached_property
    def _numbered(self) -> dict[tuple[str, int | None], list[ProcessState]]:
        found: dict[tuple[str, int | None], list[ProcessState]] = {}
        for f in self._processes:
            found.setdefault((f.job, f.number), []).append(f)
        return found

    def rank(self, job: str, number: int | None) -> list[ProcessState]:
        """The process that has a number among all ranks of a job; [] where it is not there, or several may be it."""
        found = self._numbered.get((job, number), []) if number is not None else []
        return found if len(found) == 1 else []

    @functools.cached_property
    def elsewhere(self) -> list[ThreadState]:
        """The main threads of ranks that are in no collective."""
        mains = [f.main for f in self._processes if f.main is not None and (f.world is not None or f.role == "worker")]
        return [t for t in mains if not t.collective]

    def process(self, node: Node) -> ProcessState | None:
        """The process of a node, None where there is none."""
        return self._owners.get(node) or self._names.get(node[0])

    def thread(self, node: Node) -> ThreadState | None:
        """The thread of a node, None where there is none."""
        return self._threads.get(node)

    def task(self, node: Node) -> TaskState | None:
        """The asyncio task of a node, None where there is none."""
        return self._tasks.get(node)


class Verdict:
    """A verdict on a group of processes.

    * `kind`: docs/json.md
    * `culprits`: [node, or (process name, None) for a whole process]
    * `evidence`: [text]
    * `victims`: [text]
    * `processes`: the names of the processes it is about
    * `children`: {name: pid} of culprits that were not sampled
    * `not_asked`: ranks that others wait for and that were not sampled; `hosts`: {one of them: its machine's address}
    * `again`: it holds only if a second window gives the same
    * `longer`: seconds that it has to last
    * `unread`: it rests on processes that were not sampled
    * `from_outside`: it rests on /proc alone
    * `if_it_lasts`: of an "unknown" one, the verdict where what one look showed lasts; None where that is not all that is missing
    * `engine`, `group`: set by `judge`
    """

    def __init__(
        self, kind: str, culprits: Iterable[Node] = (), evidence: Iterable[str] = (), victims: Iterable[str] = ()
    ) -> None:
        self.kind, self.culprits = kind, list(dict.fromkeys(culprits))
        self.evidence, self.victims = list(dict.fromkeys(e for e in evidence if e)), list(victims)
        self.processes: list[str] = []
        self.children: dict[str, int] = {}
        self.not_asked: list[str] = []
        self.hosts: dict[str, str] = {}
        self.if_it_lasts: Verdict | None = None
        self.again = self.unread = self.from_outside = False
        self.longer = 0.0
        self.engine, self.group = "", ""

    def __repr__(self) -> str:
        return f"Verdict({self.kind}, {self.culprits})"
