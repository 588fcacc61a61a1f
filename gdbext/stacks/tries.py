"""Loops that try again: a thread or task that asks for the same thing over and over and is refused each time, because another has
it. What it asks for is known by the exception that it handles, or by the calls that its code makes and a file that is in its way.
"""

from __future__ import annotations

import os
import re
import stat
import time
from typing import Any, Iterable, Iterator, Mapping, Sequence

from .. import log
from ..access import in_root
from ..access.files import file_status
from ..access.procfs import program_of, read_stat, state_of, uptime
from ..cpython import bytecode, exceptions, locks, poll_loops, types
from ..cpython.objects import Object
from ..cpython.primitive_states import held, row_of
from ..cpython.runtime import PyThread, Runtime
from ..cpython.types import STR
from ..engines.sensitive_names import shown_name
from ..errors import GdbextError
from ..observe.system_calls import Call
from ..primitives.model import Primitive, Taking
from ..primitives.table import ASYNCIO, BREAKS, LIBRARY, TAKINGS
from .python_waits import path_of
from .references import MAX_METHODS, References, cells_of, references_of
from .threads import ProcessView
from .waits import Edge

MAX_FRAMES = 6  # innermost, one of which has the loop
MAX_CODES = 160  # functions that a loop's code names
MAX_OBJECTS = 16  # whose methods it may call
MAX_VALUES = 400  # in which its paths are looked for
MAX_FILES = 6  # looked up, each by a process of its own
SAID, MAX_PID = 4096, 1 << 22  # bytes of a file that are read for who has made it; pids are smaller (PID_MAX_LIMIT)
LOOK = 2.0  # seconds: a file that is younger may have been made while its process was looked at
LATE = 2.0  # seconds: a process that began so much later than the file was made has the number of another one
_MEANT = re.compile(r"lock|pid|mutex", re.I)
_PID = re.compile(r"\bpid\W{0,4}(\d{1,7})\b", re.I)
_NUMBER = re.compile(r"(?<![\w.-])\d{1,7}(?![\w.])|(?<=[.:@+-])\d{1,7}$")
_WORD = re.compile(r"[A-Za-z][\w-]*(?:\.[\w-]+)*")
_KEYS = {
    "pid",
    "host",
    "hostname",
    "node",
    "lock",
    "locked",
    "process",
    "owner",
    "time",
    "thread",
    "tid",
    "true",
    "false",
    "null",
}


def of_thread(node: Any, rt: Runtime, py: PyThread, call: Call | None) -> Edge | None:
    """What a thread that pauses in `call` tries to take again and again; None where it is in no such loop."""
    if call is not None and (call.name == "nanosleep" or call.limited):
        with log.passing_over(GdbextError):
            return edge_of(node, rt.frames(py), py)
    return None


def edge_of(node: Any, frames: Sequence[Any], thread: PyThread | None = None) -> Edge | None:
    """The edge of a thread, or of a task, that tries again; None where it is in no such loop. Its `shared` says what has to be
    looked up: ("made", path), ("locked", paths), or ("sqlite", pid)."""
    named = _named(node, frames)
    if named is not None:
        return named
    for frame in frames[:MAX_FRAMES]:
        if path_of(frame).endswith((*LIBRARY, *ASYNCIO)):
            continue
        with log.passing_over(GdbextError, AttributeError):  # it changed while it was read
            if poll_loops.around(frame):
                found = _edge(node, frame, frames, thread)
                if found is not None:
                    return found
    return None


def _named(node: Any, frames: Sequence[Any]) -> Edge | None:
    """The edge of a wait for a lock that a server keeps by its name."""
    for frame in frames[:MAX_FRAMES]:
        with log.passing_over(GdbextError, AttributeError):
            me = dict(frame.locals()).get("self") if path_of(frame).endswith((*LIBRARY, *ASYNCIO)) else None
            row = row_of(me) if isinstance(me, Object) else None
            if isinstance(me, Object) and row is not None and row.name and row.way_of(path_of(frame), str(frame.function)):
                key = _key(me, row)
                place = next((one for one in frames if not path_of(one).endswith((*LIBRARY, *ASYNCIO))), frame)
                where = f"{place.function} ({os.path.basename(place.file)}:{place.line})"
                what = f"the {me.type.full_name} {shown_name(me.rt, str(held(me, row.name)))}, which a server keeps"
                return Edge(node, what, "Lock", where=where, shared=("named", key), polls=True)
    return None


