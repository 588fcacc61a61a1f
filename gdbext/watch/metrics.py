"""The numbers of the last look as OpenMetrics: on a local port, or in a file for a node exporter's textfile collector.

They come from the watch's memory: no engine is asked for them. No user's content: labels are names of engines and ranks, verdicts
and kinds of events. Sources: OpenMetrics 1.0 (RFC draft-richih-opsawg-openmetrics-00, "ABNF", "MetricFamily"); Prometheus' text
format 0.0.4, which a textfile collector reads.
"""

from __future__ import annotations

import collections
import contextlib
import math
import os
import threading
from typing import TYPE_CHECKING, Any, Callable, Collection, Iterator, NamedTuple

from .. import __version__, log
from ..access.background import background_thread
from ..errors import GdbextError
from .model import KINDS, Event, Look

if TYPE_CHECKING:
    import socketserver

OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PLAIN = "text/plain; version=0.0.4; charset=utf-8"
MOST, LONGEST = 4096, 120  # ranks; characters of a label's value
CLIENTS, SECONDS = 8, 5.0  # served at a time; that one may take
EVERY = 5.0  # seconds between two writes of a textfile


class Family(NamedTuple):
    """A metric: its `name` without the prefix and `_total`, its type, the labels of its samples, and what it is. The name of one
    with a unit ends with that."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str
    unit: str = ""
    read: Callable[[Any], Any] = lambda one: None


def _of(name: str) -> Callable[[Any], Any]:
    return lambda one: getattr(one, name)


ENGINE, RANK = ("engine",), ("engine", "rank")
ENGINES = (
    Family("engine_requests_running", "gauge", ENGINE, "Requests that its schedulers run.", read=_of("running")),
    Family("engine_requests_waiting", "gauge", ENGINE, "Requests that wait in its schedulers.", read=_of("waiting")),
    Family("engine_tokens", "counter", ENGINE, "Tokens of output that were seen, at least so many.", read=_of("tokens")),
    Family("engine_steps", "counter", ENGINE, "Steps of its schedulers since the watch began.", read=_of("steps")),
    Family(
        "engine_preemptions", "counter", ENGINE, "Requests that were preempted since the watch began.", read=_of("preemptions")
    ),
    Family("engine_owes_work", "gauge", ENGINE, "1 while it has open requests, else 0.", read=lambda e: int(e.owed)),
    Family("engine_stood_seconds", "gauge", ENGINE, "For how long nothing moved while work was owed.", "seconds", _of("stood")),
    Family(
        "engine_limit_seconds", "gauge", ENGINE, "How long that may last before the engine is judged.", "seconds", _of("limit")
    ),
    Family(
        "engine_oldest_stood_seconds", "gauge", ENGINE, "For how long the oldest request has not moved.", "seconds", _of("oldest")
    ),
    Family("engine_kv_used_ratio", "gauge", ENGINE, "The part of its KV cache's blocks in use.", "ratio", _of("kv_use")),
)
RANKS = (
    Family(
        "rank_up",
        "gauge",
        RANK,
        "1 while its process is there, 0 for ten minutes after it died.",
        read=lambda r: int(bool(r.state)),
    ),
    Family("rank_stopped", "gauge", RANK, "1 while a signal has stopped it.", read=lambda r: int(r.state == "T")),
    Family("rank_lag_steps", "gauge", RANK, "How many steps it is behind the first of its replica.", "steps", _of("lag")),
    Family("rank_steps", "counter", RANK, "Its engine's own counter of steps in this process.", "steps", _of("steps")),
    Family("rank_stood_seconds", "gauge", RANK, "For how long its main thread has been in one place.", "seconds", _of("stood")),
    Family("rank_cpu_ratio", "gauge", RANK, "Processors that it used since the last look.", "ratio", _of("cpu")),
    Family("rank_resident_bytes", "gauge", RANK, "Resident memory.", "bytes", _of("rss")),
)
WATCH = (
    Family("watch_looks", "counter", (), "Looks so far.", read=_of("number")),
    Family("watch_look_timestamp_seconds", "gauge", (), "When it looked last.", "seconds", _of("time")),
    Family("watch_cpu_seconds", "counter", (), "CPU time that the watch itself has used.", "seconds", _of("cost")),
    Family("watch_resident_bytes", "gauge", (), "Resident memory of the watch itself.", "bytes", _of("memory")),
    Family("watch_history_bytes", "gauge", (), "Memory that holds the last minutes.", "bytes", _of("box")),
    Family("watch_stalls", "counter", (), "Stalls so far.", read=_of("stalls")),
    Family("watch_boxes", "counter", (), "Boxes that were written.", read=_of("boxes")),
    Family(
        "watch_throttled_seconds", "counter", (), "For how long quotas denied the processes a CPU.", "seconds", _of("throttled")
    ),
)
GROWTH = Family(
    "rank_memory_growth_bytes_per_second",
    "gauge",
    ("engine", "rank", "kind"),
    "How fast a kind of its memory keeps growing, over the last minutes; 0 where it does not.",
    "bytes_per_second",
)
VERDICT = Family("engine_verdict", "gauge", ("engine", "verdict"), "1 for the verdict of the last examination of a stall.")
HUNG = Family("engine_hung", "gauge", ENGINE, "1 from a verdict on it that accuses until it moves again, else 0.")
EVENTS = Family("watch_events", "counter", ("kind",), "What happened, by kind.")
VERSION = Family("watch_version", "gauge", ("version",), "1; the version of gdbext.")
FAMILIES = (*ENGINES, VERDICT, HUNG, *RANKS, GROWTH, *WATCH, EVENTS, VERSION)


def names() -> set[str]:
    """Of all samples."""
    return {f"gdbext_{f.name}" + ("_total" if f.kind == "counter" else "") for f in FAMILIES}


class Metrics:
    """What was seen last. `quiet`: verdicts that accuse nobody. `look` and `hear` are for the watch; `text` is for any thread."""

    def __init__(self, quiet: Collection[str] = ()) -> None:
        self.quiet = {"", *quiet}
        self.last: Look | None = None
        self.events: collections.Counter[str] = collections.Counter()

    def look(self, look: Look) -> None:
        """One more look."""
        self.last = look

    def hear(self, event: Event) -> None:
        """One more event."""
        if event.kind in KINDS:
            self.events[event.kind] += 1

    def text(self, plain: bool = False) -> str:
        """All of them as OpenMetrics; `plain`: as Prometheus' older text."""
        lines: list[str] = []
        for family, samples in self._samples():
            name = f"gdbext_{family.name}"
            total = "_total" if family.kind == "counter" else ""
            lines.append(f"# TYPE {name}{total if plain else ''} {family.kind}")
            if family.unit and not plain:
                lines.append(f"# UNIT {name} {family.unit}")
            lines.append(f"# HELP {name}{total if plain else ''} {family.help}")
            seen: set[tuple[str, ...]] = set()
            for given, number in samples:
                values = tuple(map(escaped, given))
                if number is None or not math.isfinite(number) or values in seen:
                    continue
                seen.add(values)
                labels = ",".join(f'{label}="{value}"' for label, value in zip(family.labels, values))
                lines.append(f"{name}{total}{{{labels}}} {_number(number)}" if labels else f"{name}{total} {_number(number)}")
        return "\n".join([*lines, *([] if plain else ["# EOF"]), ""])

    def _samples(self) -> Iterator[tuple[Family, list[tuple[tuple[str, ...], Any]]]]:
        look = self.last
        engines = look.engines[:MOST] if look is not None else []
        for family in ENGINES:
            yield family, [((e.name,), family.read(e)) for e in engines]
        yield VERDICT, [((e.name, e.verdict), 1) for e in engines if e.verdict]
        yield HUNG, [((e.name,), int(e.verdict not in self.quiet)) for e in engines]
        ranks: list[tuple[tuple[str, ...], Any]] = list(_named(look)) if look is not None else []
        for family in RANKS:
            yield family, [(called, family.read(r)) for called, r in ranks]
        yield GROWTH, [((*called, kind), more / 60) for called, r in ranks for kind, more in (r.grows or {}).items()]
        for family in WATCH:
            yield family, [((), family.read(look))] if look is not None else []
        yield EVENTS, [((kind,), self.events[kind]) for kind in KINDS]
        yield VERSION, [((__version__,), 1)]


