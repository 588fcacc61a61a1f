"""numpy arrays of many dtypes, shapes and layouts as globals. Prints {expression: [repr, kind]} of them and of parts of them."""

import json
import time

import numpy as np

np.random.seed(7)
A = {}
for name in "bool int8 uint16 int32 int64 uint64 float16 float32 float64 complex64 complex128 >i4 >f8 >c16".split():
    whole = (np.random.rand(4, 5, 6) * 100).astype(name)
    A[name] = whole
    A[name + " turned"] = whole.T
    A[name + " part"] = whole[::2, ::-1, 1:4]
    A[name + " long"] = np.arange(3000).reshape(3, 1000).astype(name)
A["empty"], A["one"], A["none"] = np.zeros((0, 3)), np.array(5), np.zeros((3, 0, 2), "int8")
A["cube"] = np.arange(2 * 20 * 30 * 9, dtype="int32").reshape(2, 20, 30, 9)
KEYS = ["[1]", "[-1]", "[1, 2]", "[1, 2, 3]", "[1:3]", "[..., 0]", "[:, 1]", "[::2, ::-1, 1:3]", "[1][2][3]", "[0:2, 1].T"]
truth = {}
for name, value in A.items():
    truth[f"A[{name!r}]"] = repr(value)
    for key in KEYS if value.ndim == 3 and value.size == 120 else ():
        truth[f"A[{name!r}]{key}"] = repr(eval(f"A[{name!r}]{key}"))
print(json.dumps(truth), flush=True)
time.sleep(3600)
