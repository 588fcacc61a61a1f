"""asyncio as part of the wait-for graph: each loop with the tasks it does not run, each task with its wait and the nodes that
could end it.

Source: Lib/asyncio/locks.py, queues.py, streams.py. uvloop keeps its ready handles in C: only the ready tasks of its loops are
known.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Sequence

from .. import log
from ..access.retry import retry_reading
from ..cpython import machine, poll_loops, poll_tasks, rounds, schedulers
from ..cpython.event_loops import EventLoop, event_loops
from ..cpython.poll_loops import Poll
from ..cpython.primitive_states import held, row_of
from ..cpython.runtime import Runtime
from ..engines.sensitive_names import shown_name
from ..errors import GdbextError
from ..observe.stack_keys import stack_key
from ..observe.system_calls import Call
from ..primitives.table import ASYNCIO
from . import greenlet_waits, handlers, polls, ray_actors, tries
from .givers import Givers
from .holders import Holders
from .pools import Pools
from .python_waits import Wait, edge_of, find, last_part, outer_place, path_of
from .references import Reachable, References, references_of
from .threads import ThreadView
from .waits import Edge

_DRAINS = ("drain", "_drain_helper")
_SLEEPS = ("sleep", "__sleep0")
RUNNABLE = ("ready", "running")
CLOSED, IDLE = "its event loop is closed", "no thread runs its event loop"
ASKED = "asked"  # the key of a task that one that only asks has made for its question
NAMING = 4  # innermost frames that may have the object of a wait
MAX_SIGNALS = 64
MAX_WATCHED = 4096  # descriptors of a loop
MAX_TASKS = 2000  # whose waits are read one by one
MAX_TIMERS = 4096
_ENGINE = "asyncio/base_events.py"  # a thread that runs a loop acts by its tasks
MAX_ASKING = 64  # tasks whose loops are looked at


@dataclass(eq=False)
class TaskState:
    """One asyncio task.

    * `node`, `name`
    * `state`: "running", "ready", "waiting"
    * `loop`: its address
    * `python`: its suspended frames, innermost first
    * `edge`: its wait, None where it is not known
    * `text`: the wait in words
    * `kind`: of `tasks.Waiting`
    * `on`: nodes of tasks that must all end
    * `descriptor`: of the socket it reads from, -1 for none
    * `call`: that read as a system call
    * `answers`: it has a client's connection at hand, to which it may owe an answer
    * `key`: changes when the task makes progress
    * `top`: its innermost frame outside asyncio's waits, as text
    * `seconds`: of a sleep
    * `yields`: it is in asyncio.sleep(0)
    * `for_good`: when its sleep ends, its code only sleeps again; `rounds`: it sleeps in a loop that has no way out
    * `future`: the address of the future that it waits for, of a pool's where a pool has the work
    * `poll`: its loop, where that only asks, over and over
    * `stranded`: why its event loop does not run it, '' where it does
    """

    node: Any
    name: str
    state: str
    loop: int
    python: list[Any] = field(default_factory=list)
    edge: Edge | None = None
    text: str = ""
    kind: str = ""
    on: list[Any] = field(default_factory=list)
    descriptor: int = -1
    answers: bool = False
    call: Call | None = None
    key: Any = None
    top: str = ""
    address: int = 0
    seconds: float | None = None
    yields: bool = False
    for_good: bool = False
    rounds: bool = False
    poll: Poll | None = None
    future: int = 0
    stranded: str = ""

    @property
    def serves(self) -> bool:
        """Whether it waits for a server's new clients."""
        return "serve_forever" in self.text


@dataclass(eq=False)
class LoopState:
    """One event loop that runs.

    * `address`; `tid` of its thread
    * `ready`: number of handles and tasks that could run
    * `taken`: as of `event_loops.callbacks_taken`, None where not known
    * `turned`: whether `taken` grew since an earlier sample, None where not known
    * `overdue`: seconds by which its earliest timer is late
    * `late`: number of late timers
    * `running`: the name of the task that is being stepped
    * `callback`: the function that runs, where no task is
    * `main`: the node of the task that the loop runs for
    * `signalled`: {object that a handler of a signal tells: the signal}
    * `told`: {descriptor that it watches: the objects that its callback tells}
    * `calls`: {an object of `told`: the wait for that descriptor, as a system call}
    * `lost`: objects of `told` whose descriptor was closed behind the loop's back: no epoll file watches it any more
    * `untimed`: it has no timer, and wakes from time to time all the same
    """

    address: int
    tid: int
    ready: int = 0
    taken: int | None = None
    turned: bool | None = None
    overdue: float = 0.0
    late: int = 0
    running: str = ""
    callback: str = ""
    main: Any = None
    signalled: dict[int, int] = field(default_factory=dict)
    told: dict[int, list[int]] = field(default_factory=dict)
    calls: dict[int, Call] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)
    untimed: bool = False


