"""Starts and stops the engine's own profiler through its HTTP server.

The server is found from the ranks, by the listening sockets of their front ends. Only a server that has proved to speak HTTP is
asked. Endpoints: vLLM entrypoints/serve/profile/api_router.py, SGLang srt/entrypoints/http_server.py: POST /start_profile, POST
/stop_profile. Both act on all ranks of the engine at once.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import time
from typing import Any, Sequence

from .. import log
from ..access.base import Target
from ..access.proc import ProcTarget
from ..errors import GdbextError, NotFoundError
from . import listeners
from .endpoints import answered_within
from .group import FRONT_ENDS
from .rank import Rank
from .registry import ENGINES, SPECS
from .spec import Profiler

PROBE, TIMEOUT = 10.0, 600.0  # seconds: for any answer at all; for writing the traces
SAMPLED = "Without it: llm-stacks -samples 200 -folded FILE"


def folder_of(profiler: Profiler, target: Target) -> str:
    """The folder of an engine's traces, as its process names it; '' when it is not known."""
    argv = "\0".join(target.argv()) if profiler.option else ""  # an option of its own, or a key of JSON
    found = re.search(rf"{profiler.option}[\"']?[\0:= ]+(\"[^\"]*|'[^']*|[^\0,}}\"']+)", argv) if profiler.option else None
    folder = found.group(1).strip("\"'") if found else target.environ().get(profiler.variable, profiler.default)
    return folder if not folder or folder.startswith("/") else os.path.join(os.readlink(f"/proc/{target.pid}/cwd"), folder)


class ProfilerResult:
    """One engine's answer: the `ranks` that it profiles, `port`, `folder` ('' where it is not given), `files` written at
    a stop."""

    def __init__(self, ranks: list[Rank], port: int, folder: str, files: list[str]) -> None:
        self.ranks, self.port, self.folder, self.files = ranks, port, folder, files


# ---- listening processes ---------------------------------------------------------------------------------------------
def _elsewhere(pid: int) -> bool:
    """Whether a process is in another network namespace than we: its ports would be another process's here."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
    except OSError:
        return False


def ask(row: listeners.Row, method: str, path: str, timeout: float, body: dict[str, Any] | None = None) -> int | None:
    """A POST sends `body` as JSON. -> the HTTP status, None where the port does not speak HTTP; `GdbextError` when no answer came
    in time."""
    try:
        text = json.dumps(body or {}).encode() if method == "POST" else None
        with answered_within(row, timeout) as connection:
            connection.request(method, path, text, {"Content-Type": "application/json"})
            return connection.getresponse().status
    except listeners.LATE:
        raise GdbextError(
            f"port {row.port} gave no answer to {path} in {timeout:g} s: the server is busy or hangs (llm-hang tells which)"
        ) from None
    except (OSError, ValueError, http.client.HTTPException):
        return None


def speaks_http(row: listeners.Row) -> bool:
    """Whether a port answers HTTP."""
    try:
        return ask(row, "GET", "/health", PROBE) is not None
    except GdbextError as e:
        log.passed_over(e)
        return False


# ---- start, stop -----------------------------------------------------------------------------------------------------
def switch(
    ranks: Sequence[Rank], everyone: Sequence[Rank], verb: str, options: dict[str, Any] | None = None
) -> tuple[list[ProfilerResult], list[str]]:
    """Starts or stops the profiler of each engine that `ranks` belong to. -> (`[ProfilerResult]`, why others failed)

    `everyone`: all ranks of this machine. `options`: {option of llm-profile: value}, refused by name where the engine's endpoint
    does not take it. `GdbextError` where all failed; it names the setting that turns the profiler on."""
    known = [r for r in ranks if SPECS[r.engine].profiler is not None]
    if not known:
        raise GdbextError(
            f"none of these ranks is of an engine whose profiler is known ({', '.join(s.name for s in ENGINES if s.profiler)}); "
            "sampled stacks need none: llm-stacks -samples 200 -folded FILE"
        )
    done, failed = [], []
    for family in dict.fromkeys(r.family for r in known):
        try:
            done.append(_switch([r for r in everyone if r.family == family], verb, options or {}))
        except GdbextError as e:
            failed.append(str(e))
    if not done:
        raise GdbextError("; ".join(failed))
    return done, failed


def _switch(family: list[Rank], verb: str, options: dict[str, Any]) -> ProfilerResult:
    profiler = SPECS[family[0].engine].profiler
    if profiler is None:
        raise GdbextError(f"{family[0].engine}: it has no profiler that is known. {SAMPLED}")
    strange = [f"-{name}" for name in options if name not in profiler.fields]
    if strange:
        takes = ", ".join(f"-{name}" for name in profiler.fields) or "none"
        raise GdbextError(
            f"{family[0].engine}: its end point does not take {', '.join(strange)} (of llm-profile's options: {takes})"
        )
    body = {profiler.fields[name]: value for name, value in options.items()}
    servers = [r for r in family if r.role in FRONT_ENDS]
    why = "no HTTP server of it was found (it runs without one, or on another machine)"
    for rank in servers:
        if _elsewhere(rank.pid):
            why = f"its server {rank.pid} is in another network than this shell: run this in its container"
            continue
        for row in listeners.of_process(rank.pid):
            if not speaks_http(row):
                continue
            port, began = row.port, time.time()
            status = ask(row, "POST", f"/{verb}_profile", TIMEOUT, body)
            if status is not None and 200 <= status < 300:
                folder = options.get("o") or _folder(profiler, rank)
                files = written(rank.pid, folder, began) if verb == "stop" and folder else []
                return ProfilerResult([r for r in family if r.runs_model] or family, port, folder, files)
            why = (
                f"port {port} answers without it ({status})"
                if status in (404, 405)
                else f"port {port} answered {status}: see the engine's log"
                + " (one that was started with -steps has ended by itself)" * (verb == "stop")
            )
    raise GdbextError(f"{family[0].engine}: {why}. {profiler.hint}. {SAMPLED}")


def _folder(profiler: Profiler, rank: Rank) -> str:
    try:
        return folder_of(profiler, ProcTarget(rank.pid))
    except (NotFoundError, OSError) as e:
        log.passed_over(e)
        return ""


def written(pid: int, folder: str, since: float) -> list[str]:
    """Files in a folder, as process `pid` names it, that were written after a time."""
    here, found = f"/proc/{pid}/root{folder}", []
    try:
        for name in sorted(os.listdir(here)):
            at = os.stat(os.path.join(here, name))
            if at.st_mtime >= since - 1 and "trace" in name:
                found.append(os.path.join(folder, name))
    except OSError:
        pass
    return found
