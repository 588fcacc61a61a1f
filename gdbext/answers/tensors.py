"""Tensors as JSON and as text: header, statistics, histogram, comparison."""

from __future__ import annotations

from typing import Any

from ..render.fields import FLAG, NUMBER, TEXT, VALUE, Field, Fields, each, or_none
from ..render.jsonline import Address
from ..render.text import Style, escape, size
from ..torch.tensor import Tensor
from .shapes import SELECTED

STATS = Fields(
    *each(VALUE, "min max mean std", means="of the finite values, in float64; std with n-1; complex ones have counts only"),
    *each(int, "nan inf zeros count"),
)
HIST = Fields(Field("counts", [int]), Field("edges", [VALUE], "as `numpy.histogram` gives them"))
COMPARED = Fields(
    Field("equal", FLAG, "null: there are no elements"),
    Field("compared", NUMBER, "how many elements"),
    Field("different", NUMBER),
    *each(([int], None), "first_index max_abs_index"),
    *each(VALUE, "max_abs_diff max_rel_diff"),
    Field("nan_different", NUMBER, "NaN on one side alone"),
    Field("ulps", VALUE),
    Field("values", ([(bool, *VALUE)], None), "of both at the first difference"),
    Field("reason", TEXT),
)
_SHAPE = ([int], None)
TENSOR = Fields(  # of a `Tensor`; dtype and layout as torch's own str() gives them, of numpy's arrays behind `numpy.`
    Field("type", str),
    Field("address", TEXT, "of the Python object", read=lambda t: Address(t.address) if t.address else None),
    Field("impl", str, "of torch's", read=lambda t: Address(t.impl)),
    Field("kind", str),
    Field("shape", _SHAPE),
    Field("stride", _SHAPE, "null also where numpy's strides are no whole elements"),
    Field("dtype", str, read=lambda t: f"{t.library}.{t.dtype_name}"),
    Field("device", TEXT),
    Field(
        "in_host_memory",
        bool,
        "of the CPU, or of a CUDA device whose storage is pinned host memory: its values are read",
        read=lambda t: t.device.startswith("cpu") or t.in_host_memory,
    ),
    Field("layout", str, read=lambda t: f"{t.library}.{t.layout}"),
    *each(NUMBER, "storage_offset numel"),
    Field("data_ptr", str, read=lambda t: Address(t.data_ptr)),
    Field("storage_bytes", NUMBER),
    Field("requires_grad", FLAG),
    Field("grad_fn", TEXT, read=or_none("grad_fn")),
    *each(FLAG, "is_conj is_neg"),
)
MESH = Fields(Field("sizes", _SHAPE), Field("names", ([str], None)), Field("device", TEXT))
DISTRIBUTED = Fields(Field("mesh", MESH), Field("placements", [str]), Field("local_shape", _SHAPE))
JAGGED = Fields(Field("ragged_dim", NUMBER), Field("shapes", ([list], None), "of each part"), Field("values_shape", _SHAPE))
ASKED = Fields(
    *TENSOR,
    Field("resolved", str, "how the expression was understood"),
    Field("unavailable", TEXT, "why values cannot be read"),
    Field("sampled", bool, "`stats` are of a sample"),
    Field("distributed", DISTRIBUTED, "of a DTensor"),
    Field("jagged", JAGGED, "of a jagged nested tensor"),
    Field("frame", (SELECTED, None), "whose name it is"),
    Field("stats", STATS, "with -stats"),
    Field("hist", HIST, "with -hist"),
    Field("compare", COMPARED, "with -compare"),
    Field("saved", Fields(Field("file", str), Field("bytes", int), Field("dtype", str)), "with -save"),
    Field("plot", str, "the file of -plot"),
    Field("repr", str, "with -repr"),
)
ANSWER = Fields(*ASKED, Field("ranks", [Fields(Field("label", str), *ASKED)], "of several processes, in place of the others"))


