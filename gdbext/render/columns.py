"""Text in the columns of a terminal: its width, and lines cut or folded to the width of the terminal, colours kept."""

from __future__ import annotations

import re

COLOUR = re.compile(r"(\x1b\[[0-9;]*m|\x1b\]8;;[^\x1b]*\x1b\\)")  # and links
_END, LINK, LINK_END = "\x1b[m", "\x1b]8;;", "\x1b]8;;\x1b\\"


def columns_of(text: str) -> int:
    """The number of columns of `text`. Colours and combining characters take none, East Asia's wide characters two (Unicode's
    annex 11)."""
    if "\x1b" in text:
        text = COLOUR.sub("", text)
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(c: str) -> int:
    if c.isascii():
        return 1
    import unicodedata  # only for text that is not ASCII: a library of its own

    if unicodedata.category(c) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1


def cut(line: str, columns: int) -> str:
    """A line in at most so many columns, 0: all of it; a cut one ends in '...'. `line`: escaped, perhaps coloured."""
    if columns <= 0 or columns_of(line) <= columns:
        return line
    return _split(line, max(0, columns - 3), 0)[0] + "..."[:columns]


def shortened(text: str, columns: int) -> str:
    """A text in at most so many columns, 0: all of it; what is left out is in its middle, "..." stands for it. `text`: as of
    `cut`."""
    if columns <= 3 or columns_of(text) <= columns:
        return cut(text, columns)
    parts = COLOUR.split(text)
    size = sum(map(len, parts[::2]))
    if columns_of(text) != size:  # wide characters
        return cut(text, columns)
    begin = (columns - 3) * 2 // 5
    end, at, mark = size - (columns - 3 - begin), 0, "..."
    found: list[str] = []
    for i, part in enumerate(parts):
        if i % 2:
            found.append(part)
            continue
        here = mark if begin <= at + len(part) else ""
        mark = "" if here else mark
        found.append(part[: max(0, begin - at)] + here + part[max(0, end - at) :])
        at += len(part)
    return "".join(found)


def fold(line: str, columns: int) -> list[str]:
    """A line as lines of at most so many columns (at least 2), broken at spaces where there are some. `line`: as `cut` has it."""
    found, columns = [], max(2, columns)
    while columns_of(line) > columns:
        head, line = _split(line, columns, columns // 2)
        found.append(head.rstrip())
    return [*found, line]


def fitted(text: str, columns: int) -> str:
    """A help text of at most so many columns: paragraphs are filled anew, an indented line goes on as deep as what it says
    begins."""
    import itertools  # only where help is shown
    import textwrap

    lines: list[str] = []
    for paragraph, group in itertools.groupby(text.split("\n"), lambda line: bool(re.match(r"[^ \n]", line))):
        for line in [" ".join(group)] if paragraph else group:
            indent = len(_TABLE.match(line)[0])  # type: ignore[index]
            indent = min(indent if indent < len(line) else 0, columns // 2)
            fill = textwrap.TextWrapper(columns, subsequent_indent=" " * indent, break_on_hyphens=False, break_long_words=False)
            lines += fill.wrap(line) or [""]
    return "\n".join(lines)


_TABLE = re.compile(r" *(?:\S+(?: \S+)*  +)?")  # what stands before the text of a line


def wrapped(text: str, columns: int) -> str:
    """`text` whose lines have at most so many columns, 0: as it is. A longer one is broken at a space, in a word where none is
    far enough from its beginning, and goes on further in than it begins. What is to be copied into a shell, behind "run: ",
    stays whole."""
    if columns <= 0:
        return text
    lines = (line if len(line) <= columns and "\t" not in line else line.expandtabs() for line in text.split("\n"))
    return "\n".join(line if columns_of(line) <= columns else _hung(line, columns) for line in lines)


def _hung(line: str, columns: int) -> str:
    line, to_run, command = line.partition("; run: ")
    plain, line = COLOUR.sub("", line), line + to_run.rstrip()
    indent = min(len(plain) - len(plain.lstrip(_INDENT)), columns // 2)
    pad, found = " " * (indent + 2), []
    while columns_of(line) > columns:
        head, line = _split(line, columns, max(indent + 1, columns // 4))
        found.append(head.rstrip())
        line, indent = pad + line, len(pad)
    return "\n".join([*found, line, *([pad + command] if command else [])])


_INDENT = " │├└─|`-#"


def _split(line: str, columns: int, least: int) -> tuple[str, str]:
    """-> (the part that fits into `columns`, the rest), broken after the last space behind `least` columns, else in a word, of a
    path or a dotted name at a joint. A colour that is on at the break ends there and begins again; a link ends."""
    used, colour, link, place, broken, joint = 0, "", "", 0, (0, ""), (0, "")
    for i, part in enumerate(COLOUR.split(line)):
        if i % 2:
            if part.startswith(LINK):
                link = "" if part == LINK_END else LINK_END
            else:
                colour = "" if part == _END else part
            place += len(part)
            continue
        for c in part:
            used += _columns(c)
            if used > columns:
                place, colour = next((at for at in (broken, joint) if at[0]), (place, colour))
                return line[:place] + (_END if colour else "") + link, colour + line[place:].lstrip(" " if broken[0] else "")
            place += 1
            if c == " " and used > least > 0:
                broken = place, colour
            elif c in "/._,(" and used > columns // 2 and least > 0:
                joint = place, colour
    return line, ""
