"""pytensor: a torch tensor of the process, from a Python expression, a C++ one or an address."""

from __future__ import annotations

import os
import re
from typing import Any, Callable

from ..answers.frames import frame_place
from ..answers.tensors import ANSWER, TENSOR, comparison_text, histogram_text, statistics_text, tensor_header
from ..cpython.runtime import Runtime
from ..engines import what as naming
from ..errors import GdbextError
from ..render.files import may_write
from ..render.text import PLAIN, Style, escape, size
from ..session.command import CONTENT, Answer, Args, Command, Option
from ..session.evaluation import ANY, FRAME, hides_values, runtime_or_none, tensor_of
from ..session.optional_packages import has, need
from ..session.session import Session
from ..torch import arrays, files, ndarrays, small, wrapper_parts
from ..torch import compare as comparing
from ..torch import plot as plots
from ..torch import repr as reprs
from ..torch import stats as statistics
from ..torch.tensor import Tensor


def _settled_repr(tensor: Tensor, rt: Runtime | None) -> str:
    """As the library that it is of prints it; where two readings differ the target is `unsettled`."""
    text, target = _repr(tensor, rt), tensor.target
    if not target.is_stopped:
        target.drop_pages()
        before, text = text, _repr(tensor, rt)
        target.unsettled = target.unsettled or before != text
    return text


class _Bare(Answer):
    """What `-repr` prints: the repr and nothing else, also where the answer is partial (JSON and exit status still say so)."""

    def to_text(self, style: Style = PLAIN) -> str:
        return str(self.text)


