"""Copies of an object in a process's forks. What one process gives to its copy never reaches a thread that waits in the other."""

from __future__ import annotations

import os
from typing import Iterable

from .. import log
from ..access.proc import ProcTarget
from ..access.proctable import ProcTable
from ..errors import GdbextError
from ..observe.clocks import descendants
from ..primitives.table import ROWS
from .threads import ProcessView
from .waits import Edge

KINDS = {row.kind for row in ROWS if row.within and row.file and not row.is_async} - {"Thread"}
MAX_KIN = 64
SHOWN = 4
HEAD = 16  # bytes of an object: its count and its class


def note_copies(view: ProcessView, edges: Iterable[Edge]) -> None:
    """Says, of each wait that no thread of a process could end, which of its forks have a copy of the object: its parent, its
    children and theirs."""
    lost = [e for e in edges if e.kind in KINDS and e.address and not (e.owner or e.candidates or e.note or e.open)]
    if not lost or not view.live or view.pid is None:
        return
    table = ProcTable()
    me = table.processes.get(view.pid)
    kin = [*([me.ppid] if me is not None else []), *descendants(table, view.pid)]
    for edge in lost:
        have = [pid for pid in kin[:MAX_KIN] if _has_copy(view, pid, edge.address)]
        if have:
            names = [f"{pid} (its parent)" if me is not None and pid == me.ppid else str(pid) for pid in have[:SHOWN]]
            said = "by a fork, has a copy" if len(have) == 1 else "by forks, have copies"
            edge.note = f"process {', '.join(names)}{', …' * (len(have) > SHOWN)}, {said} of it: what is given there stays there"


def _has_copy(view: ProcessView, pid: int, address: int) -> bool:
    """Whether another process has an object of the same class at the same address, and runs the same program."""
    if view.rt is None:
        return False
    try:
        if os.readlink(f"/proc/{pid}/exe") != os.readlink(f"/proc/{view.pid}/exe"):
            return False
        other, kind = ProcTarget(pid), view.rt.object(address).type.address
        word = view.rt.layout["object.ob_type"]
        return other.u64(address + word) == kind and other.read(kind, HEAD)[8:] == view.target.read(kind, HEAD)[8:]
    except (GdbextError, OSError) as e:
        log.passed_over(e, "whether a fork has a copy")
        return False
