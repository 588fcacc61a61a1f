"""SGLang's hierarchical cache: requests that wait until their prefix has come from the storage tier.

A prefetch goes through three threads: the first asks the storage what it has, the second reads it, the third agrees with the
other ranks. Only the policy "timeout" has a time limit; with "wait_complete" a request waits for ever for a thread that does not
come back. Sources:
srt/mem_cache/hiradix_cache.py, unified_radix_cache.py, managers/cache_controller.py."""

from __future__ import annotations

from ... import log
from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import GdbextError
from ...primitives.table import WAITS
from ..objects import at, has, optional, settled_frames, thread_in
from ..sightings import PREFETCH, QUEUE, Keeper, Look, Offload

# {main function of a thread: its variable that names the request at which it is}
THREADS = {
    "prefetch_thread_func": "operation",
    "prefetch_io_aux_func": "operation",
    "prefetch_sync_thread_func": "ack",
}
NEVER_WAITS = "best_effort"  # the policy by which the scheduler takes what has come so far
OPERATION = 3  # index in an entry of `ongoing_prefetch`
MAX_PREFETCHES = 4096


def fill(rt: Runtime, found: Look, scheduler: Object) -> None:
    """Fills in the requests of the queue that wait for a prefetch."""
    tree = at(scheduler, "tree_cache")
    policy = optional(tree, "prefetch_stop_policy", "string", "") if tree is not None else ""
    if tree is None or not policy or policy == NEVER_WAITS or not has(tree, "ongoing_prefetch"):
        return
    try:
        waits = _ongoing(tree.attr("ongoing_prefetch"))
        queued = [s for s in found.sightings if s.stage == QUEUE and s.request_id in waits and not s.parked]
        at_work, ended = _threads(rt) if queued else ({}, [])
    except GdbextError as e:  # it changes while it is read
        log.passed_over(e)
        if rt.target.is_stopped:
            raise
        return
    limit = "" if policy == "timeout" else ", which has no time limit"
    for sighting in queued:
        sighting.offload, sighting.parked = Offload(PREFETCH), True
        sighting.waits_for = f"offload: its prefix from the storage tier (policy {policy}{limit})"
        sighting.keeper = at_work.get(sighting.request_id)
        if sighting.keeper is None and not waits[sighting.request_id]:
            sighting.after = tuple(name for name in at_work if name in waits)
            sighting.offload.lost = f"no thread {' or '.join(ended)} is left" if ended else ""


def _ongoing(table: Object) -> dict[str, bool]:
    """{request id: whether its prefetch is over}"""
    found = {}
    for key, entry in table.items(MAX_PREFETCHES):
        handle = key if key.isa("str") else at(key, "rid")
        if handle is not None and handle.isa("str"):
            operation = entry.item(OPERATION)
            found[handle.string(1000)] = bool(optional(operation, "_terminated_flag", "boolean", False))
    return found


def _threads(rt: Runtime) -> tuple[dict[str, Keeper], list[str]]:
    """-> ({request id: the thread that is at its prefetch}, the functions whose threads have ended). Only of threads whose frames
    could all be read it is known that they have ended."""
    found: dict[str, Keeper] = {}
    ended = []
    whole = rt.target.is_stopped or len(list(settled_frames(rt))) == len(rt.threads())
    for function, variable in THREADS.items():
        thread = thread_in(rt, function)
        if thread is None:
            ended += [function] if whole else []
            continue
        frames = rt.frames(thread)
        own = next((f for f in frames if f.function.rpartition(".")[2] == function), None)
        inner = next((f for f in frames if not f.file.endswith(WAITS)), None)
        held = dict(own.locals()).get(variable) if own is not None and inner is not None and inner is not own else None
        name = at(held, "request_id") or at(held, "rid") if held is not None else None
        if name is not None and inner is not None and name.isa("str"):
            where = f"{inner.function} ({inner.file.rpartition('/')[2]}:{inner.line})"
            found[name.string(1000)] = Keeper(function, thread.tid, where)
    return found, ended