class PyTensor(Command):
    """Print a torch tensor or numpy array, read from memory: what it is, where it lies, its values as torch prints them.

      (gdb) pytensor kv_cache -slice 0,17,:2,0,:4
      Tensor [2, 4]  bfloat16  cpu  stride [512, 1]  storage_offset 139264  numel 8  requires_grad False
        data_ptr 0x7f5c40044000  storage 134217728 bytes (128.0 MiB)  object 0x7f5c3a0b1e50  impl 0x55d0c2a4b180  (Python)
      tensor([[ 0.0233, -1.2109,  0.4551,  0.9023],
              [ 1.1016,  0.0610, -0.3438,  0.7734]], dtype=torch.bfloat16)

    A DTensor is shown with its mesh, placements and this rank's piece, a jagged nested tensor with its parts. Of a numpy array's
    structured elements each field is an array: pytensor a['x'].

    EXPR is an expression of the selected Python frame as in pyprint, the address of a Python tensor, of a C++ at::Tensor or of
    its TensorImpl, or (in gdb) a C++ expression; the answer says which it was. Only the elements shown are read, so a cache of
    many GiB prints at once. -slice takes ints, start:stop:step and ... and shows that view. Values on a GPU are read in cuda-gdb,
    at most 1 GiB or 30 s of reading for one command; while kernels run there it is said that they may not have been written yet.
    Elsewhere their metadata is shown, with the way to the values.

      (gdb) pytensor kv_cache -stats -hist -bins 3
        min -4.03125  max 4.25  mean 0.000213  std 0.999  nan 0  inf 0  zeros 12  (67108864 elements)
        [-4.03125, -1.27083)  6837102 ########
        [-1.27083,  1.48958) 53621040 ##################################################
        [ 1.48958,     4.25]  6650722 #######

      (gdb) pytensor self.w -save before.pt
      (gdb) pytensor self.w -compare ./before.pt
        different from before.pt in 3 of 1048576 elements
        first at [0, 17]: 0.5 against 0.25
        largest difference 0.25 at [0, 17], relative 1, 8388608 ulps
      (gdb) pytensor self.w -compare TP1:self.w
      (gdb) pytensor self.w -stats -compare TP0:self.w -on all      each rank's, against that of one

    Statistics are in float64 over all elements, or the slice's; a tensor of any size is read in small pieces. They need numpy in
    gdb's Python (gdbext install)."""

    name = "pytensor"
    tool = "tensor"
    group = "tensors"
    fields = ANSWER
    operand = "EXPR"
    completion = "expression"
    options = (
        Option("repr", help="the text of torch's own repr and nothing else"),
        Option("slice", "str", "a part of it, as in Python: 0,:,3:5", metavar="S"),
        Option("stats", help="min, max, mean, std (n-1) of the finite values, and how many are NaN, infinite, zero"),
        Option("hist", help="a histogram of the finite values"),
        Option("bins", "int", "bars of the histogram", default=20, metavar="N"),
        Option(
            "save",
            "str",
            "write it to F.npy, F.safetensors or F.pt (which torch.load reads)",
            metavar="F",
            was="o output",
            for_agents=False,
        ),
        Option(
            "plot",
            "str",
            "draw it to F.png: a heat map with NaN and infinities marked, and a histogram",
            metavar="F",
            for_agents=False,
        ),
        Option("force", help="-save and -plot replace a file that is there", for_agents=False),
        Option(
            "compare",
            "str",
            "with X: an expression, a file (./F.npy, ./F.pt:NAME), WHAT:EXPR of another process or core",
            metavar="X",
        ),
        Option("sample", "int", "read about N elements, in pieces spread over the tensor", metavar="N"),
        Option("py", help="EXPR is a Python expression, no other"),
        Option("cxx", help="EXPR is a C++ expression of gdb, no other"),
        ANY,
        FRAME,
        CONTENT,
    )

    def run(self, session: Session, args: Args) -> Answer:
        _check(args)
        several = session.resolve(args.on) if args.on else []
        if len(several) > 1:
            return self.on_each(session, args, several)
        found = tensor_of(session, args)
        tensor, rt = found.tensor, found.rt
        whole = tensor
        if args.slice is not None:
            tensor = tensor.sliced(args.slice)
        partial = session.partial(tensor.target) + tensor.notes
        private = rt is not None and hides_values(args.operand_text, tensor, session.private(rt, args), found.private)
        data = {**TENSOR.data(tensor), "unavailable": tensor.unavailable or None, "resolved": found.how, "sampled": False}
        data["frame"] = frame_place(found.frame) if found.frame is not None else None
        parts = wrapper_parts.parts_of(rt, tensor)
        if parts is not None:
            data.update(parts.data)
        telling = private and (args.stats or args.hist or args.plot or args.compare is not None)  # the least is a token
        work = [] if telling else self.work(args, tensor, data, partial)
        if args.compare is not None and not telling:
            work.append(self.compare(session, args, whole, tensor, data, partial))
        if not tensor.unavailable and tensor.unfinished:
            partial.append(tensor.unfinished)
        text, why = None, ""
        if private:
            why = f"{args.operand_text} holds tokens, private: -show-content shows them"
        elif args.repr or not (args.json or work):
            text, why = _text_or_why(tensor, rt, partial)
        if args.repr:
            if text is None:
                raise GdbextError(why)
            data["repr"] = text
            return _Bare(data, escape(text, keep="\n"), partial)

        how = found.how
        if found.frame is not None and found.frame.level != session.level(args.on):
            how += f", frame {found.frame.level}, {escape(found.frame.function)}"

        def people(style: Style) -> str:
            values = [part(style) for part in work]
            if text is not None:
                values.append(escape(text, keep="\n"))
            elif parts is not None and not (private or work):
                values += parts.lines
            elif tensor.unavailable or private:
                values.append(style.bad(escape(tensor.unavailable or why)))
            return "\n".join([tensor_header(tensor, how, style)] + values)

        return Answer(data, people, partial)

    def rehearsed(self, values: dict[str, Any]) -> dict[str, Any]:
        return {**super().rehearsed(values), "stats": values["stats"] or bool(values["save"] or values["plot"])}

    def on_each(self, session: Session, args: Args, several: list[Any]) -> Answer:
        """The same of every process that -on names, one after the other; `GdbextError` where none has it."""
        if args.save or args.plot:
            raise GdbextError("-save and -plot write one file: name one process with -on")
        answers, partial = [], []
        for one in several:
            label = escape(one.name)
            try:
                answers.append((label, self.run(session, Args({**vars(args), "on": one.exact}, args.operand_text))))
            except GdbextError as e:
                partial.append(f"{label}: {e}")
        if not answers:
            raise GdbextError("; ".join(partial))
        for label, answer in answers:
            partial += [why if why == "unstopped" else f"{label}: {why}" for why in answer.partial]

        def people(style: Style) -> str:
            texts = [(label, a.text(style) if callable(a.text) else a.text) for label, a in answers]
            return "\n".join(f"{style.title(label)}: {text}" for label, text in texts)

        return Answer({"ranks": [{"label": label, **answer.data} for label, answer in answers]}, people, partial)

    def work(self, args: Args, tensor: Tensor, data: dict[str, Any], partial: list[str]) -> list[Callable[[Style], str]]:
        """What the options ask for beside the repr, into `data` -> [function of `Style` that shows it]."""
        asked = [name for name in ("stats", "hist", "save", "plot") if getattr(args, name)]
        if not asked:
            return []
        if asked == ["stats"] and not args.sample and small.is_small(tensor) and not has("numpy"):
            stats, data["sampled"] = small.statistics(small.elements(tensor), tensor.dtype.kind), False
            data["stats"] = stats
            return [lambda style: statistics_text(stats, False, style)]
        if asked == ["save"] and small.is_small(tensor):
            return [self.save(args, tensor, data)]
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
            shown.append(lambda style: statistics_text(stats, data["sampled"], style))
        if args.hist:
            data["hist"] = statistics.histogram(source, stats["min"], stats["max"], args.bins, args.sample)
            shown.append(lambda style: histogram_text(data["hist"], style))
        if args.plot:
            path, hist = os.path.expanduser(args.plot), None
            if stats["min"] is not None:
                hist = statistics.histogram(source, stats["min"], stats["max"], 60, args.sample)
            who = f"{tensor.target.label}: " if tensor.target.label else ""
            title = escape(f"{who}{args.operand_text}\n{tensor.one_line()}", keep="\n")
            plots.plot(source, hist, title, path, args.force)
            data["plot"] = path
            shown.append(lambda style: f"  drawn in {style.file(escape(path))}")
        if args.save:
            shown.append(self.save(args, tensor, data))
        return shown

    @staticmethod
    def save(args: Args, tensor: Tensor, data: dict[str, Any]) -> Callable[[Style], str]:
        """-save, into `data` -> function of `Style` that shows it."""
        path = os.path.expanduser(args.save)
        size_, dtype = files.save(tensor, path, args.force)
        data["saved"] = {"file": path, "bytes": size_, "dtype": dtype}
        note = "" if dtype == data["dtype"] else f" as {dtype}, dequantized or resolved"
        return lambda style: f"  saved to {style.file(escape(path))}: {size(size_)}{note}"

    def compare(
        self, session: Session, args: Args, whole: Tensor, tensor: Tensor, data: dict[str, Any], partial: list[str]
    ) -> Callable[[Style], str]:
        need("numpy", "-compare")
        other = _other(session, args, whole, tensor, partial)
        data["compare"] = found = comparing.compare(arrays.of_tensor(tensor), other)
        return lambda style: comparison_text(found, tensor.numel, args.compare, style)


