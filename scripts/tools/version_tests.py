"""Lists each place of the pack that asks which CPython a process runs: what to look through for a new minor, beside the table
of gdbext/cpython/minors.py, which is left out.

  scripts/version-tests [ROOM ...]

One line for each: file, line, source. Found are comparisons with a pair such as (3, 12), and of an item of a version. What asks
for the interpreter that runs the pack itself (sys.version_info) is left out."""

from __future__ import annotations

import ast
import glob
import os
import sys
from typing import Iterator, NamedTuple

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TABLE = os.path.join("gdbext", "cpython", "minors.py")


class Place(NamedTuple):
    path: str  # from the repository's folder
    line: int
    source: str

    @property
    def room(self) -> str:
        return self.path.split(os.sep)[1]


def is_minor(node: ast.AST) -> bool:
    """(3, 12)"""
    values = [e.value for e in node.elts if isinstance(e, ast.Constant)] if isinstance(node, ast.Tuple) else []
    return len(values) == 2 and values[0] == 3 and isinstance(values[1], int) and values[1] >= 8


def is_item(node: ast.AST) -> bool:
    """version[1]"""
    return isinstance(node, ast.Subscript) and ast.unparse(node.value).endswith("version") and ast.unparse(node.slice) == "1"


def asks(node: ast.AST) -> bool:
    """Whether a node compares a version with a minor."""
    if not isinstance(node, ast.Compare) or "sys.version_info" in ast.unparse(node):
        return False
    parts = [part for side in (node.left, *node.comparators) for part in (side, *getattr(side, "elts", ()))]
    return any(is_minor(part) or is_item(part) for part in parts)


def places(source: str, path: str) -> Iterator[Place]:
    """Each line of a module that asks."""
    lines = source.splitlines()
    for line in sorted({node.lineno for node in ast.walk(ast.parse(source)) if asks(node)}):
        yield Place(path, line, lines[line - 1].strip())


def of_the_pack() -> list[Place]:
    found = []
    for path in sorted(glob.glob(os.path.join(ROOT, "gdbext", "*", "**", "*.py"), recursive=True)):
        with open(path, encoding="utf-8") as f:
            found += places(f.read(), os.path.relpath(path, ROOT)) if os.path.relpath(path, ROOT) != TABLE else ()
    return found


def main(rooms: list[str]) -> int:
    for one in of_the_pack():
        if not rooms or one.room in rooms:
            print(f"{one.path}:{one.line}: {one.source}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] in (["-h"], ["--help"]):
        print((__doc__ or "").strip())
        sys.exit()
    sys.exit(main(sys.argv[1:]))
