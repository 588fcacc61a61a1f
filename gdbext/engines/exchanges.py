"""Open HTTP and RPC exchanges: requests that a server has taken and not answered yet, whatever the engine knows of them.

A row of `SERVERS` for each server library: the function that a task or a thread is in for as long as it serves one exchange. A
connection that is only kept alive is in none of them. Sources: uvicorn/protocols/http/*_impl.py, hypercorn/asyncio/task_group.py,
granian/_futures.py, aiohttp/web_protocol.py, Lib/http/server.py, Lib/asyncio/streams.py, grpc/_server.py,
gunicorn/workers/sync.py, gthread.py, waitress/task.py, werkzeug/serving.py, asgiref and WSGI: PEP 3333.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterable, Sequence

from .. import log
from ..cpython.frames import PyFrame
from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..cpython.tasks import tasks
from ..errors import GdbextError
from ..observe.stack_keys import stack_key
from .objects import at, path
from .sightings import HTTP, Exchange, Look, Sighting
from .spec import EngineSpec

MANY = 512  # tasks of a server: of more, exchanges are not told from the engine's requests
TOLD = 64  # exchanges of one process that are told apart
SHOWN = 4  # of a pool's threads
FRONT = ("frontend", "api-server")
POOL = "concurrent/futures/thread.py"


@dataclass(frozen=True)
class Server:
    """One server library. `file`: a part of the path of its module; `functions`: in which it serves one exchange; `scope`: the
    path from that frame's variables to the ASGI scope, '' for none; `reads`: functions of the same frame's callees that only wait
    for the head of the next request; `by_task`: a task serves it, also where that runs on a thread's stack."""

    name: str
    file: str
    functions: tuple[str, ...]
    scope: str = ""
    reads: tuple[str, ...] = ()
    by_task: bool = False


SERVERS = (
    Server("uvicorn", "uvicorn/protocols/http/", ("run_asgi",), "self.scope", by_task=True),
    Server("hypercorn", "hypercorn/asyncio/task_group.py", ("_handle",), "scope", by_task=True),
    Server("granian", "granian/_futures.py", ("future_watcher",), "watcher.scope", by_task=True),
    Server("aiohttp", "aiohttp/web_protocol.py", ("_handle_request",), by_task=True),
    Server("http.server", "http/server.py", ("handle_one_request",), "", ("readline", "readinto")),
    Server("werkzeug", "werkzeug/serving.py", ("run_wsgi",)),
    Server("gunicorn", "gunicorn/workers/", ("handle_request",)),
    Server("waitress", "waitress/task.py", ("service",)),
    Server("gRPC", "grpc/_server.py", ("_unary_response_in_pool", "_stream_response_in_pool")),
)
COMPILED = {"_handle_rpc": "gRPC"}  # coroutines of Cython: grpc/_cython/_cygrpc/aio/server.pyx.pxi
CLIENT = (  # (a part of the file's path, functions): it waits for what its client is to send or to read
    ("uvicorn/protocols/http/", ("receive", "drain")),
    ("aiohttp/streams.py", ("_wait", "read", "readany", "readchunk")),
    ("aiohttp/base_protocol.py", ("_drain_helper",)),
    ("hypercorn/asyncio/tcp_server.py", ("drain",)),
    ("asyncio/streams.py", ("_drain_helper", "drain")),
)
LISTENS = ("listen_for_disconnect", "receive_or_disconnect")  # in functions of starlette and vLLM
LIBRARY = ("/asyncio/", "/threading.py", "/selectors.py", "/socket.py", "/ssl.py", "/anyio/")


def _last(name: str | None) -> str:
    return (name or "").rpartition(".")[2]


def _file(frame: Any) -> str:
    return str(frame.file or "").replace("\\", "/")


