"""Where the memory of processes was when a bundle or box of them was made, for llm-memory: written then, read later."""

from __future__ import annotations

import json
from typing import Any, Sequence

from .. import log
from ..access.proc import ProcTarget
from ..answers import each_node
from ..answers.rank_memory import RANK, memory_of
from ..bundle import format as bundles
from ..bundle import paths
from ..errors import GdbextError
from ..render.jsonline import expect
from ..render.text import escape

WHOLE = {"ranks": [{**RANK.shape, "partial?": [str]}]}


def written(processes: Sequence[tuple[int, str]]) -> bytes:
    """The member of a bundle, of (pid, label) of processes that run. One that cannot be read is left out."""
    rows = []
    for pid, label in processes:
        with log.passing_over(GdbextError, OSError):
            row, why, _ = memory_of(ProcTarget(pid, label), label)
            rows.append({**row, "partial": why})
    return json.dumps({"ranks": rows}).encode()


def read(path: str, label: str) -> tuple[dict[str, Any], list[str], dict[str, Any]] | None:
    """As `memory_of`, of a process in a bundle or box; None for any other path and where it was not taken down. `GdbextError`
    where that is damaged."""
    file, word = paths.split(path)
    if not word or not paths.is_bundle(file):
        return None
    bundle = bundles.open_bundle(file)
    if bundles.MEMORY not in bundle.names:
        return None
    if bundles.MEMORY not in bundle.kept:
        told = bundle.json(bundles.MEMORY)
        try:
            expect(told, WHOLE, bundles.MEMORY)
        except ValueError as e:
            raise GdbextError(f"{file}: damaged: {e}") from None
        bundle.kept[bundles.MEMORY] = {one.get("pid"): one for one in reversed(told["ranks"])}
    pid = next((one.pid for one in bundle.named(word) if one.pid in bundle.kept[bundles.MEMORY]), None)
    row = bundle.kept[bundles.MEMORY].get(pid)
    if row is None:
        return None
    why = [escape(one) for one in row.get("partial", ())]
    row = each_node.escaped({key: value for key, value in row.items() if key != "partial"})
    return {**row, "label": escape(label)}, why, {"segments": [], "why": "a bundle has no blocks of a GPU"}
