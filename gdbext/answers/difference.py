"""What changed between two moments of some processes: the fields of llm-diff, the facts that it compares, and its text."""

from __future__ import annotations

import time
from typing import Any, Iterable, Sequence

from ..access.base import Target
from ..access.snapshot import CoreFileTarget
from ..cpython import runtime as runtimes
from ..errors import GdbextError
from ..heap import listing
from ..render.fields import NUMBER, REAL, TEXT, Field, Fields
from ..render.text import Style, escape, seconds, size, table, thread_text
from ..stacks.threads import ProcessView
from ..timeline import between
from ..timeline.between import CAME, GONE, MOVED, STILL
from .each_node import FAILED
from .places import PAUSE

SHOWN = 12  # rows of each part of the text
HEAP = 4 << 30  # bytes of private memory in a copy that is to hold the heap
RESTED = 0.0003  # seconds of a processor: what a stop for a copy costs a thread that sleeps
NUMBERS = ("status", "prompt_tokens", "computed_tokens", "output_tokens", "preemptions")
PLACE = Fields(Field("function", str), Field("file", str), Field("line", NUMBER))
SIDE = Fields(
    Field("what", str, "as it was named"),
    Field("time", REAL, "when it was: seconds after the epoch"),
    Field("processes", [Fields(Field("label", str), Field("pid", NUMBER))]),
)
PROCESS = Fields(
    Field("label", str),
    Field("before", NUMBER, "its pid, null where it was not there"),
    Field("after", NUMBER),
    Field("same", bool, "the same process for certain; else threads are compared by name"),
)
THREAD = Fields(
    Field("label", str),
    Field("pid", NUMBER),
    Field("tid", int),
    Field("name", str),
    Field(
        "change", str, "`came`, `gone`, `moved`, `still` (the same stack twice), `unread`", read=lambda t: t.change or "unread"
    ),
    Field("before", (PLACE, None), "of one that moved the outermost frames that differ", read=lambda t: _place(t.before)),
    Field("after", (PLACE, None), read=lambda t: _place(t.after)),
    Field("cpu", REAL, "that it ran in between; null: not known", "s", digits=6),
)
MEMORY = Fields(
    *(Field(name, kind) for name, kind in (("label", str), ("pid", NUMBER), ("what", str))),
    Field("before", int, "mapped", "bytes"),
    Field("after", int, "", "bytes"),
)
TYPE = Fields(
    *(Field(name, kind) for name, kind in (("label", str), ("pid", NUMBER))),
    Field("type", str, read=lambda r: r.what),
    Field("before", int, "objects", read=lambda r: r.objects[0]),
    Field("after", int, "objects", read=lambda r: r.objects[1]),
    Field("bytes_before", int, read=lambda r: r.before),
    Field("bytes_after", int, read=lambda r: r.after),
)
COUNTED = Fields(Field("status", TEXT), *(Field(name, NUMBER) for name in NUMBERS[1:]))
REQUEST = Fields(
    Field("request_id", str),
    Field("change", str, "`came`, `gone`, `moved` (a number changed), `still`"),
    Field("before", (COUNTED, None), read=lambda r: dict(r.before) if r.before is not None else None),
    Field("after", (COUNTED, None), read=lambda r: dict(r.after) if r.after is not None else None),
)
ANSWER = Fields(
    Field("before", SIDE),
    Field("after", SIDE),
    Field("seconds", REAL, "from one to the other", "s"),
    Field("processes", [PROCESS]),
    Field("threads", [THREAD]),
    Field("memory", [MEMORY], "kinds of mapped memory that have more or less"),
    Field("types", [TYPE], "of Python's heap, where both sides have it"),
    Field("requests", [REQUEST]),
    Field("not_compared", [str], "what one of the two lacks, and why"),
    Field("pauses", [PAUSE], must=True),
    Field("failed", [FAILED], must=True),
)


def _place(place: between.Place | None) -> dict[str, Any] | None:
    return None if place is None else {"function": place[0], "file": place[1], "line": place[2] or None}


