"""Elements of ml_dtypes' number types, which numpy lacks: bfloat16, floats of 8, 6 and 4 bits, integers of 4, 2 and 1, each in a
byte of its own.

Formats: OCP Microscaling v1.0 and ml_dtypes' README; tests/gdb/test_numpy_arrays.py holds the values against ml_dtypes itself.
"""

from __future__ import annotations

import struct
from typing import Any, Callable

# name -> bits of the exponent, of the mantissa, bias, what stands for no number ("ieee": the top exponent; "fn": all ones;
# "fnuz": minus zero; "": nothing)
FLOATS = {
    "float8_e5m2": (5, 2, 15, "ieee"),
    "float8_e4m3": (4, 3, 7, "ieee"),
    "float8_e3m4": (3, 4, 3, "ieee"),
    "float8_e4m3fn": (4, 3, 7, "fn"),
    "float8_e4m3fnuz": (4, 3, 8, "fnuz"),
    "float8_e4m3b11fnuz": (4, 3, 11, "fnuz"),
    "float8_e5m2fnuz": (5, 2, 16, "fnuz"),
    "float6_e2m3fn": (2, 3, 1, ""),
    "float6_e3m2fn": (3, 2, 3, ""),
    "float4_e2m1fn": (2, 1, 1, ""),
}
INTEGERS = {"int1": 1, "int2": 2, "int4": 4, "uint1": 1, "uint2": 2, "uint4": 4}  # -> bits, the low ones


def table(name: str) -> list[Any]:
    """The value of each of the 256 bytes of a type of FLOATS or INTEGERS, or of float8_e8m0fnu, a bare exponent."""
    if name == "float8_e8m0fnu":
        return [2.0 ** (b - 127) for b in range(255)] + [float("nan")]
    if name in INTEGERS:
        top = 1 << INTEGERS[name]
        low = [b & top - 1 for b in range(256)]
        return low if name[0] == "u" else [v - top * (v >= top >> 1) for v in low]
    return [_float(b, *FLOATS[name]) for b in range(256)]


def _float(byte: int, exponent: int, mantissa: int, bias: int, no_number: str) -> float:
    e, m = byte >> mantissa & (1 << exponent) - 1, byte & (1 << mantissa) - 1
    if no_number == "ieee" and e == (1 << exponent) - 1:
        value = float("nan") if m else float("inf")
    elif no_number == "fn" and byte & 127 == 127 or no_number == "fnuz" and byte == 128:
        value = float("nan")
    else:
        value = (m if e == 0 else m + (1 << mantissa)) * 2.0 ** (max(e, 1) - bias - mantissa)
    return -value if byte >> (exponent + mantissa) & 1 else value


def bfloat16(blob: bytes) -> list[float]:
    """The upper halves of floats."""
    halves = struct.unpack(f"<{len(blob) // 2}H", blob)
    return list(struct.unpack(f"<{len(halves)}f", struct.pack(f"<{len(halves)}I", *[h << 16 for h in halves])))


def decoder(full_name: str) -> Callable[[bytes], list[Any]] | None:
    """What makes numbers of the bytes of elements whose type is "ml_dtypes.int4"; None for another type."""
    package, _, name = full_name.rpartition(".")
    if package != "ml_dtypes":
        return None
    if name == "bfloat16":
        return bfloat16
    if name not in FLOATS and name not in INTEGERS and name != "float8_e8m0fnu":
        return None
    values = table(name)
    return lambda blob: [values[b] for b in blob]
