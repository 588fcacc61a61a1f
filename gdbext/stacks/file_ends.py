"""The threads and tasks of a process that can reach an open file: who may give what another thread or task of the process waits
to read, or take what it waits to write.

Sources: Modules/socketmodule.c (`PySocketSockObject.sock_fd`), Modules/_io/fileio.c (`fileio.fd`), bufferedio.c (`buffered.raw`),
Lib/multiprocessing/connection.py (`_handle`), asyncio/selector_events.py (`_sock_fd`), unix_events.py (`_fileno`).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from .. import log
from ..access.procfs import descriptors, read_or_empty
from ..errors import GdbextError
from .python_waits import last_part
from .references import references_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from ..observe.system_calls import Call, Source
    from .references import Reach

WAITS = ("read", "recv", "write", "poll", "select")  # calls that one thread's file can end
_FIRST = {"_socket.socket", "_io.FileIO"}  # their descriptor stands behind the object's head
_RAW = ("_io.BufferedReader", "_io.BufferedWriter", "_io.BufferedRandom")
_TEXT = "_io.TextIOWrapper"  # its buffer stands behind two flags and the chunk's size
_NAMED = ("_handle", "_sock_fd", "_fileno")
_CLASSES = ("_ConnectionBase", "BaseTransport")


def wanted(calls: Iterable[Call]) -> set[tuple[int, bool]]:
    """The other ends of what calls wait for: {(inode, whether that end writes)}. A socket's end does both: False."""
    return {end for call in calls for source in call.sources for end in ends_of(call, source)}


def ends_of(call: Call, source: Source) -> list[tuple[int, bool]]:
    """As `wanted`, of one file."""
    if call.name not in WAITS:
        return []
    if source.kind == "pipe":
        return [(source.inode, call.name != "write")]
    return [(inode, False) for inode in source.peers if inode]


def agents_at(pid: int, rt: Any, agents: Mapping[Any, Any], ends: set[tuple[int, bool]]) -> dict[tuple[int, bool], list[Any]]:
    """{end: the nodes that can reach it} of those `ends` that a process has. `agents`: {node: a thread or task, with `python`
    frames}."""
    at = {}
    with log.passing_over():
        for fd, link in descriptors(pid):
            found = re.fullmatch(r"(socket|pipe):\[(\d+)\]", link)
            if found and any((int(found[2]), writes) in ends for writes in (False, True)):
                at[fd] = int(found[2]), found[1] == "pipe" and _writes(pid, fd)
    at = {fd: end for fd, end in at.items() if end in ends}
    if not at or rt is None:
        return {}
    reached: dict[Reach, set[int]] = {}
    references = references_of(rt)
    nodes: dict[tuple[int, bool], list[Any]] = {}
    for node, agent in agents.items():
        reaches = {reach: True for frame in agent.python for reach in references.reaches(frame)}
        for reach in reaches:
            if reach not in reached:
                reached[reach] = {descriptor_of(obj) for _, obj in reach.named}
        for end in {at[fd] for reach in reaches for fd in reached[reach] & at.keys()}:
            nodes.setdefault(end, []).append(node)
    return nodes


def _writes(pid: int, fd: int) -> bool:
    flags = re.search(rb"flags:\s+([0-7]+)", read_or_empty(pid, f"fdinfo/{fd}"))
    return flags is not None and int(flags.group(1), 8) & os.O_ACCMODE != os.O_RDONLY


def descriptor_of(obj: Any) -> int:
    """The descriptor of a socket, file, connection or transport; -1 for other objects, and for one that is closed."""
    try:
        rt, kinds = obj.rt, {base.builtin_name for base in obj.type.bases()}
        head = obj.address + rt.layout["object.__size"]
        if kinds & _FIRST:
            return int(rt.target.i32(head))
        if kinds & {*_RAW, _TEXT}:
            return descriptor_of(rt.object(rt.target.u64(head + (16 if _TEXT in kinds else 0))))
        if obj.type.is_heap and any(last_part(name) in _CLASSES for name in obj.mro_names()):
            fields = dict(obj.fields())
            named = next((fields[name] for name in _NAMED if fields.get(name) is not None), None)
            return -1 if named is None or named.is_none() else int(named.integer())
    except (GdbextError, AttributeError) as e:
        log.passed_over(e)
    return -1
