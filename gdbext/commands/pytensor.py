"""pytensor: a torch tensor of the process, from a Python expression, a C++ one or an address."""

import os
import re

from ..errors import FaultError, GdbextError, LayoutError, NotFoundError
from ..lazy import lazy_module
from ..render.jsonline import Address
from ..render.text import PLAIN, escape, size
from ..session.command import Answer, Args, Command, Option
from ..session.optional_packages import need
from .pyprint import ANY, value_of

objects, layouts, reprs, tensors = (
    lazy_module("cpython.objects"),
    lazy_module("torch.layout"),
    lazy_module("torch.repr"),
    lazy_module("torch.tensor_impl"),
)
arrays, statistics, files, comparing = (
    lazy_module("torch.arrays"),
    lazy_module("torch.stats"),
    lazy_module("torch.files"),
    lazy_module("torch.compare"),
)
plots = lazy_module("torch.plot")

_ADDRESS = re.compile(r"(0x[0-9a-fA-F]+|\d{5,})$")


def describe(tensor):
    """The contract's JSON fields of a tensor, and a few more. dtype and layout as torch's own str() gives them."""
    return {
        "type": escape(tensor.type),
        "address": Address(tensor.address) if tensor.address else None,
        "impl": Address(tensor.impl),
        "kind": escape(tensor.kind),
        "shape": tensor.shape,
        "stride": tensor.stride,
        "dtype": "torch." + tensor.dtype.name,
        "device": tensor.device,
        "layout": "torch." + tensor.layout,
        "storage_offset": tensor.storage_offset,
        "numel": tensor.numel,
        "data_ptr": Address(tensor.data_ptr),
        "storage_bytes": tensor.storage_bytes,
        "requires_grad": tensor.requires_grad,
        "grad_fn": escape(tensor.grad_fn) or None,
        "is_conj": tensor.is_conj,
        "is_neg": tensor.is_neg,
    }


def _header(tensor, how, style):
    """What a tensor is, for people: one line, a second for where its bytes are."""
    shape = "?" if tensor.shape is None else list(tensor.shape)
    head = [f"{style.title(escape(tensor.type))} {shape}", tensor.dtype.name, tensor.device or "no device"]
    if tensor.layout != "strided" or not tensor.kind.endswith("::TensorImpl"):
        head.append(f"{tensor.layout} ({escape(tensor.kind)})")
    head.append(f"stride {'?' if tensor.stride is None else list(tensor.stride)}")
    head.append(f"storage_offset {tensor.storage_offset}")
    head.append(f"numel {'?' if tensor.numel is None else tensor.numel}")
    head.append(f"requires_grad {tensor.requires_grad}")
    head += [name for name, on in (("conj", tensor.is_conj), ("neg", tensor.is_neg), ("zero", tensor.is_zero)) if on]
    where = [f"data_ptr {style.address(hex(tensor.data_ptr))}"]
    where.append(
        "storage ?" if tensor.storage_bytes is None else f"storage {tensor.storage_bytes} bytes ({size(tensor.storage_bytes)})"
    )
    if tensor.address:
        where.append(f"object {style.address(hex(tensor.address))}")
    where.append(f"impl {style.address(hex(tensor.impl))}")
    return "  ".join(head) + "\n  " + "  ".join(where) + style.dim(f"  ({how})")


def _number(value):
    """A statistic for people."""
    return "-" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)


def _stats_text(stats, sampled, style):
    parts = (
        [f"{name} {style.value(_number(stats[name]))}" for name in ("min", "max", "mean", "std")]
        if stats["min"] is not None
        else []
    )
    parts += [
        f"{name} {(style.bad if stats[name] and name != 'zeros' else style.value)(str(stats[name]))}"
        for name in ("nan", "inf", "zeros")
    ]
    return "  " + "  ".join(parts) + style.dim(f"  ({stats['count']} elements{', a sample' if sampled else ''})")


