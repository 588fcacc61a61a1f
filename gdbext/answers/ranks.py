"""llm-ranks, on one machine and over several: its fields, and the ranks that none of the machines has."""

from __future__ import annotations

import os
from typing import Any, Iterable, Sequence

from ..engines.rank import STATES, Rank
from ..render.fields import JOIN, NUMBER, REAL, SUM, TEXT, Field, Fields
from ..render.text import Style, escape, seconds, shorten, size
from . import each_node

MOST = 1 << 16


def _spans(numbers: Iterable[int]) -> str:
    """[0, 1, 2, 5] -> "0-2,5"."""
    parts: list[list[int]] = []
    for n in numbers:
        if parts and parts[-1][1] == n - 1:
            parts[-1][1] = n
        else:
            parts.append([n, n])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in parts)


def _pid(row: Any, style: Style) -> str:
    """`1234`, or `1234 (ns 7)` for a process in a container."""
    return str(row["pid"]) if row.get("ns_pid") in (None, row["pid"]) else f"{row['pid']} (ns {row['ns_pid']})"


def _state(row: Any, style: Style) -> str:
    words = [escape(row.get("state_text") or row["state"])]
    words += [escape(mark) for mark in row["marks"] if mark not in ("stopped", "zombie")]  # those two are the state itself
    return style.bad(" ".join(words)) if row["marks"] else " ".join(words)


def _user(row: Any, style: Style) -> str:
    """Whose it is, where it is not the user's own: of another machine the numbers of users say nothing."""
    return escape(row["user"] or "") if "node" not in row and row.get("uid") not in (None, os.geteuid()) else ""


def _own(name: str) -> Any:
    """A number that only this machine's commands understand."""
    return lambda row, style: "" if "node" in row or row.get(name) is None else str(row[name])


def _process(name: str) -> Any:
    return lambda rank: getattr(rank.process, name)


def _label(row: Any, style: Style) -> str:
    return style.name(escape(row["label"]))


def _instance(rank: Rank) -> dict[str, Any] | None:
    return rank.instance.data() if rank.instance is not None else None


def _part(row: Any, style: Style) -> str:
    """Its instance's role; of this machine alone a line below the table says it."""
    return escape(row["instance"]["role"]) if "node" in row and row["instance"] else ""