def tensor_header(tensor: Tensor, how: str, style: Style) -> str:
    """A tensor's description for people: one line, and a second for the place of its bytes."""
    shape = "?" if tensor.shape is None else list(tensor.shape)
    head = [f"{style.title(escape(tensor.type))} {shape}", escape(tensor.dtype_name), tensor.device or "no device"]
    if tensor.in_host_memory:
        head.append("in host memory (UVA)")
    torch = tensor.library == "torch"
    if tensor.layout != "strided" or torch and not tensor.kind.endswith("::TensorImpl"):
        head.append(f"{tensor.layout} ({escape(tensor.kind)})")
    head.append(f"stride {'?' if tensor.stride is None else list(tensor.stride)}")
    head.append(f"storage_offset {tensor.storage_offset}")
    head.append(f"numel {'?' if tensor.numel is None else tensor.numel}")
    if torch:
        head.append(f"requires_grad {tensor.requires_grad}")
    head += [name for name, on in (("conj", tensor.is_conj), ("neg", tensor.is_neg), ("zero", tensor.is_zero)) if on]
    where = [f"data_ptr {style.address(hex(tensor.data_ptr))}"]
    if torch:
        where.append(
            "storage ?"
            if tensor.storage_bytes is None
            else f"storage {tensor.storage_bytes} bytes ({size(tensor.storage_bytes)})"
        )
    if tensor.address:
        where.append(f"object {style.address(hex(tensor.address))}")
    if torch:
        where.append(f"impl {style.address(hex(tensor.impl))}")
    return "  ".join(head) + "\n  " + "  ".join(where) + style.dim(f"  ({how})")


def number_text(value: Any) -> str:
    """A statistic for people."""
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def statistics_text(stats: dict[str, Any], sampled: bool, style: Style) -> str:
    """Statistics in one line."""
    parts = (
        [f"{name} {style.value(number_text(stats[name]))}" for name in ("min", "max", "mean", "std")]
        if stats["min"] is not None
        else []
    )
    parts += [
        f"{name} {(style.bad if stats[name] and name != 'zeros' else style.value)(str(stats[name]))}"
        for name in ("nan", "inf", "zeros")
    ]
    return "  " + "  ".join(parts) + style.dim(f"  ({stats['count']} elements{', a sample' if sampled else ''})")


def histogram_text(hist: dict[str, Any], style: Style) -> str:
    """A histogram in lines with bars."""
    edges, counts = hist["edges"], hist["counts"]
    if not counts:
        return "  no finite value"
    labels = [number_text(e) for e in edges]
    wide, most, digits = max(map(len, labels)), max(counts), max(len(str(c)) for c in counts)
    bar = max(10, min(50, (style.width or 100) - 2 * wide - digits - 12))
    lines = []
    for i, count in enumerate(counts):
        close = "]" if i == len(counts) - 1 else ")"
        marks = "#" * (-(-count * bar // most) if count else 0)
        lines.append(
            f"  [{labels[i].rjust(wide)}, {labels[i + 1].rjust(wide)}{close} "
            + f"{str(count).rjust(digits)} {style.value(marks)}".rstrip()
        )
    return "\n".join(lines)


def comparison_text(found: dict[str, Any], numel: int | None, other: str, style: Style) -> str:
    """The result of a comparison in one or two lines."""
    reason = f"  ({found['reason']})" if found["reason"] else ""
    if found["equal"] is None:
        return f"  {style.bad('not compared')} with {escape(other)}: {found['reason']}"
    if found["equal"]:
        return f"  {style.good('equal')} to {escape(other)} in all {numel} elements{reason}"
    if found["different"] is None:
        return f"  {style.bad('different')} from {escape(other)}: {found['reason']}"
    first, second = map(number_text, found["values"])
    parts = [
        f"{style.bad('different')} from {escape(other)} in {found['different']} of {numel} elements{reason}",
        f"first at {found['first_index']}: {first} against {second}",
        f"largest difference {number_text(found['max_abs_diff'])} at {found['max_abs_index']}, "
        f"relative {number_text(found['max_rel_diff'])}",
    ]
    if found["ulps"] is not None:
        parts[-1] += f", {found['ulps']} ulps"
    if found["nan_different"]:
        parts.append(f"NaN on one side alone in {found['nan_different']}")
    return "\n".join("  " + p for p in parts)
