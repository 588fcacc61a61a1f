"""Tensors of Python classes that keep their values in other tensors: a DTensor's piece, mesh and placements; the parts of a
jagged nested tensor.

Sources: torch/distributed/tensor/_api.py, placement_types.py, torch/distributed/device_mesh.py, torch/nested/_internal/
nested_tensor.py. For placements that C++ keeps (2.10 on): torch/csrc/distributed/Placement.h, behind pybind11's head of an
object.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from .. import log
from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..errors import GdbextError, LayoutError
from ..render.text import escape
from . import rtti
from .repr import process_options, tensor_repr
from .tensor import Tensor
from .tensor_impl import is_tensor, read_tensor

MAX_DIMS, MAX_PARTS, SHOWN = 64, 100_000, 8
_PLACES = "torch::distributed::"


class Parts:
    """The parts of a tensor. `data`: as JSON; `lines`: as text."""

    def __init__(self, data: dict[str, Any], lines: list[str]) -> None:
        self.data, self.lines = data, lines


def parts_of(rt: Runtime | None, tensor: Tensor) -> Parts | None:
    """The `Parts` of a `Tensor` of one of these classes; None for others, and where they cannot be read."""
    if rt is None or not tensor.address or not tensor.parts_in:
        return None
    try:
        obj = rt.object(tensor.address)
        if _is_a(obj, "torch.distributed", "DTensor"):
            return _distributed(rt, obj, tensor)
        return _jagged(rt, obj, tensor) if _is_a(obj, "torch.nested", "NestedTensor") else None
    except (GdbextError, AttributeError) as e:
        log.passed_over(e)
        return None


def _is_a(obj: Object, package: str, name: str) -> bool:
    """Whether an object's class is, or is derived from, one of this name in a package."""
    return any(base.name == name and f"{base.module}.".startswith(f"{package}.") for base in obj.type.bases())


# ---- DTensor -----------------------------------------------------------------------------------------------------------
def _distributed(rt: Runtime, obj: Object, tensor: Tensor) -> Parts:
    spec, local = obj.attr("_spec"), read_tensor(rt, obj.attr("_local_tensor").address)
    mesh = _mesh(rt, spec.attr("mesh"))
    placements = [_placement(rt, one) for one in spec.attr("placements").elements(MAX_DIMS)]
    names = mesh["names"] or [""] * len(mesh["sizes"] or ())
    sizes = ", ".join(f"{name}={n}" if name else str(n) for name, n in zip(names, mesh["sizes"] or ())) or "?"
    head = f"  mesh ({sizes}) of {mesh['device'] or '?'}; placements {', '.join(placements)}"
    lines = [head, f"  this rank's piece, ._local_tensor: {local.one_line()}", *_values(rt, local, tensor)]
    return Parts({"distributed": {"mesh": mesh, "placements": placements, "local_shape": local.shape}}, lines)


def _values(rt: Runtime, part: Tensor, of: Tensor) -> list[str]:
    try:
        return [escape(tensor_repr(part, process_options(rt, of.table)), keep="\n")]
    except GdbextError as e:
        return [escape(str(e))]


def _attribute(obj: Object, *names: str) -> Object | None:
    for name in names:
        try:
            found: Object = obj.attr(name)
            return found
        except (GdbextError, AttributeError) as e:
            log.passed_over(e)
    return None


def _mesh(rt: Runtime, mesh: Object) -> dict[str, Any]:
    """{sizes, names, device} of a DeviceMesh; None for a part that this release keeps elsewhere."""
    device, names = _attribute(mesh, "_device_type", "device_type"), _attribute(mesh, "_mesh_dim_names", "mesh_dim_names")
    return {
        "sizes": _mesh_sizes(rt, mesh),
        "names": [escape(n.string(200)) for n in names.elements(MAX_DIMS)] if names is not None and not names.is_none() else None,
        "device": escape(device.string(100)) if device is not None else None,
    }


def _mesh_sizes(rt: Runtime, mesh: Object) -> list[int] | None:
    layout = _attribute(mesh, "_layout")
    if layout is not None:
        axes = _attribute(layout, "axes")
        if axes is not None:  # each axis has one size, or several that were flattened into it
            return [math.prod(_ints(axis.attr("shape"))) for axis in axes.elements(MAX_DIMS)]
        shape = _attribute(layout, "shape")
        return _ints(shape) if shape is not None else None
    held = _attribute(mesh, "_mesh", "mesh")
    if held is None or not is_tensor(held):
        return None
    return list(read_tensor(rt, held.address).shape or ())


