"""The tables and numbers that a kernel's blocks work by, read from the kernel's parameter memory on the device.

FlashInfer passes one structure by value (layouts/flashinfer.json, from its sources). It has several layouts, and the fields that
are needed follow those of the attention variant. The launch itself proves which layout it is and where these fields begin: the
grid is padded_batch_size by KV heads.

Triton passes its arguments one after the other, each aligned to its own size. Its own objects say which arguments there are and
which values were compiled in (kernels/triton.py).
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any, Callable, Optional, Sequence, Tuple

from .. import log, package
from ..errors import GdbextError, NotFoundError
from . import launch, signatures

if TYPE_CHECKING:
    from . import triton
Parameter = Tuple[str, str, Optional[int]]  # name, C type, size in bytes or None where the type gives it
Fields = Sequence[Tuple[str, str]]  # name, struct format

MOST = 4096  # bytes of parameters a kernel can have (32764 from CUDA 12.1 on: attention kernels are far below)
_SIZE = {"I": 4, "i": 4, "f": 4, "?": 1, "Q": 8}


def first_address(major: int) -> int:
    """The offset at which the parameters begin in a GPU's parameter memory, by the first number of its compute capability:
    EIATTR_PARAM_CBANK in code of nvcc 13.0."""
    return 0x160 if major < 9 else 0x210 if major == 9 else 0x380


def layouts(rule: str) -> list[dict[str, Any]]:
    """The rows of layouts/flashinfer.json for a rule of kernels/focus.py."""
    rows: list[dict[str, Any]] = package.table("layouts/flashinfer.json")["rules"][rule]
    return rows


def _fields(data: bytes, at: int, wanted: Fields) -> dict[str, Any] | None:
    """{name: value} of consecutive fields from `at` on, each aligned to its size; None where the bytes end too early."""
    found = {}
    for name, kind in wanted:
        at = -(-at // _SIZE[kind]) * _SIZE[kind]
        if at + _SIZE[kind] > len(data):
            return None
        found[name] = struct.unpack_from("<" + kind.replace("?", "B"), data, at)[0]
        at += _SIZE[kind]
    return found


def _plausible(fields: Fields, values: dict[str, Any], grid: Sequence[int], kv_heads: int) -> bool:
    """Whether values can be those of a launch: the grid is padded_batch_size by KV heads, a row of q holds all heads, and
    addresses lie in the range of a GPU's memory."""
    heads, each, row = values["num_qo_heads"], values["q_stride_h"], values["q_stride_n"]
    if not (
        values["padded_batch_size"] == grid[0]
        and heads
        and heads % kv_heads == 0
        and each >= 16
        and each % 8 == 0
        and heads * each <= row
        and row % each == 0
        and values.get("num_kv_heads", kv_heads) == kv_heads
        and values["request_indices"]
        and -1 <= values["window_left"] < 1 << 28
    ):
        return False
    fits: dict[str, Callable[[float], bool]] = {
        "Q": lambda v: v == 0 or 1 << 32 <= v < 1 << 57,
        "?": lambda v: v < 2,
        "I": lambda v: v < 1 << 31,
        "f": lambda v: v == 0 or 1e-20 < abs(v) < 1e20,
    }
    return all(kind not in fits or fits[kind](values[name]) for name, kind in fields)


def flashinfer(rule: str, data: bytes, grid: Sequence[int], name: str = "") -> tuple[dict[str, Any], dict[str, str]]:
    """`({field: value}, {"structure", "releases"})` of FlashInfer's parameters; `name`: of the kernel, whose template arguments
    may name the structure. `NotFoundError` where no known layout fits the launch."""
    kv_heads = grid[1] if rule == "flashinfer-decode" else grid[2]
    rows = [row for row in layouts(rule) if re.search(rf"\b{row['structure']}\b", name)] or layouts(rule)
    fitting: dict[tuple[int, int, int], tuple[dict[str, Any], dict[str, str]]] = {}
    for row in rows:
        for at in range(0, len(data) - 3, 4):
            found = _fields(data, at, row["fields"])
            if found is None:
                break
            if _plausible(row["fields"], found, grid, kv_heads):
                known = {"structure": row["structure"], "releases": f"{row['first']} to {row['last']}"}
                fitting.setdefault((found["num_qo_heads"], found["request_indices"], found["block_valid_mask"]), (found, known))
    if len(fitting) != 1:
        many = (
            "none of the known layouts of FlashInfer's parameters"
            if not fitting
            else f"more than one of the known layouts ({len(fitting)})"
        )
        raise NotFoundError(
            f"{many} (releases {rows[0]['first']} to {rows[-1]['last']}) fits this launch: "
            f"give -queries-per-kv N and -table ADDR, the "
            "device address of request_indices"
        )
    return next(iter(fitting.values()))


def arguments(wanted: Sequence[Parameter], data: bytes) -> list[launch.Argument]:
    """The `launch.Argument`s of `[(name, C type, size in bytes or None where the type gives it)]`, from parameter memory
    (`data`): one after the other, each aligned to its own size. They end with the bytes, or before a type of unknown size."""
    found: list[launch.Argument] = []
    at = 0
    for name, kind, size in wanted:
        known = None if size else signatures.scalar(kind)
        size = size or (known[0] if known else 0)
        at = -(-at // size) * size if size else len(data)
        piece = data[at : at + size]
        if not size or len(piece) < size:
            break
        value = struct.unpack("<" + known[1], piece)[0] if known else piece.hex()
        found.append(launch.Argument(len(found), kind, value, known is None, name))
        at += size
    return found


def of_triton(compiled: triton.Compiled, data: bytes) -> dict[str, Any]:
    """{name: value} of a compiled kernel: the values that were compiled in, and the arguments in parameter memory (`data`, b""
    where it cannot be read)."""
    return {**compiled.constants, **{a.name: a.value for a in arguments(compiled.parameters, data) if not a.raw}}


class Facts:
    """The facts of several candidates: kernels of one name that differ in their constants. A value counts only if all of them
    agree on it."""

    def __init__(self, candidates: Sequence[dict[str, Any]] = (), why: str = "") -> None:
        """`candidates`: [{name: value}]; `why`: the reason where there is none."""
        self.candidates, self.why = list(candidates), why

    def narrowed(self, fits: Callable[[dict[str, Any]], bool]) -> Facts:
        """The candidates that fit the launch."""
        return Facts(
            [c for c in self.candidates if fits(c)],
            "no compiled kernel of this name fits the grid" if self.candidates else self.why,
        )

    def get(self, *names: str) -> Any:
        """The value of the first of `names` that is known and the same in all sources, else None."""
        for name in names:
            values = {c.get(name) for c in self.candidates}
            if len(values) == 1 and None not in values:
                return values.pop()
        return None

    def reason(self, name: str) -> str:
        """Why `get` returns None."""
        if not self.candidates:
            return self.why or "no process with the kernel's own objects is here"
        values = sorted({str(c.get(name)) for c in self.candidates})
        if len(values) > 1:
            return f"{len(self.candidates)} kernels of this name were compiled, with {name} {', '.join(values[:6])}"
        return f"the kernel has no {name}"


def read(device: Any, limit: int = MOST) -> bytes:
    """The parameter bytes of the kernel in focus, as many as there are; `GdbextError` where they cannot be read."""
    data, step = b"", 256
    while step >= 4 and len(data) < limit:
        try:
            data += device.parameter_bytes(len(data), step)
        except GdbextError as e:
            log.passed_over(e)
            if not data and step == 4:
                raise
            step //= 2
    return data