def set_named(edge: Edge, views: Iterable[ProcessView]) -> None:
    """Sets who is inside the `with` of a lock of the same name, in the processes that were read."""
    found = []
    for view in views:
        for thread in view.threads:
            for inner, frame in zip([None, *thread.python], thread.python):
                for obj in locks.entered(frame):
                    with log.passing_over(GdbextError):
                        row = row_of(obj)
                        enters = inner is not None and inner.function.rpartition(".")[2] == "__enter__"
                        if row is not None and row.name and not enters and _key(obj, row) == edge.shared[1]:
                            found.append((view.name, thread.tid))
    found = [one for one in dict.fromkeys(found) if one != edge.waiter]
    if len(found) == 1:
        edge.owner, edge.note, edge.doubted = found[0], "it is inside its with", True  # of whichever server
    else:
        edge.candidates, edge.note = found, "no process that was read is inside its with: who has it, its server knows"


def _key(obj: Object, row: Primitive) -> str:
    return f"{obj.type.full_name} {held(obj, row.name)}"


def _edge(node: Any, frame: Any, frames: Sequence[Any], thread: PyThread | None) -> Edge | None:
    rt, references = frame.rt, references_of(frame.rt)
    names = set(_names(references, frame))
    error = exceptions.handled(rt, thread) if thread is not None else None
    taking, path = _by_error(error) if error is not None else (None, "")
    if taking is not None and taking.how == "locked" and "LOCK_NB" not in names:
        return None  # a descriptor that does not block is refused so too
    takings = [taking] if taking is not None else [one for one in TAKINGS if _makes(one, names, references, frame)]
    inner = list(frames[: list(frames).index(frame) + 1])
    where = f"{frame.function} ({os.path.basename(frame.file)}:{frame.line})"
    for one in takings:
        if one.how == "database":
            shared: Any = ("sqlite", rt.target.pid) if taking is not None else None
            text = "the lock of a SQLite database"
        else:
            paths = [path] if path else _files(rt, inner, one.how)
            shared = (one.how, paths[0] if one.how == "made" else tuple(paths)) if paths else None
            text = f"the lock file {_inside(paths[0])}" if paths and one.how == "made" else "a lock on a file"
        if shared is not None:
            return Edge(node, text, "Lock", where=where, shared=shared, polls=True, breaks=bool(names & set(BREAKS)))
    return None


def _by_error(error: Object) -> tuple[Taking | None, str]:
    """(what an exception says that a call found in its way, the file's path); (None, "") of any other exception."""
    kinds = {name.rpartition(".")[2]: name for name in error.mro_names()}
    for one in TAKINGS:
        name, what = one.error
        if name.rpartition(".")[2] not in kinds:
            continue
        if isinstance(what, str):
            message = exceptions.read(error.rt, error.address).message or ""
            if what in message:
                return one, ""
            continue
        for member in ("filename2", "filename"):  # that of a link first; none where the call was given a descriptor
            with log.passing_over(GdbextError):
                path = error.attr(member)
                if isinstance(path, Object) and path.type.flags & STR:
                    return one, _outside(error.rt, path.string(1024))
        return one, ""
    return None, ""


def _makes(one: Taking, names: set[str], references: References, frame: Any) -> bool:
    """Whether code of a loop makes the call. Without the exception only what leaves a mark in the file system is believed."""
    if one.how == "database" or not names.issuperset(one.names):
        return False
    return not one.mode or any(text.startswith(one.mode) and len(text) < 4 for text in _constants(references, frame))


# ---- what the loop's code names --------------------------------------------------------------------------------------
def _codes(references: References, frame: Any) -> list[Any]:
    """The code of a frame and of the functions that it names: variables, globals, methods of what it has; and what these name,
    the nearest first."""
    rt, found = frame.rt, {frame.code.address: frame.code}
    values = [value for _, value in frame.locals() if isinstance(value, Object)]
    methods: dict[str, Object] = {}
    for value in values[:MAX_OBJECTS]:
        if value.type.is_heap and not value.isa("type", "module"):
            methods.update((name, function) for name, function in reversed(list(_methods(value))))
    names = references.names(frame)
    todo = [*values, *_globals(rt, frame.globals(), names), *(methods[name] for name in names if name in methods)]
    for function in todo:  # which grows
        if len(found) >= MAX_CODES:
            break
        with log.passing_over(GdbextError):
            if function.type.builtin_name == "method":
                function = rt.object(rt.target.u64(function.address + rt.layout["method.im_func"]))
            if function.type.builtin_name != "function":
                continue
            code = rt.code(rt.target.u64(function.address + rt.layout["func.func_code"]))
            if code.address not in found:
                found[code.address], names = code, references.names_of(code.address)
                space = rt.object(rt.target.u64(function.address + rt.layout["func.func_globals"]))
                todo += [value for _, value in cells_of(function)]
                todo += [*_globals(rt, space, names), *(methods[name] for name in names if name in methods)]
    return list(found.values())