SAID = "what `/metrics` of one that serves it says of requests, in all and by instance (or HOST:PORT); `failed`: why not"
SPREAD = Fields(
    Field("group", str, must=True),
    Field("size", int, "ranks in all", must=True),
    Field("here", [int], "those that this machine is to have", must=True),
    Field("nodes", NUMBER, "how many machines", must=True),
    Field("node", NUMBER, "which of them this one is", must=True),
    Field("head", str, "the first machine's address", must=True),
)
INSTANCE = Fields(
    Field("number", int),
    Field("engine", str),
    Field("role", str, '`"prefill"`, `"decode"`, `"encode"`, `"both"` or `""`', must=True),
    Field("engine_id", str, "its id for other instances", must=True),
    Field("ports", dict, "what each is for: the port", must=True),
    Field("serves", str, "the model's name", must=True),
    Field("dp_rank", NUMBER, "its own among data-parallel servers that are started one by one", must=True),
    Field("node", str),
    Field("name", str, "no other instance has it; stands before a label that two have: `decode:TP0`", must=True),
    Field("spread", (SPREAD, None), "an engine on several machines, by its command line"),
)
RANK = Fields(  # of one `Rank`
    Field("index", NUMBER, "names it for other commands", head="#", draw=_own("index")),
    Field("label", str, "no other process of its machine has it", must=True, head="label", draw=_label),
    Field("engine", str, must=True, head="engine", spare=3),
    Field("role", str, must=True, head="role", spare=6),
    Field("pid", int, must=True, head="pid", draw=_pid),
    Field("ns_pid", int, "in its own pid namespace"),
    Field("ppid", int, "its parent", head="parent", spare=1),
    Field("gpus", [int], read=_process("gpus"), head="GPUs", cell=_spans),
    Field("state", str, "one letter, as `/proc` has it", must=True, head="state", draw=_state),
    Field("state_text", str, read=lambda r: STATES.get(r.state, r.state)),
    Field("marks", [str], "its faults: `orphan`, `stopped`, `zombie`, `crashed`, `fork`", must=True),
    Field("orphan", bool, "its parent is gone"),
    Field("threads", int, read=_process("threads"), head="thr", spare=2),
    Field("rss", NUMBER, "resident memory", "bytes", read=_process("rss"), head="RSS", cell=lambda n: size(n) if n else ""),
    Field(
        "cpu",
        REAL,
        "CPU time",
        "s",
        _process("cpu"),
        digits=2,
        head="CPU",
        cell=lambda s: seconds(s) if s >= 1 else "0 s",
        spare=5,
    ),
    Field("age", REAL, "", "s", _process("age"), digits=2, head="age", cell=lambda s: seconds(max(s, 1)), spare=4),
    Field("inferior", NUMBER, "gdb's number of it", head="inf", draw=_own("inferior")),
    Field("uid", NUMBER, "as whom it runs", read=_process("uid")),
    Field("user", TEXT, "the name of `uid`", read=_process("user"), head="user", draw=_user),
    Field("host", str, read=lambda r: os.uname().nodename),
    Field("title", str, "its title, or its command line", read=_process("command")),
    Field("comm", str, "the kernel's name of it", read=_process("comm")),
    Field("ranks", dict, "its rank by group (`world`, `tp`, `pp`, `dp`, `ep`, …), of those that there are", must=True),
    Field("sizes", dict, "of the groups, where memory was read", must=True),
    Field("rank_source", str, "what says so: `title`, `memory`, `environ`, `argv`, `tree`, `libraries` or `comm`"),
    Field(
        "instance", (INSTANCE, None), "the running engine that it is of", must=True, read=_instance, head="instance", draw=_part
    ),
    Field("notes", [str], "sentences for people", head="note", cell=lambda notes: shorten(escape("; ".join(notes)), 160)),
    Field("unreadable", [str], "what permissions hid"),
)
ROUTER = Fields(
    Field("router", str, "which one; `python`: a program that is given an instance's address", must=True),
    Field("pid", int, must=True),
    Field("user", TEXT),
    Field("ports", ([int], None), "on which it listens", must=True),
    Field("connections", dict, "instance: open connections to it", must=True),
    Field(
        "knows",
        [Fields(Field("address", str), Field("instance", TEXT), Field("where", str))],
        "what a Python router's objects name",
    ),
    Field("said", (Fields(Field("port", int), Field("metrics", dict), Field("workers", dict), Field("failed", str)), None), SAID),
)
MISSING = Fields(
    Field("engine", str),
    Field("group", str),
    Field("size", int, "ranks in all"),
    Field("ranks", [int], "the numbers that no machine has that was asked"),
    Field("nodes", NUMBER, "as of `spread`"),
    Field("head", str, "as of `spread`"),
    Field("expected", bool, "they are to be on one that was asked, and are not there"),
    Field("node", str, "on which they are to be"),
)
ANSWER = Fields(
    Field("ranks", [RANK], must=True, merge=JOIN),
    Field("processes", int, "how many were read", must=True, merge=SUM),
    Field("routers", [ROUTER], must=True, merge=JOIN),
    Field("missing", [MISSING], "numbers of a group that are nowhere"),
)


def merged(answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]]) -> tuple[dict[str, Any], list[str]]:
    """-> (the JSON of llm-ranks of several machines, `node` in each place; why that is not all). An answer that is damaged is
    named in `failed`; `GdbextError` where none is left."""
    data, partial = each_node.merged(ANSWER, answers, failed, lambda answer: {"processes": len(answer["ranks"])})
    for number, one in enumerate(data["ranks"]):
        one["index"] = number
    return {**data, "missing": missing(data["ranks"])}, partial


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


def table(ranks: Sequence[dict[str, Any]], style: Style) -> str:
    """For people: the processes of one machine or of several."""
    return RANK.table(ranks, style) if ranks else "no engine processes found"


def lines(data: dict[str, Any], style: Style) -> list[str]:
    """For people: the answer of several machines."""
    said = [table(data["ranks"], style)]
    for one in data["routers"]:
        far = "".join(f", {n} connections to {escape(name)}" for name, n in one["connections"].items())
        said.append(f"router {escape(one['router'])} (pid {one['pid']} on {one['node']}){far}")
    for one in data["missing"]:
        said.append(missing_line(one))
    said += [style.bad(f"{escape(one['label'])}: not read: {escape(one['reason'])}") for one in data["failed"]]
    return [*said, f"{data['processes']} processes read on {len(data['nodes'])} machines"]
