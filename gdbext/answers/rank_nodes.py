"""llm-ranks over several machines: one list, and the ranks that none of them has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..render.text import escape, size, table
from . import each_node

if TYPE_CHECKING:
    from typing import Sequence

    from ..render.text import Style

_NUMBER, _TEXT = (int, None), (str, None)
SPREAD = {"group": str, "size": int, "here": [int], "nodes": _NUMBER, "node": _NUMBER, "head": str}
INSTANCE = {"name": str, "number?": int, "role": str, "engine_id": str, "ports": dict, "serves": str, "dp_rank": _NUMBER}
INSTANCE["spread?"] = (SPREAD, None)
RANK = {"engine": str, "role": str, "label": str, "pid": int, "state": str, "ranks": dict, "sizes": dict, "marks": [str]}
ANSWER = {  # the fields read from an answer of `llm-ranks -json`
    "ranks": [{**RANK, "instance": (INSTANCE, None), "rss?": _NUMBER, "gpus?": [int], "notes?": [str]}],
    "processes": int,
    "routers": [{"router": str, "pid": int, "ports": ([int], None), "connections": dict}],
    "partial?": [str],
}
MOST = 1 << 16


def merged(answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """-> (the JSON of llm-ranks of several machines, `node` in each place; why that is not all). An answer that is damaged is
    named in `failed`; `GdbextError` where none is left."""
    data: dict[str, Any] = {"ranks": [], "processes": 0, "routers": []}
    partial, nodes = [], []
    for name, node, answer in each_node.sound(answers, ANSWER, failed):
        data["ranks"] += [{**one, "node": node, "index": len(data["ranks"]) + i} for i, one in enumerate(answer["ranks"])]
        data["routers"] += [{**one, "node": node} for one in answer["routers"]]
        data["processes"] += answer["processes"]
        partial += [f"{name}: {escape(reason)}" for reason in answer.get("partial", ())]
        nodes.append({"node": escape(name), "processes": len(answer["ranks"])})
    partial += [f"{one['label']}: {escape(one['reason'])}" for one in failed]
    return {**data, "nodes": nodes, "failed": failed, "missing": missing(data["ranks"])}, partial


def missing(ranks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """`[{engine, group, size, ranks}]`: the numbers of a group of ranks that no process here has. All processes must report the
    same size of the group. Instances of one engine, role and model count as parts of one only if no rank number occurs twice."""
    found: dict[tuple[str, str, str, str], list[tuple[int, int]]] = {}
    for one in ranks:
        number, count = one["ranks"].get("world"), one["sizes"].get("world")
        if "zombie" in one["marks"] or not isinstance(number, int) or not isinstance(count, int) or not 1 < count <= MOST:
            continue
        instance = one["instance"] or {}
        key = (one["engine"], str(instance.get("role", "")), str(instance.get("serves", "")), "world")
        found.setdefault(key, []).append((number, count))
    told = launched(ranks)
    known = {(one["engine"], one["group"]) for one in told}
    for (engine, _, _, group), numbers in found.items():
        there, sizes = [n for n, _ in numbers], {count for _, count in numbers}
        if len(sizes) != 1 or len(set(there)) != len(there) or (engine, group) in known:
            continue  # several groups: whose the missing ones are is not known
        absent = sorted(set(range(next(iter(sizes)))) - set(there))
        if absent:
            told.append({"engine": engine, "group": group, "size": next(iter(sizes)), "ranks": absent})
    return told


def launched(ranks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """As `missing`, by the command lines of engines that are to run on several machines, with `nodes` (how many), `head` (the
    first one's address) and `expected`: the ranks are to be on a machine that was asked, and are not there."""
    engines: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    instances = {
        (one.get("node", ""), one["instance"].get("number")): (one["engine"], one["instance"])
        for one in ranks
        if one["instance"] and one["instance"].get("spread")
    }
    told = []
    for (node, number), (engine, instance) in instances.items():
        spread = instance["spread"]
        key = (engine, instance["role"], instance["serves"], *(spread[k] for k in ("group", "size", "nodes", "head")))
        engines.setdefault(key, []).append(spread)
        own = [one for one in ranks if (one.get("node", ""), (one["instance"] or {}).get("number")) == (node, number)]
        gone = _not_started(own, spread)
        if gone:
            told.append({**_of(key, gone), "expected": True, **({"node": node} if node else {})})
    for key, spreads in engines.items():
        there = [rank for spread in spreads for rank in spread["here"]]
        absent = sorted(set(range(min(spreads[0]["size"], MOST))) - set(there))
        if absent and len(set(there)) == len(there):
            told.append(_of(key, absent))
    return told


def _of(key: tuple[Any, ...], ranks: Sequence[int]) -> dict[str, Any]:
    engine, _, _, group, size, nodes, head = key
    return {
        "engine": engine,
        "group": group,
        "size": size,
        "ranks": list(ranks),
        "nodes": nodes,
        "head": escape(head),
        "expected": False,
    }


def _not_started(own: Sequence[dict[str, Any]], spread: dict[str, Any]) -> list[int]:
    """Ranks that are to be on a machine and are not, where each rank of the engine there has a number."""
    role = ("engine-core",) if spread["group"] == "dp" else ("worker", "scheduler")
    living = [one for one in own if one["role"] in role and "zombie" not in one["marks"] and "fork" not in one["marks"]]
    numbers = [one["ranks"].get(spread["group"]) for one in living]
    return [] if None in numbers or len(spread["here"]) > MOST else [rank for rank in spread["here"] if rank not in numbers]


def missing_line(one: dict[str, Any]) -> str:
    """For people: the ranks of one engine that are not there."""
    shown = ", ".join(map(str, one["ranks"][:16])) + (", …" if len(one["ranks"]) > 16 else "")
    word = ("data-parallel " if one["group"] == "dp" else "") + ("rank" if len(one["ranks"]) == 1 else "ranks")
    where = f"on no machine that was asked{_of_nodes(one)}"
    if one.get("expected"):
        where = f"expected {'on ' + one['node'] if one.get('node') else 'here'}, not running"
    return f"{escape(one['engine'])}: {word} {shown} of {one['size']}: {where}"


def _of_nodes(one: dict[str, Any]) -> str:
    known = [f"{one['nodes']} machines"] if one.get("nodes") else []
    known += [f"the first at {one['head']}"] if one.get("head") else []
    return f" ({', '.join(known)})" if known else ""


def lines(data: dict[str, Any], style: Style) -> list[str]:
    """For people."""
    rows = [
        [
            one["node"],
            style.name(escape(one["label"])),
            escape(one["engine"]),
            escape(one["role"]),
            str(one["pid"]),
            ",".join(map(str, one.get("gpus") or [])),
            style.bad(escape(one["state"])) if one["marks"] else escape(one["state"]),
            size(one["rss"]) if one.get("rss") else "",
            escape((one["instance"] or {}).get("role", "")),
        ]
        for one in data["ranks"]
    ]
    head = ["node", "label", "engine", "role", "pid", "GPUs", "state", "RSS", "instance"]
    said = [table(rows, head, style, ("pid", "RSS"), ("engine", "RSS", "role"))] if rows else ["no engine processes found"]
    for one in data["routers"]:
        far = "".join(f", {n} connections to {escape(name)}" for name, n in one["connections"].items())
        said.append(f"router {escape(one['router'])} (pid {one['pid']} on {one['node']}){far}")
    for one in data["missing"]:
        said.append(missing_line(one))
    said += [style.bad(f"{escape(one['label'])}: not read: {escape(one['reason'])}") for one in data["failed"]]
    return [*said, f"{data['processes']} processes read on {len(data['nodes'])} machines"]
