"""Text for people: escape, colour, tables, sizes and durations."""

from __future__ import annotations

import os
import re

from .columns import LINK, LINK_END, fold, shortened
from .columns import columns_of as visible_length

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Sequence

_NOT_ASCII = re.compile("[^\x20-\x7e]")
_SPACES = "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"  # not isprintable()
MAX_LINE = 2000  # characters of an error or of a reason why an answer is partial


def escape(text: str, keep: str = "") -> str:
    """`text` with control characters, terminal escapes, marks of direction, invisible characters and lone surrogates escaped.

    Characters in `keep` (say a newline) stay. Printable text comes back unchanged.
    """
    if text.isprintable():  # to Python none of those to be escaped is
        return text

    def show(match: re.Match[str]) -> str:
        c = match.group()
        if c in keep or c.isprintable() or c in _SPACES:
            return c
        return c.encode("unicode_escape").decode()

    return _NOT_ASCII.sub(show, text)


_OWN_COLOUR = re.compile(r"(\x1b\[(?:1|2|3[1-6])?m)")
_OWN = re.compile(r"(\x1b\[(?:1|2|3[1-6])?m|\x1b\]8;;(?:file://[\w.~%/-]+)?\x1b\\)", re.A)
_SAFE = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/")


def escape_output(text: str, coloured: bool = False, links: bool = False) -> str:
    """Text of several lines, safe for a terminal. Everything is escaped but its newlines and tabs (source lines have them),
    `Style`'s own colours where it is `coloured`, and its `links`."""
    if not coloured and not links:
        return escape(text, keep="\n\t")
    return "".join(
        part if i % 2 else escape(part, keep="\n\t") for i, part in enumerate((_OWN if links else _OWN_COLOUR).split(text))
    )


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """A message as one escaped line of at most `limit` characters."""
    return shorten(escape(" ".join(text.split("\n")).strip()), limit)


def beneath(text: str, indent: str = "  ") -> str:
    """Foreign text of several lines below a heading: escaped, and each line indented, so that none looks like ours."""
    return "\n".join(indent + escape(line, keep="\t") for line in text.split("\n"))


