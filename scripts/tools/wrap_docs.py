"""Wraps the paragraphs and list items of Markdown files at 100 columns, so that a change of a sentence is a diff of a few lines.

  scripts/wrap-docs [--check] [FILE ...]      default: README.md, CHANGELOG.md, CONTRIBUTING.md, docs/*.md and docs/news/*.md

Tables, code, headings and comments stay as they are: a row cannot be wrapped, and a long line of code is for its writer to
shorten. --check writes nothing; its exit status is 1 where something would change or a line is too long."""

from __future__ import annotations

import glob
import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
WIDTH = 100
ITEM = re.compile(r"( *)([*+-]|\d+[.)]) +")
OTHER = re.compile(r" *(\||#|<!--|```|~~~)|\[[^]]+\]: ")  # a table, a heading, a comment, a fence, a link's target
BEGINS = re.compile(r"([*+-]|\d+[.)]|#+|>|\|.*)$")  # a word that would mean something else where a line begins


def words_of(text: str) -> list[str]:
    """The pieces of a paragraph that stay on one line: words, and code in backticks with the spaces in it."""
    return re.findall(r"(?:`[^`]*`|[^\s`]|`)+", text)


def wrapped(text: str, first: str = "", rest: str = "", width: int = WIDTH) -> list[str]:
    """The lines of a paragraph, which begin with `first` and `rest`."""
    lines, current = [], []
    room = width - len(first)
    for word in words_of(text):
        if current and len(" ".join([*current, word])) > room:
            moved = [current.pop()] if BEGINS.match(word) and len(current) > 1 else []
            lines.append(" ".join(current))
            current, room = moved, width - len(rest)
        current.append(word)
    lines.append(" ".join(current))
    return [(rest if number else first) + line for number, line in enumerate(lines)]


def wrap(text: str, width: int = WIDTH) -> str:
    """A Markdown text with its paragraphs and list items wrapped."""
    found: list[str] = []
    block: list[str] = []
    fenced = False

    def end() -> None:
        if block:
            item = ITEM.match(block[0])
            first = item.group(0) if item else re.match(" *", block[0]).group(0)
            rest = " " * len(first) if item else first
            found.extend(wrapped(" ".join([block[0][len(first) :], *block[1:]]), first, rest, width))
            block.clear()

    in_list = False
    for line in text.splitlines():
        fence = re.match(r" *(```|~~~)", line)
        if fenced or fence or not line.strip() or OTHER.match(line):
            end()
            fenced = fenced != bool(fence)
            in_list = in_list and not re.match(r"\S", line)
            found.append(line)
        elif ITEM.match(line) and (in_list or len(ITEM.match(line).group(1)) < 4):
            end()
            in_list = True
            block.append(line)
        elif block:
            block.append(line)
        elif line.startswith("    ") and not in_list:
            found.append(line)
        else:
            in_list = in_list and line.startswith("  ")
            block.append(line)
    end()
    return "\n".join(found) + "\n"


def too_long(text: str, width: int = WIDTH) -> list[int]:
    """Numbers of the lines that are longer and no row of a table."""
    return [n for n, line in enumerate(text.splitlines(), 1) if len(line) > width and not line.lstrip().startswith("|")]


def pages() -> list[str]:
    names = [os.path.join(ROOT, name) for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    return names + sorted(glob.glob(os.path.join(ROOT, "docs", "*.md")) + glob.glob(os.path.join(ROOT, "docs", "news", "*.md")))


def main(words: list[str]) -> int:
    check, status = "--check" in words, 0
    for path in [w for w in words if w != "--check"] or pages():
        with open(path, encoding="utf-8") as f:
            text = f.read()
        new = wrap(text)
        if new != text and not check:
            with open(path, "w", encoding="utf-8") as f:
                f.write(new)
        for number in too_long(new):
            print(f"{os.path.relpath(path)}:{number}: longer than {WIDTH} columns")
            status = 1
        if new != text and check:
            print(f"{os.path.relpath(path)}: run scripts/wrap-docs")
            status = 1
    return status


if __name__ == "__main__":
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print((__doc__ or "").strip())
        sys.exit()
    sys.exit(main(sys.argv[1:]))
