"""Arrays of jax and cupy (the libraries' own, or those of fake_device_arrays.c), `arrays`. It says the text of each.

device_arrays.py jax|cupy|fake"""

import json
import os
import random
import sys

import numpy

draw = random.Random(int(os.environ.get("GDBEXT_TEST_SEED", "3")))
SHAPES = [(), (5,), (2, 3), (4, 0, 2), *(tuple(draw.randrange(1, 6) for _ in range(draw.randrange(6))) for _ in range(6))]
DTYPES = [numpy.dtype(name) for name in ("float32", "int8", "bool", "complex64", "float16", "uint32")]
arrays, truth = [], []


def steps_of(shape, dtype):
    return numpy.empty(shape, dtype).strides


def of_jax():
    import jax.numpy

    for shape in SHAPES:
        array = jax.numpy.zeros(shape, draw.choice(DTYPES))
        arrays.append(array)
        truth.append(
            f"<jax.ArrayImpl shape {array.shape} {array.dtype} at {id(array):#x} with a {type(array.sharding).__name__}>"
        )
    arrays.append(jax.numpy.ones(3, jax.numpy.bfloat16))
    truth.append(f"<jax.ArrayImpl shape (3,) bfloat16 at {id(arrays[-1]):#x} with a SingleDeviceSharding>")


def of_cupy():
    import cupy

    memory = cupy.cuda.UnownedMemory(0x7F0000000000, 1 << 20, None, 0)  # nothing is there: nothing reads it
    for i, shape in enumerate(SHAPES):
        array = cupy.ndarray(shape, draw.choice(DTYPES), cupy.cuda.MemoryPointer(memory, 64 * i))
        arrays.append(array)
        truth.append(f"<cupy.ndarray shape {array.shape} {array.dtype} at {array.data.ptr:#x} on device {array.data.device_id}>")


def of_fakes():
    import fake_device_arrays as fakes

    class ShapedArray:
        def __init__(self, shape, dtype):
            self.shape, self.dtype = shape, dtype

    class NamedSharding:
        pass

    class ndarray(fakes.array):
        pass

    ShapedArray.__module__ = "jax._src.core"
    for i, shape in enumerate(SHAPES):
        dtype = draw.choice(DTYPES)
        at, device = 0x7F0000000000 + 64 * i, draw.randrange(8)
        arrays.append(fakes.of_cupy(ndarray, fakes.MemoryPointer, shape, steps_of(shape, dtype), dtype, at, device))
        truth.append(f"<cupy.ndarray shape {shape} {dtype} at {at:#x} on device {device}>")
        arrays.append(fakes.of_jax(fakes.ArrayImpl, ShapedArray(shape, dtype), shape, dtype, NamedSharding()))
        truth.append(f"<jax.ArrayImpl shape {shape} {dtype} at {id(arrays[-1]):#x} with a NamedSharding>")


{"jax": of_jax, "cupy": of_cupy, "fake": of_fakes}[sys.argv[1]]()
sys.stdout.write(json.dumps({"texts": truth, "shapes": [list(getattr(a, "shape", ())) for a in arrays]}) + "\n")
sys.stdout.flush()
sys.stdin.read()
