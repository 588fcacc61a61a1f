"""Launches decoded from made-up registers and memory, on both architectures, and what hostile memory makes of them."""

import struct

import pytest

from gdbext.access.fake import FakeTarget
from gdbext.errors import GdbextError
from gdbext.kernels import launch, pointees, signatures
from gdbext.torch.dtypes import DTYPES
from gdbext.torch.layout import for_version
from gdbext.torch.tensor import Tensor

SP, ARGS, VALUES, CONFIG = 0x10000, 0x20000, 0x30000, 0x40000
KERNEL = signatures.parse(
    "_ZN4vllm25paged_attention_v1_kernelIfLi64EEEvPT_PKS1_fib6Params"
)  # float*, float const*, float, int, bool, Params


def memory(stack=(), config=b""):
    values = struct.pack("<QQfI?7xQ", 0x111, 0x222, 0.25, 0xFFFFFFFF, True, 0x0102030405060708)
    places = [VALUES, VALUES + 8, VALUES + 16, VALUES + 20, VALUES + 24, VALUES + 32]
    return {
        SP: struct.pack(f"<{len(stack)}Q", *stack) + bytes(64),
        ARGS: struct.pack("<6Q", *places),
        VALUES: values,
        CONFIG: config + bytes(200),
    }


def registers(arch, **named):
    names = (
        ["rdi", "rsi", "rdx", "rcx", "r8", "r9", "rsp", "rip"]
        if arch == "x86-64"
        else [f"x{i}" for i in range(8)] + ["sp", "pc", "x30"]
    )
    return {**dict.fromkeys(names, 0xDEAD0000DEAD), "rsp" if arch == "x86-64" else "sp": SP, **named}


CASES = [
    ("x86-64", "cudaLaunchKernel", dict(rdi=0x77, rsi=4 << 32 | 8, rdx=2, rcx=3 << 32 | 128, r8=1, r9=ARGS), (0x99, 4096, 5)),
    (
        "x86-64",
        "cudaLaunchKernel_ptsz",
        dict(rdi=0x77, rsi=4 << 32 | 8, rdx=2 | 7 << 40, rcx=3 << 32 | 128, r8=1 | 7 << 40, r9=ARGS),
        (0x99, 4096, 5),
    ),
    ("aarch64", "cudaLaunchKernel", dict(x0=0x77, x1=4 << 32 | 8, x2=2, x3=3 << 32 | 128, x4=1, x5=ARGS, x6=4096, x7=5), ()),
    ("x86-64", "cuLaunchKernel", dict(rdi=0x77, rsi=8, rdx=4, rcx=2, r8=128, r9=3), (0x99, 1, 4096, 5, ARGS, 0)),
    ("aarch64", "cuLaunchKernel", dict(x0=0x77, x1=8, x2=4, x3=2, x4=128, x5=3, x6=1, x7=4096), (5, ARGS, 0)),
    ("x86-64", "cudaLaunchKernelExC", dict(rdi=CONFIG, rsi=0x77, rdx=ARGS), ()),
    ("aarch64", "cuLaunchKernelEx", dict(x0=CONFIG, x1=0x77, x2=ARGS, x3=0), ()),
]


@pytest.mark.parametrize("arch,entry,named,stack", CASES)
def test_every_entry_is_decoded(arch, entry, named, stack):
    driver = entry.startswith("cuL")
    config = struct.pack("<6I" + ("I4x" if driver else "Q") + "QQI", 8, 4, 2, 128, 3, 1, 4096, 5, CONFIG + 64, 1) + bytes(4)
    config = config.ljust(64, b"\0") + struct.pack("<II3I", 4, 0, 2, 1, 1)
    target = FakeTarget(memory(stack, config), arch=arch)
    found = launch.decode(target, entry, registers(arch, **named), KERNEL)
    assert (found.function, found.grid, found.block, found.shared_bytes, found.stream) == (0x77, (8, 4, 2), (128, 3, 1), 4096, 5)
    assert found.cluster == ((2, 1, 1) if "Ex" in entry else None)
    assert [a.value for a in found.arguments] == [0x111, 0x222, 0.25, -1, True, "0807060504030201"]
    assert [a.raw for a in found.arguments] == [False] * 5 + [True] and [a.pointer for a in found.arguments] == [True, True] + [
        False
    ] * 4