@dataclass
class AsyncState:
    """The asyncio state of a process: `tasks`, `loops`, and reasons why there may be more. `listed`: the tasks could be
    listed."""

    tasks: list[TaskState] = field(default_factory=list)
    loops: list[LoopState] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)
    listed: bool = True

    def keys(self) -> dict[int, Any] | None:
        """As the function `keys`, for these tasks."""
        return {task.address: task.key for task in self.tasks} if self.listed else None


def read(name: str, rt: Runtime, threads: list[ThreadView], now: float | None = None) -> AsyncState:
    """The tasks and loops of a process called `name`; empty where it uses no asyncio. `now`: seconds of CLOCK_MONOTONIC; None for
    old memory (a core), in which nothing is overdue."""
    found = AsyncState()
    try:
        if not schedulers.used(rt):
            return found
        tasks, found.partial = schedulers.tasks(rt, shown=partial(shown_name, rt))
        for task in tasks:
            task.name = shown_name(rt, task.name)
    except GdbextError as e:
        found.partial.append(str(e))
        found.listed = False
        return found
    nodes = _nodes(name, tasks)
    asks = _asking(tasks)
    made = _keys(tasks[:MAX_TASKS], asks)
    for task in tasks[:MAX_TASKS]:
        state = TaskState(nodes[task.address], task.name, task.state, task.loop, list(task.frames))
        state.address = task.address
        try:
            state.top = _where(task.frames)
        except GdbextError as e:
            found.partial.append(f"task {task.name}: {e}")
        state.poll = asks.get(task.address)
        state.key, state.yields = made[task.address], _yields(task)
        if task.waits is not None:
            state.text, state.kind, state.seconds = task.waits.text, task.waits.kind, task.waits.seconds
            state.for_good = state.kind == "sleep" and sleeps_for_good(task.frames)
            state.rounds = state.kind == "sleep" and rounds.goes_round(task.frames)
            awaited = task.waits.source or task.waits.object
            state.future = awaited.address if awaited is not None else 0
            state.on = [nodes[a] for a in task.waits.on if a in nodes]
        found.tasks.append(state)
    _edges(found, rt, threads)
    try:
        states = retry_reading(rt.target, lambda: _loop_states(rt, tasks, now), before_retry=rt.target.drop_pages)
    except GdbextError as e:
        found.partial.append(f"event loops: {e}")
        return found
    running = {state.address for state in states}
    for one in found.tasks:
        one.stranded = "" if one.loop in running else _stranded(rt, one.loop)
    for turning in states:
        turning.main = nodes.get(_main_task(turning, threads))
        found.loops.append(turning)
    return found


def _asyncio(rt: Runtime) -> bool:
    return rt.has_module(schedulers.MODULES[:1])


def _stranded(rt: Runtime, loop: int) -> str:
    with log.passing_over(GdbextError, AttributeError):
        return CLOSED if rt.object(loop).attr("_closed").boolean() else IDLE
    return IDLE


def used(rt: Runtime) -> bool:
    """Whether the process has imported a scheduler of tasks."""
    try:
        return schedulers.used(rt)
    except GdbextError as e:
        log.passed_over(e)
        return True  # `read` says what is wrong


def _asking(tasks: Sequence[Any]) -> dict[int, Poll]:
    """{address: the loop} of the tasks that only ask, over and over: they yield, or sleep in between. None is
    looked at if there are too many."""
    may = [t for t in tasks if t.state in RUNNABLE or t.waits is not None and t.waits.kind == "sleep" or _has_limit(t.frames)]
    found = {t.address: poll_loops.of_frames(t.frames) for t in may} if len(may) <= MAX_ASKING else {}
    return {address: poll for address, poll in found.items() if poll is not None}


def _has_limit(frames: Sequence[Any]) -> bool:
    """Whether the innermost frames wait by asyncio.wait or wait_for, which may have a time limit."""
    names = [last_part(str(f.function)) for f in frames[:6] if path_of(f).endswith(poll_tasks.FILE)]
    return any(name in poll_tasks.LIMITED for name in names)