def _ints(held: Object) -> list[int]:
    """The ints of a tuple, of tuples within it too; of an int itself."""
    return [n for part in held.elements(MAX_DIMS) for n in _ints(part)] if held.isa("tuple", "list") else [held.integer()]


def _placement(rt: Runtime, place: Object) -> str:
    """`Shard(dim=0)`, `Replicate()`, `Partial(sum)`, as torch prints them; the bare class where it keeps them otherwise."""
    name, own = escape(place.type.name), _attribute(place, "dim", "reduce_op")
    if own is not None and not own.isa("property"):
        dims = own.isa("int")
        more = _attribute(place, "split_factor") if dims else None
        text = f"dim={own.integer()}" if dims else escape(own.string(40))
        return f"{name}({text}{f', sf={more.integer()}' if more is not None else ''})"
    target, at = rt.target, place.address + rt.layout["object.__size"]
    try:
        value = target.u64(at)  # pybind11's instance: the pointer to the C++ object comes first
        classes = rtti.class_hierarchy(target, value)[0]
    except GdbextError as e:
        log.passed_over(e)
        return f"{name}()" if name == "Replicate" else name
    if _PLACES + "Shard" in classes:
        return f"{name}(dim={target.i64(value + 8)})"
    if _PLACES + "StridedShard" in classes:
        return f"{name}(dim={target.i64(value + 8)}, sf={target.i64(value + 16)})"
    if _PLACES + "Partial" in classes:
        length = target.u64(value + 16)
        return f"{name}({escape(target.read(target.u64(value + 8), length).decode('utf-8', 'replace'))})" if length < 40 else name
    return f"{name}()" if _PLACES + "Replicate" in classes else name


# ---- jagged nested tensors -----------------------------------------------------------------------------------------------
def _jagged(rt: Runtime, obj: Object, tensor: Tensor) -> Parts:
    """Part i is `values[offsets[i] : offsets[i + 1]]` along the ragged dimension, or as many as `lengths[i]` says."""
    values, offsets = (read_tensor(rt, obj.attr(name).address) for name in ("_values", "_offsets"))
    held, ragged = obj.attr("_lengths"), obj.attr("_ragged_idx").integer()
    lengths = None if held.is_none() else read_tensor(rt, held.address)
    bounds = _numbers(offsets)
    counts = [b - a for a, b in zip(bounds, bounds[1:])] if lengths is None else _numbers(lengths)
    dim = ragged - 1
    if values.shape is None or not 0 <= dim < len(values.shape) or len(counts) != len(bounds) - 1:
        raise LayoutError(f"the nested tensor at {tensor.address:#x} has {len(bounds)} offsets for {len(counts)} lengths")
    if any(n < 0 or a < 0 or a + n > values.shape[dim] for a, n in zip(bounds, counts)):
        raise LayoutError(f"the nested tensor at {tensor.address:#x} has parts outside of its values")
    shapes = [[*values.shape[:dim], n, *values.shape[dim + 1 :]] for n in counts]
    lines = [f"  {len(counts)} parts of ._values, {values.one_line()}, ragged in dimension {ragged}"]
    for i, (start, count) in enumerate(zip(bounds, counts[:SHOWN])):
        keys = [slice(None)] * dim + [slice(start, start + count)]
        part = replace(values.indexed(keys), is_parameter=False)
        lines += [f"  [{i}] {part.one_line()}", *_values(rt, part, tensor)]
    if len(counts) > SHOWN:
        lines.append(f"  … {len(counts) - SHOWN} parts more: slice ._values at ._offsets")
    return Parts({"jagged": {"ragged_dim": ragged, "shapes": shapes, "values_shape": values.shape}}, lines)


def _numbers(tensor: Tensor) -> list[int]:
    if tensor.shape is None or len(tensor.shape) != 1 or tensor.shape[0] > MAX_PARTS:
        raise LayoutError(f"{tensor.name} has the shape {tensor.shape}: no offsets")
    return [int(n) for n in tensor.values([(i,) for i in range(tensor.shape[0])])]
