"""llm-launch: the kernel launch that the selected thread stands at."""

import os

from ..errors import FaultError, GdbextError, LayoutError, NotFoundError
from ..lazy import lazy_module
from ..render.jsonline import Address
from ..render.text import escape
from ..session.command import Answer, Command, Option
from .llm_addr import LlmAddr
from .llm_break import cost_line

launches, signatures, points, triton = (
    lazy_module("kernels.launch"),
    lazy_module("kernels.signatures"),
    lazy_module("control.kernel_breakpoints"),
    lazy_module("kernels.triton"),
)
registers_of = lazy_module("control.registers")
tensors, torch_layouts, reprs = lazy_module("torch.tensor_impl"), lazy_module("torch.layout"), lazy_module("torch.repr")

MAX_TENSORS = 4096  # of the thread's Python variables, looked at for what an argument points to
TEXT = 80


def selected_launch(session):
    """(target, the `Launch` that the selected thread stands at); `NotFoundError` where it stands at none."""
    target = session.target()
    if not session.in_gdb or not target.is_stopped:
        raise GdbextError("a launch can be decoded only in a process that gdb holds stopped: llm-attach it, llm-break, continue")
    registers = session.registers()
    known, function, parameters_of, signature = (
        points.last_stop(),
        _function(target, registers),
        registers_of.dwarf_parameters,
        None,
    )
    if known is not None and known.function == function:
        signature = known.signature
    own = _by_triton(session, function) if launches.entry_at(target, _pc(target, registers)).startswith(("cuL", "hipM")) else None
    if own is not None:
        signature, parameters_of = own.signature, lambda *_: own.parameters
    found = launches.launch_at(target, registers, registers_of.vector_register(target.arch), parameters_of, signature)
    if own is not None and found is not None:
        found.counted = own.whole
    if found is None:
        raise NotFoundError("this thread stands at no launch: llm-break paged-attention, continue, and llm-launch where it stops")
    return target, found


def _by_triton(session, function):
    """What Triton's own objects say of a driver's function; None where there is no Python, or nothing of it."""
    try:
        return triton.compiled(session.runtime()).get(function)
    except GdbextError:
        return None


def _pc(target, registers):
    return registers["rip" if target.arch == "x86-64" else "pc"]


def _function(target, registers):
    entry = launches.entry_at(target, _pc(target, registers))
    return launches.function_of(target, entry, registers) if entry else 0


class LlmLaunch(Command):
    """Decode the kernel launch that the selected thread stopped at: kernel, grid, block, stream, and every argument.

      (gdb) llm-launch
      vllm::paged_attention_v1_kernel<float, 64, 16>  through cudaLaunchKernel
        grid (8,4,1)  block (128,1,1)  shared 4096 B  stream 0x5
        #0  float*        0x7f2b00000000  out
        #1  float const*  0x7f2b00010000  query [4, 8, 64] float32, local query of PagedAttention.forward
        #2  float const*  0x7f2b4c0a1000  KV cache, TP0 layer 3, k, block 17, slot 0, head 0
        #3  float         0.125

    Types come from debug information where gdb has read it, else from the demangled signature; names of arguments from debug information, for Triton's kernels from its
    own objects.
    What neither tells is shown as the bytes that stand there, marked raw: of a structure passed by value 8 bytes. It is the host side: nothing of
    this kernel has run on the GPU yet. At a CPU kernel or a launcher: the function's own arguments, each at::Tensor with its shape (-values: and values)."""

    name = "llm-launch"
    group = "kernels"
    takes_target = False
    gdb_only = True
    options = (Option("values", help="with the values of each tensor that an argument is, as torch prints them"),)

    def run(self, session, args):
        target, found = selected_launch(session)
        args.on = args.pool = None
        find, partial = LlmAddr().finder(session, args)
        holders = Holders(session, target)
        for argument in found.arguments:
            if argument.pointer and argument.value:
                argument.points_to = describe(argument, find, holders, target)
                if args.values and argument.points_to and argument.points_to["kind"] == "tensor":
                    argument.points_to["repr"] = holders.text(argument.points_to["impl"])
        data = launch_data(found)
        data["cost"] = next((w.cost() for w in points.breakpoints() if w.stopped), None)

        def text(style):
            return "\n".join(launch_lines(found, data, style))

        return Answer(data, text, [p for p in partial if p != "unstopped"] + found.problems)