def _keys(tasks: Sequence[Any], asks: dict[int, Poll]) -> dict[int, Any]:
    """{address of a task: its key}. A task that one that only asks makes for each question counts for nothing."""
    made = {on for t in tasks if t.address in asks and t.waits is not None for on in t.waits.on}
    return {t.address: ASKED if t.address in made else key_of(t, asks.get(t.address)) for t in tasks}


def key_of(task: Any, poll: Poll | None = None) -> Any:
    """A key of a task that changes as the task makes progress: its state, and the places and variables of its frames. To yield by
    sleep(0) and be run again is no progress. So, of a task that runs or could run, only its own frames' code and variables
    count; of one that only asks (`poll`), its loop alone.
    """
    if poll is not None:
        return "asks", poll.key
    try:
        if task.state not in RUNNABLE:
            return task.state, stack_key(task.frames)
        own = [f for f in task.frames if not (path_of(f).endswith("asyncio/tasks.py") and last_part(f.function) in _SLEEPS)]
        return "runs", tuple((key.code, key.words) for key in stack_key(own))
    except GdbextError as e:
        log.passed_over(e)
        return task.state, time.monotonic()  # it changed while it was read


def _yields(task: Any) -> bool:
    """Whether a task is in asyncio.sleep(0): it is run again at the loop's next turn."""
    return bool(task.frames) and last_part(str(task.frames[0].function)) == "__sleep0"


def sleeps_for_good(frames: Sequence[Any]) -> bool:
    """Whether the code that called a sleep only sleeps again when the sleep ends. `frames`: of a thread or a task, innermost
    first."""
    frame = next((f for f in frames if not path_of(f).endswith(ASYNCIO)), None)
    try:
        return frame is not None and machine.only_again(frame.code, frame.raw.lasti)
    except GdbextError as e:
        log.passed_over(e)
        return False


def keys(rt: Runtime) -> dict[int, Any] | None:
    """{address of a task: its key}, for a first sample; None where the tasks could not be listed."""
    try:
        if not schedulers.used(rt):
            return {}
        found, _ = schedulers.tasks(rt)
        asks = _asking(found)
        return _keys(found[:MAX_TASKS], asks)
    except GdbextError as e:
        log.passed_over(e)
        return None


def _nodes(name: str, tasks: list[Any]) -> dict[int, Any]:
    """{address: node}. Where two tasks have one name, the node also has the task's address."""
    names = [task.name for task in tasks]
    count = {n: names.count(n) for n in set(names)} if len(names) < 1000 else dict.fromkeys(names, 2)
    return {task.address: (name, f"task {task.name}" + (f" {task.address:#x}" if count[task.name] > 1 else "")) for task in tasks}


def _where(frames: list[Any]) -> str:
    own = (f for f in frames if "/asyncio/" not in path_of(f) and not path_of(f).endswith(ASYNCIO))
    frame = next(own, frames[0] if frames else None)
    return outer_place([frame], frame) if frame is not None else ""


# ---- what a task waits for -------------------------------------------------------------------------------------------
def _edges(found: AsyncState, rt: Runtime, threads: list[ThreadView]) -> None:
    references = references_of(rt)
    agents: list[Any] = [t for t in found.tasks if t.state != "running"] + list(threads)
    holders = Holders(agents)
    reachable = Reachable(references, agents)
    pools = Pools(threads)

    def node(agent: Any) -> Any:
        return agent.node if isinstance(agent, TaskState) else (found.tasks[0].node[0], agent.tid)

    givers = Givers(reachable, holders, node, ASYNCIO)
    for task in found.tasks:
        if task.poll is not None:
            _poll(found, task, task.poll, agents, reachable, node)
        elif task.state != "running":
            task.answers = _answers(task)
            try:
                task.edge = _tries(rt, task) or task.edge
                if task.state == "waiting" and task.edge is None:
                    _set_edge(task, references, pools, givers)
            except GdbextError as e:
                found.partial.append(f"task {task.name}: {e}")


def _tries(rt: Runtime, task: TaskState) -> Edge | None:
    """What a task that sleeps tries again."""
    sleeps = rt.target.is_live and task.python and last_part(str(task.python[0].function)) in _SLEEPS
    return tries.edge_of(task.node, task.python) if sleeps else None