def _globals(rt: Any, space: Object, names: frozenset[str]) -> list[Object]:
    held = types.named(rt, space.dict_entries(), names) if names else []
    return [one for one in (rt.object(address) for _, address in held) if one.type.builtin_name == "function"]


def _methods(value: Object) -> Iterator[tuple[str, Object]]:
    for base in value.type.bases():  # the most derived one first
        if base.is_python:
            for name, address in list(base.namespace.items())[:MAX_METHODS]:
                if name != "__init__" and value.rt.object(address).isa("function"):
                    yield name, value.rt.object(address)


def _names(references: References, frame: Any) -> Iterator[str]:
    for code in _codes(references, frame):
        yield from references.names_of(code.address)


def _constants(references: References, frame: Any) -> Iterator[str]:
    for code in _codes(references, frame):
        yield from bytecode.of(code).texts()


# ---- the files that may be in its way --------------------------------------------------------------------------------
def _files(rt: Any, frames: Sequence[Any], how: str) -> list[str]:
    """The paths, as seen from here, of the files that the variables of frames name or have open. Of those that must not be there
    only such whose names say that they are locks: code that makes files does so for many reasons."""
    texts = [text for text in dict.fromkeys(_texts(frames)) if how == "locked" or _MEANT.search(os.path.basename(text))]
    found = []
    for text in texts[:MAX_FILES]:
        status = file_status(_outside(rt, text), follow=how != "made")
        if status is not None and (stat.S_ISREG(status[0]) or how == "made"):
            found.append(_outside(rt, text))
    if how == "locked":
        found += [f"/proc/{rt.target.pid}/fd/{number}" for number in dict.fromkeys(_descriptors(frames))]
    return found


def _values(frames: Sequence[Any]) -> Iterator[Object]:
    """The variables of frames, and what these have in their attributes, two steps far."""
    level = [value for frame in frames for _, value in frame.locals() if isinstance(value, Object)]
    seen: set[int] = set()
    for _ in range(3):
        following: list[Object] = []
        for value in level:
            if value.address in seen or len(seen) > MAX_VALUES:
                continue
            seen.add(value.address)
            yield value
            with log.passing_over(GdbextError):
                if value.type.is_heap and not value.isa("type", "module"):
                    following += [one for _, one in value.fields()[:64] if isinstance(one, Object)]
        level = following


def _texts(frames: Sequence[Any]) -> Iterator[str]:
    """The texts among the variables that may be paths. Source of a pathlib path's: Lib/pathlib (`_str`; `_raw_paths` from 3.12
    on, `_parts` before)."""
    for value in _values(frames):
        with log.passing_over(GdbextError):
            texts = [value] if value.type.flags & STR else []
            if any(name.rpartition(".")[2] == "PurePath" for name in value.mro_names()):
                own = dict(value.fields())
                held = next((own[name] for name in ("_raw_paths", "_parts") if isinstance(own.get(name), Object)), None)
                texts = list(held.elements(64)) if held is not None else []
            text = os.path.join(*[one.string(1025) for one in texts]) if texts else ""
            if 0 < len(text) <= 1024 and ("/" in text or "." in text or _MEANT.search(text)) and not re.search(r"[\0\n]", text):
                yield text


def _descriptors(frames: Sequence[Any]) -> Iterator[int]:
    """The file descriptors among the variables: ints, and those of open files."""
    for value in _values(frames):
        with log.passing_over(GdbextError):
            if value.type.builtin_name == "int" and 2 < value.integer() < 1 << 16:
                yield value.integer()
            elif value.type.builtin_name.startswith("_io."):
                yield from _of_file(value, 3)


def _of_file(value: Object, depth: int) -> Iterator[int]:
    """The descriptor of an io object: that of the FileIO inside (Modules/_io/fileio.c: `int fd` behind the head)."""
    with log.passing_over(GdbextError):
        if value.type.builtin_name == "_io.FileIO":
            yield value.rt.target.i32(value.address + value.rt.layout["object.__size"])
        elif value.type.builtin_name.startswith("_io.") and depth:
            for word in value.rt.target.words(value.address, 8)[2:]:
                if word and word % 8 == 0:
                    yield from _of_file(value.rt.object(word), depth - 1)


def _outside(rt: Any, path: str) -> str:
    return f"/proc/{rt.target.pid}/{'root' if path.startswith('/') else 'cwd/'}{path}"


def _inside(path: str) -> str:
    """A path as its process has it."""
    return re.sub(r"^/proc/\d+/(root(?=/)|cwd/)", "", path)


