"""The process that has the lock of a SQLite database for which a thread of another process waits.

SQLite asks again and sleeps in between, for as long as the connection's `timeout` says (its busy handler). Its locks are the
kernel's, on fixed bytes of the database's file, or of its -shm file in WAL mode. Sources: SQLite's os_unix.c (PENDING_BYTE and
RESERVED_BYTE, SHARED_FIRST), walIndex locks in wal.c (WAL_WRITE_LOCK), proc(5) (`lock:` and `ino:` of fdinfo, Linux 5.14).
"""

from __future__ import annotations

import os
import re
from typing import Any, Mapping

from .. import log
from ..access.procfs import descriptors, read_or_empty
from ..errors import GdbextError
from ..observe.system_calls import all_descriptors
from .references import References, references_of
from .threads import ProcessView, ThreadView
from .waits import Edge

MAX_FILES = 256  # of the process that waits
PENDING, SHARED, LAST = 0x40000000, 0x40000002, 0x400001FF  # bytes of a database's file; the one between the first two: RESERVED
WAL = range(120, 123)  # bytes of its -shm file: who writes, who moves pages back, who repairs
_SLEEPS = re.compile(r"_*(clock_nanosleep|nanosleep|usleep)")
_LOCK = re.compile(r"^lock:\s*\S+\s+(?:POSIX|OFDLCK)\s+\S+\s+(READ|WRITE)\s+\S+\s+\w+:\w+:(\d+)\s+(\d+)\s", re.M)
_INODE = re.compile(r"^ino:\s*(\d+)", re.M)
_FLAGS = re.compile(r"^flags:\s*([0-7]+)", re.M)
_OF_ONE = re.compile("-(shm|wal|journal)$")  # files beside a database


def waits(thread: ThreadView) -> bool:
    """Whether a thread sleeps in SQLite: that does so only where another connection has a database's lock."""
    sleeps = False
    for frame in thread.native[:8]:
        library = os.path.basename(frame.library)
        if not library.startswith("libc"):
            return sleeps and "sqlite3" in library
        sleeps = sleeps or bool(_SLEEPS.match(frame.function or ""))
    return False


def set_owner(edge: Edge, by_name: Mapping[str, ProcessView]) -> None:
    """Sets the process that has the lock as the edge's owner, or notes it."""
    pid = by_name[edge.waiter[0]].pid or 0
    held, path, sole = _held(pid)
    if path:
        edge.lock = f"the lock of the SQLite database {path}"
    known = {v.pid: (v.name, v.main.tid) for v in by_name.values() if v.pid in held and v.main is not None}
    if len(held) == 1 and known:
        edge.owner, edge.note = known[held[0]], "the kernel names the process that has it, not the thread"
    elif held:
        edge.outside, edge.unread = [f"process {one}" for one in held], held
        edge.note = f"{', '.join(edge.outside[:4])} {'has' if len(held) == 1 else 'have'} it"
    elif sole and len(by_name[edge.waiter[0]].threads) == 1:
        edge.owner, edge.note = edge.waiter, "another connection of this process has it, and no other thread could use that one"
    elif path:
        edge.note, edge.doubted = "another connection of this process may have it", True
        edge.candidates = _others(by_name[edge.waiter[0]], edge.waiter)
    else:
        edge.note = "no process is seen to have it"


def _others(view: ProcessView, waiter: Any) -> list[Any]:
    """The threads of a process that can reach a connection which the waiter cannot."""
    references = references_of(view.rt)
    able = {th.tid: {one for frame in th.python for one in _connections(references, frame)} for th in view.threads if not th.idle}
    mine = able.get(waiter[1], set())
    return [(view.name, tid) for tid, found in able.items() if tid != waiter[1] and found - mine]


def _connections(references: References, frame: Any) -> set[int]:
    found = set()
    for _, obj in references.of_frame(frame):
        with log.passing_over(GdbextError):  # a copy may lack the page of its type
            if "sqlite3.Connection" in (base.raw_name for base in obj.type.bases()):
                found.add(obj.address)
    return found


def _held(pid: int) -> tuple[list[int], str, bool]:
    """([pid of another process that has a database's lock], its path, False) of the databases that a process has open. A process
    that has written waits for those that read. ([], path, whether two of its connections are to that one, and none can be to
    another) where this process alone has a lock on one."""
    files: dict[tuple[str, str], str] = {}
    written: list[str] = []  # what may be a database that others can open: those with a path, for reading and writing
    for fd, link in list(descriptors(pid)):
        info = _info(pid, fd) if link.startswith("/") and len(files) < MAX_FILES else ""
        found, flags = _INODE.search(info), _FLAGS.search(info)
        if found:
            files[os.path.basename(link), found.group(1)] = link
        if found and not link.startswith("/dev/") and not link.endswith(" (deleted)") and not _OF_ONE.search(link):
            written += [link] if flags is None or int(flags.group(1), 8) & os.O_ACCMODE == os.O_RDWR else []
    locks: dict[str, dict[str, set[int]]] = {}
    names = {name for name, _ in files}
    with log.passing_over():  # those that were seen in time
        for one, fd, link in all_descriptors() if files else ():
            name = os.path.basename(link)
            for kind, inode, start in _LOCK.findall(_info(one, fd)) if name in names else ():
                path = files.get((name, inode))
                shared = name.endswith("-shm")
                if path and (int(start) in WAL if shared else PENDING <= int(start) <= LAST):
                    locks.setdefault(path, {}).setdefault(kind, set()).add(one)
    for path, kinds in locks.items():
        others = sorted(kinds.get("WRITE", set()) - {pid})
        if not others and pid in kinds.get("WRITE", ()):
            others = sorted(kinds.get("READ", set()) - {pid}) if f"{path}-shm" not in locks else []
        if others:
            return others, _OF_ONE.sub("", path), False
    own = [path for path, kinds in locks.items() if pid in kinds.get("WRITE", ())]
    name = _OF_ONE.sub("", own[0]) if len(own) == 1 else ""
    return [], name, set(written) == {name} and len(written) > 1 and len(files) < MAX_FILES


def _info(pid: int, fd: Any) -> str:
    return read_or_empty(pid, f"fdinfo/{fd}").decode("utf-8", "replace")
