"""Elements of every dtype decode to the values that the formats' definitions give."""

import math
import struct

import pytest

from gdbext.errors import LayoutError
from gdbext.torch import layout as layouts
from gdbext.torch.dtypes import DTYPES, from_scalar_type


def test_every_scalar_type_of_every_release_has_a_name_and_a_size():
    for minor in layouts.known():
        for enumerator in layouts.for_version(minor).row["ScalarType"]:
            if enumerator not in ("Undefined", "NumOptions"):
                assert from_scalar_type(enumerator).itemsize in (1, 2, 4, 8, 16)


def test_a_dtype_that_is_not_known_is_refused_by_name():
    with pytest.raises(LayoutError, match="Float3_e1m1"):
        from_scalar_type("Float3_e1m1")


@pytest.mark.parametrize(
    "name,code,values",
    [
        ("uint8", "B", [0, 255]),
        ("int8", "b", [-128, 127]),
        ("int16", "h", [-32768, 5]),
        ("int32", "i", [-(2**31), 7]),
        ("int64", "q", [-(2**63), 2**63 - 1]),
        ("uint16", "H", [65535, 0]),
        ("uint32", "I", [2**32 - 1]),
        ("uint64", "Q", [2**64 - 1]),
        ("float16", "e", [1.5, -65504.0]),
        ("float32", "f", [1.5, -0.0]),
        ("float64", "d", [1e300, math.inf]),
    ],
)
def test_plain_numbers(name, code, values):
    assert DTYPES[name].decode(struct.pack(f"<{len(values)}{code}", *values)) == values


def test_bfloat16_is_the_upper_half_of_a_float():
    raw = [0x3F80, 0xC000, 0x7F80, 0x0001, 0x8000]
    found = DTYPES["bfloat16"].decode(struct.pack("<5H", *raw))
    assert found == [1.0, -2.0, math.inf, 2.0**-133, 0.0] and math.copysign(1, found[4]) == -1
    assert math.isnan(DTYPES["bfloat16"].decode(b"\xc1\x7f")[0])


def test_complex_numbers_are_pairs():
    assert DTYPES["complex32"].decode(struct.pack("<2e", 1, -2)) == [1 - 2j]
    assert DTYPES["bcomplex32"].decode(b"\x80\x3f\x00\xc0") == [1 - 2j]
    assert DTYPES["complex64"].decode(struct.pack("<4f", 1, 2, 3, 4)) == [1 + 2j, 3 + 4j]
    assert DTYPES["complex128"].decode(struct.pack("<2d", 0.1, 0.2)) == [0.1 + 0.2j]


def test_any_nonzero_byte_is_true():
    assert DTYPES["bool"].decode(b"\0\x01\x02\xff") == [False, True, True, True]


@pytest.mark.parametrize(
    "name,largest,byte,smallest,nan,infinite",
    [
        ("float8_e5m2", 57344.0, 0x7B, 2.0**-16, [0x7D, 0x7E, 0x7F, 0xFF], [0x7C]),
        ("float8_e4m3fn", 448.0, 0x7E, 2.0**-9, [0x7F, 0xFF], []),
        ("float8_e5m2fnuz", 57344.0, 0x7F, 2.0**-17, [0x80], []),
        ("float8_e4m3fnuz", 240.0, 0x7F, 2.0**-10, [0x80], []),
        ("float8_e8m0fnu", 2.0**127, 0xFE, None, [0xFF], []),
    ],
)
def test_float8_kinds(name, largest, byte, smallest, nan, infinite):
    values = DTYPES[name].decode(bytes(range(256)))
    assert values[byte] == largest == max(v for v in values if math.isfinite(v))
    assert smallest is None or values[1] == smallest
    assert all(math.isnan(values[b]) for b in nan) and [i for i, v in enumerate(values) if v == math.inf] == infinite
    assert sum(map(math.isnan, values)) == (6 if name == "float8_e5m2" else len(nan))
