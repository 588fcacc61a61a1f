"""Reports of an engine's own HTTP endpoints, for an engine whose processes may not be read. Only this machine is asked, and only
the address of a socket on which the engine listens in this network namespace (listeners.py).

Ports: the engine's command line (`--port`), else the default of its spec."""

from __future__ import annotations

import contextlib
import math
import re
import socket
import threading
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from ..access.background import background_thread
from . import listeners
from .registry import spec_of

if TYPE_CHECKING:
    import http.client

    from .rank import Rank

SERVERS = ("frontend", "api-server", "server")  # roles that answer HTTP
SECONDS = 2.0  # for an answer: a blocked event loop gives none
MOST = 1 << 20  # bytes


def port_of(arguments: Sequence[str], default: int) -> int:
    """The port that a command line names, else the default one."""
    for number, word in enumerate(arguments):
        name, _, value = word.partition("=")
        if name == "--port":
            value = value or (arguments[number + 1] if number + 1 < len(arguments) else "")
            return int(value) if value.isdigit() and int(value) < 65536 else 0
    return default


def of_rank(rank: Rank | None) -> dict[str, Any] | None:
    """The result of `ask` for an engine's process that is a server; None for any other process."""
    spec = spec_of(rank.engine) if rank is not None and rank.role in SERVERS else None
    if rank is None or spec is None or not spec.port:
        return None
    return ask(rank.pid, port_of(rank.process.argv, spec.port), spec.metrics)


def ask(pid: int, port: int, pattern: str, proc: str = "/proc") -> dict[str, Any] | None:
    """`{port, health, metrics: {name: value}}`, `health`: the status or what went wrong; None where the process does not listen
    on `port` here. `pattern`: of the metrics about requests."""
    row = next((row for row in listeners.of_process(pid, proc, by_user=True) if row.port == port and row.is_local), None)
    if row is None:
        return None
    health, _ = get(row, "/health")
    status, text = get(row, "/metrics")
    found = re.findall(rf"^({pattern})(?:\{{[^}}\n]*\}})? ([0-9.eE+-]+)$", text, re.M) if status == 200 else []
    metrics: dict[str, float] = {}
    for name, value in found:
        try:
            number = float(value)
        except ValueError:
            continue
        if math.isfinite(metrics.get(name, 0.0) + number):
            metrics[name] = metrics.get(name, 0.0) + number
    return {"port": port, "health": health, "metrics": metrics}


def get(row: listeners.Row, path: str) -> tuple[int | str, str]:
    """(status or what went wrong, text) of a GET from the server at a listening socket of this machine."""
    import http.client  # it loads ssl and email: megabytes, which llm-hang does without in an engine's full memory group

    try:
        with answered_within(row, SECONDS) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read(MOST).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, ValueError) as e:
        return "no answer in %g s" % SECONDS if isinstance(e, listeners.LATE) else type(e).__name__, ""


@contextlib.contextmanager
def answered_within(row: listeners.Row, seconds: float) -> Iterator[http.client.HTTPConnection]:
    """An HTTP connection to a listening socket for a `with` block. After `seconds` it ends in `TimeoutError`, even if the answer
    comes byte by byte: a socket's own limit applies to each piece."""
    import http.client

    with listeners.connected(row, seconds) as held:
        connection = http.client.HTTPConnection("localhost", row.port, timeout=seconds)
        connection.sock, connection.auto_open = held, 0  # never a second connection, to wherever a name leads
        over, late = threading.Event(), threading.Event()

        def end() -> None:
            if not over.wait(seconds):
                late.set()
                with contextlib.suppress(OSError):
                    held.shutdown(socket.SHUT_RDWR)

        background_thread(end)
        try:
            yield connection
        except (OSError, http.client.HTTPException):
            if not late.is_set():
                raise
        finally:
            over.set()
            connection.close()
        if late.is_set():
            raise TimeoutError
