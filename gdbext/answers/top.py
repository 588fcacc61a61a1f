"""A frame of llm-top, as JSON and as text."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..render.text import Style, escape, seconds, shorten, size, table, visible_length
from ..requests.meter import Reading
from ..timeline.live import Row

HEAD = ("label", "pid", "state", "in", "part", "GIL", "waits", "CPU", "RSS", "steps/s")
RIGHT = ("pid", "part", "GIL", "waits", "CPU", "RSS", "steps/s")


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
    """One frame as lines of text; the row number `chosen` is marked."""
    lines = [_engine(reading, style) for reading in readings]
    steps = {pid: rate for reading in readings for pid, rate in reading.steps.items()}
    cells = []
    for number, r in enumerate(rows):
        where = f"{r.stack[-1].function} ({os.path.basename(r.stack[-1].file)}:{r.stack[-1].line})" if r.stack else ""
        label = escape(r.label)
        cells.append(
            [
                style.title(f"> {label}") if number == chosen else f"  {label}" if chosen >= 0 else style.name(label),
                str(r.pid),
                r.state if r.alive else style.bad(r.state),
                shorten(escape(where), 48),
                f"{100 * r.part:.0f} %",
                f"{100 * r.gil:.0f} %",
                f"{100 * r.waits:.0f} %",
                f"{r.cpu:.2f}",
                size(r.rss),
                f"{steps[r.pid]:.1f}" if r.pid in steps else "",
            ]
        )
    return lines + table(cells, HEAD, style, right=RIGHT).split("\n")


def _engine(e: Reading, style: Style) -> str:
    parts = [f"{e.running} running, {e.waiting} waiting"]
    if e.tokens_per_second is not None:
        parts.append(f"{e.tokens_per_second:.0f} tokens/s")
    if e.step_rate:
        parts.append(f"{e.step_rate:.1f} steps/s")
    if e.blocks and e.free is not None:
        parts.append(f"KV {100 * (1 - e.free / e.blocks):.0f} %")
    if e.oldest is not None:
        parts.append(f"oldest without progress: {escape(e.oldest[0])}, {seconds(e.oldest[1])}")
    return style.title(escape(e.engine)) + "  " + "  ".join(parts)


def stack_lines(row: Row, most: int) -> list[str]:
    """The stack where a row's main thread stood, innermost first, at most so many lines."""
    lines = [f"{row.label} {row.pid}: {row.state}, {100 * row.part:.0f} % of the time here"]
    for frame in reversed(row.stack):
        lines.append(f"  {escape(frame.function)} ({escape(frame.file)}:{frame.line})")
    return [escape(line) for line in lines[: max(1, most)]]


def cut(line: str, columns: int) -> str:
    """A line that has room in a terminal so wide: one with colours is left as it is where it is not too wide."""
    return line if visible_length(line) <= columns else shorten(escape(line), columns)
