"""The text of torch's own repr for a tensor, from the elements that it shows and no others.

Rules: torch/_tensor_str.py (number formats, line breaks, summaries, suffixes) and the __repr__ of torch.Tensor and Parameter. The
process's own print options and default dtype apply where they can be read.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Sequence

from .. import log
from ..cpython.objects import Object
from ..cpython.runtime import Runtime, open_runtime
from ..errors import FaultError, GdbextError, LayoutError, NotFoundError
from . import dtypes
from . import layout as layouts
from .layout import TorchLayout
from .tensor import MAX_VALUES, NESTED, WRAPPERS, Quantizer, Tensor
from .tensor_impl import read_tensor_impl
from .tensor_kinds import components, sparse_parts, wrapped

if TYPE_CHECKING:
    from ..access.base import Target

MAX_DEPTH = 20  # wrappers around each other
MAX_EDGE = 1000  # print options come from the process: bounded like everything else


@dataclass
class Options:
    """torch.set_printoptions's fields, and the default dtype ("float32")."""

    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None
    default_dtype: str = "float32"


def process_options(rt: Runtime | None, table: TorchLayout) -> Options:
    """The `Options` in force in a process; torch's own defaults where they cannot be read."""
    options = Options()
    module = rt.module("torch._tensor_str") if rt is not None else None
    if module is not None:
        try:
            own = module.item("PRINT_OPTS")
            for name, low, high in (
                ("precision", 0, 300),
                ("threshold", 0, math.inf),
                ("edgeitems", 0, MAX_EDGE),
                ("linewidth", 1, 1 << 20),
            ):
                value = _number(own.attr(name))
                if value is not None and low <= value <= high:
                    setattr(options, name, value)
            sci = own.attr("sci_mode")
            options.sci_mode = None if sci.is_none() else sci.boolean()
        except (GdbextError, AttributeError) as e:
            log.passed_over(e)
    if rt is not None:
        options.default_dtype = _default_dtype(rt.target, table) or options.default_dtype
    return options


def options_in(target: Target) -> Options:
    """`process_options` of a process, once per epoch; torch's own where it runs no Python."""

    def read() -> Options:
        try:
            rt = open_runtime(target)
        except GdbextError as e:
            log.passed_over(e)
            return Options()
        return process_options(rt, layouts.for_process(target, rt))

    return target.cached("torch print options", read)


def _number(obj: Object) -> float | None:
    for read in (obj.integer, obj.floating):
        try:
            return read()
        except GdbextError as e:
            log.passed_over(e)
            continue
    return None


def _default_dtype(target: Target, table: TorchLayout) -> str | None:
    """torch.get_default_dtype(): a static TypeMeta of libc10 (c10/core/DefaultDtype.cpp), where the library names it."""
    libraries = [m for m in target.modules() if m.name.startswith("libc10.so")]
    try:
        name = table.name("ScalarType", target.u16(target.symbol("_ZN3c10L13default_dtypeE", libraries)))
        found = dtypes.from_scalar_type(name) if name else None
    except (NotFoundError, FaultError) as e:
        log.passed_over(e)
        return None
    return found.name if found and found.kind == "float" else None


# ---- numbers -----------------------------------------------------------------------------------------------------------
class _Format:
    """How the numbers of one tensor (or its real or imaginary parts) are written: a common width and one of three styles."""

    def __init__(self, values: Sequence[Any], floating: bool, options: Options, keep_nan: bool = False) -> None:
        """`keep_nan`: NaN takes part in the choice (torch's isfinite does not see float8_e8m0fnu's)."""
        self.floating, self.precision = floating, options.precision
        self.whole, self.scientific, self.width = True, False, 1
        if not floating:
            self.width = max([1] + [len(str(v)) for v in values])
            return
        some = [v for v in values if v and (math.isfinite(v) or keep_nan)]
        if not some:
            return
        broken = not all(map(math.isfinite, some))  # no comparison with NaN holds
        self.whole = not broken and all(v == math.ceil(v) for v in some)
        low, high = (math.nan, math.nan) if broken else (min(map(abs, some)), max(map(abs, some)))
        self.scientific = (high / low > 1000.0 or high > 1.0e8 or low < 1.0e-4) if options.sci_mode is None else options.sci_mode
        self.width = max([1] + [len(self._plain(v)) for v in some])

    def _plain(self, value: float) -> str:
        if self.scientific:
            return f"{value:.{self.precision}e}"
        if self.whole:
            return f"{value:.0f}" + ("." if math.isfinite(value) else "")
        return f"{value:.{self.precision}f}"

    def __call__(self, value: Any) -> str:
        return (self._plain(value) if self.floating else str(value)).rjust(self.width)


class _ComplexFormat:
    def __init__(self, values: Sequence[complex], options: Options) -> None:
        self.real = _Format([v.real for v in values], True, options)
        self.imag = _Format([v.imag for v in values], True, options)
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, value: Any) -> str:
        imag = self.imag(value.imag).lstrip() + "j"
        return self.real(value.real) + ("" if imag[0] in "+-" else "+") + imag


