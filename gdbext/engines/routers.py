"""Routers between clients and engine instances: their processes, their listening sockets, and the instances that they are
connected to.

Tables in Rust or Go are not read. A router has one open connection to an instance for each leg of a request in flight, and some
idle ones. A Python program that listens and is given the address of an instance is a router too; its objects are read
(python_routers.py). One that serves `/metrics` is asked for it (router_metrics.py)."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from typing import Any, Iterable, Mapping, Sequence

from .. import log
from ..access.proc import ProcTarget
from ..access.procfs import descriptors
from ..access.proctable import Process, ProcTable
from ..cpython.runtime import open_runtime
from ..errors import GdbextError
from . import python_routers, router_metrics
from .listeners import of_process, rows
from .rank import Rank

KINDS = (  # (router, pattern of the program's or module's name)
    ("vllm-router", r"vllm[-_]router(\.launch_router)?|vllm::router"),
    (
        "sglang-router",
        r"sglang[-_]router(\.launch_router)?|sglang::router|smg|sgl-model-gateway|sglang\.srt\.disaggregation\.mini_lb",
    ),
    ("dynamo", r"dynamo\.frontend|dynamo-run|dynamo\.router"),
    ("llm-d", r"epp|llm-d-inference-scheduler|llm-d-routing-sidecar"),
    ("lmcache", r"lmcache_server|lmcache\.server|lmcache\.v1\.multiprocess\.server|lmcache_controller"),
    ("ray-serve", r"ray::ProxyActor\S*"),
    ("production-stack", r"vllm_router\.app"),
)
METRICS = ("vllm-router", "sglang-router", "dynamo", "llm-d", "production-stack")  # those that serve HTTP with metrics
MOST = 64


def kind_of(process: Process) -> str:
    """Which router a process is, ''."""
    words = process.argv[:3] if not process.single else [process.title]
    program = process.program()
    names = [words[0].rpartition("/")[2]] if words else []
    if program is not None:
        names.append(program[1].rpartition("/")[2])
    return next((kind for kind, pattern in KINDS for name in names if name and re.fullmatch(pattern, name)), "")


def of_table(table: ProcTable, ranks: Sequence[Rank]) -> list[dict[str, Any]]:
    """`[{router, pid, user, ports, connections: {instance: how many}}]` of the routers on this machine. Sockets that may not be
    read are left out: `ports` is then None."""
    served = _served(ranks)
    found: list[dict[str, Any]] = []
    for process, kind in _among(table, ranks):
        row = {"router": kind or "python", "pid": process.pid, "user": process.user, **_sockets(process.pid, served)}
        if process.program() is not None and row["ports"]:
            row["knows"] = _objects(process.pid, served)
        if kind in METRICS and row["ports"]:
            row["said"] = router_metrics.ask(process.pid, row["ports"], served)
        if kind or row["ports"]:
            found.append(row)
    return found


def pids_of(table: ProcTable, ranks: Sequence[Rank]) -> list[int]:
    """The pids of the routers on this machine that are Pythons; no memory is read."""
    found = [(process, kind) for process, kind in _among(table, ranks) if process.is_python]
    return [process.pid for process, kind in found if kind or of_process(process.pid)]


def _served(ranks: Sequence[Rank]) -> dict[int, str]:
    """{port: the instance that serves there}"""
    return {port: r.instance.name for r in ranks if r.instance is not None for port in r.instance.ports.values()}


def _among(table: ProcTable, ranks: Sequence[Rank]) -> list[tuple[Process, str]]:
    """(a process that may be a router, its kind), '' of a Python that is given the address of an instance."""
    known, served = {rank.pid for rank in ranks}, _served(ranks)
    found: list[tuple[Process, str]] = []
    for process in table.processes.values():
        if process.pid in known or process.state in ("Z", "X") or len(found) >= MOST:
            continue
        kind, program = kind_of(process), process.program()
        if kind or served and program is not None and candidates(program[2], served):
            found.append((process, kind))
    return found


def candidates(words: Sequence[str], served: Mapping[int, str]) -> list[str]:
    """The instances whose port is a word of a program's arguments, or the end of a URL among them."""
    ports = (re.fullmatch(r"(?:.*?[=/@])?(?:[A-Za-z0-9._-]+:)?([0-9]{2,5})/?", word[:300]) for word in words)
    return sorted({served[int(port[1])] for port in ports if port and int(port[1]) in served})


def _objects(pid: int, served: Mapping[int, str]) -> list[dict[str, Any]]:
    """The instances that a Python router's objects name; [] where it cannot be read, or is no Python."""
    try:
        with contextlib.closing(ProcTarget(pid)) as target:
            return python_routers.known_to(open_runtime(target), served)
    except (GdbextError, OSError) as e:
        log.passed_over(e)
        return []


def _sockets(pid: int, served: dict[int, str]) -> dict[str, Any]:
    listens = of_process(pid)
    inodes = _own(pid)
    far: Counter[str] = Counter()
    for row in rows(pid) if inodes is not None else ():
        if not row.listens and inodes is not None and row.inode in inodes and row.far_port in served and row.is_local:
            far[served[row.far_port]] += 1
    ports = sorted({row.port for row in listens}) if inodes is not None else None
    return {"ports": ports, "connections": dict(far)}


def _own(pid: int) -> set[str] | None:
    """The inodes of a process's sockets; None where they may not be read."""
    try:
        return {link[8:-1] for _, link in descriptors(pid) if link.startswith("socket:")}
    except (GdbextError, OSError) as e:
        log.passed_over(e)
        return None


def lines(found: Iterable[dict[str, Any]]) -> list[str]:
    """For people."""
    said = []
    for one in found:
        words = [f"port{'s' * (len(one['ports']) != 1)} {', '.join(map(str, one['ports']))}"] if one["ports"] else []
        words += [f"{n} connection{'s' * (n != 1)} to {name}" for name, n in one["connections"].items()]
        words += [f"knows {k['instance'] or k['address']} ({k['where']})" for k in one.get("knows", ())[:8]]
        words += [router_metrics.line(one["said"])] if one.get("said") else []
        said.append(f"router {one['router']} (pid {one['pid']})" + (f": {', '.join(words)}" if words else ""))
    return said