def _hist_text(hist, style):
    edges, counts = hist["edges"], hist["counts"]
    if not counts:
        return "  no finite value"
    labels = [_number(e) for e in edges]
    wide, most, digits = max(map(len, labels)), max(counts), max(len(str(c)) for c in counts)
    bar = max(10, min(50, (style.width or 100) - 2 * wide - digits - 12))
    lines = []
    for i, count in enumerate(counts):
        close = "]" if i == len(counts) - 1 else ")"
        marks = "#" * (-(-count * bar // most) if count else 0)
        lines.append(
            f"  [{labels[i].rjust(wide)}, {labels[i + 1].rjust(wide)}{close} {str(count).rjust(digits)} {style.value(marks)}".rstrip()
        )
    return "\n".join(lines)


class _Bare(Answer):
    """The contract's `-repr`: the repr and nothing else, also where the answer is partial (JSON and exit status still say so)."""

    def to_text(self, style=PLAIN):
        return self.text


class PyTensor(Command):
    """Print a torch tensor of the process, read from memory: what it is, where it lies, its values as torch prints them.

      (gdb) pytensor kv_cache -slice 0,17,:2,0,:4
      Tensor [2, 4]  bfloat16  cpu  stride [512, 1]  storage_offset 139264  numel 8  requires_grad False
        data_ptr 0x7f5c40044000  storage 134217728 bytes (128.0 MiB)  object 0x7f5c3a0b1e50  impl 0x55d0c2a4b180  (Python)
      tensor([[ 0.0233, -1.2109,  0.4551,  0.9023],
              [ 1.1016,  0.0610, -0.3438,  0.7734]], dtype=torch.bfloat16)

    EXPR is an expression of the selected Python frame as in pyprint, the address of a Python tensor, of a C++ at::Tensor or of
    its TensorImpl, or (in gdb) a C++ expression; the answer says which it was. Only the elements shown are read, so a cache of
    many GiB prints at once. -slice takes ints, start:stop:step and ... and shows that view. Values on a GPU are not in the process's
    memory: their metadata is shown, with the way to the values.

      (gdb) pytensor kv_cache -stats -hist -bins 3
        min -4.03125  max 4.25  mean 0.000213  std 0.999  nan 0  inf 0  zeros 12  (67108864 elements)
        [-4.03125, -1.27083)  6837102 ########
        [-1.27083,  1.48958) 53621040 ##################################################
        [ 1.48958,     4.25]  6650722 #######

      (gdb) pytensor self.w -save before.pt
      (gdb) pytensor self.w -compare before.pt
        different from before.pt in 3 of 1048576 elements
        first at [0, 17]: 0.5 against 0.25
        largest difference 0.25 at [0, 17], relative 1, 8388608 ulps
      (gdb) pytensor self.w -compare TP1:self.w

    Statistics are in float64 over all elements, or the slice's; a tensor of any size is read in small pieces. They need numpy in
    gdb's Python (python3 -m gdbext install)."""

    name = "pytensor"
    group = "tensors"
    operand = "EXPR"
    completion = "expression"
    options = (
        Option("repr", help="the text of torch's own repr and nothing else"),
        Option("slice", "str", "a part of it, as in Python: 0,:,3:5", metavar="S"),
        Option("stats", help="min, max, mean, std (n-1) of the finite values, and how many are NaN, infinite, zero"),
        Option("hist", help="a histogram of the finite values"),
        Option("bins", "int", "bars of the histogram (20)", default=20, metavar="N"),
        Option("save", "str", "write it to F.npy, F.safetensors or F.pt (which torch.load reads)", metavar="F"),
        Option("plot", "str", "draw it to F.png: a heat map with NaN and infinities marked, and a histogram", metavar="F"),
        Option("force", help="-save and -plot replace a file that is there"),
        Option(
            "compare",
            "str",
            "with X: an expression, a file (F.npy, F.pt:NAME), WHAT:EXPR of another process or core",
            metavar="X",
        ),
        Option("sample", "int", "look at about N elements, in pieces spread over the tensor", metavar="N"),
        Option("py", help="EXPR is a Python expression, no other"),
        Option("cxx", help="EXPR is a C++ expression of gdb, no other"),
        ANY,
    )

    def run(self, session, args):
        if not args.operand_text:
            raise GdbextError("give an expression or an address, such as: pytensor kv_cache")
        if args.py and args.cxx:
            raise GdbextError("-py and -cxx exclude each other")
        tensor, how, rt = resolve(session, args)
        whole = tensor
        if args.slice is not None:
            tensor = tensor.sliced(args.slice)
        partial = session.partial(tensor.target) + tensor.notes
        data = {**describe(tensor), "unavailable": tensor.unavailable or None, "resolved": how, "sampled": False}
        work = self.work(args, tensor, data, partial)
        if args.compare is not None:
            work.append(self.compare(session, args, whole, tensor, data, partial))
        text = why = None
        if args.repr or not (args.json or work):
            if tensor.own_repr:
                partial.append(f"{tensor.type} has a __repr__ of its own, which is not run: this is how torch.Tensor's prints it")
            try:
                text = reprs.tensor_repr(tensor, reprs.process_options(rt, tensor.table))
            except GdbextError as e:
                why = str(e)
                if not tensor.unavailable:
                    partial.append(why)
        if args.repr:
            if text is None:
                raise GdbextError(why)
            data["repr"] = text
            return _Bare(data, escape(text, keep="\n"), partial)

        def people(style):
            values = [part(style) for part in work]
            if text is not None:
                values.append(escape(text, keep="\n"))
            elif tensor.unavailable:
                values.append(style.bad(escape(tensor.unavailable)))
            return "\n".join([_header(tensor, how, style)] + values)

        return Answer(data, people, partial)

    def work(self, args, tensor, data, partial):
        """What the options ask for beside the repr, into `data` -> [function of `Style` that shows it]."""
        asked = [name for name in ("stats", "hist", "save", "plot") if getattr(args, name)]
        if not asked:
            return []
        need("numpy", "-" + asked[0])
        if args.plot:
            need("matplotlib", "-plot")
        source, shown = arrays.of_tensor(tensor), []
        if args.stats or args.hist or args.plot:
            if tensor.layout.startswith("sparse_"):
                partial.append(f"over the {source.numel} values that it stores")
            stats, data["sampled"] = statistics.statistics(source, args.sample)
            if data["sampled"]:
                partial.append(f"sampled: {stats['count']} of {source.numel} elements")
        if args.stats:
            data["stats"] = stats
            shown.append(lambda style: _stats_text(stats, data["sampled"], style))
        if args.hist:
            data["hist"] = statistics.histogram(source, stats["min"], stats["max"], args.bins, args.sample)
            shown.append(lambda style: _hist_text(data["hist"], style))
        if args.plot:
            path, hist = os.path.expanduser(args.plot), None
            if stats["min"] is not None:
                hist = statistics.histogram(source, stats["min"], stats["max"], 60, args.sample)
            plots.plot(source, hist, tensor.one_line(), path, args.force)
            data["plot"] = path
            shown.append(lambda style: f"  drawn in {style.file(escape(path))}")
        if args.save:
            path = os.path.expanduser(args.save)
            size_, dtype = files.save(tensor, path, args.force)
            data["saved"] = {"file": path, "bytes": size_, "dtype": dtype}
            note = "" if dtype == data["dtype"] else f" as {dtype}, dequantized or resolved"
            shown.append(lambda style: f"  saved to {style.file(escape(path))}: {size(size_)}{note}")
        return shown

    def compare(self, session, args, whole, tensor, data, partial):
        need("numpy", "-compare")
        other = _other(session, args, whole, tensor, partial)
        data["compare"] = found = comparing.compare(arrays.of_tensor(tensor), other)
        return lambda style: _compare_text(found, tensor.numel, args.compare, style)


def _compare_text(found, numel, other, style):
    reason = f"  ({found['reason']})" if found["reason"] else ""
    if found["equal"]:
        return f"  {style.good('equal')} to {escape(other)} in all {numel} elements{reason}"
    if found["different"] is None:
        return f"  {style.bad('different')} from {escape(other)}: {found['reason']}"
    first, second = map(_number, found["values"])
    parts = [
        f"{style.bad('different')} from {escape(other)} in {found['different']} of {numel} elements{reason}",
        f"first at {found['first_index']}: {first} against {second}",
        f"largest difference {_number(found['max_abs_diff'])} at {found['max_abs_index']}, relative {_number(found['max_rel_diff'])}",
    ]
    if found["ulps"] is not None:
        parts[-1] += f", {found['ulps']} ulps"
    if found["nan_different"]:
        parts.append(f"NaN on one side alone in {found['nan_different']}")
    return "\n".join("  " + p for p in parts)


def _other(session, args, whole, tensor, partial):
    """The `Source` that -compare names: a file, an expression of another process or core, or one of this."""
    named = files.split_name(os.path.expanduser(args.compare))
    if named is not None and os.path.exists(named[0]):
        return files.read(*named)
    trial = Args(vars(args), args.compare)
    found = re.match(r"([\w./~+-]+):(?=\S)", args.compare)
    if found and not _is_module(session, args, found.group(1)):
        what = os.path.expanduser(found.group(1))
        trial = Args({**vars(args), "on": what}, args.compare[found.end() :])
    elif named is not None:
        raise GdbextError(f"-compare {args.compare}: there is no file {named[0]}")
    other = resolve(session, trial)[0]
    if other.target is not tensor.target:
        partial += [p for p in session.partial(other.target) if p not in partial]
    if args.slice is not None and other.shape == whole.shape:
        other = other.sliced(args.slice)
    return arrays.of_tensor(other)


def _is_module(session, args, name):
    rt = _runtime(session, args)
    return rt is not None and rt.has_module((name,))


def resolve(session, args):
    """-> (Tensor, how EXPR was understood, Runtime or None)"""
    if args.cxx:
        return (*_from_gdb(session, args), _runtime(session, args))
    if _ADDRESS.match(args.operand_text) and not args.py:
        rt = _runtime(session, args)
        return (*at_address(session.target(args.on), rt, int(args.operand_text, 0)), rt)
    try:
        rt, value = value_of(session, args)
    except NotFoundError as e:
        if args.py or not session.in_gdb or args.on is not None:
            raise
        try:  # the contract: the Python frame first, then a gdb expression
            return (*_from_gdb(session, args), _runtime(session, args))
        except GdbextError:
            raise e from None
    session.last = value
    if not isinstance(value, objects.Object):
        raise GdbextError(f"{args.operand_text} is a {type(value).__name__}, no tensor; pyprint shows it")
    if not tensors.is_tensor(value):
        raise GdbextError(f"{args.operand_text} is a {escape(value.type_name)}, no tensor{_hint(args.operand_text, value)}")
    return tensors.read_tensor(rt, value.address), "Python", rt


def _hint(text, value):
    """Where the tensors of a container are."""
    try:
        if value.isa("list", "tuple") and value.len():
            return f"; take one of its {value.len()} elements: {text}[0]"
        if value.isa("dict"):
            keys = [repr(k.string(60)) for k, v in value.items()[:200] if tensors.is_tensor(v)][:3]
            if keys:
                return escape(f"; take one of its items, such as {text}[{keys[0]}]")
    except GdbextError:
        pass
    return "; pyprint shows it"


def _runtime(session, args):
    """The process's Python, or None: a C++ program has tensors too."""
    try:
        return session.runtime(args.on)
    except GdbextError:
        return None


def _from_gdb(session, args):
    """A C++ expression: a pointer to or the number of an address, or an at::Tensor itself."""
    if not hasattr(session, "gdb_value"):
        raise GdbextError(f"{args.operand_text}: C++ expressions need gdb: run this inside gdb, or give an address")
    address = address_of(session.gdb_value(args.operand_text))
    tensor, what = at_address(session.target(args.on), _runtime(session, args), address)
    return tensor, "C++, " + what


def address_of(value):
    """The address that a `gdb.Value` means: a number's or pointer's value, an object's own address, the impl of an at::Tensor that a
    register or function result holds."""
    try:
        return int(value)
    except (RuntimeError, TypeError, ValueError):  # gdb.error is a RuntimeError: no scalar, then it is the object itself
        pass
    if value.address is not None:
        return int(value.address)
    try:
        return int(value["impl_"]["target_"])
    except (RuntimeError, TypeError, ValueError):
        raise GdbextError(f"a {value.type} is neither a tensor nor an address") from None


def at_address(target, rt, address):
    """The tensor whose Python object, TensorImpl or at::Tensor stands at `address` -> (Tensor, which of them it was)."""
    if rt is not None:
        try:
            if tensors.is_tensor(rt.object(address)):
                return tensors.read_tensor(rt, address), "address of a Python object"
        except (FaultError, LayoutError) as e:
            reason = e
            try:
                object_is_tensor = tensors.is_tensor(rt.object(address))
            except GdbextError:
                object_is_tensor = False
            if object_is_tensor:
                raise reason from None
    table = layouts.for_process(target, rt)
    try:
        tensor, how = tensors.read_tensor_impl(target, table, address), "address of a TensorImpl"
    except (FaultError, LayoutError) as first:
        try:
            pointer = target.u64(address)
            tensor, how = tensors.read_tensor_impl(target, table, pointer), "address of an at::Tensor"
        except (FaultError, LayoutError):
            raise GdbextError(f"{address:#x} is neither a Python tensor nor an at::Tensor nor a TensorImpl: {first}") from None
    if rt is not None and tensor.address:
        try:  # the Python object knows the class's name
            tensor = tensors.read_tensor(rt, tensor.address)
        except GdbextError:
            pass
    return tensor, how
