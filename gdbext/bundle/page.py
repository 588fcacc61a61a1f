"""The page of a bundle or box: Markdown to paste into an issue. It holds names, numbers and places in code, and no content."""

from __future__ import annotations

import re
from typing import Any, Iterator, Mapping, Sequence

from ..render.text import escape, one_line

MAX_ROWS = 64
MAX_TEXT = 24_000  # characters of the verdict: an issue takes 65,536
LIMIT = 60_000


def page(told: Mapping[str, Any]) -> str:
    """The page. `told`: `title`; `verdict`, the text of llm-hang; `requests` and `processes`, rows of a table as objects;
    `commands`, [(label, command line)]; `versions` and `hardware`, [(what, which)]; `left_out`, sentences; `files`, what else the
    file has. Each may be missing."""
    parts = [f"### {_cell(told.get('title', ''))}", *_fence(str(told.get("verdict", "")))]
    for title, name in (("Requests", "requests"), ("Processes", "processes")):
        rows = told.get(name) or []
        if rows:
            parts += [f"#### {title}", *_table(list(rows[0]), [list(row.values()) for row in rows])]
    for title, name, head in (
        ("Versions", "versions", ("what", "version")),
        ("Hardware", "hardware", ("what", "how much")),
        ("Command lines", "commands", ("process", "command line")),
    ):
        pairs = told.get(name) or []
        if pairs:
            parts += [f"#### {title}", *_table(head, [list(pair) for pair in pairs])]
    parts += ["#### Left out", *(f"- {_cell(one)}" for one in told.get("left_out") or ["nothing"])]
    text = "\n".join(["\n".join(parts), *(["", _cell(told["files"])] if told.get("files") else []), ""])
    return text if len(text) <= LIMIT else text[:LIMIT] + "\n(cut: the file has all of it)\n"


def _fence(text: str) -> list[str]:
    lines = [escape(line) for line in text.split("\n")]
    body = "\n".join(lines)
    if len(body) > MAX_TEXT:
        body = body[:MAX_TEXT] + "\n..."
    longest = max((len(run) for run in re.findall("`+", body)), default=0)
    fence = "`" * max(3, longest + 1)
    return [fence + "text", body, fence, ""]


def _table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    yield "| " + " | ".join(map(_cell, head)) + " |"
    yield "| " + " | ".join("---" for _ in head) + " |"
    for row in rows[:MAX_ROWS]:
        yield "| " + " | ".join(map(_cell, row)) + " |"
    if len(rows) > MAX_ROWS:
        yield f"\n{len(rows) - MAX_ROWS} more are in the file."
    yield ""


def _cell(value: Any) -> str:
    """Text that no reader of Markdown takes for anything else."""
    text = one_line(escape("" if value is None else str(value)), 400)
    return re.sub(r"([\\`*_{}\[\]<>#|~@!])", r"\\\1", text)
