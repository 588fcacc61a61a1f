"""Launches kernels of the real Triton through a FAKE libcuda: the JITFunctions and CompiledKernels are Triton's own classes,
filled in as after a compilation (there is no GPU to compile for); the handles are the fake driver's. Waits for a line, then
launches, once for each line.

    triton_launch.py LIBCUDA
"""

import ctypes
import sys

import triton
import triton.language as tl
from triton.compiler.compiler import ASTSource, CompiledKernel


@triton.jit
def kernel_unified_attention(
    output_ptr,
    query_ptr,
    scale,
    num_query_heads: tl.constexpr,
    num_queries_per_kv: tl.constexpr,
    num_seqs,
    stride,
    query_start_len_ptr,
    BLOCK_Q: tl.constexpr,
):
    pass


@triton.jit
def another_kernel(x_ptr, BLOCK: tl.constexpr):
    pass


cuda = ctypes.CDLL(sys.argv[1])


def compile_as(fn, signature, constants):
    handle = ctypes.c_void_p()
    cuda.cuModuleGetFunction(ctypes.byref(handle), None, fn.__name__.encode())
    kernel = CompiledKernel.__new__(CompiledKernel)
    kernel.src, kernel.name, kernel.module, kernel._module_pid, kernel.function = (
        ASTSource(fn, signature, constants),
        fn.__name__,
        None,
        None,
        handle.value,
    )
    fn.device_caches.default_factory = None
    fn.device_caches[0] = ({"key": kernel}, {}, None, None, None)
    return handle.value


attention = compile_as(
    kernel_unified_attention,
    {
        "output_ptr": "*bf16",
        "query_ptr": "*fp32",
        "scale": "fp32",
        "num_query_heads": "constexpr",
        "num_queries_per_kv": "constexpr",
        "num_seqs": "i32",
        "stride": "i64",
        "query_start_len_ptr": "*i32",
        "BLOCK_Q": "constexpr",
    },
    {"num_query_heads": 8, "num_queries_per_kv": 4, "BLOCK_Q": 16},
)
another = compile_as(another_kernel, {"x_ptr": "*i32", "BLOCK": "constexpr"}, {"BLOCK": 64})


def launch(handle, grid, values):
    args = (ctypes.c_void_p * len(values))(*[ctypes.addressof(v) for v in values])
    cuda.cuLaunchKernel(ctypes.c_void_p(handle), *grid, 128, 1, 1, 777, ctypes.c_void_p(0xB), args, None)


print("ready", flush=True)
for line in sys.stdin:
    launch(another, (1, 1, 1), [ctypes.c_void_p(0x5000)])
    launch(
        attention,
        (6, 2, 1),
        [
            ctypes.c_void_p(0x7000),
            ctypes.c_void_p(0x8000),
            ctypes.c_float(0.125),
            ctypes.c_int(-3),
            ctypes.c_long(1 << 40),
            ctypes.c_void_p(0x9000),
        ],
    )
    print("done", flush=True)
