"""torch's dtypes: names, sizes and decoding of elements, with the standard library alone.

Names of c10::ScalarType enumerators: layouts/torch.json. Definitions of the formats:

- half, float, double: IEEE 754; bfloat16: the upper half of a float.
- float8: arXiv 2209.05433 (e5m2, e4m3fn), arXiv 2206.02915 (the fnuz kinds: no infinities, no negative zero, NaN = 0x80), OCP
  Microscaling v1.0 (e8m0fnu: a bare exponent).
"""

from __future__ import annotations

import struct
from typing import Any, Sequence

from ..cpython.libraries import ml_dtypes
from ..errors import LayoutError

_LEGACY = {
    "Byte": "uint8",
    "Char": "int8",
    "Short": "int16",
    "Int": "int32",
    "Long": "int64",
    "Half": "float16",
    "Float": "float32",
    "Double": "float64",
    "ComplexHalf": "complex32",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}
_CODES = {
    "uint8": "B",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
    "bool": "?",
    "qint8": "b",
    "quint8": "B",
    "qint32": "i",
}
_COMPLEX = {"complex32": "e", "bcomplex32": "e", "complex64": "f", "complex128": "d"}
# Types that torch stores but neither computes with nor prints: shown as the bytes they are.
_RAW = {"quint4x2": 1, "quint2x4": 1, "bits1x8": 1, "bits2x4": 1, "bits4x2": 1, "bits8": 1, "bits16": 2}
_RAW.update({f"{u}int{n}": 1 for u in ("u", "") for n in range(1, 8)})


TABLES = {f"float8_{kind}": ml_dtypes.table(f"float8_{kind}") for kind in ("e5m2", "e4m3fn", "e5m2fnuz", "e4m3fnuz", "e8m0fnu")}


class DType:
    """`name`: torch's without "torch."; `itemsize` in bytes; `kind`: "float", "int", "bool", "complex", "quantized" or "raw"."""

    __slots__ = ("name", "itemsize", "kind")

    def __init__(self, name: str, itemsize: int, kind: str) -> None:
        self.name, self.itemsize, self.kind = name, itemsize, kind

    def __repr__(self) -> str:
        return f"DType({self.name!r})"

    def decode(self, blob: bytes) -> list[Any]:
        """The elements in `blob` (whole items): float, int, bool or complex; quantized and raw ones as the ints stored."""
        name, count = self.name, len(blob) // self.itemsize
        flat: Sequence[float]
        if name in _CODES:
            if name == "bool":
                return [b != 0 for b in blob]
            return list(struct.unpack(f"<{count}{_CODES[name]}", blob))
        if name == "bfloat16":
            return ml_dtypes.bfloat16(blob)
        if name in _COMPLEX:
            flat = ml_dtypes.bfloat16(blob) if name == "bcomplex32" else struct.unpack(f"<{2 * count}{_COMPLEX[name]}", blob)
            return [complex(flat[i], flat[i + 1]) for i in range(0, 2 * count, 2)]
        if name in TABLES:
            return [TABLES[name][b] for b in blob]
        return [int.from_bytes(blob[i : i + self.itemsize], "little") for i in range(0, len(blob), self.itemsize)]


def _make() -> dict[str, DType]:
    found = {}
    for name, code in _CODES.items():
        kind = "bool" if name == "bool" else "quantized" if name[:2] in ("qi", "qu") else "float" if code in "efd" else "int"
        found[name] = DType(name, struct.calcsize("<" + code), kind)
    for name, code in _COMPLEX.items():
        found[name] = DType(name, 2 * struct.calcsize("<" + code), "complex")
    for name in TABLES:
        found[name] = DType(name, 1, "float")
    for name, size in _RAW.items():
        found.setdefault(name, DType(name, size, "raw"))
    found["bfloat16"] = DType("bfloat16", 2, "float")
    found["float4_e2m1fn_x2"] = DType("float4_e2m1fn_x2", 1, "float")  # two values a byte; torch prints the bytes, so do we
    return found


DTYPES = _make()


def from_scalar_type(enumerator: str) -> DType:
    """`DType` of a c10::ScalarType enumerator ("Half", "Float8_e4m3fn"); `LayoutError` for an unknown one."""
    name = _LEGACY.get(enumerator) or enumerator.lower()
    if name not in DTYPES:
        raise LayoutError(f"dtype {enumerator} is not known here: its size and format belong in gdbext/torch/dtypes.py")
    return DTYPES[name]