def launch_data(found):
    """A `Launch` as the contract's fields."""
    signature = found.signature
    return {
        "kernel": escape(found.name) or None,
        "entry": found.entry,
        "function": Address(found.function),
        "template": [escape(t) for t in signature.template] if signature else None,
        "grid": found.grid,
        "block": found.block,
        "cluster": found.cluster,
        "shared_bytes": found.shared_bytes,
        "stream": None if found.stream is None else Address(found.stream),
        "arguments_counted": found.counted,
        "args": [
            {
                "index": a.index,
                "name": a.name or None,
                "type": escape(a.type) or None,
                "value": Address(a.value) if a.pointer else a.value,
                "raw": a.raw,
                "points_to": a.points_to,
                "unreadable": a.why or None,
            }
            for a in found.arguments
        ],
    }


def launch_lines(found, data, style):
    name = signatures.names.short(found.name, 120) if found.name else f"function {found.function:#x} (its name is not known)"
    lines = [style.name(escape(name)) + (f"  through {found.entry}" if found.grid is not None else "  (a function of the CPU)")]
    if found.grid is not None:
        triples = ["({},{},{})".format(*t) for t in (found.grid, found.block)]
        cluster = "  cluster ({},{},{})".format(*found.cluster) if found.cluster else ""
        lines.append(f"  grid {triples[0]}  block {triples[1]}{cluster}  shared {found.shared_bytes} B  stream {found.stream:#x}")
    width = min(40, max([len(a["type"] or "") for a in data["args"]] + [3]))
    for a in data["args"]:
        if a["unreadable"]:
            value = style.bad(a["unreadable"])
        elif a["raw"]:
            value = " ".join(a["value"][i : i + 8] for i in range(0, len(a["value"]), 8)) + style.dim("  raw")
        else:
            value = hex(a["value"]) if isinstance(a["value"], Address) else escape(str(a["value"]))
        to = a["points_to"]
        lines.append(
            f"  #{a['index']:<3}{(a['type'] or '?')[:width]:<{width}}  {(a['name'] + ' = ') if a['name'] else ''}{value}"
            + (f"  {to['text']}" if to else "")
        )
        lines += ["      " + line for line in (to or {}).get("repr", "").splitlines()]
    if not data["arguments_counted"]:
        lines.append(
            style.dim("  how many arguments there are and of which types is not known: words that can be read are shown")
        )
    if data.get("cost"):
        lines.append(style.dim(cost_line(data["cost"])))
    return lines


class Holders:
    """The tensors in the Python variables of the selected thread, by the memory they cover. Found when first asked."""

    def __init__(self, session, target):
        self.session, self.target, self._found, self.table = session, target, None, None

    def found(self):
        """[(tensor, variable's name, function)]"""
        if self._found is None:
            self._found = []
            try:
                rt = self.session.runtime()
                thread = rt.thread(self.session.tid())
                frames = rt.frames(thread) if thread is not None else []
            except GdbextError:
                return self._found
            for frame in frames[:64]:
                for name, value in frame.locals():
                    if value is None or len(self._found) >= MAX_TENSORS:
                        continue
                    try:
                        self._look(rt, name, value, frame.function)
                    except (GdbextError, FaultError):
                        continue
        return self._found

    def _look(self, rt, name, value, function):
        if tensors.is_tensor(value):
            self._found.append((tensors.read_tensor(rt, value.address), name, function))

    def holder(self, address):
        """(tensor, name, function) of a tensor that an address lies in: one that begins there if there is one; None."""
        inside = None
        for tensor, name, function in self.found():
            start, length = tensor.storage_data or 0, tensor.storage_bytes or 0
            if tensor.data_ptr == address:
                return tensor, name, function
            if start <= address < start + length and inside is None:
                inside = tensor, name, function
        return inside

    def text(self, impl):
        """The values of a tensor as torch prints them, or why they cannot be."""
        try:
            return reprs.tensor_repr(self.tensor(impl), reprs.process_options(self._runtime(), self.table))
        except GdbextError as e:
            return str(e)

    def _runtime(self):
        try:
            return self.session.runtime()
        except GdbextError:
            return None

    def tensor(self, impl):
        """The at::Tensor with this TensorImpl."""
        if self.table is None:
            rt = self._runtime()
            self.table = torch_layouts.for_process(self.target, rt)
        return tensors.read_tensor_impl(self.target, self.table, impl)


