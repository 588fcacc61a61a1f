"""A wait for the work of a `multiprocessing.Pool`: its worker processes, none of which is known to have that work.

Source: Lib/multiprocessing/pool.py (`ApplyResult`, `MapResult`, `IMapIterator`, `worker`, `Pool._handle_tasks`,
`Pool._handle_results`).
"""

from __future__ import annotations

from typing import Any, Callable

from ..cpython.primitive_states import Wait, last_part, pid_of
from .python_waits import number, text
from .threads import ThreadView
from .waits import Edge

MAX_WORKERS = 4096


def edge(node: Any, wait: Wait, where: str, by_ident: Callable[[int], ThreadView | None]) -> Edge | None:
    """The edge of a thread that waits for a result of a pool of processes or of a ThreadPool; None where the pool is not known.
    `by_ident`: gives a thread by its ident. `GdbextError` where the pool cannot be read."""
    own = wait.object
    pool: Any = dict(own.fields()).get("_pool")
    if pool is None or pool.is_none():
        return None
    workers = dict(pool.fields()).get("_pool")
    if workers is None:
        return None
    threads = "ThreadPool" in map(last_part, pool.mro_names())
    members = list(workers.elements(MAX_WORKERS))
    kind = "thread" + "s" * (len(members) != 1) if threads else "process" + "es" * (len(members) != 1)
    found = Edge(node, f"a result of the {pool.type_name} of {len(members)} {kind}", "Job", address=own.address, where=where)
    found.limit, found.pids = wait.limit, [] if threads else [pid_of(one) for one in members]
    running = [by_ident(number(member, "_ident")) for member in members if threads]
    found.candidates = [(node[0], th.tid) for th in running if th is not None]
    taker = dict(pool.fields()).get("_result_handler")
    ident = number(taker, "_ident") if taker is not None and not taker.is_none() else None
    found.ended = [text(taker, "_name")] if isinstance(ident, int) and by_ident(ident) is None else []
    return found