# ---- values ------------------------------------------------------------------------------------------------------------
def _shown(shape: Sequence[int], options: Options) -> list[list[int]]:
    """Per dimension the indices that are shown: all, or the edges where a summary cuts. They are bounded before they are made."""
    numel = count = 1
    for n in shape:
        numel *= n
    edge = options.edgeitems if numel > options.threshold else max(shape, default=0)
    for n in shape:
        count *= min(n, 2 * edge)
    if count > MAX_VALUES:
        raise GdbextError(
            f"torch's repr of {list(shape)} shows {count} elements, more than {MAX_VALUES}: take a part with -slice"
        )
    return [list(range(n)) if n <= 2 * edge else list(range(edge)) + list(range(n - edge, n)) for n in shape]


def _blind_to_nan(tensor: Tensor) -> bool:
    """Up to torch 2.14 isfinite took float8_e8m0fnu's NaN for a number, which decides how its neighbours are written."""
    return tensor.dtype.name == "float8_e8m0fnu" and tuple(map(int, tensor.table.minor.split("."))) <= (2, 14)


def values_text(tensor: Tensor, options: Options, indent: int = 0) -> str:
    """The bracketed values as torch prints them, `indent` columns in. `GdbextError` where they cannot be read."""
    if tensor.unavailable:
        tensor.values([])
    if tensor.numel == 0:
        return "[]"
    shape = tensor.shape or ()
    edge, picked = options.edgeitems, _shown(shape, options)
    flat = tensor.values(list(itertools.product(*picked)))
    if tensor.dtype.kind == "complex":
        write: _ComplexFormat | _Format = _ComplexFormat(flat, options)
    else:
        write = _Format(flat, tensor.dtype.kind in ("float", "quantized"), options, _blind_to_nan(tensor))
    if not picked:
        return write(flat[0])
    found = iter(flat)

    def level(dim: int, indent: int) -> str:
        cut = len(picked[dim]) < shape[dim]
        if dim == len(picked) - 1:
            cells = [write(next(found)) for _ in picked[dim]]
            if cut:
                cells[edge:edge] = [" ..."] if edge else ["..."]
            per_line = max(1, (options.linewidth - indent) // (write.width + 2))
            lines = [", ".join(cells[i : i + per_line]) for i in range(0, len(cells), per_line)]
            return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"
        parts = [level(dim + 1, indent + 1) for _ in picked[dim]]
        if cut:
            parts[edge:edge] = ["..."]
        return "[" + ("," + "\n" * (len(picked) - dim - 1) + " " * (indent + 1)).join(parts) + "]"

    return level(0, indent)


def _size(shape: Sequence[int]) -> str:
    return "(" + ", ".join(map(str, shape)) + ("," if len(shape) == 1 else "") + ")"


def tensor_repr(tensor: Tensor, options: Options | None = None, depth: int = 0) -> str:
    """The result of `repr(t)` in the process. `GdbextError` where the values cannot be read.

    Subclasses print as torch.Tensor's own __repr__ prints them; a subclass with another __repr__ needs its code run. `depth`: the
    number of wrappers around it.
    """
    options = options or Options()
    if tensor.kind in WRAPPERS:
        return _wrapper_repr(tensor, options, depth)
    if tensor.type in ("UninitializedParameter", "UninitializedBuffer"):
        return f"<{tensor.type}>"
    prefix = "nested_tensor(" if tensor.kind == NESTED else "tensor(" if tensor.plain else tensor.type + "("
    suffixes = [f"device='{tensor.device}'"] if tensor.device.partition(":")[0] != "cpu" else []
    body, own = _body(tensor, options, len(prefix))
    suffixes += own
    if tensor.grad_fn:
        suffixes.append(f"grad_fn=<{tensor.grad_fn}>")
    elif tensor.requires_grad:
        suffixes.append("requires_grad=True")
    if tensor.tangent and depth <= MAX_DEPTH:
        tangent = read_tensor_impl(tensor.target, tensor.table, tensor.tangent)
        suffixes.append(f"tangent={tensor_repr(tangent, options, depth + 1)}")
    text = _with_suffixes(prefix + body, suffixes, len(prefix), tensor.layout == "sparse_coo", options.linewidth)
    if tensor.counts_as_parameter and not tensor.plain:
        text = f"Parameter({text})"
    return "Parameter containing:\n" + text if tensor.is_parameter else text


def scalar_repr(value: Any, dtype: dtypes.DType, device: str, options: Options | None = None) -> str:
    """The repr of a tensor without dimensions that holds `value`."""
    options = options or Options()
    if dtype.kind == "complex":
        text = _ComplexFormat([value], options)(value)
    else:
        text = _Format([value], dtype.kind == "float", options)(value)
    suffixes = [f"device='{device}'"] if device.partition(":")[0] != "cpu" else []
    if dtype.name not in _expected(options.default_dtype):
        suffixes.append("dtype=torch." + dtype.name)
    return _with_suffixes("tensor(" + text, suffixes, len("tensor("), False, options.linewidth)


def _expected(default: str) -> set[str]:
    """The dtypes that torch does not name in a repr."""
    return {default, "complex128" if default == "float64" else "complex64", "int64", "bool"}


def _body(tensor: Tensor, options: Options, indent: int) -> tuple[str, list[str]]:
    """-> (the text in the place of the values, the suffixes for its kind of tensor)"""
    dtype, default = tensor.dtype, options.default_dtype
    size, of_type = "size=" + _size(tensor.shape or ()), "dtype=torch." + dtype.name
    unlike_default = [of_type] if dtype.name != default else []
    if tensor.device.startswith("meta") or tensor.type == "FakeTensor":
        if tensor.shape is None:
            tensor.values([])  # says why
        if tensor.layout.startswith("sparse_"):
            return _sparse_body(tensor, options, indent, [size], [of_type] if dtype.name not in _expected(default) else [])
        return "...", [size] + unlike_default
    if tensor.quantizer:
        return values_text(tensor, options, indent), [size, of_type] + _quantizer_suffixes(tensor.quantizer, options)
    if tensor.kind == NESTED:
        texts = (tensor_repr(part, options).split("\n") for part in components(tensor))
        return "[\n" + ",\n".join("\n".join("  " + line for line in lines) for lines in texts) + "\n]", []
    if tensor.numel == 0 and not tensor.unavailable and not tensor.layout.startswith("sparse_"):
        return "[]", ([size] if len(tensor.shape or ()) != 1 else []) + unlike_default
    unexpected = [of_type] if dtype.name not in _expected(default) else []
    if tensor.layout.startswith("sparse_"):
        return _sparse_body(tensor, options, indent, [size], unexpected)
    return values_text(tensor, options, indent), ([] if options.edgeitems else [size]) + unexpected


def _quantizer_suffixes(q: Quantizer, options: Options) -> list[str]:
    scheme = ["quantization_scheme=torch." + q.scheme]
    if q.parts is None:
        return scheme + [f"scale={q.scales}", f"zero_point={q.zero_points}"]
    scales, zero_points = (tensor_repr(part, options) for part in q.parts)
    return scheme + [f"scale={scales}", f"zero_point={zero_points}", f"axis={q.axis}"]


def _sparse_body(tensor: Tensor, options: Options, indent: int, size: list[str], unexpected: list[str]) -> tuple[str, list[str]]:
    parts = sparse_parts(tensor)
    indexed = parts[-1][1].shape if tensor.layout == "sparse_coo" else parts[1][1].shape
    if not indexed:
        raise LayoutError(f"the {tensor.kind} at {tensor.impl:#x} has a part without dimensions")
    nnz = indexed[0] if tensor.layout == "sparse_coo" else indexed[-1]
    texts, without = [], tensor.device.startswith("meta") or tensor.type == "FakeTensor"
    for name, part in parts:
        text = f"{name}=tensor(" + ("..." if without else values_text(part, options, indent + len(name) + 8))
        texts.append(text + (", size=" + _size(part.shape or ()) if without or not part.numel else "") + ")")
    suffixes = size + ([] if without else [f"nnz={nnz}"]) + unexpected + ["layout=torch." + tensor.layout]
    return (",\n" + " " * indent).join(texts), suffixes


def _wrapper_repr(tensor: Tensor, options: Options, depth: int) -> str:
    """functorch's wrappers and functional tensors: the tensor inside, indented."""
    if depth > MAX_DEPTH:
        raise GdbextError(f"tensor at {tensor.address or tensor.impl:#x}: more than {MAX_DEPTH} wrappers around each other")
    value, level, bdim = wrapped(tensor)
    inside = tensor_repr(value, options, depth + 1)
    if tensor.kind == "at::FunctionalTensorWrapper":
        return f"_to_functional_tensor({inside})" if level < 0 else f"FunctionalTensor(lvl={level}, value=\\\n{inside})"
    inside = "\n".join("    " + line if line.strip() else line for line in inside.split("\n"))
    what = f"BatchedTensor(lvl={level}, bdim={bdim}" if bdim is not None else f"GradTrackingTensor(lvl={level}"
    return f"{what}, value=\n{inside}\n)"


def _with_suffixes(text: str, suffixes: list[str], indent: int, force_newline: bool, linewidth: int) -> str:
    """Suffixes after the values, on a new line where the last line has no room. torch counts a last line two columns longer."""
    parts = [text]
    used = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if force_newline or used + len(suffix) + 2 > linewidth:
            parts.append(",\n" + " " * indent + suffix)
            used, force_newline = indent + len(suffix), False
        else:
            parts.append(", " + suffix)
            used += len(suffix) + 2
    return "".join(parts) + ")"