def describe(argument, find, holders, target):
    """What a pointer points to: {kind, text, …}; None where nothing is known of it."""
    kind = argument.type.replace(" const", "").replace(" ", "")
    try:
        if kind in ("at::Tensor&", "at::Tensor*", "at::Tensor&&"):
            return tensor_at(target.u64(argument.value), find, holders)
        if kind == "std::optional<at::Tensor>&":
            if not target.u8(argument.value + 8):
                return {"kind": "none", "text": "no tensor (std::nullopt)"}
            return tensor_at(target.u64(argument.value), find, holders)
        if kind.startswith("std::__cxx11::basic_string<char") and kind.endswith("&"):
            data, length = target.words(argument.value, 2)
            text = escape(target.read(data, min(length, TEXT)).decode("utf-8", "replace"))
            return {"kind": "string", "text": f'"{text}"' + ("..." if length > TEXT else ""), "length": length}
    except (FaultError, LayoutError, NotFoundError) as e:
        return {"kind": "unreadable", "text": str(e)}
    kv = find(argument.value)
    if kv is not None:
        return {"kind": "kv", "text": kv_text(kv), "kv": kv}
    held = holders.holder(argument.value)
    if held is not None:
        tensor, name, function = held
        told = tensor_data(tensor)
        inside = "" if tensor.data_ptr == argument.value else f", {argument.value - tensor.storage_data} bytes into its storage"
        told["text"] += f", local {escape(name)} of {escape(function)}{inside}"
        return {**told, "variable": escape(name), "function": escape(function)}
    mapping = None
    try:
        mapping = target.mapping_at(argument.value)
    except GdbextError:
        return None
    if mapping is None:
        return {"kind": "unmapped", "text": "nothing that the CPU has mapped (GPU memory?)"}
    if mapping.perms.startswith("-"):
        return {"kind": "reserved", "text": "reserved address space (GPU memory?)"}
    return {"kind": "mapping", "text": f"in {escape(os.path.basename(mapping.path)) or 'anonymous memory'}"}


def kv_text(kv):
    place = ", ".join(f"{k} {kv[k]}" for k in ("block", "slot", "head") if kv.get(k) is not None)
    return f"KV cache, {kv['rank']} layer {kv['layer']}, {kv['part']}, {place}"


def tensor_at(impl, find, holders):
    """An at::Tensor: what it is, the variable that holds the same one, and the layer of the KV cache that it begins in."""
    tensor = holders.tensor(impl)
    told = tensor_data(tensor)
    holder = next((h for h in holders.found() if h[0].impl == impl), None)
    if holder is not None:
        told["variable"], told["function"] = escape(holder[1]), escape(holder[2])
        told["text"] += f", local {told['variable']} of {told['function']}"
    kv = find(tensor.data_ptr) if tensor.data_ptr else None
    if kv is not None:
        told["kv"] = kv
        told["text"] += ", " + kv_text(kv)
    return told


def tensor_data(tensor):
    kind = f"{list(tensor.shape)} {tensor.dtype.name}" + ("" if tensor.device == "cpu" else f" on {tensor.device}")
    return {
        "kind": "tensor",
        "text": kind,
        "shape": tensor.shape,
        "stride": tensor.stride,
        "dtype": "torch." + tensor.dtype.name,
        "device": tensor.device,
        "data_ptr": Address(tensor.data_ptr),
        "impl": Address(tensor.impl),
    }