def thread_text(tid: object, name: str = "", label: str = "") -> str:
    """`TP0 thread 4242 (MainThread)`: as every sentence names a thread. `name`: escaped. `label`: of its process; it is left out
    where it is the thread's own number."""
    text = f"thread {tid} ({name})" if name else f"thread {tid}"
    return text if label in ("", str(tid)) else f"{label} {text}"


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters; a cut one ends in '...'."""
    return text if limit <= 0 or len(text) <= limit else text[: max(0, limit - 3)] + "..."


def coloured(terminal: bool) -> bool:
    """Whether output has colours. `terminal`: it goes to one. NO_COLOR turns them off and FORCE_COLOR on, each where it is not
    empty; TERM=dumb has none."""
    if os.environ.get("NO_COLOR"):
        return False
    return os.environ.get("FORCE_COLOR", "") not in ("", "0") or terminal and os.environ.get("TERM") != "dumb"


_LINKING = ("KITTY_WINDOW_ID", "WT_SESSION", "KONSOLE_VERSION", "DOMTERM", "ALACRITTY_WINDOW_ID")  # variables of terminals


def knows_links(terminal: bool) -> bool:
    """Whether the terminal shows links (OSC 8), by the variables that it puts into the environment; FORCE_HYPERLINK overrides
    that. `terminal`: output goes to one. None where NO_COLOR or TERM=dumb want plain text."""
    env = os.environ
    forced = env.get("FORCE_HYPERLINK", "")
    if env.get("NO_COLOR") or env.get("TERM") == "dumb" or forced == "0":
        return False
    if forced or not terminal:
        return bool(forced)
    if env.get("VTE_VERSION", "").isdigit():
        return int(env["VTE_VERSION"]) >= 5000
    known = env.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm", "vscode", "ghostty", "Hyper", "rio")
    return known or any(env.get(name) for name in _LINKING) or env.get("TERM", "").startswith(("foot", "xterm-kitty"))


_PACKAGES = re.compile(r".*/(?:(?:site|dist)-packages|lib/python3\.\d+t?)/(?=.)")
_TWICE = re.compile(r".*/([A-Za-z_]\w*)/(?:.*/)?(?=\1/)")


def short_path(path: str) -> str:
    """The part of a path that identifies a source file.

    It is the path in the folder of packages or of the standard library, or in a source tree whose package is named like the
    project (/src/vllm/vllm/v1/x.py: vllm/v1/x.py). Any other path is whole."""
    found = _PACKAGES.match(path) or _TWICE.match(path)
    return path[found.end() :] if found else path


class Style:
    """ANSI colour where `enabled`, else plain. Method names are meanings, not colours.

    `width`: the terminal's columns, 0 for no limit. `full_paths`: source files with all of their path. `links`: they are links,
    as the terminal supports them. `wraps`: the columns at which lines that are too long for the terminal are broken, 0 where none
    is broken: in a pipe, and where a command sets it so. `how`: what stands before a command where it is typed: in a shell
    "gdbext ", in gdb nothing."""

    _CODES = {"title": "1", "name": "33", "file": "32", "address": "34", "dim": "2", "bad": "31", "good": "32", "value": "36"}

    def __init__(self, enabled: bool = False, width: int = 0, full_paths: bool = False) -> None:
        self.enabled, self.width, self.full_paths = enabled, width, full_paths
        self.links, self.wraps, self.how = False, 0, ""

    def typed(self, step: str) -> str:
        """A line to type next, as it is typed here: one of the pack's commands with what starts it, a shell's own as it is."""
        return self.how + step if re.match(r"(llm\b|py[a-z]|help )", step) else step

    def paint(self, what: str, text: str) -> str:
        """`text` in the colour of `what`, one of `_CODES`."""
        return f"\x1b[{self._CODES[what]}m{text}\x1b[m" if self.enabled and text else text

    def title(self, text: str) -> str:
        return self.paint("title", text)

    def name(self, text: str) -> str:
        return self.paint("name", text)

    def file(self, text: str) -> str:
        return self.paint("file", text)

    def source(self, file: str, text: str) -> str:
        """`text`, which names a source file, painted, and as a link to it where that is possible."""
        text = self.file(text)
        if not self.links or not file.startswith("/") or "\\" in file:  # one with an escaped name has another one
            return text
        url = "".join(chr(b) if b in _SAFE else f"%{b:02X}" for b in os.fsencode(file))
        return f"{LINK}file://{os.uname().nodename}{url}\x1b\\{text}{LINK_END}"

    def path(self, file: str) -> str:
        """A source file's path, short but where all of it is wanted; not painted."""
        return file if self.full_paths else short_path(file)

    def address(self, text: str) -> str:
        return self.paint("address", text)

    def dim(self, text: str) -> str:
        return self.paint("dim", text)

    def bad(self, text: str) -> str:
        return self.paint("bad", text)

    def good(self, text: str) -> str:
        return self.paint("good", text)

    def value(self, text: str) -> str:
        return self.paint("value", text)


PLAIN = Style(False, 0)


def table(
    rows: Sequence[Sequence[str]],
    head: Sequence[str],
    style: Style = PLAIN,
    right: Container[str] = (),
    spare: Sequence[str] = (),
    short: Container[str] = (),
) -> str:
    """Aligned columns. `rows`: lists of str as long as `head`; `right`: names of right-aligned columns; `spare`: names of
    columns that a narrow terminal goes without, those that go first at the beginning; `short`: names of columns whose cells
    are cut in their middle rather than folded.

    Columns that are empty in every row are left out. The last column is never padded. A table that is wider than the terminal
    loses its spare columns, one after the other, and the line under it names them; then its widest columns of text are folded;
    where that is not enough, each row is a paragraph of all that there is."""
    columns = [[r[i] for r in rows] for i in range(len(head))]
    used = [i for i, cells in enumerate(columns) if any(visible_length(c) for c in cells)]
    widths = {i: max([len(head[i]), *(map(visible_length, columns[i]))]) for i in used}
    end: list[str] = []
    if style.width and _wide(widths) > style.width:
        kept = _chosen(widths, head, style.width, right, spare)
        if kept is None:
            return "\n".join(_paragraph(row, head, used, style) for row in rows)
        left = [head[i] for i in used if i not in kept]
        end = [style.dim(part) for part in fold(f"(no room for: {', '.join(left)})", style.width)] if left else []
        folded = {i: w for i, w in kept.items() if w < widths[i]}
        used, widths = list(kept), kept
        brief = {i: w for i, w in folded.items() if head[i] in short}
        rows = [[shortened(cell, brief.get(i, 0)) for i, cell in enumerate(row)] for row in rows] if brief else rows
        folded = {i: w for i, w in folded.items() if i not in brief}
        rows = [line for row in rows for line in _folded(row, folded)] if folded else rows

    def line(cells: Sequence[str], paint: Callable[[str], str] = lambda t: t) -> str:
        parts = []
        for i in used:
            pad = " " * (widths[i] - visible_length(cells[i]))
            if head[i] in right:
                parts.append(pad + paint(cells[i]))
            else:
                parts.append(paint(cells[i]) + (pad if i != used[-1] else ""))
        return _GAP.join(parts).rstrip()

    # Thousands of rows of ASCII are laid out by `format` alone.
    plain = _GAP.join(f"{{{i}:{'>' if head[i] in right else '<'}{widths[i]}}}" for i in used).format
    lines = (plain(*r).rstrip() if _is_plain("".join(r)) else line(r) for r in rows)
    return "\n".join([line(head, style.title), *lines, *end])