def served(frames: Sequence[Any]) -> tuple[Server, Any] | None:
    """The server library, and its frame, where a stack (innermost first) serves one exchange; else None."""
    for i, frame in enumerate(frames):
        name, file = _last(frame.function), _file(frame)
        for server in SERVERS:
            if name not in server.functions or server.file not in file:
                continue
            inner = _last(frames[i - 1].function) if i else ""
            if server.reads and (not i or inner in server.reads):
                return None
            return server, frame
    return None


def waits_for_client(frames: Sequence[Any]) -> bool:
    """Whether a stack that serves an exchange waits for what its client is to send or to read."""
    for frame in frames:
        file, name = _file(frame), _last(frame.function)
        if any(part in file and name in functions for part, functions in CLIENT):
            return True
        if not any(part in file for part in LIBRARY):
            return False
    return False


# ---- of an engine's front end --------------------------------------------------------------------------------------------
def look(rt: Runtime, found: Look, spec: EngineSpec) -> list[Sighting]:
    """A front end's open exchanges that are none of the requests which its look knows already. Those that wait for their clients
    are left out: nobody here owes them anything."""
    if found.role not in FRONT or found.start is not None:
        return []
    every, _ = tasks(rt)
    if len(every) > MANY:
        log.note("%s: %d tasks: its exchanges are not told from its requests", found.label, len(every))
        return []
    seen = _of_threads(rt)
    known = {name for s in found.sightings for name in (s.request_id, s.external_id) if name}
    by_address = {task.address: task for task in every}
    open_ones: list[tuple[Any, Any]] = [(task, one) for task in every for one in [served(task.frames)] if one is not None]
    open_ones += [(task, None) for task in every if not task.frames and task.coroutine.rpartition(".")[2] in COMPILED]
    for task, one in open_ones[:TOLD]:
        try:
            members = _members(task, by_address)
            names = [name for member in members for name in _asked(member.frames, spec)]
            if any(name in known or any(len(name) > 7 and name in k for k in known) for name in names):
                continue
            works = [m for m in members if not _listens(m.frames) and not _waits_for(m, members)]
            works.sort(key=lambda m: m.waits is not None and m.waits.kind == "executor")  # the innermost comes last
            if not works:
                continue
            seen.append(_sighting(rt, task, one, works[-1], names))
        except GdbextError as e:
            log.passed_over(e)  # it went on meanwhile
    return seen


def _members(task: Any, by_address: dict[int, Any]) -> list[Any]:
    """A task that serves an exchange, with the tasks that it waits for or has in its task groups (asyncio's, anyio's)."""
    members: list[Any] = []
    left = [task]
    while left and len(members) < TOLD:
        one = left.pop(0)
        if one in members:
            continue
        members.append(one)
        addresses = list(one.waits.on) if one.waits is not None else []
        addresses += _grouped(one.frames)
        left += [by_address[address] for address in addresses if address in by_address]
    return members


def _grouped(frames: Iterable[PyFrame]) -> list[int]:
    """The tasks of the task groups that frames have. A frame's variable of a group has "group" or "tg" in its name."""
    found: list[int] = []
    for frame in frames:
        if not any("group" in name or name == "tg" for name, _ in frame.code.variables):
            continue
        for name, value in frame.locals():
            group = value is not None and ("group" in name or name == "tg") and _last(value.type_name) == "TaskGroup"
            held = at(value, "_tasks") if group and value is not None else None
            found += held.element_addresses(TOLD) if held is not None else []
    return found


def _listens(frames: Sequence[PyFrame]) -> bool:
    """Whether a task waits for its client, or only listens for its going away."""
    return waits_for_client(frames) or any(word in (f.function or "") for f in frames for word in LISTENS)


def _waits_for(one: Any, members: Sequence[Any]) -> bool:
    """Whether a task only waits for others of its exchange."""
    others = {m.address for m in members if m is not one}
    if one.waits is not None and others & set(one.waits.on):
        return True
    return bool(others) and any(_last(f.function) == "__aexit__" for f in one.frames[:3])