# ---- who has made such a file ----------------------------------------------------------------------------------------
def set_maker(edge: Edge, opened: Sequence[int], by_name: Mapping[str, ProcessView]) -> None:
    """Sets who has made the file that is in the way of `edge`: the process that its content names, else one that has it open
    (`opened`). The content names one of another machine where it has a name beside the number that is not this machine's."""
    path, view = edge.shared[1], by_name[edge.waiter[0]]
    said, age = _content(path) if file_status(path, follow=False) is not None else ("", 0.0)
    number = _number(said)
    here = view.target.pid_here(number) if number else 0
    names = {word.lower() for word in _WORD.findall(said)} - _KEYS
    if number and names and not names & _hosts(view):
        edge.note = f"its content names process {number} of another machine"
    elif number and here:
        gone = _is_gone(here)
        if gone or _age(here) < age - LATE:
            edge.orphan, edge.doubted = True, edge.breaks or not gone  # clocks may differ
            edge.note = f"process {number}, which its content names, has ended without removing it"
        else:
            _set(edge, [here], "its content names that process", view, by_name, age)
    elif [pid for pid in opened if pid != view.pid]:
        _set(edge, [pid for pid in opened if pid != view.pid], "it has the file open", view, by_name, age)
    else:  # whoever makes such a file keeps it open, or names itself in it (torch/utils/file_baton.py, filelock)
        edge.note = "no readable process has it open: one that has ended, or is out of sight, made the file"
        edge.note += "; the wait lasts until it is removed"
    if age:
        edge.note += f"; it was made {age:.0f} s ago"


def _number(said: str) -> int:
    """The pid that the content of a file names: a number behind the word, or the only one; 0 where there is none."""
    found = [int(word) for word in _PID.findall(said)] or [int(word) for word in _NUMBER.findall(said)]
    found = [one for one in dict.fromkeys(found) if 1 < one < MAX_PID]
    return found[0] if len(found) == 1 else 0


def _is_gone(pid: int) -> bool:
    """Whether there is no such process any more, also where those of others are hidden."""
    try:
        os.getpgid(pid)
    except ProcessLookupError:
        return True
    return state_of(pid) in ("Z", "X")


def _set(edge: Edge, pids: Sequence[int], note: str, view: ProcessView, by_name: Mapping[str, ProcessView], age: float) -> None:
    known = [(v.name, v.main.tid) for v in by_name.values() if v.pid in pids and v.main is not None]
    edge.note = note
    if list(pids) == [view.pid]:
        edge.candidates = [(view.name, th.tid) for th in view.threads if th.python and not th.idle and th.tid != edge.waiter[1]]
        edge.doubted, edge.note = True, "its own process has made it"
    elif len(pids) == 1 and known and age < LOOK:
        edge.candidates, edge.doubted = known, True  # it was made while these processes were looked at: it is taken in turn
    elif len(pids) == 1 and known:
        edge.owner = known[0]
    else:
        edge.outside, edge.unread = [f"{program_of(pid)} ({pid})" for pid in pids], list(pids)
        edge.note = f"{', '.join(edge.outside[:4])}: {note}"


def _content(path: str) -> tuple[str, float]:
    """(what a file, a link or the file "pid" of a folder says, seconds since it was made)"""
    with log.passing_over(OSError, ValueError):
        own = os.lstat(path)
        age = max(time.time() - own.st_mtime, 0.0)
        if stat.S_ISLNK(own.st_mode):
            return os.readlink(path), age
        if stat.S_ISDIR(own.st_mode):
            locks = bool(_MEANT.search(os.path.basename(path)))
            inner = [name for name in sorted(os.listdir(path))[:8] if _MEANT.search(name) or locks and name.isdigit()]
            texts = [name for name in inner if name.isdigit()]
            texts += [_content(os.path.join(path, name))[0] for name in inner if os.path.isfile(os.path.join(path, name))]
            return " ".join(texts), age
        if stat.S_ISREG(own.st_mode):
            return _read(path, SAID), age
    return "", 0.0


def _read(path: str, most: int) -> str:
    """The beginning of a regular file, as its process means the path. `OSError`: it is none."""
    found = re.match(r"/proc/(\d+)/root(/.*)", path)
    flags = os.O_RDONLY | os.O_NONBLOCK
    if found is not None:
        number = in_root.open_in_root(int(found[1]), found[2], flags)
    else:
        number = in_root.opened(os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC), flags)
    with open(number, "rb") as f:
        return f.read(most).decode("utf-8", "replace")


def _age(pid: int) -> float:
    """Seconds since a process began."""
    return uptime() - read_stat(pid).started / os.sysconf("SC_CLK_TCK")


def _hosts(view: ProcessView) -> set[str]:
    """The names of this machine, and of the container of a process."""
    found = {os.uname().nodename}
    with log.passing_over(OSError, ValueError):
        found.add(_read(f"/proc/{view.pid}/root/etc/hostname", 256).strip())
    return {one.lower() for name in found for one in (name, name.partition(".")[0])} | {"localhost"}
