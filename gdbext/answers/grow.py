"""What makes a process's resident memory grow, as JSON, as text and as a page with the curve."""

from __future__ import annotations

from typing import Any, Sequence

from ..heap.calls import PYTHON
from ..heap.grow_watch import GrowWatch
from ..heap.grown import FILES, PARTS, SHARED, STACKS, Place, Row
from ..heap.writers import HEAP
from ..render import html
from ..render.fields import NUMBER, REAL, TEXT, Field, Fields, or_none
from ..render.text import Style, escape, seconds, short_path, size

WIDTH, HEIGHT, LEFT = 1000, 240, 90  # of the curve, in pixels
COLOURS = ("#e0662f", "#2f7fe0", "#1b7f3b", "#8a6fc0", "#b00020", "#e6b422", "#7a4a1e")


def _where(row: dict[str, Any], style: Style) -> str:
    """The library and the Python line."""
    native = f"{row['library']} {row['native'] or ''}".strip() if row["library"] else ""
    line = ""
    if row["file"]:
        line = f"{style.name(row['function'])} ({style.source(row['file'], short_path(row['file']) + ':' + str(row['line']))})"
    unknown = (
        "not known who keeps it: first touched by " + row["touched_by"] if row["touched_by"] else "not seen: only that it grows"
    )
    return ", ".join(filter(None, (native, line))) or style.dim(unknown)


def _thread(row: dict[str, Any], style: Style) -> str:
    named = [f"{name} {tid}".strip() for name, tid in zip(row["names"], row["tids"])]
    return ", ".join(named[:2]) + (" …" if len(named) > 2 else "")


def _back(row: dict[str, Any], style: Style) -> str:
    return "" if row["given_back"] is None else f"{100 * row['given_back']:.0f} %"


def _words(place: Place) -> str:
    line = f"{place.function} ({short_path(place.file)}:{place.line})" if place.file else ""
    return ", ".join(filter(None, (f"{place.library} {place.native}".strip(), line)))


def _of_place(name: str) -> Any:
    return lambda row: getattr(row.place, name) or None


PLACE = Fields(
    Field("bytes_per_minute", int, read=lambda row: row.per_minute, head="a minute", cell=size),
    Field("bytes", int, "in the window", "bytes"),
    Field("kind", str, "`brk heap`, `malloc arenas`, `anonymous`, `huge pages`, `thread stacks`, `shared memory`, `files`; with "
          "`, locked` where it is; `Python heap`: a container, by `pyheap -watch`", head="memory"),
    Field("library", TEXT, "of the innermost function above malloc", read=_of_place("library"), head="by", draw=_where),
    Field("native", TEXT, "that function", read=_of_place("native")),
    Field("function", TEXT, "the innermost Python function", read=_of_place("function")),
    Field("file", TEXT, read=_of_place("file")),
    Field("line", NUMBER, read=_of_place("line")),
    Field("tids", [int], "the threads that took most", head="thread", draw=_thread),
    Field("names", [str], "theirs"),
    Field("since", float, "0: from the beginning of the window on", "seconds", digits=1, head="since",
          cell=lambda at: "the beginning" if not at else f"{at:.0f} s"),
    Field("given_back", REAL, "part of the sampled pages of that place that are gone; null where it is not known", digits=2,
          head="given back", draw=_back),
    Field("touched_by", TEXT, "who touched the pages first; it gives some back, and who keeps them is not known",
          read=lambda row: _words(row.first) or None),
    Field("path", TEXT, "the file that grew; of a container who holds it", read=or_none("path"), head="what"),
    Field("source", str, "`page faults`, `mappings`, `writes` (of a container), `looks`, `calls` (that stacks show), `threads`, "
          "`differences`: nobody"),
    Field("samples", int, "whose pages are there still; of a container: writes, looks"),
)  # fmt: skip
SOURCE = Fields(
    Field("source", str),
    Field("used", bool),
    Field("why", TEXT, "why it was not used"),
    Field("cannot_see", str),
)
MOMENT = Fields(
    Field("seconds", float, digits=2),
    Field("kinds", Fields(rest=int), "resident bytes of each kind of memory"),
    Field("threads", int),
)
GROW = Fields(
    Field("label", str),
    Field("pid", int),
    Field("seconds", float, digits=1),
    Field("cpu_seconds", float, "that the watch took, of all processes together", digits=3),
    Field("grows", [PLACE], "what keeps growing, the fastest first"),
    Field("curve", [MOMENT]),
    Field("sources", [SOURCE]),
    Field("next", str, "what to type next; '' where nothing grows"),
)


def grow_data(watch: GrowWatch, rows: list[Row], cpu: float, more: Sequence[tuple[str, bool, str, str]] = ()) -> dict[str, Any]:
    """One process's part of the answer. `more`: sources beside the watch's."""
    return GROW.of(
        label=escape(watch.label),
        pid=watch.pid,
        seconds=round(watch.looks[-1].time, 1) if watch.looks else 0.0,
        cpu_seconds=round(cpu, 3),
        grows=[PLACE.data(row) for row in rows],
        curve=[MOMENT.of(seconds=round(look.time, 2), kinds=look.kinds, threads=look.threads) for look in watch.looks],
        sources=[
            SOURCE.of(source=name, used=used, why=None if used else escape(why), cannot_see=cannot)
            for name, used, why, cannot in (*watch.sources(), *more)
        ],
        next=_next(watch, rows),
    )