def test_arguments_in_one_buffer_are_said_not_guessed():
    target = FakeTarget(memory((0x99, 1, 0, 0, 0, 0x5000)))
    found = launch.decode(target, "cuLaunchKernel", registers("x86-64", rdi=1, rsi=1, rdx=1, rcx=1, r8=1, r9=1), KERNEL)
    assert found.arguments == [] and not found.counted and "one buffer" in found.problems[0]


def test_dwarf_names_and_sizes_win_over_the_signature():
    target = FakeTarget(memory((0x99, 0, 0)))
    named = [("out", "float*", 8), ("p", "Params", 24)]
    found = launch.decode(target, "cudaLaunchKernel", registers("x86-64", r9=ARGS), KERNEL, named)
    assert [(a.name, a.raw, len(str(a.value))) for a in found.arguments] == [("out", False, 3), ("p", True, 48)]


def test_unreadable_arguments_are_marked_one_by_one():
    target = FakeTarget({SP: bytes(64), ARGS: struct.pack("<6Q", VALUES, 0xBAD000000, *[VALUES] * 4), VALUES: bytes(64)})
    found = launch.decode(target, "cudaLaunchKernel", registers("x86-64", r9=ARGS), KERNEL)
    assert [bool(a.why) for a in found.arguments] == [False, True, False, False, False, False] and "argument 1" in found.problems[
        0
    ]


def test_nonsense_is_bounded():
    config = struct.pack("<6IQQQI", 8, 4, 2, 128, 3, 1, 0, 0, 0x123456789, 0xFFFFFFFF)
    found = launch.decode(
        FakeTarget(memory((), config)), "cudaLaunchKernelExC", registers("x86-64", rdi=CONFIG, rsi=1, rdx=ARGS), KERNEL
    )
    assert found.cluster is None and "4294967295 launch attributes" in found.problems[0]
    many = signatures.Signature("f", ["f"], [], ["int"] * 100000, "", False)
    target = FakeTarget({**memory((0x99, 0, 0)), ARGS: struct.pack("<Q", VALUES) * 100000})
    assert len(launch.decode(target, "cudaLaunchKernel", registers("x86-64", r9=ARGS), many).arguments) == launch.MAX_ARGUMENTS
    with pytest.raises(GdbextError):
        launch.decode(FakeTarget({}), "cudaLaunchKernel", registers("x86-64"), KERNEL)
    with pytest.raises(GdbextError, match="not known"):
        launch.abi_of("cudaLaunchKernel", "riscv64")


def test_a_function_of_the_cpu_takes_its_arguments_as_the_abi_says():
    # at::Tensor const&, double, long, at::Tensor, bool, float, int x3, long, std::string const&, double
    name = "_Z3runRKN2at6TensorEdlS0_bfiiilRKSsd"
    kinds = signatures.parse(name).parameters
    assert kinds[:4] == ["at::Tensor const&", "double", "long", "at::Tensor"]
    target = FakeTarget({SP: struct.pack("<6Q", 0x99, 7, 8, 9, 0x500, 0)})
    found = launch.decode_call(
        target, name, registers("x86-64", rdi=0x100, rsi=2, rdx=0x300, rcx=1, r8=5, r9=6), lambda i: struct.pack("<d", 1.5 + i)
    )
    values = [a.value for a in found.arguments]
    assert (
        values[:5] == [0x100, 1.5, 2, 0x300, True] and values[6:9] == [5, 6, 7] and values[9:11] == [8, 9] and values[11] == 3.5
    )
    cut = launch.decode_call(target, "_Z1fi6Params", registers("x86-64", rdi=3), lambda i: None)
    assert [a.value for a in cut.arguments] == [3] and not cut.counted and "Params by value" in cut.problems[0]


def test_an_argument_may_be_a_tensor_without_sizes_of_its_own():
    nested = Tensor(FakeTarget({}), for_version("2.13.0"), 0x100, dtype=DTYPES["float32"], device="cpu")
    assert nested.shape is None  # as of a nested one
    found = pointees.tensor_data(nested)
    assert (found["text"], found["shape"], found["dtype"]) == ("? float32", None, "torch.float32")


def test_triton_2_adds_to_names_what_it_specialised():
    from gdbext.kernels import triton

    assert triton.without_suffix("_fwd_kernel_0d1d2d3de4c56789") == "_fwd_kernel"
    for name in ("kernel_unified_attention", "attention_v0", "flash_fwd_kernel_2", "paged_0x"):
        assert triton.without_suffix(name) == name
