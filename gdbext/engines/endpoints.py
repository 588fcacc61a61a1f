"""Reports of an engine's own HTTP endpoints, for an engine whose processes may not be read. Only this machine is asked, and only
the address of a socket on which the engine listens in this network namespace (listeners.py).

Ports: the engine's command line (`--port`), else the default of its spec."""

from __future__ import annotations

import contextlib
import math
import re
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Iterator, Sequence

from .. import log
from ..access.background import background_thread
from ..access.procfs import parse_inet
from . import listeners
from .registry import spec_of

if TYPE_CHECKING:
    import http.client

    from .rank import Rank

SERVERS = ("frontend", "api-server", "server")  # roles that answer HTTP
SECONDS = 2.0  # for an answer: a blocked event loop gives none
MOST = 1 << 20  # bytes
BETWEEN = 1.0  # seconds between two readings of what is counted
TOKENS = r"^\w+:\w*token\w*_(?:total|sum|count)"  # counters that only rise


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
    port = port_of(rank.process.argv, spec.port)
    found = ask(rank.pid, port, spec.metrics)
    if found is not None and runs(found) and found["tokens"] is not None:
        time.sleep(BETWEEN)
        now = ask(rank.pid, port, spec.metrics)
        found["moved"] = now["tokens"] != found["tokens"] if now is not None and now["tokens"] is not None else None
    return found


def runs(http: dict[str, Any]) -> bool:
    """Whether requests run, by what `ask` gave."""
    return any(count > 0 for name, count in http["metrics"].items() if "running" in name)


def ask(pid: int, port: int, pattern: str, proc: str = "/proc") -> dict[str, Any] | None:
    """`{port, health, metrics: {name: value}, tokens, moved, unread}`; None where the process does not listen on `port` here.

    `health`: the status or what went wrong. `unread`: bytes of a request that its server had not read in time, 0 where it had,
    None where it answers. `pattern`: of the metrics about requests. `tokens`: the sum of what counts tokens, or
    None. `moved` is left None."""
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
    counted = [float(n) for n in re.findall(rf"{TOKENS}(?:\{{[^}}\n]*\}})? ([0-9]+(?:\.[0-9]+)?(?:e\+[0-9]+)?)$", text, re.M)]
    tokens = sum(counted) if status == 200 and counted else None
    left = unread(row) if health == _late() else None
    return {"port": port, "health": health, "metrics": metrics, "tokens": tokens, "moved": None, "unread": left}


def unread(row: listeners.Row) -> int | None:
    """Bytes of a request that whoever holds a listening socket has not read after `SECONDS`, accepted or not, as the kernel
    counts them at its end of the connection; None where that is not seen. Source: Documentation/networking/proc_net_tcp.rst."""
    with log.passing_over(OSError), listeners.connected(row, SECONDS) as held:
        held.sendall(b"GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
        time.sleep(SECONDS)
        ours = held.getsockname()[1]
        for name in ("tcp", "tcp6"):
            with open(f"/proc/self/net/{name}", "rb") as f:
                for one in parse_inet(f.read()):
                    if (one.port, one.remote_port) == (row.port, ours):
                        return one.unread
    return None


def _late() -> str:
    return f"no answer in {SECONDS:g} s"


def get(row: listeners.Row, path: str) -> tuple[int | str, str]:
    """(status or what went wrong, text) of a GET from the server at a listening socket of this machine."""
    import http.client  # it loads ssl and email: megabytes, which llm-hang does without in an engine's full memory group

    try:
        with answered_within(row, SECONDS) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read(MOST).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException, ValueError) as e:
        return _late() if isinstance(e, listeners.LATE) else type(e).__name__, ""


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
