"""Conditions on kernel launches, and a launch in one line."""

from __future__ import annotations

import re

from ..cpython import expressions
from ..errors import GdbextError
from ..kernels import catalogue
from ..kernels.launch import Launch
from ..render.names import short


def word_of(name: str) -> str:
    """The identifier in a NAME, '' where it has none of its own."""
    last = name.rpartition("::")[2]
    return last if re.fullmatch(r"[A-Za-z_]\w*", last) and name != catalogue.PAGED else ""


def holds(condition: str, found: Launch) -> bool:
    """Whether a launch satisfies a condition on grid, block, cluster (zeros without one), name, stream, shared_bytes, args[i] and
    arguments by name."""
    if found.grid is None and re.search(r"\b(grid|block|cluster)\.[xyz]", condition):
        raise GdbextError(
            f"cannot evaluate {condition!r}: {found.base} is a function of the CPU and has no grid; name and args[i] are known "
            "of it"
        )
    names = {
        "grid": found.grid,
        "block": found.block,
        "cluster": found.cluster or (0, 0, 0),
        "name": found.name,
        "stream": found.stream,
        "shared_bytes": found.shared_bytes,
        "args": [a.value for a in found.arguments],
    }
    names.update({a.name: a.value for a in found.arguments if a.name and a.name not in names})
    return expressions.condition(None, prepared(condition), names=names)


def prepared(condition: str) -> str:
    """`grid.x` as people write it -> `grid[0]`."""
    return re.sub(r"\b(grid|block|cluster)\.([xyz])\b", lambda m: f"{m.group(1)}[{'xyz'.index(m.group(2))}]", condition)


def line_of(found: Launch) -> str:
    """A launch in one line."""
    text = short(found.name) if found.name else f"function {found.function:#x}"
    if found.grid is not None and found.block is not None:
        text += "  grid {} block {}".format(*("({},{},{})".format(*t) for t in (found.grid, found.block)))
        text += (
            " cluster ({},{},{})".format(*found.cluster) if found.cluster else ""
        ) + f" shared {found.shared_bytes} stream {found.stream:#x}"
    return text