def _next(watch: GrowWatch, rows: list[Row]) -> str:
    """What to type next, for the fastest row."""
    if not rows:
        return ""
    row, pid = rows[0], watch.pid
    if row.kind == HEAP and not row.place.file:
        return f"pythreads -samples 50 -on {pid}: which threads are at work"
    if row.kind == STACKS:
        return f"pythreads -on {pid}: what the threads that do not end are doing"
    if row.source == "differences":
        return f"llm-memory {pid}: what the memory holds" + (
            "" if watch.faults else "; where perf_event_open is allowed, who takes it"
        )
    if PYTHON.match(row.place.library):
        return f"pyheap -watch 10 -on {pid}: which containers get longer there, and who holds them"
    if row.kind in (SHARED, FILES):
        return f"llm-bt -all -on {pid}: who works on {escape(row.path) or 'it'}"
    if row.place.file:
        return (
            f"in gdb, pybreak {escape(short_path(row.place.file))}:{row.place.line}: stops there; llm-bt shows the native calls"
        )
    return f"llm-bt -still -all -on {pid}: the native calls of thread {row.tids[0] if row.tids else '?'}"


def grow_text(one: dict[str, Any], style: Style) -> str:
    """One process's part as text."""
    name = one["label"] if one["label"] == str(one["pid"]) else f"{one['label']} {one['pid']}"
    took = f"{one['seconds']:.0f} s watched, {seconds(one['cpu_seconds'])} of CPU, nothing stopped"
    first, last = (sum(one["curve"][at]["kinds"].values()) if one["curve"] else 0 for at in (0, -1))
    lines = [f"{style.title(name)}: {size(first)} -> {size(last)} resident; {took}"]
    short = len(one["curve"]) < PARTS
    none = f"too short to judge: {size(last - first)} more" if short and last > first else "nothing keeps growing"
    lines.append(PLACE.table(one["grows"], style) if one["grows"] else none)
    used = [source for source in one["sources"] if source["used"]]
    lines += [style.dim(f"without {s['source']}: {s['why']}") for s in one["sources"] if not s["used"] and s["why"]]
    if any(not row["library"] and not row["file"] for row in one["grows"]) or not one["sources"][0]["used"]:
        lines += [style.dim(f"{source['source']} cannot see: {source['cannot_see']}") for source in used]
    return "\n".join([*lines, *([f"next: {style.typed(one['next'])}"] if one["next"] else [])])


def who_text(one: dict[str, Any], style: Style) -> str:
    """The rows alone, below a table of what grew."""
    if not one["grows"]:
        return ""
    return PLACE.table(one["grows"], style) + (f"\nnext: {style.typed(one['next'])}" if one["next"] else "")


def page(ranks: list[dict[str, Any]]) -> str:
    """The page: for each process the curve of its kinds of memory, and the table."""
    parts = []
    for one in ranks:
        rows = [[field.text(row, Style(False, 0)) for field in PLACE.columns] for row in one["grows"]]
        table = html.table([field.head for field in PLACE.columns], rows) if rows else "<p>nothing keeps growing</p>"
        more = f"<p>next: <code>{html.text(one['next'])}</code></p>" if one["next"] else ""
        sources = [(s["source"], "yes" if s["used"] else s["why"] or "not needed", s["cannot_see"]) for s in one["sources"]]
        seen = html.table(("source", "used", "cannot see"), sources)
        parts.append(f"<h2>{html.text(one['label'])} {one['pid']}</h2>{_curve(one['curve'])}{table}{more}{seen}")
    return html.page("llm-memory -grow", "".join(parts))


def _curve(curve: list[dict[str, Any]]) -> str:
    """What each kind of memory has more than at first, over time."""
    kinds = sorted({kind for look in curve for kind in look["kinds"]})
    series = {kind: [look["kinds"].get(kind, 0) - curve[0]["kinds"].get(kind, 0) for look in curve] for kind in kinds}
    low, high = (edge(edge(values) for values in series.values()) for edge in (min, max)) if series else (0, 0)
    end = curve[-1]["seconds"] if curve else 0
    if not end or high == low:
        return "<p>no change</p>"
    drawn, legend = [], []
    for number, (kind, values) in enumerate(series.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(
            f"{LEFT + (WIDTH - LEFT) * look['seconds'] / end:.1f},{10 + HEIGHT * (high - value) / (high - low):.1f}"
            for look, value in zip(curve, values)
        )
        drawn.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2">'
            f"<title>{html.text(kind)}</title></polyline>"
        )
        legend.append(f'<span style="border-left:1em solid {colour};padding:0 .6em">{html.text(kind)} {size(values[-1])}</span>')
    for value, y in ((high, 14), (low, HEIGHT + 10)):
        drawn.append(f'<text x="0" y="{y}" fill="currentColor" font-size="11">{html.text(size(value))}</text>')
    box = f'<svg viewBox="0 0 {WIDTH} {HEIGHT + 20}" role="img" style="width:100%">{"".join(drawn)}</svg>'
    return f"<p>{' '.join(legend)}</p>{box}<p class=dim>resident bytes more than at the beginning, over {end:g} s</p>"