def _check(args: Args) -> None:
    """`GdbextError` for words that cannot be answered, and names that cannot be written to."""
    if not args.operand_text:
        raise GdbextError("give an expression or an address, such as: pytensor kv_cache")
    if args.py and args.cxx:
        raise GdbextError("-py and -cxx exclude each other")
    for option, path in (("-save", args.save), ("-plot", args.plot)):
        if path is not None:
            may_write(path, option, args.force)


_BASES = {"torch": "torch.Tensor", "numpy": "numpy.ndarray"}


def _text_or_why(tensor: Tensor, rt: Any, partial: list[str]) -> tuple[str | None, str]:
    """-> (the repr, ""), or (None, why there is none)."""
    if tensor.own_repr:
        base = _BASES[tensor.library]
        partial.append(f"{tensor.type} has a __repr__ of its own, which is not run: this is how {base}'s prints it")
    try:
        return _settled_repr(tensor, rt), ""
    except GdbextError as e:
        if not tensor.unavailable:
            partial.append(str(e))
        return None, str(e)


def _repr(tensor: Tensor, rt: Any) -> str:
    """As the library that it is of prints it."""
    if isinstance(tensor, ndarrays.ArrayTensor):
        return tensor.text()
    return reprs.tensor_repr(tensor, reprs.process_options(rt, tensor.table))


def _other(session: Session, args: Args, whole: Any, tensor: Any, partial: Any) -> Any:
    """The `Source` that -compare names: a file, meant by a path with a slash, an expression of another process or core, or one of
    this."""
    file = files.split_name(os.path.expanduser(args.compare))
    named = file if file is not None and naming.is_path(file[0]) else None
    if named is not None and os.path.exists(named[0]):
        return files.read(*named)
    try:
        return _other_tensor(session, args, whole, tensor, partial, named)
    except GdbextError as e:
        if file is not None and named is None and os.path.isfile(file[0]):
            raise GdbextError(f"{e}; is the file of that name meant? ./{args.compare}") from None
        raise


def _other_tensor(session: Session, args: Args, whole: Any, tensor: Any, partial: Any, named: Any) -> Any:
    """As `_other`, of what is no file; `named`: the file that a path names which is not there."""
    trial = Args(vars(args), args.compare)
    found = re.match(r"([\w./~+-]+):(?=\S)", args.compare)
    if found and not _is_module(session, args, found.group(1)):
        trial = Args({**vars(args), "on": os.path.expanduser(found.group(1))}, args.compare[found.end() :])
    elif named is not None:
        raise GdbextError(f"-compare {args.compare}: there is no file {named[0]}")
    other = tensor_of(session, trial).tensor
    if other.target is not tensor.target:
        partial += [p for p in session.partial(other.target) if p not in partial]
    if args.slice is not None and other.shape == whole.shape:
        other = other.sliced(args.slice)
    return arrays.of_tensor(other)


def _is_module(session: Session, args: Args, name: str) -> Any:
    rt = runtime_or_none(session, args.on)
    return rt is not None and rt.has_module((name,))
