"""One self-contained page: no network, no script but the pack's own. All text that comes from a process is escaped."""

from __future__ import annotations

import itertools
import os
import re
import time
from typing import Iterable

from .. import __version__
from .text import escape

STYLE = """
:root{color-scheme:light dark}
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1200px;padding:0 1em;color:#222;background:#fff;
overflow-wrap:break-word}
pre,code,summary,td,th{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px}
pre{background:#f6f6f4;padding:.8em;overflow-x:auto;border-radius:4px}
table{border-collapse:collapse}td,th{padding:.15em .7em;text-align:left;border-bottom:1px solid #8883;vertical-align:top}
.n{text-align:right;white-space:nowrap}details{margin-left:1.1em}summary{cursor:pointer}.who{color:#06c}.where{color:#777}.bad{color:#b00020;font-weight:600}
.dim{color:#777}.good{color:#1b7f3b;font-weight:600}
@media(prefers-color-scheme:dark){body{background:#1b1b1d;color:#ddd}pre{background:#26262a}
.who{color:#6af}.where,.dim{color:#999}.bad{color:#f66}.good{color:#5fd38a}}
"""


_NUMBER = re.compile(r"([-+]?[\d.,]+( ?([kKMGT]?i?B|[mµn]?s|min|h|%))?)?")


def text(value: object) -> str:
    """Text from anywhere, safe inside HTML."""
    import html  # here: hardly any answer is a page

    return html.escape(escape(str(value), keep="\n"))


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Rows of plain text, None an empty cell, without the columns that are empty in every row; columns of numbers are flush
    right."""
    rows = [["" if cell is None else cell for cell in row] for row in rows]
    columns = [column for column in zip(head, *rows) if any(str(cell) for cell in column[1:])]
    right = [all(_NUMBER.fullmatch(str(cell)) for cell in column[1:]) for column in columns]
    lines = [
        "".join(f"<{tag}{' class=n' * number}>{text(cell)}</{tag}>" for cell, number in zip(line, right))
        for tag, line in zip(itertools.chain(("th",), itertools.repeat("td")), zip(*columns))
    ]
    return "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def page(title: str, body: str, script: str = "") -> str:
    """A page with the host, the date and the release below its title. `body` is HTML already; `script`: JavaScript of the pack.
    The page's policy lets that run by its hash, and nothing else."""
    import base64
    import hashlib

    code = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = "default-src 'none'; style-src 'unsafe-inline'" + (f"; script-src 'sha256-{code}'" if script else "")
    made = f"{os.uname().nodename}, {time.strftime('%Y-%m-%d %H:%M:%S %Z')}, gdbext {__version__}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        f"<title>{text(title)}</title><style>{STYLE}</style><h1>{text(title)}</h1><p class=dim>{text(made)}</p>{body}"
        + (f"<script>{script}</script>" if script else "")
        + "</html>\n"
    )