def _set_edge(task: TaskState, references: References, pools: Pools, givers: Givers) -> None:
    """Sets what a suspended task waits for."""
    wait = find(task.python, ASYNCIO) if task.kind != "as_completed" else None  # its queue is filled by callbacks
    wait = wait or (_waited_at(task, references) if task.kind == "future" else None)
    if wait is not None:
        _built(task, wait, references, givers)
    elif task.kind in ("executor", "future"):
        task.edge = _future(task, references, pools, givers.reachable, givers.node)
    elif task.kind == "greenlet":
        task.edge = greenlet_waits.edge_of(task, givers)
    else:
        _of_kind(task)


def _of_kind(task: TaskState) -> None:
    """What a task waits for where no object of a library shows it: a descriptor, the end of other tasks."""
    task.descriptor = _descriptor(task)
    if task.kind in ("task", "gather", "wait", "group", "as_completed") and task.on:
        task.edge = Edge(task.node, f"the end of {task.text}", "task", where=task.top, candidates=list(task.on))
        task.edge.owner = task.on[0] if len(task.on) == 1 else None


def _built(task: TaskState, wait: Wait, references: References, givers: Givers) -> None:
    own = [f for f in task.python[:8] if not path_of(f).endswith(ASYNCIO)]
    name = next(filter(None, (references.name_of(f, wait.object.address) for f in own)), "") or hex(wait.object.address)
    edge = task.edge = edge_of(task.node, wait, name, task.top)
    if edge.kind != "Process":
        givers.set(edge, wait.row, task)


def _waited_at(task: TaskState, references: References) -> Wait | None:
    """The object among whose waiters the future is for which a task waits: one of a library whose frames do not show it."""
    for frame in task.python[:NAMING]:
        for _, obj in references.of_frame(frame):
            row = row_of(obj) if obj.type.is_heap else None
            if row is not None and row.waiters:
                waiters = held(obj, row.waiters).elements(MAX_TASKS)
                if any(one.address == task.future for one in waiters):
                    return Wait(row, row.ways[0], obj, frame)
    return None


def _future(task: TaskState, references: References, pools: Pools, reachable: Reachable, node: Any) -> Edge | None:
    """The edge of a task that waits for a future itself: the pool that has its work, or those that can reach it and may set it.
    A transport's callback may set it too."""
    edge = Edge(task.node, task.text, "Future", address=task.future, where=task.top)
    if task.kind == "executor":
        if not task.future or pools.give(edge, task.future, node):
            return edge if task.future else None
        return ray_actors.edge_of_future(task.node, references.rt.object(task.future), task.top)
    name = next(filter(None, (references.name_of(f, task.future) for f in task.python[:8])), "")
    edge.kind, edge.doubted, edge.named = "asyncio.Future", True, bool(name)
    edge.lock = f"the asyncio.Future {name or hex(task.future)}"
    edge.candidates = [node(agent) for agent in reachable.agents_of(task.future, lambda agent: agent is task)]
    return edge if edge.candidates else None


def _poll(found: AsyncState, task: TaskState, poll: Poll, agents: list[Any], reachable: Reachable, node: Any) -> None:
    """Sets the edge of a task that only asks."""
    try:
        edge = polls.edge(task.node, poll)
        asked = next((one for one in found.tasks if one.address == edge.address), None)
        if asked is not None:
            edge.kind, edge.owner, edge.lock = "task", asked.node, f"the end of task {asked.name}"
        else:
            others = [
                one for one in agents if isinstance(one, TaskState) or not any(path_of(f).endswith(_ENGINE) for f in one.python)
            ]
            polls.offer(edge, poll, task, others, reachable, node)
        task.edge = edge
    except GdbextError as e:
        found.partial.append(f"task {task.name}: {e}")


def _answers(task: TaskState) -> bool:
    """Whether a variable of its frames is a stream or transport that it can write to."""
    with log.passing_over(GdbextError):
        own = (value for frame in task.python[:8] if not path_of(frame).endswith(ASYNCIO) for _, value in frame.locals())
        return any(str(getattr(value, "type_name", "")).endswith(("StreamWriter", "Transport")) for value in own)
    return False


def _descriptor(task: TaskState) -> int:
    """The socket or pipe that a task reads from or writes to through asyncio's streams or sock_* calls; -1 for none. A transport
    of a socket has `_sock_fd`, one of a pipe `_fileno` (asyncio/selector_events.py, unix_events.py)."""
    for frame in task.python[:4]:
        if last_part(str(frame.function)) == "_epoll_wait":  # trio/_core/_io_epoll.py
            with log.passing_over(GdbextError, KeyError, AttributeError):
                return int(dict(frame.locals())["fd"].integer())
        if path_of(frame).endswith("asyncio/streams.py"):
            with log.passing_over(GdbextError, KeyError, AttributeError):
                fields = dict(dict(frame.locals())["self"].attr("_transport").fields())
                return int((fields.get("_sock_fd") or fields["_fileno"]).integer())
    return -1


