"""A frame of llm-top, as JSON and as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..render.columns import columns_of, cut, fold
from ..render.text import PLAIN, Style, escape, seconds, short_path, size, table
from ..requests.meter import Reading
from ..timeline.live import Row

HEAD = ("label", "pid", "state", "in", "part", "GIL", "waits", "CPU", "RSS", "steps/s")
RIGHT = ("pid", "part", "GIL", "waits", "CPU", "RSS", "steps/s")
WHERE, LEAST = HEAD.index("in"), 20  # the column that is cut to the room that there is, and the columns that it has at least
LAST = ("waits", "steps/s", "GIL", "RSS", "part", "pid")  # left out first where there is no room for it


def sorted_rows(rows: Sequence[Row], by: str) -> list[Row]:
    """The rows, the most first; "order": as they came."""
    if by == "order":
        return list(rows)
    return sorted(rows, key=lambda r: -getattr(r, by))


def frame_data(
    rows: Sequence[Row], readings: Sequence[Reading], failed: Sequence[dict[str, Any]]
) -> tuple[dict[str, Any], list[str]]:
    """-> (the JSON fields of one frame, why it is not all)."""
    steps = {pid: rate for reading in readings for pid, rate in reading.steps.items()}
    ranks = [
        {
            "label": escape(r.label),
            "pid": r.pid,
            "state": r.state,
            "function": escape(r.stack[-1].function) if r.stack else None,
            "file": escape(r.stack[-1].file) if r.stack else None,
            "line": r.stack[-1].line if r.stack else None,
            "part": round(r.part, 3),
            "gil": round(r.gil, 3),
            "gil_holder": escape(r.holder) or None,
            "gil_waits": round(r.waits, 3),
            "gc": round(r.gc, 3),
            "cpu": round(r.cpu, 3),
            "rss": r.rss,
            "threads": r.threads,
            "steps_per_second": steps.get(r.pid),
        }
        for r in rows
    ]
    engines = [
        {
            "engine": e.engine,
            "labels": [escape(label) for label in e.labels],
            "running": e.running,
            "waiting": e.waiting,
            "tokens_per_second": e.tokens_per_second,
            "steps_per_second": e.step_rate,
            "blocks": e.blocks,
            "free_blocks": e.free,
            "kv_use": round(1 - e.free / e.blocks, 4) if e.blocks and e.free is not None else None,
        }
        for e in readings
    ]
    requests = [
        {"engine": e.engine, "request_id": escape(e.oldest[0]), "without_progress": round(e.oldest[1], 3)}
        for e in readings
        if e.oldest is not None
    ]
    partial = [*(p for e in readings for p in e.partial), *(f"{f['label']}: {f['reason']}" for f in failed)]
    return {"ranks": ranks, "engines": engines, "requests": requests, "failed": list(failed)}, partial


def frame_lines(rows: Sequence[Row], readings: Sequence[Reading], style: Style, chosen: int = -1) -> list[str]:
    """One frame as lines of text, no row wider than the terminal; the row number `chosen` is marked."""
    steps = {pid: rate for reading in readings for pid, rate in reading.steps.items()}
    cells = [_cells(r, steps.get(r.pid), chosen if chosen < 0 else number == chosen, style) for number, r in enumerate(rows)]
    widths = {name: max([len(name), *(columns_of(row[i]) for row in cells)]) for i, name in enumerate(HEAD)}
    shown = [name for i, name in enumerate(HEAD) if any(row[i] for row in cells)]
    room = style.width or sum(widths.values()) + 2 * len(HEAD)
    for name in LAST:
        if sum(widths[n] + 2 for n in shown if n != "in") + LEAST <= room:
            break
        shown = [n for n in shown if n != name]
    wide = max(4, room - sum(widths[n] + 2 for n in shown if n != "in"))
    for row in cells:
        row[WHERE] = cut(row[WHERE], wide)
    places = [HEAD.index(name) for name in shown]
    engines = [line for reading in readings for line in fold(_engine(reading, style), style.width or 1 << 20)]
    return engines + table([[row[i] for i in places] for row in cells], shown, Style(style.enabled), right=RIGHT).split("\n")


def _cells(r: Row, rate: float | None, marked: int, style: Style) -> list[str]:
    """A rank's row. `marked`: 1: it is the chosen one, 0: another one is, -1: none is."""
    where = f"{r.stack[-1].function} ({short_path(r.stack[-1].file)}:{r.stack[-1].line})" if r.stack else ""
    label = escape(r.label)
    return [
        style.title(f"> {label}") if marked > 0 else f"  {label}" if not marked else style.name(label),
        str(r.pid),
        r.state if r.alive else style.bad(r.state),
        escape(where),
        f"{100 * r.part:.0f} %",
        f"{100 * r.gil:.0f} %",
        f"{100 * r.waits:.0f} %",
        f"{r.cpu:.2f}",
        size(r.rss),
        f"{rate:.1f}" if rate is not None else "",
    ]


def requests_text(running: int | None, waiting: int | None) -> str:
    """How many requests a scheduler has, in words."""
    return "no scheduler was read" if running is None else f"{running} running, {waiting} waiting"


def _engine(e: Reading, style: Style) -> str:
    parts = [requests_text(e.running, e.waiting)]
    if e.tokens_per_second is not None:
        parts.append(f"{e.tokens_per_second:.0f} tokens/s")
    if e.step_rate:
        parts.append(f"{e.step_rate:.1f} steps/s")
    if e.blocks and e.free is not None:
        parts.append(f"KV {100 * (1 - e.free / e.blocks):.0f} %")
    if e.oldest is not None and e.oldest[1]:
        parts.append(f"oldest without progress: {escape(e.oldest[0])}, {seconds(e.oldest[1])}")
    return style.title(escape(e.engine)) + "  " + "  ".join(parts)


def stack_lines(row: Row, most: int, style: Style = PLAIN) -> list[str]:
    """The stack of a row's main thread, innermost frame first, at most `most` lines."""
    lines = [f"{row.label} {row.pid}: {row.state}, {100 * row.part:.0f} % of the time here"]
    for frame in reversed(row.stack):
        lines.append(f"  {frame.function} ({style.path(frame.file)}:{frame.line})")
    return [escape(line) for line in lines[: max(1, most)]]