# ---- the facts of one moment -----------------------------------------------------------------------------------------
def time_of(target: Target) -> float:
    """When a target was as it is read, in seconds after the epoch: of a process that runs, now."""
    return target.moment if isinstance(target, CoreFileTarget) else time.time()


def moment(view: ProcessView, heap: bool, lacks: list[str]) -> between.Moment:
    """The facts about one process. `heap`: with its types; why they could not be read is added to `lacks`."""
    target = view.target
    found = between.Moment(escape(view.name), view.pid, target.process() if isinstance(target, CoreFileTarget) else ())
    stacks = set()
    for thread in view.threads:
        frames = [f for f in thread.frames if f.kind == "python"] or thread.frames
        stack = [(escape(f.function or "?"), escape(f.file or ""), f.line or 0) for f in frames]
        own = thread.thread
        found.threads.append(
            between.Thread(thread.tid, escape(thread.name), stack, bool(stack) and not thread.error, own.cpu if own else None)
        )
        stacks |= {own.stack[0]} if own is not None and own.stack else set()
    for mapping in target.mappings():
        kind = between.mapped(mapping.path, mapping.start in stacks)
        found.memory[kind] = found.memory.get(kind, 0) + mapping.end - mapping.start
    if heap:
        try:
            roots = [(frame, False) for thread in view.threads for frame in thread.python]
            sums = listing.Census(runtimes.open_runtime(target), roots).types()
            found.types = {escape(s.name): (s.count + s.held, s.bytes + s.held_bytes) for s in sums}
        except GdbextError as e:
            lacks.append(f"heap of {found.label}: {e}")
    return found


def numbers(requests: Iterable[Any]) -> dict[str, dict[str, Any]]:
    """{id: numbers} of requests."""
    return {escape(r.request_id): {name: getattr(r, name) for name in NUMBERS} for r in requests}


# ---- the answer ------------------------------------------------------------------------------------------------------
def difference_data(
    before: Sequence[between.Moment],
    after: Sequence[between.Moment],
    requests: tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]],
) -> dict[str, Any]:
    """The fields that compare."""
    pairs = list(between.paired(before, after))
    both = [(a, b) for a, b in pairs if a is not None and b is not None]
    alone = [(a, b) for a, b in pairs if a is None or b is None]
    return {
        "processes": [
            PROCESS.of(
                label=next(one.label for one in (b, a) if one is not None),
                before=a.pid if a is not None else None,
                after=b.pid if b is not None else None,
                same=a is not None and b is not None and between.is_same(a, b),
            )
            for a, b in [*both, *alone]
        ],
        "threads": [THREAD.data(t) for a, b in both for t in between.threads(a, b)],
        "memory": [MEMORY.data(r) for a, b in both for r in between.memory(a, b)],
        "types": [TYPE.data(r) for a, b in both for r in between.types(a, b)],
        "requests": [REQUEST.data(r) for r in between.requests(*requests)],
    }


def difference_lines(data: dict[str, Any], style: Style) -> list[str]:
    """The comparison for people."""
    lines = [f"{escape(data['before']['what'])} -> {escape(data['after']['what'])}: {seconds(abs(data['seconds']))} apart"]
    lines[0] += ", the second is the older one" if data["seconds"] < 0 else ""
    several = len(data["processes"]) > 1
    for one in data["processes"]:
        pids = f"{one['before']} -> {one['after']}"
        if one["before"] is None or one["after"] is None:
            lines.append(style.bad(f"{one['label']} {'is new' if one['before'] is None else 'is gone'}"))
        elif not one["same"]:
            lines.append(f"{one['label']}: not known to be the same process ({pids}): threads are compared by name")
    lines += _requests(data["requests"], style)
    lines += _threads(data["threads"], several, style)
    rows = [[*[r["label"]] * several, r["what"], size(r["before"]), size(r["after"]), _change(r)] for r in data["memory"]]
    lines += _part("memory, mapped:", rows, [*["label"] * several, "kind", "before", "after", "change"], style)
    rows = [
        [
            *[r["label"]] * several,
            r["type"],
            f"{r['before']} -> {r['after']}",
            _change({"before": r["bytes_before"], "after": r["bytes_after"]}),
        ]
        for r in data["types"]
    ]
    lines += _part("heap:", rows, [*["label"] * several, "type", "objects", "change"], style)
    return lines + [style.dim(f"not compared: {escape(one)}") for one in data["not_compared"]]


