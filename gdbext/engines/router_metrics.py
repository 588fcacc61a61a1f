"""What a router says of itself at `/metrics` (Prometheus' text format): its counts of requests, and for
each instance the ones that carry its address.

Only a socket on which the router listens on this machine is asked. Names and addresses are kept only in the form that the format
gives them; the number of both is bounded."""

from __future__ import annotations

import math
import re
from typing import Any, Mapping

from . import endpoints, listeners

ASKED, MOST, MOST_WORKERS = 4, 24, 64  # ports; names, in all and of each instance; instances
LINE = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]{0,99})(?:\{(.{0,2000})\})? ([0-9.eE+-]{1,40})(?: [0-9]+)?")
TOLD = re.compile(r"request|worker|health|queue|flight|load|retr|circuit|error", re.I)
LEFT_OUT = re.compile(r"_(bucket|created|sum)$|seconds|bytes|^(process|python|go|tokio)_")
WORKER = re.compile(
    r'(?:^|,)(?:worker\w*|url|endpoint|backend|server|instance|pod)="(?:\w+://)?([A-Za-z0-9._-]{1,100}:(\d{2,5}))/?"'
)


def ask(pid: int, ports: list[int], served: Mapping[int, str]) -> dict[str, Any] | None:
    """`{port, metrics: {name: value}, workers: {instance or HOST:PORT: {name: value}}}` of the first of a router's ports that
    answers; `{failed: reason}` where none does; None where it listens nowhere here. `served`: {port: name of the instance}."""
    listen = {row.port: row for row in listeners.of_process(pid) if row.is_local and row.port in ports}
    reason = ""
    for port in sorted(listen, reverse=True)[:ASKED]:  # those for metrics are the high ones
        status, text = endpoints.get(listen[port], "/metrics")
        if status == 200:
            return {"port": port, **parsed(text, served)}
        reason = reason or f"port {port}: {f'HTTP status {status}' if isinstance(status, int) else status}"
    return {"failed": reason} if reason else None


def parsed(text: str, served: Mapping[int, str]) -> dict[str, Any]:
    """The `metrics` and `workers` of a text; samples of one name are added up."""
    whole: dict[str, float] = {}
    workers: dict[str, dict[str, float]] = {}
    for row in text.split("\n"):
        found = LINE.fullmatch(row.rstrip("\r"))
        if found is None or not TOLD.search(found[1]) or LEFT_OUT.search(found[1]):
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        _add(whole, found[1], value)
        worker = WORKER.search(found[2] or "")
        if worker is not None:
            name = served.get(int(worker[2]), worker[1])
            if name in workers or len(workers) < MOST_WORKERS:
                _add(workers.setdefault(name, {}), found[1], value)
    return {"metrics": whole, "workers": workers}


def _add(into: dict[str, float], name: str, value: float) -> None:
    if (name in into or len(into) < MOST) and math.isfinite(into.get(name, 0.0) + value):
        into[name] = into.get(name, 0.0) + value


def line(said: Mapping[str, Any]) -> str:
    """For people."""
    if "failed" in said:
        return f"/metrics: {said['failed']}"
    words = [_words("", said["metrics"])] if said["metrics"] else []
    words += [_words(f"{name}: ", each) for name, each in list(said["workers"].items())[:8]]
    return f"/metrics at port {said['port']}: " + ("; ".join(words) or "nothing on requests")


def _words(of: str, each: Mapping[str, float]) -> str:
    return of + ", ".join(f"{name} {value:g}" for name, value in list(each.items())[:6])