def _named(look: Look) -> list[tuple[tuple[str, str], Any]]:
    """The ranks, each with labels that no other has."""
    labels = [(r.label or str(r.pid))[: LONGEST - 16] for r in look.ranks]
    count = collections.Counter((r.engine, label) for r, label in zip(look.ranks, labels))
    found = []
    for r, label in zip(look.ranks[:MOST], labels):
        found.append(((r.engine, label if count[r.engine, label] == 1 else f"{label} ({r.pid})"), r))
    return found


def escaped(value: str) -> str:
    """A label's value, bounded."""
    value = value if len(value) <= LONGEST else value[: LONGEST - 3] + "..."
    value = value.encode("utf-8", "replace").decode("utf-8")
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    return str(int(value)) if isinstance(value, int) or value == int(value) and abs(value) < 1 << 53 else repr(float(value))


# ---- a port ------------------------------------------------------------------------------------------------------------
def address(text: str) -> tuple[str, int]:
    """(host, port) of `PORT`, `HOST:PORT` or `[HOST]:PORT`; without a host this machine alone can ask."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and len(port) < 6) or int(port) > 65535:
        raise GdbextError(f"-metrics {text}: a port, or HOST:PORT")
    return host.strip("[]") or "127.0.0.1", int(port)


class Server:
    """Serves /metrics at an address until `close`, in threads of its own. `port`: the one that it has."""

    def __init__(self, metrics: Metrics, where: str) -> None:
        import http.server
        import socket

        host, port = address(where)
        places, room = _Places(), threading.BoundedSemaphore(2 * CLIENTS)  # some are about to end

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = SECONDS
            server_version, sys_version = "gdbext", ""

            def do_GET(self) -> None:
                found = self.path.partition("?")[0] == "/metrics"
                plain = "openmetrics" not in self.headers.get("Accept", "openmetrics")
                body = metrics.text(plain).encode() if found else b"see /metrics\n"
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", (PLAIN if plain else OPEN) if found else PLAIN)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Nothing: who asks is nobody's business."""

        class Http(http.server.ThreadingHTTPServer):
            daemon_threads, request_queue_size = True, CLIENTS
            address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

            def process_request(self, request: Any, client: Any) -> None:
                if not room.acquire(blocking=False):
                    return self.shutdown_request(request)
                places.take(request)
                try:
                    super().process_request(request, client)
                except BaseException:  # no thread can be started
                    places.leave(request)
                    room.release()
                    raise

            def process_request_thread(self, request: Any, client: Any) -> None:
                try:
                    with _Late(request):
                        super().process_request_thread(request, client)
                except GdbextError as e:
                    log.passed_over(e)
                    self.shutdown_request(request)
                finally:
                    places.leave(request)
                    room.release()

            def handle_error(self, request: Any, client: Any) -> None:
                log.note("a client of /metrics went away")

        try:
            self._http: socketserver.BaseServer = Http((host, port), Handler)
        except (OSError, OverflowError) as e:
            raise GdbextError(f"-metrics {where}: {getattr(e, 'strerror', None) or e}") from None
        self.port: int = self._http.server_address[1]
        background_thread(self._http.serve_forever, 0.5)

    def close(self) -> None:
        """Ends it."""
        self._http.shutdown()
        self._http.server_close()


