"""The threads and tasks of a process that can reach an open file: who may give what another thread or task of the process waits
to read, or take what it waits to write.

Sources: Modules/socketmodule.c (`PySocketSockObject.sock_fd`), Modules/_io/fileio.c (`fileio.fd`), bufferedio.c (`buffered.raw`),
Lib/multiprocessing/connection.py (`_handle`), asyncio/selector_events.py (`_sock_fd`), unix_events.py (`_fileno`).
"""

from __future__ import annotations

import os
import re
from typing import Any, Iterable, Mapping

from .. import log
from ..access.procfs import descriptors, read_or_empty
from ..errors import GdbextError
from ..observe.system_calls import Call, Source
from .python_waits import last_part
from .references import Reach, references_of

_CALLS = ("read", "recv", "write", "poll", "select")  # that one thread's file can end
_FIRST = ("_socket.socket", "_io.FileIO")  # their descriptor stands behind the object's head
_RAW = ("_io.BufferedReader", "_io.BufferedWriter", "_io.BufferedRandom")
_TEXT = "_io.TextIOWrapper"  # its buffer stands behind two flags and the chunk's size
_NAMED = ("_handle", "_sock_fd", "_fileno")
_CLASSES = ("_ConnectionBase", "BaseTransport")
_WRITER = "StreamWriter"  # of asyncio: its transport has the descriptor


def wanted(calls: Iterable[Call]) -> set[tuple[str, int]]:
    """The other ends of what calls wait for: {(what it does: "reads", "writes", "talks" (a socket's), "locks"; its inode)}."""
    return {end for call in calls for source in call.sources for end in ends_of(call, source)}


def ends_of(call: Call, source: Source) -> list[tuple[str, int]]:
    """As `wanted`, of one file."""
    if call.name == "flock":
        return [("locks", source.inode)] if source.inode else []
    if call.name not in _CALLS:
        return []
    if source.kind == "pipe":
        return [("reads" if call.name == "write" else "writes", source.inode)]
    return [("talks", inode) for inode in source.peers if inode > 0 and source.kind != "child"]


def agents_at(pid: int, rt: Any, agents: Mapping[Any, Any], ends: set[tuple[str, int]]) -> dict[tuple[str, int], list[Any]]:
    """{end: the nodes that can reach it} of those `ends` that a process has. `agents`: {node: a thread or task, with `python`
    frames}."""
    at: dict[int, tuple[str, int]] = {}
    with log.passing_over():
        for fd, link in descriptors(pid):
            end = _end(pid, fd, link, ends)
            if end in ends:
                at[fd] = end
    if not at or rt is None:
        return {}
    files = _Files(rt)
    nodes: dict[tuple[str, int], list[Any]] = {}
    for node, agent in agents.items():
        for end in {at[fd] for fd in files.of(agent) if fd in at}:
            nodes.setdefault(end, []).append(node)
    return nodes


def _end(pid: int, fd: int, link: str, ends: set[tuple[str, int]]) -> tuple[str, int]:
    """What a descriptor of a process is, of those `ends`; ("", 0) for others."""
    found = re.fullmatch(r"(socket|pipe):\[(\d+)\]", link)
    if found and found[1] == "socket":
        return "talks", int(found[2])
    if found and not {("reads", int(found[2])), ("writes", int(found[2]))} & ends:
        return "", 0
    if not found and not (link.startswith("/") and any(does == "locks" for does, _ in ends)):
        return "", 0
    text = read_or_empty(pid, f"fdinfo/{fd}")
    if not found:
        locked, inode = re.search(rb"^lock:\s*\S+\s+FLOCK", text, re.M), re.search(rb"^ino:\s*(\d+)", text, re.M)
        return ("locks", int(inode[1])) if locked and inode else ("", 0)
    flags = re.search(rb"flags:\s+([0-7]+)", text)
    writes = flags is not None and int(flags[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return "writes" if writes else "reads", int(found[2])


class _Files:
    """The descriptors of the sockets, files, connections and transports that agents can reach."""

    def __init__(self, rt: Any) -> None:
        self.rt, self.references = rt, references_of(rt)
        self._reached: dict[Reach, set[int]] = {}
        self._kinds: dict[int, str] = {}  # by address of a type

    def of(self, agent: Any) -> set[int]:
        reaches = {reach: True for frame in agent.python for reach in self.references.reaches(frame)}
        for reach in reaches:
            if reach not in self._reached:
                self._reached[reach] = {self._descriptor(obj) for _, obj in reach.named} - {-1}
        return {fd for reach in reaches for fd in self._reached[reach]}

    def _kind(self, obj: Any) -> str:
        """How an object of this type leads to its descriptor; '' where it has none."""
        at = obj.type.address
        if at not in self._kinds:
            kinds = {base.builtin_name for base in obj.type.bases()}
            named = obj.type.is_heap and any(last_part(name) in _CLASSES for name in obj.mro_names())
            writer = "writer" if obj.type.is_heap and last_part(obj.type_name) == _WRITER else ""
            self._kinds[at] = next((kind for kind in (*_FIRST, *_RAW, _TEXT) if kind in kinds), "named" if named else writer)
        return self._kinds[at]

    def _descriptor(self, obj: Any) -> int:
        """-1 for an object that has no descriptor, and for one that is closed."""
        target, head = self.rt.target, obj.address + self.rt.layout["object.__size"]
        try:
            kind = self._kind(obj)
            if kind in _FIRST:
                return int(target.i32(head))
            if kind in (*_RAW, _TEXT):
                return self._descriptor(self.rt.object(target.u64(head + (16 if kind == _TEXT else 0))))
            fields = dict(obj.fields()) if kind else {}
            if kind == "writer":
                return self._descriptor(fields["_transport"])
            named = next((fields[name] for name in _NAMED if fields.get(name) is not None), None)
            return -1 if named is None or named.is_none() else int(named.integer())
        except (GdbextError, AttributeError, KeyError) as e:
            log.passed_over(e)
            return -1


def read(rt: Any, agents: Iterable[Any]) -> None:
    """Reads all descriptors that agents can reach, so that a copy has them."""
    files = _Files(rt)
    for agent in agents:
        files.of(agent)
