"""numpy arrays of drawn dtypes, shapes and layouts as `A`. Prints {"reprs": {expression: repr}, "sums": {expression: [digest of
its elements, least, greatest, digest of its last part]}} of them, of parts and of fields."""

import hashlib
import json
import random
import sys
import time

import numpy as np

SIMPLE = (
    "bool int8 uint8 int16 uint16 int32 uint32 int64 uint64 float16 float32 float64 complex64 complex128 longdouble >i2 >u4 >i8 "
    ">f4 >f8 >c8 S5 U3 >U4 V6 M8[ns] M8[25us] M8[D] m8[s] m8 >M8[ms] longlong ulonglong"
).split()


class Thing:
    def __repr__(self):
        return "unused"


def kind(draw, depth=0):
    if depth > 2 or draw.random() < 0.6:
        return draw.choice(SIMPLE)
    if draw.random() < 0.3:
        return (kind(draw, depth + 1), draw.choice([(2,), (3, 2), (1,)]))
    return [(f"f{i}", kind(draw, depth + 1)) for i in range(draw.randrange(1, 4))]


def drawn(draw):
    dtype = np.dtype(kind(draw), align=draw.random() < 0.3)
    while dtype.subdtype:
        dtype = dtype.base
    shape = tuple(draw.choice([1, 2, 3, 5, 11]) for _ in range(draw.randrange(5)))
    raw = bytes(draw.choice((0, 1, 2, 3, 60)) for _ in range(int(np.prod(shape, dtype=int)) * dtype.itemsize))
    made = np.frombuffer(raw, np.uint8).copy().view(dtype).reshape(shape)
    way = draw.randrange(5)
    if way == 1:
        made = made.T
    elif way == 2 and made.ndim:
        made = made[::-1]
    elif way == 3 and made.ndim > 1:
        made = made[..., ::-2]
    elif way == 4 and made.ndim:
        made = np.broadcast_to(made, (2, *made.shape))
    return made


def clean(dtype):
    """Whether all its bytes mean something: no booleans of 2, no text that is none, no pads of long doubles."""
    if dtype.subdtype:
        return clean(dtype.base)
    if dtype.names:
        return all(clean(dtype.fields[n][0]) for n in dtype.names)
    return dtype.kind not in "bU" and dtype.char not in "gG"


draw = random.Random(int(sys.argv[1]))
A, truth = [], {}
while len(A) < 120:
    made = drawn(draw)
    if not clean(made.dtype):
        continue
    A.append(made)
A += [
    np.array([True, False, True]),
    np.array(["abc", "", "\u00e9\u4e2d"]),
    np.array([["a", "bb"]], ">U2"),
    np.array([1.5, -2.25e300, np.inf, np.nan], np.longdouble),
    np.array([1 + 2j, -3.5j], np.clongdouble),
    np.array([1, "two", None, [3, 4]], object),
    np.array(object(), object)[()] and np.array([[None, (1, 2)], [{"a": 1}, 2.5]], object),
    np.array([(1, "x", 2.5), (2, "y", None)], [("n", "i4"), ("o", object), ("p", object)]),
    np.array(np.datetime64("NaT")),
    np.array(["2024-01-02", "NaT"], "M8[D]"),
    np.arange(5000).astype("M8[h]"),
    np.zeros(3000, [("a", ">i2"), ("b", "f4", (2,))]),
    np.arange(2000).astype(object),
    np.array([(1, 2)], np.dtype([(("title", "a"), "i4"), ("b", "i2")])),
    np.array([1, 2, 3], np.dtype(">f2")),
]
A.append(np.arange(3 * 700 * 900, dtype=">f4").reshape(3, 700, 900)[::-1, ::3])  # read in more than one piece
sums = {}


def digest(made):
    return hashlib.sha256(np.ascontiguousarray(made, made.dtype.newbyteorder("<")).tobytes()).hexdigest()


def tell(text, made):
    """Of what torch has a dtype for."""
    if made.dtype.names or made.dtype.kind not in "biufc" or made.dtype.char in "gG" or not made.size:
        return
    ends = [None, None] if made.dtype.kind == "c" else [made.min().item(), made.max().item()]
    sums[text] = [digest(made), *ends, digest(made[..., -1:]) if made.ndim else ""]


for i, made in enumerate(A):
    tell(f"A[{i}]", made)
    for name in made.dtype.names or ():
        tell(f"A[{i}]['{name}']", made[name])
for i, made in enumerate(A):
    truth[f"A[{i}]"] = repr(made)
    if made.dtype.names:
        for name in made.dtype.names:
            truth[f"A[{i}]['{name}']"] = repr(made[name])
    if made.ndim > 1 and made.shape[0]:
        truth[f"A[{i}][-1]"] = repr(made[-1])
        truth[f"A[{i}][..., ::-1]"] = repr(made[..., ::-1])
# scalars: names that are another's too, long ones, times; each beside its healthy twin
S = [c(11) for c in (np.longlong, np.ulonglong, np.intc, np.int64, np.uint64, np.short, np.bool_)]
for text in ("0.9", "-0.0", "inf", "nan", "1e4000", "1e-4000", "12345.5", "1e16", "1e22"):
    S += [np.longdouble(text), np.clongdouble(np.longdouble(text)), np.longdouble(text) * np.clongdouble(1j), np.float64(text)]
S += [np.clongdouble(0.3 - 5j), np.clongdouble(-1j), np.complex128(0.3 - 5j)]
for unit in "YMWDhms":
    S += [np.datetime64(19724, unit), np.timedelta64(-5, unit), np.datetime64("NaT", unit)]
S += [np.datetime64(3, "25us"), np.timedelta64(7, "10ns"), np.timedelta64(7), np.datetime64("NaT"), np.timedelta64("NaT", "ms")]
truth.update({f"S[{i}]": repr(one) for i, one in enumerate(S)})
if __name__ == "__main__":
    print(json.dumps({"reprs": truth, "sums": sums}), flush=True)
    time.sleep(3600)
