"""What an engine's own HTTP end points say, where its processes may not be read: on this machine alone, and only on a port on
which somebody of its user listens in this network namespace.

Ports: the engine's command line (`--port`), else what its spec names as the default."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import socket
import threading
from typing import TYPE_CHECKING, Any

from ..access.background import background_thread
from .registry import spec_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .rank import Rank

SERVERS = ("frontend", "api-server", "server")  # roles that answer HTTP
SECONDS = 2.0  # for an answer: an event loop that stands gives none
MOST = 1 << 20  # bytes
ANYWHERE = ("00000000", "0100007F", "0" * 32, "0" * 24 + "01000000", "0000000000000000FFFF00000100007F")  # any address, loopback
LISTENS = "0A"


def port_of(arguments: Sequence[str], default: int) -> int:
    """The port that a command line names, else the default one."""
    for number, word in enumerate(arguments):
        name, _, value = word.partition("=")
        if name == "--port":
            value = value or (arguments[number + 1] if number + 1 < len(arguments) else "")
            return int(value) if value.isdigit() and int(value) < 65536 else 0
    return default


def listeners(pid: int | str, proc: str = "/proc") -> set[tuple[int, int, str]]:
    """{(port, user, inode)} of the sockets that listen on all or on loopback addresses in a process's network namespace."""
    found = set()
    for name in ("tcp", "tcp6"):
        try:
            with open(f"{proc}/{pid}/net/{name}", encoding="ascii", errors="replace") as f:
                rows = [line.split() for line in f.readlines()[1:]]
        except OSError:
            continue
        for row in rows:
            address, _, port = row[1].rpartition(":") if len(row) > 9 else ("", "", "")
            if len(row) > 9 and row[3] == LISTENS and address in ANYWHERE:
                found.add((int(port, 16), int(row[7]), row[9]))
    return found


def listens(pid: int, port: int, proc: str = "/proc") -> bool:
    """Whether somebody of a process's user listens on `port` in its network namespace, which is ours too."""
    try:
        user = os.stat(f"{proc}/{pid}").st_uid
    except OSError:
        return False
    return any((number, owner) == (port, user) for number, owner, _ in listeners("self", proc) & listeners(pid, proc))


def of_rank(rank: Rank | None) -> dict[str, Any] | None:
    """What `ask` gives of the server that an engine's process is; None for every other process."""
    spec = spec_of(rank.engine) if rank is not None and rank.role in SERVERS else None
    if rank is None or spec is None or not spec.port:
        return None
    return ask(rank.pid, port_of(rank.process.argv, spec.port), spec.metrics)


def ask(pid: int, port: int, pattern: str, proc: str = "/proc") -> dict[str, Any] | None:
    """`{port, health, metrics: {name: value}}`, `health`: the status or what went wrong; None where nobody of the process's user
    listens on `port` here. `pattern`: of the metrics that tell of requests."""
    if not listens(pid, port, proc):
        return None
    health, _ = get(port, "/health")
    status, text = get(port, "/metrics")
    found = re.findall(rf"^({pattern})(?:\{{[^}}\n]*\}})? ([0-9.eE+-]+)$", text, re.M) if status == 200 else []
    metrics: dict[str, float] = {}
    for name, value in found:
        metrics[name] = metrics.get(name, 0.0) + float(value)
    return {"port": port, "health": health, "metrics": metrics}


def get(port: int, path: str) -> tuple[int | str, str]:
    """(status or what went wrong, text) of a GET on this machine."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        with answered_within(connection, SECONDS):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read(MOST).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, ValueError) as e:
        return "no answer in %g s" % SECONDS if isinstance(e, TimeoutError) else type(e).__name__, ""
    finally:
        connection.close()


@contextlib.contextmanager
def answered_within(connection: http.client.HTTPConnection, seconds: float) -> Iterator[None]:
    """A `with` block that ends in `TimeoutError` after so many seconds, however slowly an answer drips: a socket's own limit is
    of each piece."""
    connection.connect()
    held, over, late = connection.sock, threading.Event(), threading.Event()

    def end() -> None:
        if not over.wait(seconds):
            late.set()
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)

    background_thread(end)
    try:
        yield
    except (OSError, http.client.HTTPException):
        if not late.is_set():
            raise
    finally:
        over.set()
    if late.is_set():
        raise TimeoutError
