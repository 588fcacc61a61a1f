"""The communicators of a job whose processes may not be read, as NCCL's RAS reports them. Only this machine is asked, and only
the address of a listening socket of the engine's user in this network namespace (listeners.py).

The protocol, lines of text: src/ras/client.cc and client_support.cc of NCCL 2.24 to 2.30. JSON (`SET FORMAT json`) came with
2.28. Before that the answer is text for people, of which `Errors` and `Warnings` are taken.
"""

from __future__ import annotations

import time
from typing import Any, Iterable

from ..access.files import DAMAGE, json_of
from ..errors import GdbextError
from . import listeners

PORT = 28028  # NCCL_RAS_CLIENT_PORT
GATHER = 2  # seconds that NCCL may wait for the other processes of the job
SECONDS = 5.0  # for the whole answer
MOST = 4 << 20  # bytes
SHOWN = 8  # ranks, and lines


def ask(pid: int, proc: str = "/proc", port: int = PORT) -> dict[str, Any] | None:
    """`{port, nccl, communicators, said: [text], error}` of the job that `pid` belongs to; None where no process of its user
    listens here. `error`: what went wrong, else None."""
    row = next((row for row in listeners.of_user(pid, proc) if row.port == port and row.is_local), None)
    if row is None:
        return None
    found: dict[str, Any] = {"port": port, "nccl": None, "communicators": None, "said": [], "error": None}
    try:
        text, is_json = _asked(row)
        found.update(_of_json(text) if is_json else _of_text(text.decode("utf-8", "replace")))
    except (OSError, *DAMAGE, GdbextError) as e:
        found["error"] = "no answer in %g s" % SECONDS if isinstance(e, listeners.LATE) else _word(str(e)) or type(e).__name__
    return found


def _asked(row: listeners.Row) -> tuple[bytes, bool]:
    """-> (the status that the server gives, whether it is JSON)"""
    end = time.monotonic() + SECONDS
    with listeners.connected(row, SECONDS) as server:
        kept = b""

        def more() -> bytes:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError
            server.settimeout(left)
            return server.recv(1 << 16)

        def answer(line: bytes) -> str:
            nonlocal kept
            server.sendall(line)
            while b"\n" not in kept and len(kept) < 4096:
                part = more()
                if not part:
                    raise GdbextError("it closed the connection")
                kept += part
            said, _, kept = kept.partition(b"\n")
            return said.decode("utf-8", "replace")

        said = answer(b"CLIENT PROTOCOL 2\n")
        if not said.upper().startswith("SERVER PROTOCOL "):
            raise GdbextError(f"no RAS of NCCL: it said {said[:60]!r}")
        answer(b"TIMEOUT %d\n" % GATHER)
        is_json = answer(b"SET FORMAT json\n") == "OK"
        server.sendall(b"STATUS\n")
        while len(kept) < MOST:
            part = more()
            if not part:
                return kept, is_json
            kept += part
    raise GdbextError(f"its answer is longer than {MOST} bytes")


def _word(text: Any) -> str:
    """A piece of the answer, no longer than a line has room for."""
    return str(text)[:200]


def _of_json(text: bytes) -> dict[str, Any]:
    status = json_of(text, "its answer")
    said: list[str] = []
    for one in status["communicators"]:
        said += _of_communicator(one)
    return {"nccl": _word(status["nccl_version"]), "communicators": len(status["communicators"]), "said": said}


def _of_communicator(one: dict[str, Any]) -> list[str]:
    """The faults of a communicator: ranks that do not answer, that report an error, and that lag behind in a collective."""
    title = f"communicator {_word(one['hash'])} of {int(one['size'])} ranks"
    said = []
    for rank in one["missing_ranks"]:
        state = "is considered dead" if rank["status"]["considered_dead"] else "does not answer"
        said.append(f"{title}: rank {int(rank['rank'])} (pid {int(rank['pid'])} on {_word(rank['host'])}) {state}")
    for rank in one["ranks"]:
        status = rank["status"]
        if status["init_state"] or status["async_error"]:
            what = f"error {int(status['async_error'] or status['init_state'])} (ncclResult_t)"
            said.append(f"{title}: rank {int(rank['rank'])} (pid {int(rank['pid'])} on {_word(rank['host'])}) reports {what}")
    for operation in sorted({name for rank in one["ranks"] for name in rank["collective_counts"]}):
        counts = [(int(rank["collective_counts"].get(operation, 0)), rank) for rank in one["ranks"]]
        most = max(count for count, _ in counts)
        late = [(count, rank) for count, rank in counts if count < most]
        if late:
            named = _named(f"rank {int(r['rank'])} (pid {int(r['pid'])} on {_word(r['host'])}) {count}" for count, r in late)
            said.append(
                f"{title}: {_word(operation)} was launched {most} times by {len(counts) - len(late)} of its ranks, by {named}"
            )
    return said


def _named(words: Iterable[str]) -> str:
    words = list(words)
    return ", ".join(words[:SHOWN]) + (f" and {len(words) - SHOWN} more" if len(words) > SHOWN else "")


def _of_text(text: str) -> dict[str, Any]:
    said: list[str] = []
    found: dict[str, Any] = {"nccl": None, "communicators": None, "said": said}
    taken = False
    for line in text.splitlines():
        if line.startswith("NCCL version "):
            found["nccl"] = _word(line.split()[2])
        elif line.strip() in ("Errors", "Warnings"):
            taken = True
        elif taken and line.strip() and not line.startswith("==="):
            said.append(_word(line.strip()))
    return found


def lines(found: dict[str, Any]) -> list[str]:
    """`ask`'s answer in words, not escaped."""
    title = f"  NCCL's RAS on port {found['port']}"
    if found["error"]:
        return [f"{title}: {found['error']}"]
    said = found["said"] or ["no rank stands out in any communicator"]
    more = [f"    and {len(said) - SHOWN} more"] if len(said) > SHOWN else []
    return [f"{title} (NCCL {found['nccl']}):", *("    " + line for line in said[:SHOWN]), *more]
