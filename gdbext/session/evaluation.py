"""Python expressions and tensors that a command names: evaluated in the selected Python frame of the process."""

from __future__ import annotations

import re
from typing import AbstractSet, Any

from .. import log
from ..cpython import content, hiding, objects, resolution
from ..cpython.frames import PyFrame
from ..cpython.libraries import numpy_objects
from ..cpython.resolution import Resolved
from ..cpython.runtime import Runtime
from ..errors import GdbextError, NotFoundError
from ..render.text import escape
from ..torch import adapter as adapters
from ..torch import locate, ndarrays
from ..torch import tensor_impl as tensors
from ..torch.tensor import Tensor
from .command import Args, Option
from .session import Session

ANY = Option("any", help="in the nearest outer frame in which the whole expression resolves, not the selected one alone")
FRAME = Option("frame", "str", "in the innermost frame of FUNCTION (Scheduler.schedule, or schedule)", metavar="FUNCTION")
_ADDRESS = re.compile(r"(0x[0-9a-fA-F]+|\d{5,})$")


def value_of(session: Session, args: Args) -> tuple[Runtime, Resolved]:
    """Evaluate a command's expression. -> (Runtime, the value with the Python frame whose names gave it)

    The selected frame counts. With -any, and with -on where no frame of that process was selected, frames are searched outward
    for one in which the whole expression resolves. That search uses the main thread's frames if the selected thread runs no
    Python. -frame names the function whose frame the search starts from. An expression without names needs no frame."""
    rt = session.runtime(args.on)
    outward = args.any or args.on is not None and not args.frame and not session.has_selected(args.on)
    try:
        frames = session.frames(args.on)
    except GdbextError as e:
        log.passed_over(e)
        if args.frame:
            raise
        # the selected thread runs no Python, as the driver's own one at a stop on the GPU: the main thread's frames are searched
        frames = rt.frames(rt.threads()[0]) if outward and rt.threads() else []
    level = min(session.level(args.on), max(0, len(frames) - 1)) if frames else 0
    return rt, resolution.resolve(
        rt,
        args.operand_text,
        frames,
        level=level,
        outward=outward,
        function=args.frame or "",
        last=session.last,
        private=session.private(rt, args),
    )


class NamedTensor:
    """The tensor that a command names.

    `tensor`. `how`: the meaning of its words ("Python", "C++, address of a TensorImpl" ...). `rt`: the process's `Runtime` or
    None. `frame`: the `PyFrame` whose names gave it, None where it needed none. `private`: the expression's value is content."""

    def __init__(self, tensor: Tensor, how: str, rt: Runtime | None, frame: PyFrame | None = None, private: bool = False) -> None:
        self.tensor, self.how, self.rt, self.frame, self.private = tensor, how, rt, frame, private


def tensor_of(session: Session, args: Args) -> NamedTensor:
    """The tensor of a Python expression, an address, or (in gdb) a C++ expression."""
    if args.cxx:
        return _from_gdb(session, args)
    if _ADDRESS.match(args.operand_text) and not args.py:
        rt = runtime_or_none(session, args.on)
        return NamedTensor(*locate.at_address(session.target(args.on), rt, int(args.operand_text, 0)), rt)
    try:
        rt, found = value_of(session, args)
    except NotFoundError as e:
        if args.py or not session.in_gdb or args.on is not None:
            raise
        try:  # the Python frame first, then a gdb expression
            return _from_gdb(session, args)
        except GdbextError:
            raise e from None
    session.last = value = found.value
    private = isinstance(value, hiding.Hidden)
    if private:
        value = value.held
    if value is hiding.UNKNOWN:
        raise GdbextError(f"{args.operand_text}: the answer depends on private content: -show-content gives it")
    tensor = tensor_value(rt, value)
    if tensor is not None:
        return NamedTensor(tensor, "Python", rt, found.frame, private)
    if not isinstance(value, objects.Object):
        raise GdbextError(f"{args.operand_text} is a {type(value).__name__}, no tensor; pyprint shows it")
    hint = locate.where_to_look(args.operand_text, value)
    raise GdbextError(f"{args.operand_text} is a {escape(value.type_name)}, no tensor{hint}")


def tensor_value(rt: Runtime, value: Any) -> Tensor | None:
    """The `Tensor` of an expression's value: an object of the process, or a view that was made here (a slice). None for a value
    that is no tensor."""
    if isinstance(value, objects.Object):
        if numpy_objects.is_array(value):
            return ndarrays.of_object(value)
        return tensors.read_tensor(rt, value.address) if tensors.is_tensor(value) else None
    if isinstance(value, numpy_objects.ArrayAdapter):
        return ndarrays.of_adapter(value)
    return value.tensor if isinstance(value, adapters.TensorAdapter) else None


def hidden_names(session: Session, args: Args, on: str | None = None) -> AbstractSet[str]:
    """The names whose content a command does not show. There are none with -show-content, or where the process runs no Python
    engine. `on`: the process, where -on names several."""
    rt = runtime_or_none(session, on or args.on)
    return frozenset() if rt is None else session.private(rt, args)


def hides_values(text: str, tensor: Tensor, private: AbstractSet[str], known: bool = False) -> bool:
    """Whether the values of an expression's tensor may be tokens: it has an integer type, and the expression uses a private name
    or no name that says what the values are. `known`: its value is content."""
    if not private or tensor.dtype.kind not in ("int", "raw"):
        return False
    return known or bool(content.names_in(text) & frozenset(private)) or content.is_unnamed(text)


def runtime_or_none(session: Session, on: str | None = None) -> Runtime | None:
    """The process's Python, or None: a C++ program has tensors too."""
    try:
        return session.runtime(on)
    except GdbextError as e:
        log.passed_over(e)
        return None


def gdb_address(session: Session, text: str) -> int:
    """The address that a C or C++ expression means to gdb: registers and convenience variables too."""
    if not hasattr(session, "gdb_value"):
        raise GdbextError(f"{text}: C++ expressions need gdb: run this inside gdb, or give an address")
    return locate.address_of(session.gdb_value(text)) & (1 << 64) - 1


def _from_gdb(session: Session, args: Args) -> NamedTensor:
    """A C++ expression: a pointer to or the number of an address, or an at::Tensor itself."""
    address, rt = gdb_address(session, args.operand_text), runtime_or_none(session, args.on)
    tensor, what = locate.at_address(session.target(args.on), rt, address)
    return NamedTensor(tensor, "C++, " + what, rt)


def all_frames(session: Session, rt: Runtime, on: str | None) -> list[tuple[PyFrame, bool]]:
    """`[(PyFrame, whether it is selected)]`: the selected frame, the rest of its thread, the other threads."""
    found, selected = [], None
    try:
        selected = session.frame(on)
        found = [(selected, True)] + [(f, False) for f in session.frames(on) if f is not selected]
    except GdbextError as e:
        log.passed_over(e)  # no thread runs Python: modules still hold tensors
    for thread in rt.threads():
        try:
            found += [(f, False) for f in rt.frames(thread) if all(f is not known for known, _ in found)]
        except GdbextError as e:
            log.passed_over(e)
            continue
    return found
