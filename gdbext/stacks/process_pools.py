"""A wait for the work of a `multiprocessing.Pool`: its worker processes, none of which is known to have that work.

Source: Lib/multiprocessing/pool.py (`ApplyResult`, `MapResult`, `IMapIterator`, `worker`, `Pool._handle_tasks`,
`Pool._handle_results`).
"""

from __future__ import annotations

import os
from typing import Any, Callable, Sequence

from ..cpython.child_waits import pid_of
from ..primitives.table import LIBRARY
from .python_waits import FRAMES, last_part, number, path_of, text
from .threads import ThreadView
from .waits import Edge

FILE = "multiprocessing/pool.py"
_GETS = ("get", "wait", "next")
MAX_WORKERS = 4096


def edge(node: Any, frames: Sequence[Any], limit: bool, by_ident: Callable[[int], ThreadView | None]) -> Edge | None:
    """The edge of a thread that waits for a result of a pool of processes or of a ThreadPool; None where it waits for none.
    `by_ident`: gives a thread by its ident. `GdbextError` where the pool cannot be read."""
    frame = next((f for f in frames[:FRAMES] if path_of(f).endswith(FILE)), None)
    if frame is None or last_part(str(frame.function)) not in _GETS:
        return None
    own: Any = dict(frame.locals()).get("self")
    pool: Any = dict(own.fields()).get("_pool") if own is not None else None
    if pool is None or pool.is_none():
        return None
    workers = dict(pool.fields()).get("_pool")
    if workers is None:
        return None
    threads = "ThreadPool" in map(last_part, pool.mro_names())
    members = list(workers.elements(MAX_WORKERS))
    outer = next((f for f in frames if not path_of(f).endswith((*LIBRARY, FILE))), frame)
    where = f"{outer.function} ({os.path.basename(outer.file)}:{outer.line})"
    kind = "thread" + "s" * (len(members) != 1) if threads else "process" + "es" * (len(members) != 1)
    found = Edge(node, f"a result of the {pool.type_name} of {len(members)} {kind}", "Job", address=own.address, where=where)
    found.limit, found.pids = limit, [] if threads else [pid_of(one) for one in members]
    running = [by_ident(number(member, "_ident")) for member in members if threads]
    found.candidates = [(node[0], th.tid) for th in running if th is not None]
    taker = dict(pool.fields()).get("_result_handler")
    ident = number(taker, "_ident") if taker is not None and not taker.is_none() else None
    found.ended = [text(taker, "_name")] if isinstance(ident, int) and by_ident(ident) is None else []
    return found
