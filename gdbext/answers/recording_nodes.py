"""llm-record over several machines: their recordings as parts of one, and its places by machine."""

from __future__ import annotations

import math
from typing import Any, Mapping, Sequence

from ..errors import GdbextError
from ..render.text import escape
from ..timeline import store
from ..timeline.merged import Part


def part_of(name: str, answer: Any, failed: list[dict[str, Any]]) -> Part:
    """The recording of the machine `name` from its answer; `GdbextError` where it sent none, or a damaged one. `failed` gets the
    processes that failed there."""
    if "error" in answer:
        raise GdbextError(str(answer["error"]))
    if not isinstance(answer.get("recording"), str):
        raise GdbextError("it sent no recording: another release of gdbext")
    node, moments = name.partition(":")[2] or name, answer.get("moments") or {}
    began = answer.get("began")
    if isinstance(began, bool) or not isinstance(began, (int, float)) or not math.isfinite(began) or not 0 <= began < 1e6:
        raise GdbextError("its recording is damaged: when it began is not told")
    found = Part(node, store.of_text(answer["recording"]), moments.get("told") or 0.0, float(began), moments.get("way"))
    for one in answer.get("failed") or ():
        if isinstance(one, dict):
            label, pid = str(one.get("label")), one.get("pid")
            failed.append(
                {"label": f"{node}:{label}", "pid": pid if isinstance(pid, int) else None, "reason": str(one.get("reason"))}
            )
    return found


def nodes_data(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """The machines, with the second on the common time base at which each began, and by how much that may be wrong."""
    return [
        {
            "node": escape(part.node),
            "processes": len(part.recording.processes),
            "offset": round(part.offset, 6),
            "exact": round(part.way / 2, 6) if part.way is not None else None,
        }
        for part in parts
    ]


def lines(nodes: Sequence[dict[str, Any]]) -> list[str]:
    """For people."""
    said = [
        f"{one['node']} from {one['offset']:.3f} s on"
        + (f" (±{1000 * one['exact']:.0f} ms)" if one["exact"] is not None else " (how exact is not known)")
        for one in nodes
    ]
    return [f"one time base, from when all were told to begin: {', '.join(said)}"]


def there(data: Any, places: Mapping[int, tuple[str, int]]) -> Any:
    """JSON whose pids and tids are those of their machines, each place with its machine."""
    if isinstance(data, list):
        return [there(one, places) for one in data]
    if not isinstance(data, dict):
        return data
    made = {key: there(one, places) for key, one in data.items()}
    if data.get("pid") in places:
        node, more = places[data["pid"]]
        made["pid"], made["node"] = data["pid"] - more, escape(node)
        if isinstance(data.get("tid"), int):
            made["tid"] = data["tid"] - more
    return made
