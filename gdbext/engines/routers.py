"""Routers between clients and engine instances: their processes, their listening sockets, and the instances that they are
connected to.

Their tables are in Rust or Go and are not read. A router has one open connection to an instance for each leg of a request in
flight, and some idle ones."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from .. import log
from ..access.procfs import descriptors
from ..errors import GdbextError
from .listeners import of_process, rows

if TYPE_CHECKING:
    from typing import Iterable, Sequence

    from ..access.proctable import Process, ProcTable
    from .rank import Rank

KINDS = (  # (router, pattern of the program's or module's name)
    ("vllm-router", r"vllm[-_]router(\.launch_router)?"),
    ("sglang-router", r"sglang[-_]router(\.launch_router)?|smg|sgl-model-gateway|sglang\.srt\.disaggregation\.mini_lb"),
    ("dynamo", r"dynamo\.frontend|dynamo-run|dynamo\.router"),
    ("llm-d", r"epp|llm-d-inference-scheduler|llm-d-routing-sidecar"),
    ("lmcache", r"lmcache_server|lmcache\.server|lmcache\.v1\.multiprocess\.server|lmcache_controller"),
    ("ray-serve", r"ray::ProxyActor\S*"),
    ("production-stack", r"vllm_router\.app"),
)
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
    known = {rank.pid for rank in ranks}
    served = {port: r.instance.name for r in ranks if r.instance is not None for port in r.instance.ports.values()}
    found: list[dict[str, Any]] = []
    for process in table.processes.values():
        kind = kind_of(process) if process.pid not in known and process.state not in ("Z", "X") else ""
        if kind and len(found) < MOST:
            found.append({"router": kind, "pid": process.pid, "user": process.user, **_sockets(process.pid, served)})
    return found


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
        said.append(f"router {one['router']} (pid {one['pid']})" + (f": {', '.join(words)}" if words else ""))
    return said
