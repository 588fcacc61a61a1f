"""One self-contained page: no script, no network, everything that comes from a process escaped."""

from __future__ import annotations

import html

from .text import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

STYLE = """
body{font:14px/1.45 system-ui,sans-serif;margin:2em auto;max-width:1200px;padding:0 1em;color:#222;background:#fff}
pre,code,summary,td,th{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:13px}
pre{background:#f6f6f4;padding:.8em;overflow-x:auto;border-radius:4px}
table{border-collapse:collapse}td,th{padding:.15em .7em;text-align:left;border-bottom:1px solid #e4e4e0;vertical-align:top}
details{margin-left:1.1em}summary{cursor:pointer}.who{color:#06c}.where{color:#777}.bad{color:#b00020;font-weight:600}
.dim{color:#777}
@media(prefers-color-scheme:dark){body{background:#1b1b1d;color:#ddd}pre{background:#26262a}
.who{color:#6af}.where,.dim{color:#999}.bad{color:#f66}}
"""


def text(value: object) -> str:
    """Text from anywhere, safe inside HTML."""
    return html.escape(escape(str(value), keep="\n"))


def table(head: Iterable[object], rows: Iterable[Iterable[object]]) -> str:
    """Rows of plain text."""
    cells = "".join(f"<th>{text(h)}</th>" for h in head)
    body = "".join("<tr>" + "".join(f"<td>{text(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f"<table><tr>{cells}</tr>{body}</table>"


def page(title: str, body: str) -> str:
    """`body` is HTML already."""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{text(title)}</title><style>{STYLE}</style><h1>{text(title)}</h1>{body}</html>\n"
    )
