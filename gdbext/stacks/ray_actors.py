"""Ray's workers: the actor for whose answer a thread waits, and the threads that give an actor's answers.

The id of an object that an actor's method returns has the actor's id inside (src/ray/common/id.h: ObjectID = TaskID + index,
TaskID = 8 bytes + ActorID), and an actor's process keeps it as the key of its Worker's `actors` (python/ray/_private/worker.py).
12 of its 16 bytes are random: equal ids are one actor, wherever Cython's objects keep them.
"""

from __future__ import annotations

import time
from typing import Any, Iterable, Sequence

from .. import log
from ..access.proc import ProcTarget
from ..access.proctable import ProcTable
from ..cpython.runtime import Runtime, open_runtime
from ..errors import GdbextError
from .python_waits import last_part, path_of
from .threads import ProcessView, ThreadView
from .waits import Edge, Node

KIND = "Actor"  # of an edge
WORKER = "ray/_private/worker.py"
EXECUTES = "ray/_private/function_manager.py"  # code that calls a task's or an actor's own function
LOOP = "AsyncIO Thread"  # begins the name of a thread that runs an async actor's methods
_WAITS = {"get_objects": "object_refs", "wait": "ray_waitables"}  # function of WORKER: its variable, a list of ObjectRefs
ID_BYTES = 16  # of an ActorID
MAX_REFS = 64
MAX_BYTES = 256  # of an ObjectRef
FRAMES = 4  # innermost frames in which a wait is looked for
SECONDS = 2.0  # for one pass through Ray's processes


def takes_tasks(frame: Any) -> bool:
    """Whether a thread's innermost Python frame is where a worker of Ray takes its next task, in C++."""
    return last_part(str(frame.function)) == "main_loop" and path_of(frame).endswith(WORKER)


def executes(frames: Iterable[Any]) -> bool:
    """Whether a thread with these Python frames runs a task or a method of an actor."""
    return any(path_of(frame).endswith(EXECUTES) for frame in frames)


def edge_of(node: Node, frames: Sequence[Any]) -> Edge | None:
    """The edge of a thread in `ray.get` or `ray.wait`; None where it is in neither. `shared`: (KIND, the bytes of each
    ObjectRef)."""
    for n, frame in enumerate(frames[:FRAMES]):
        name = _WAITS.get(last_part(str(frame.function)))
        if name is None or not path_of(frame).endswith(WORKER):
            continue
        own = dict(frame.locals())
        limit, refs = own.get("timeout"), own.get(name)
        outer = next((f for f in frames[n:] if "/ray/" not in path_of(f)), frame)
        edge = _edge(node, refs.elements(MAX_REFS) if refs is not None else [])
        edge.where = f"{outer.function} ({path_of(outer).rpartition('/')[2]}:{outer.line})"
        edge.limit = limit is not None and not limit.is_none() and limit.plain() != -1
        return edge
    return None


def edge_of_future(node: Node, future: Any, where: str) -> Edge | None:
    """The edge of a task that awaits an ObjectRef, by the concurrent.futures.Future behind it (`ObjectRef.future`); None for any
    other future."""
    if "object_ref" not in dict(future.instance_entries()):
        return None
    edge = _edge(node, [future.attr("object_ref")])
    edge.where = where
    return edge


def _edge(node: Node, refs: Sequence[Any]) -> Edge:
    said = f"the results of {len(refs)} tasks of Ray" if len(refs) != 1 else "the result of a task of Ray"
    return Edge(node, said, KIND, shared=(KIND, tuple(_bytes(ref) for ref in refs)))


def _bytes(obj: Any) -> bytes:
    size = min(max(obj.type.basicsize, 0), MAX_BYTES)
    return bytes(obj.rt.target.read(obj.address, size))


def actors_of(rt: Runtime) -> list[bytes]:
    """The ids of the actors that a process of Ray runs; [] for any other process."""
    try:
        scope = rt.module("ray._private.worker")
        actors = scope.item("global_worker").attr("actors") if scope is not None else None
        return [_bytes(key)[-ID_BYTES:] for key, _ in actors.items(MAX_REFS)] if actors is not None else []
    except (GdbextError, AttributeError) as e:
        log.passed_over(e)
        return []


def set_givers(edge: Edge, views: Sequence[ProcessView], known: dict[str, list[bytes]]) -> None:
    """Sets the threads that may give what `edge` waits for: those that run a method of the actor. `known`: {name of a view: its
    actors}, filled in here. Which results of several have come is known to C++ alone: all must come, and none is sure to be
    due."""
    refs, edge.shared = edge.shared[1], None
    for view in views:
        if view.name not in known:
            known[view.name] = _actors_of(view)
    of = [next((v for v in views for one in known[v.name] if one in ref), None) for ref in refs]
    found = list(dict.fromkeys(v.name for v in of if v is not None))
    if not of or any(v is None for v in of):
        edge.unread = _unread([ref for ref, v in zip(refs, of) if v is None], [v.pid for v in views if v.live])
        edge.outside = [f"process {pid}" for pid in edge.unread]
        edge.note = (
            f"{', '.join(edge.outside)} runs its actor" if edge.unread else "its actor, or the worker of its task, is not found"
        )
        return
    pids = ", ".join(str(v.pid) for v in views if v.name in found)
    edge.lock += f" from the actor in process {pids}" if len(found) == 1 else f" from actors in processes {pids}"
    resting = []
    for view in (view for view in views if view.name in found):
        at_work = [(view.name, th.tid) for th in view.threads if _gives(view, th)]
        edge.candidates += at_work
        resting += [] if at_work else [str(view.pid)]
    if resting and (len(found) == 1 or not edge.candidates):  # of several, those that rest may have answered
        edge.candidates = []
        edge.note = f"no thread of process {', '.join(resting)} runs a method: its result is on its way, or lost"
    edge.every, edge.doubted = bool(edge.candidates), len(edge.candidates) > 1 or bool(resting)


def _actors_of(view: ProcessView) -> list[bytes]:
    """The actors of a view. A copy need not have the pages of their ids: of a process that runs they are read where it is."""
    rt = view.rt
    with log.passing_over(GdbextError):
        rt = open_runtime(ProcTarget(view.pid)) if rt is not None and view.live and view.pid else rt
    return actors_of(rt) if rt is not None else []


def _gives(view: ProcessView, thread: ThreadView) -> bool:
    return executes(thread.python) or thread.name.startswith(LOOP)


def _unread(refs: Sequence[bytes], read: Sequence[int | None]) -> list[int]:
    """The pids of Ray's processes that were not read and run the actors of `refs`."""
    if not any(read):  # cores: what runs now is not what ran then
        return []
    found, until = [], time.monotonic() + SECONDS
    for pid, process in ProcTable().processes.items():
        if pid in read or not process.cmdline.startswith(b"ray::") or time.monotonic() > until:
            continue
        with log.passing_over(GdbextError):
            if any(one in ref for one in actors_of(open_runtime(ProcTarget(pid))) for ref in refs):
                found.append(pid)
    return found