class _Places:
    """Connections that are served, CLIENTS at most. A new one takes the place of the oldest, which ends: who connects and asks
    nothing keeps nobody out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[Any, None] = {}

    def take(self, request: Any) -> None:
        """One more."""
        with self._lock:
            while len(self._held) >= CLIENTS:
                oldest = next(iter(self._held))
                del self._held[oldest]
                _end(oldest)
            self._held[request] = None

    def leave(self, request: Any) -> None:
        """One fewer, if it still has its place."""
        with self._lock:
            self._held.pop(request, None)


class _Late:
    """Ends a connection that takes too long, also one that sends a byte at a time."""

    def __init__(self, request: Any) -> None:
        self.over = threading.Event()
        background_thread(self._wait, request)

    def __enter__(self) -> None:
        """Until the block ends."""

    def __exit__(self, *_: object) -> None:
        self.over.set()

    def _wait(self, request: Any) -> None:
        if not self.over.wait(2 * SECONDS):
            _end(request)


def _end(request: Any) -> None:
    with contextlib.suppress(OSError):
        request.shutdown(2)


# ---- a file ------------------------------------------------------------------------------------------------------------
class Textfile:
    """Writes the numbers to a file, whole or not at all, every `EVERY` seconds. `failed`: why it could not, the last time."""

    def __init__(self, metrics: Metrics, path: str) -> None:
        self.metrics, self.path, self.failed = metrics, os.path.abspath(path), ""
        self._next = 0.0
        if not os.path.isdir(os.path.dirname(self.path)) or os.path.isdir(self.path):
            raise GdbextError(f"-textfile {path}: the file of a folder that is there")

    def look(self, look: Look) -> None:
        """Writes, if it is time."""
        if look.clock < self._next:
            return
        self._next = look.clock + EVERY
        draft = f"{self.path}.{os.getpid()}"  # a collector reads *.prom alone
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(draft)
            file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            with open(file, "w", encoding="utf-8") as f:
                f.write(self.metrics.text(plain=True))
            os.replace(draft, self.path)
            self.failed = ""
        except OSError as e:
            self.failed = f"-textfile {self.path}: {e.strerror}"
            log.note("no textfile: %s", self.failed)
            with contextlib.suppress(OSError):
                os.unlink(draft)
