"""Processes of other machines: a snapshot of each comes here and is read as any other; a verdict is made of what each machine
saw. The user's own programs carry the questions there (session/transports.py)."""

from __future__ import annotations

import base64
import re
import zlib
from typing import Any, Iterable, Sequence

from ..access import elf
from ..access.room import nameless_file, need
from ..access.snapshot import CoreFileTarget
from ..engines.processes import ProcessRef
from ..errors import GdbextError
from ..session import nodes
from .verdicts import Verdict

MOST = 1 << 31  # bytes of one snapshot, unpacked
_HOST_FIRST = re.compile(r"(ssh:[^:@\[]+):(.+)")  # ssh:HOST:TP0, as well as TP0@ssh:HOST


def parted(words: Iterable[str]) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """-> (the words that name processes here, [(node, what is named on it, [] for all)])"""
    spelled = [_HOST_FIRST.sub(r"\2@\1", word) for word in words]
    there = [word for word in spelled if nodes.plan([word])]
    return [word for word in spelled if word not in there], nodes.plan(there) if there else []


def fetched(
    planned: Sequence[tuple[str, list[str]]], max_bytes: int | None, failed: list[dict[str, Any]]
) -> list[tuple[ProcessRef, CoreFileTarget, dict[str, Any]]]:
    """[(process, its snapshot, the answer that brought it)]. What did not come is added to `failed`."""
    bound = ["-max-bytes", str(max_bytes)] if max_bytes is not None else []
    lines = [
        (node, ["llm-snapshot", "--json", "-carry", *bound, *(what or ["all"])]) for node, what in nodes.single(planned, failed)
    ]
    found = []
    for node, answer in nodes.answers_of(lines, True, failed):
        failed += answer.get("failed", ())
        for shot in answer.get("snapshots", ()):
            try:
                target = _unpacked(str(shot["image"]), str(shot["label"]))
            except (KeyError, ValueError, zlib.error) as e:
                raise GdbextError(f"{node}: what it sent is no snapshot: {e}") from None
            found.append((ProcessRef(int(shot["pid"]), target.label, node=node), target, answer))
    return found


def _unpacked(image: str, label: str) -> CoreFileTarget:
    work = zlib.decompressobj()
    data = work.decompress(base64.b64decode(image), MOST)
    if work.unconsumed_tail:
        raise GdbextError(f"a snapshot of more than {MOST >> 30} GiB")
    need(len(data), "a snapshot of another machine")
    with nameless_file() as file:
        file.write(data)
        file.flush()
        path = f"/proc/self/fd/{file.fileno()}"
        target = CoreFileTarget(path, label)
        elf.drop_cached(path)
    return target


def judged(found: Sequence[ProcessRef], seconds: float) -> Verdict:
    """One verdict on processes of other machines, which are all watched at the same time."""
    by_node: dict[str, list[str]] = {}
    for one in found:
        by_node.setdefault(one.node, []).append(str(one.pid))
    if "" in by_node:
        raise GdbextError("processes of this machine and of others: name this one as another (ssh:HOST), or ask llm-hang")
    failed: list[dict[str, Any]] = []
    lines = [(node, ["llm-hang", "--json", nodes.FACTS, "-wait", str(seconds), *pids]) for node, pids in by_node.items()]
    return Verdict.of_machines(nodes.answers_of(lines, True, failed, nodes.LIMIT + 10 * seconds, len(lines)), failed)