_GAP = "  "
_LEAST = 16  # columns of one that is folded
_ROOMY = 32  # where other columns can go instead


def _wide(widths: dict[int, int]) -> int:
    return sum(widths.values()) + len(_GAP) * (len(widths) - 1)


def _chosen(
    widths: dict[int, int], head: Sequence[str], room: int, right: Container[str], spare: Sequence[str]
) -> dict[int, int] | None:
    """The columns that are shown in so much room, with their widths; None where all of them are to be paragraphs. As few of the
    `spare` as possible go: each column of text that is folded is to be roomy, but where nothing else can go."""
    present = [i for name in spare for i in widths if head[i] == name]
    for gone in range(len(present) + 1):
        kept = {i: w for i, w in widths.items() if i not in present[:gone]}
        texts = {i: w for i, w in kept.items() if head[i] not in right}
        narrowed = _narrowed(texts, room, kept, head, _LEAST if gone == len(present) else _ROOMY)
        if narrowed is not None:
            return {**kept, **narrowed}
    return None


def _is_plain(text: str) -> bool:
    return text.isascii() and "\x1b" not in text


def _narrowed(texts: dict[int, int], room: int, widths: dict[int, int], head: Sequence[str], least: int) -> dict[int, int] | None:
    """The widths of the columns `texts`, the widest narrowed until all of `widths` fit; None where that is impossible: no column
    is narrowed to fewer than `least`."""
    over = _wide(widths) - room
    kept = dict(texts)
    while over > 0:
        widest = max(kept, key=lambda i: kept[i], default=None)
        if widest is None or kept[widest] <= max(least, len(head[widest])):
            return None
        kept[widest] -= 1
        over -= 1
    return kept


def _folded(row: Sequence[str], widths: dict[int, int]) -> list[list[str]]:
    """A row as rows whose cells have room in the columns `widths`."""
    cells = [fold(cell, widths[i]) if i in widths else [cell] for i, cell in enumerate(row)]
    return [[c[n] if n < len(c) else "" for c in cells] for n in range(max(map(len, cells)))]


def _paragraph(row: Sequence[str], head: Sequence[str], used: Sequence[int], style: Style) -> str:
    """A row of a table that has no room: its cells below each other, each with the name of its column."""
    wide = max(len(head[i]) for i in used)
    lines: list[str] = []
    for i in used:
        if visible_length(row[i]):
            parts = fold(row[i], max(_LEAST, style.width - wide - 3 * len(_GAP)))
            mark = _GAP if lines else "- "
            lines += [f"{mark}{style.title(head[i])}{' ' * (wide - len(head[i]))}{_GAP}{parts[0]}"]
            lines += [" " * (wide + 2 * len(_GAP)) + part for part in parts[1:]]
    return "\n".join(lines)


def size(count: float) -> str:
    """Bytes for people: 512 B, 1.5 KiB, 2.0 GiB."""
    if count < 1024:
        return f"{count} B"
    for unit in ("KiB", "MiB", "GiB"):
        count /= 1024
        if count < 1024:
            return f"{count:.1f} {unit}"
    return f"{count / 1024:.1f} TiB"


# Where no pause was measured, since none was needed
ASLEEP = "paused: no process"


def seconds(value: float) -> str:
    """A duration for people: 0.63 ms, 2.41 s, 3m12s, 2h05m, 3d04h."""
    if value < 1:
        return f"{value * 1000:.2f} ms"
    if value < 60:
        return f"{value:.2f} s"
    if value < 3600:
        return f"{int(value) // 60}m{int(value) % 60:02d}s"
    if value < 86400:
        return f"{int(value) // 3600}h{int(value) % 3600 // 60:02d}m"
    return f"{int(value) // 86400}d{int(value) % 86400 // 3600:02d}h"
