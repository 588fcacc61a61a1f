"""Tensors that consist of other tensors: functorch's wrappers, nested tensors, sparse tensors.

Layouts: ATen/functorch/BatchedTensorImpl.h, TensorWrapper.h, ATen/FunctionalTensorWrapper.h, ATen/NestedTensorImpl.h,
ATen/SparseTensorImpl.h, ATen/SparseCsrTensorImpl.h of each release; docs/sources.md.
"""

from __future__ import annotations

import math
from dataclasses import replace

from ..errors import GdbextError, LayoutError
from .tensor import Tensor
from .tensor_impl import MAX_DIMS, inner, read_tensor_impl

MAX_COMPONENTS = 10_000


def wrapped(tensor: Tensor) -> tuple[Tensor, int, int | None]:
    """For one of `WRAPPERS`: the tensor inside, its level, its batch dimension (None where it has none).

    The level is -2 where its functorch transform has ended. `LayoutError` where these are out of range.
    """
    target, at = tensor.target, tensor.impl + tensor.table.size("TensorImpl")
    value = read_tensor_impl(target, tensor.table, target.u64(at))
    level = target.i64(at + 8)
    bdim = target.i64(at + 16) if tensor.kind.endswith("BatchedTensorImpl") else None
    if tensor.kind == "at::functorch::TensorWrapper" and not target.u8(target.u64(at + 24)):  # after a bool, is_alive_
        level = -2
    if not -3 < level < 1 << 20 or (bdim is not None and not 0 <= bdim < MAX_DIMS):
        raise LayoutError(f"the {tensor.kind} at {tensor.impl:#x} has level {level}, batch dimension {bdim}")
    return value, level, bdim


def components(tensor: Tensor) -> list[Tensor]:
    """The `Tensor`s that a strided nested tensor consists of: views of its one storage (ATen/NestedTensorImpl.h)."""
    table, target = tensor.table, tensor.target
    sizes, strides, offsets = (
        read_tensor_impl(target, table, target.u64(tensor.impl + table.offset("NestedTensorImpl", field)))
        for field in ("nested_sizes_", "nested_strides_", "storage_offsets_")
    )
    if sizes.shape is None or offsets.shape is None or len(sizes.shape) != 2 and sizes.numel:
        raise LayoutError(f"the nested tensor at {tensor.impl:#x} has sizes of shape {sizes.shape}")
    count, dims = (offsets.numel or 0, sizes.shape[1] if len(sizes.shape) == 2 else 0)
    if count > MAX_COMPONENTS:
        raise GdbextError(f"the nested tensor at {tensor.impl:#x} has {count} components, more than {MAX_COMPONENTS}")
    if (dims and sizes.shape[0] != count) or strides.shape != sizes.shape:
        raise LayoutError(f"the nested tensor at {tensor.impl:#x} has {count} offsets for sizes of shape {sizes.shape}")
    grid = [(i, d) for i in range(count) for d in range(dims)]
    lengths, steps, starts = sizes.values(grid), strides.values(grid), offsets.values([(i,) for i in range(count)])
    found = []
    for i in range(count):
        shape, stride = tuple(lengths[i * dims : (i + 1) * dims]), tuple(steps[i * dims : (i + 1) * dims])
        if any(not 0 <= n < 1 << 62 for n in shape):
            raise LayoutError(f"a component of the nested tensor at {tensor.impl:#x} has sizes {shape}")
        found.append(
            replace(
                tensor,
                kind="c10::TensorImpl",
                plain=True,
                address=0,
                shape=shape,
                stride=stride,
                storage_offset=starts[i],
                numel=math.prod(shape),
                requires_grad=tensor.requires_grad,
                grad_fn="",
                tangent=0,
                is_parameter=False,
                notes=[],
                parts_in=(),
            )
        )
    return found


def sparse_parts(tensor: Tensor) -> list[tuple[str, Tensor]]:
    """The parts of a sparse tensor in the order that torch prints them: [(name, Tensor)], the last one "values"."""
    table, target = tensor.table, tensor.target
    if tensor.layout == "sparse_coo":
        struct, names = "SparseTensorImpl", [("indices", "indices_"), ("values", "values_")]
    elif tensor.layout in ("sparse_csr", "sparse_bsr"):
        struct, names = (
            "SparseCsrTensorImpl",
            [("crow_indices", "crow_indices_"), ("col_indices", "col_indices_"), ("values", "values_")],
        )
    else:
        struct, names = (
            "SparseCsrTensorImpl",
            [("ccol_indices", "crow_indices_"), ("row_indices", "col_indices_"), ("values", "values_")],
        )
    return [(name, inner(tensor, target.u64(tensor.impl + table.offset(struct, field)))) for name, field in names]