def drains(task: TaskState) -> bool:
    """Whether a task waits until there is room for what it writes to a stream."""
    return any(
        path_of(frame).endswith("asyncio/streams.py") and last_part(str(frame.function)) in _DRAINS for frame in task.python[:4]
    )


# ---- a loop ----------------------------------------------------------------------------------------------------------
def _loop_states(rt: Runtime, tasks: list[Any], now: float | None) -> list[LoopState]:
    """The loops, by address. A late timer of a running process is read a second time: its memory may have been freed during the
    first reading."""
    states = [_loop_state(rt, loop, tasks, now) for loop in event_loops(rt, max_timers=MAX_TIMERS)] if _asyncio(rt) else []
    for runner in schedulers.runners(rt):
        running = next((task.name for task in tasks if task.loop == runner.address and task.state == "running"), "")
        states.append(LoopState(runner.address, runner.tid, runner.ready, running=running, untimed=not runner.timers))
    if any(state.late for state in states) and not rt.target.is_stopped:
        rt.target.drop_pages()
        again = {loop.address: _loop_state(rt, loop, tasks, now) for loop in event_loops(rt, max_timers=MAX_TIMERS)}
        for state in states:
            other = again.get(state.address, LoopState(state.address, state.tid))
            state.late, state.overdue = min(state.late, other.late), min(state.overdue, other.overdue)
    return sorted(states, key=lambda state: state.address)


def _loop_state(rt: Runtime, loop: EventLoop, tasks: list[Any], now: float | None) -> LoopState:
    state = LoopState(loop.address, loop.tid or 0, taken=loop.taken)
    mine = [t for t in tasks if t.loop == loop.address]
    state.running = next((t.name for t in mine if t.state == "running"), "")
    state.ready = max(loop.ready or 0, sum(t.state == "ready" for t in mine))
    if loop.current is not None and not state.running:
        state.callback = loop.current.function
    due = [timer.when for timer in loop.timers if timer.when is not None and not timer.cancelled]
    late = [now - when for when in due if now is not None and when < now]
    state.late, state.overdue = len(late), max(late, default=0.0)
    state.signalled, state.told = _told_by(rt, loop)
    return state


def _told_by(rt: Runtime, loop: EventLoop) -> tuple[dict[int, int], dict[int, list[int]]]:
    """`signalled` and `told` of a loop. Source: Lib/asyncio/unix_events.py, `add_signal_handler`; Lib/selectors.py, `_fd_to_key`,
    whose keys' data are (reader, writer)."""
    signalled: dict[int, int] = {}
    told: dict[int, list[int]] = {}
    with log.passing_over(GdbextError, AttributeError):
        obj = rt.object(loop.address)
        for number, handle in obj.attr("_signal_handlers").items(MAX_SIGNALS):
            signalled.update(dict.fromkeys(handlers.told(rt, handle), number.integer()))
        for descriptor, key in obj.attr("_selector").attr("_fd_to_key").items(MAX_WATCHED):
            reader = key.first(4)[3].first(2)[0]
            if not reader.is_none():
                told[descriptor.integer()] = handlers.told(rt, reader)
    return signalled, told


def _main_task(loop: LoopState, threads: list[ThreadView]) -> int:
    """The address of the task for which the loop's thread runs `run_until_complete`, or asyncio.Runner where the loop's own code
    is not Python (uvloop); 0 where there is none."""
    thread = next((t for t in threads if t.tid == loop.tid), None)
    for frame in thread.python if thread is not None else ():
        if path_of(frame).endswith(("trio/_core/_run.py", "gevent/hub.py")):
            return next((one.main for one in schedulers.runners(frame.rt) if one.address == loop.address), 0)
        name = "future" if last_part(str(frame.function)) == "run_until_complete" else ""
        if path_of(frame).endswith("asyncio/runners.py") and last_part(str(frame.function)) == "run":
            name = "task"
        if name:
            try:
                own: dict[str, Any] = dict(frame.locals())
                return int(own[name].address)
            except (GdbextError, KeyError, AttributeError) as e:
                log.passed_over(e)
                return 0
    return 0