def _asked(frames: Sequence[PyFrame], spec: EngineSpec) -> list[str]:
    """The ids of the engine's requests that a task has asked for, by the variables of the engine's own function."""
    found: list[str] = []
    for frame in frames:
        for (file, function), text in spec.asking.items():
            if _last(frame.function) != function or not _file(frame).endswith(file):
                continue
            name, _, rest = text.partition(".")
            held = dict(frame.locals()).get(name)
            value = path(held, rest) if held is not None and rest else held
            if value is None or value.is_none():
                continue
            found += [one.string(1000) for one in (value.elements(TOLD) if value.isa("list") else [value])]
    return found


def _sighting(rt: Runtime, task: Any, one: tuple[Server, Any] | None, works: Any, names: Sequence[str]) -> Sighting:
    server = one[0].name if one is not None else COMPILED[task.coroutine.rpartition(".")[2]]
    scope = _scope(one) if one is not None else None
    what, client = _of_scope(scope) if scope is not None else ("", "")
    exchange = Exchange(server, what, client, works.name, works.address, _place(works.frames))
    sighting = Sighting(
        f"http:{client or task.name}", HTTP, " ".join(filter(None, (what, "in the front end"))), exchange=exchange
    )
    sighting.external_id = next(iter(names), "")
    sighting.progress = (hash(str((works.state, works.address, stack_key(works.frames)))) & 0x7FFFFFFF,)
    sighting.waits_for = works.waits.text if works.waits is not None else ""
    if works.waits is not None and works.waits.kind == "executor":
        exchange.pool = pool_at_work(rt)
    return sighting


def _scope(one: tuple[Server, PyFrame]) -> Object | None:
    server, frame = one
    name, _, rest = server.scope.partition(".")
    held = dict(frame.locals()).get(name) if name else None
    return at(held, rest) if held is not None and rest else held


def _of_scope(scope: Object) -> tuple[str, str]:
    """-> ("POST /v1/completions", "127.0.0.1:4711") of an ASGI scope: a dict, or Granian's object."""

    def field(name: str) -> Object | None:
        try:
            return scope.item(name) if scope.isa("dict") else at(scope, name)
        except GdbextError as e:
            log.passed_over(e)
            return None

    method, where, client = (field(name) for name in ("method", "path", "client"))
    said = " ".join(one.string(200) for one in (method, where) if one is not None and not one.is_none())
    if client is None or client.is_none():
        return said, ""
    if client.isa("str"):
        return said, client.string(100)
    host, port = client.item(0), client.item(1)
    return said, f"{host.string(100)}:{port.integer() if hasattr(port, 'integer') else port}"


def _place(frames: Sequence[PyFrame]) -> str:
    inner = next((f for f in frames if not any(part in _file(f) for part in LIBRARY)), frames[0] if frames else None)
    return f"{inner.function} ({_file(inner).rpartition('/')[2]}:{inner.line})" if inner is not None else ""


def pool_at_work(rt: Runtime) -> list[tuple[int, str]]:
    """[(tid, the place)] of the threads of pools that have work."""
    found = []
    for thread in rt.threads():
        with log.passing_over(GdbextError):
            frames = rt.frames(thread)
            if len(frames) > 1 and any(POOL in _file(f) for f in frames) and POOL not in _file(frames[0]):
                found.append((thread.tid, _place(frames)))
    return found[:SHOWN]


def _of_threads(rt: Runtime) -> list[Sighting]:
    """Exchanges that a thread serves."""
    found: list[Sighting] = []
    for thread in rt.threads()[:MANY]:
        with log.passing_over(GdbextError):  # it runs
            frames = rt.frames(thread)
            one = served(frames)
            if one is None or one[0].by_task or waits_for_client(frames):
                continue
            exchange = Exchange(one[0].name, "", "", "", 0, _place(frames), [(thread.tid, _place(frames))])
            sighting = Sighting(f"http:thread {thread.tid}", HTTP, "in the front end", exchange=exchange, tid=thread.tid)
            sighting.progress = (hash(str(stack_key(frames))) & 0x7FFFFFFF,)
            found.append(sighting)
    return found
