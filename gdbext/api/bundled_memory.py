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
from ..render.fields import Field, Fields
from ..render.jsonline import expect
from ..render.text import escape

SHAPE = Fields(Field("ranks", [RANK]))


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
    told, pids = bundle.json(bundles.MEMORY), {one.pid for one in bundle.named(word)}
    try:
        expect(told, SHAPE.answer_shape, bundles.MEMORY)
    except ValueError as e:
        raise GdbextError(f"{file}: damaged: {e}") from None
    row = next((one for one in told["ranks"] if one.get("pid") in pids), None)
    if row is None:
        return None
    why = [escape(str(one)) for one in row.pop("partial", ())]
    return {**each_node.escaped(row), "label": escape(label)}, why, {"segments": [], "why": "a bundle has no blocks of a GPU"}