def _change(row: dict[str, Any]) -> str:
    by = row["after"] - row["before"]
    return ("-" if by < 0 else "+") + size(abs(by))


def _part(title: str, rows: list[list[str]], head: list[str], style: Style) -> list[str]:
    if not rows:
        return []
    right = [name for name in head if name not in ("label", "kind", "type")]
    left = [style.dim(f"… {len(rows) - SHOWN} more: -json")] if len(rows) > SHOWN else []
    return [style.title(title), *table(rows[:SHOWN], head, style, right=right).split("\n"), *left]


def _threads(found: list[dict[str, Any]], several: bool, style: Style) -> list[str]:
    """Threads that came, are gone, moved, and those that stand still, which are told by place."""
    lines = []
    for change, title in ((MOVED, "moved"), (CAME, "came"), (GONE, "gone")):
        some = [t for t in found if t["change"] == change]
        for t in some[:SHOWN]:
            ends = [_at(t[side]) for side in ("before", "after") if t[side] is not None]
            lines.append(f"{title}: {style.name(_who(t, several))}  {' -> '.join(ends)}{_cpu(t)}")
        if len(some) > SHOWN:
            lines.append(style.dim(f"… {len(some) - SHOWN} more {title}: -json"))
    places: dict[tuple[str, str], list[str]] = {}
    for t in found:
        if t["change"] == STILL:
            title = "same place" if t["cpu"] is None or t["cpu"] > RESTED else "stands still"
            places.setdefault((title, _at(t["after"])), []).append(_who(t, several) + _cpu(t))
    for (title, at), who in sorted(places.items(), key=lambda one: (one[0][0], len(one[1]))):
        lines.append(f"{title}: {', '.join(who[:4])}{', …' if len(who) > 4 else ''}  in {at}")
    unread = sum(t["change"] == "unread" for t in found)
    return lines + ([f"not read on both sides: {unread} threads"] if unread else [])


def _who(t: dict[str, Any], several: bool) -> str:
    return f"{t['label']} " * several + thread_text(t["tid"], t["name"])


def _cpu(t: dict[str, Any]) -> str:
    return f" (ran {seconds(t['cpu'])})" if (t["cpu"] or 0) > RESTED else ""


def _at(place: dict[str, Any] | None) -> str:
    if place is None:
        return "?"
    line = f":{place['line']}" if place["line"] else ""
    file = place["file"].rpartition("/")[2]
    return f"{place['function']} ({file}{line})" if file else str(place["function"])


def _requests(found: list[dict[str, Any]], style: Style) -> list[str]:
    lines = []
    for change, title in ((CAME, "came"), (GONE, "gone"), (STILL, "stand still")):
        some = [r["request_id"] for r in found if r["change"] == change]
        if some:
            text = f"requests that {'are ' * (change == GONE)}{title}: {', '.join(some[:SHOWN])}"
            text += f" and {len(some) - SHOWN} more" * (len(some) > SHOWN)
            lines.append(style.bad(text) if change == STILL else text)
    for r in [r for r in found if r["change"] == MOVED][:SHOWN]:
        parts = [f"{name.replace('_', ' ')} {r['before'][name]} -> {r['after'][name]}" for name in NUMBERS]
        told = [part for part, name in zip(parts, NUMBERS) if r["before"][name] != r["after"][name]]
        lines.append(f"request {style.name(r['request_id'])} moved: {', '.join(told)}")
    return lines
