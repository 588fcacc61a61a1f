"""Which offsets hold for a CPython: a generated table per minor, CPython's own debug offsets over it from 3.13 on.

The tables are made by scripts/make-cpython-layouts, for x86-64, with the differences on other architectures. Keys
are "struct.field", values byte offsets; "struct.__size" sizes.
"""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any

from .. import log, package
from ..errors import LayoutError

if TYPE_CHECKING:
    from ..access.base import Target

_FOLDER = "layouts/cpython"
DEBUG_COOKIE = b"xdebugpy"


def known() -> list[str]:
    """The versions that there are tables for: ["3.9", …, "3.13t"]."""
    names = [n[:-5] for n in package.names(_FOLDER) if n.endswith(".json")]
    return sorted(names, key=lambda n: (int(n.rstrip("t").split(".")[1]), n))


class Layout:
    """Offsets of one CPython build: `layout["tstate.next"]` -> bytes, `layout.get(key)` -> bytes or None."""

    def __init__(self, version: tuple[int, int], free_threaded: bool, offsets: dict[str, int]) -> None:
        self.version, self.free_threaded, self.offsets = version, free_threaded, offsets

    def __getitem__(self, key: str) -> int:
        try:
            return self.offsets[key]
        except KeyError:
            raise LayoutError(f"CPython {self.name} has no {key} in its layout; run scripts/make-cpython-layouts") from None

    def __contains__(self, key: str) -> bool:
        return key in self.offsets

    def get(self, key: str, default: int | None = None) -> Any:
        return self.offsets.get(key, default)

    @property
    def frame_code(self) -> int:
        """Where a frame has its code object: in the frame object until 3.10; `f_executable` since 3.13."""
        return self[next((k for k in ("iframe.f_executable", "iframe.f_code") if k in self), "frameobj.f_code")]

    @property
    def frame_instruction(self) -> int:
        """Where an interpreter frame has the address of its instruction: `instr_ptr` since 3.13."""
        return self["iframe.instr_ptr" if "iframe.instr_ptr" in self else "iframe.prev_instr"]

    @property
    def name(self) -> str:
        return "{}.{}{}".format(*self.version, "t" if self.free_threaded else "")


def load(version: tuple[int, int], free_threaded: bool = False, arch: str = "x86-64") -> Layout:
    """The table for `version` = (3, 11), with the differences on `arch`. Where there is none: `LayoutError` that names the known
    versions."""
    return _load((version[0], version[1]), bool(free_threaded), arch)


@functools.lru_cache(maxsize=None)
def _load(version: tuple[int, int], free_threaded: bool, arch: str) -> Layout:
    name = "{}.{}{}".format(*version, "t" if free_threaded else "")
    try:
        found = _table(name)
    except OSError:
        raise LayoutError(
            f"CPython {name} is not known here (known: {', '.join(known())}); "
            f"add it with: scripts/make-cpython-layouts python{name}"
        ) from None
    return Layout(version, free_threaded, {**found["offsets"], **found.get(arch, {})})


def _table(name: str) -> dict[str, Any]:
    found: dict[str, Any] = package.table(f"{_FOLDER}/{name}.json")
    return found


def debug_offsets(layout: Layout) -> dict[str, int]:
    """Where `_Py_DebugOffsets` has each of its fields; {} in a minor that has none."""
    return _table(layout.name).get("debug_offsets") or {}


def from_process(target: Target, runtime_address: int, version: tuple[int, int], free_threaded: bool) -> Layout:
    """The layout for a process: the table, corrected by the debug offsets at `_PyRuntime` where there are any."""
    layout = load(version, free_threaded, target.arch)
    order, names = debug_offsets(layout), _table(layout.name).get("debug_names") or {}
    if not order or target.read(runtime_address, 8) != DEBUG_COOKIE:
        return layout
    told: dict[str, int] = {}
    blob = target.read(runtime_address, max(order.values()) + 8)
    for theirs, ours in names.items():
        if theirs in order and ours in layout:
            (value,) = struct.unpack_from("<Q", blob, order[theirs])
            if value > 1 << 20:
                raise LayoutError(f"the debug offsets of this CPython {layout.name} make no sense: {theirs} = {value}")
            told[ours] = value
    corrected = _corrected(layout.offsets, told)
    if log.enabled():
        moved = [f"{key} {layout.offsets[key]} to {at}" for key, at in corrected.items() if layout.offsets[key] != at]
        gone = sorted(layout.offsets.keys() - corrected.keys())
        log.note("the debug offsets move %d of the table for %s: %s; not there: %s", len(moved), layout.name, moved, gone)
    return Layout(layout.version, layout.free_threaded, corrected)


def _corrected(table: dict[str, int], told: dict[str, int]) -> dict[str, int]:
    """`table` with the offsets that a process has `told`.

    A patch release may add fields to a structure (3.14.5 added three to the collector's state, which is part of the
    interpreter's). So a field that is not told moves with the last one before it that is. A field beyond its structure's end is
    dropped.
    """
    moves: dict[str, list[tuple[int, int]]] = {}
    for key in sorted(told, key=table.__getitem__):
        if not key.endswith(".__size"):
            moves.setdefault(key.partition(".")[0], []).append((table[key], told[key] - table[key]))
    found = {}
    for key, offset in table.items():
        name = key.partition(".")[0]
        if not key.endswith(".__size"):
            offset += next((by for at, by in reversed(moves.get(name, ())) if at <= offset), 0)
        if offset < told.get(f"{name}.__size", offset + 1):
            found[key] = offset
    return {**found, **told}
