"""Python expressions and tensors that a command names: evaluated in the selected Python frame of the process."""

from __future__ import annotations

import re

from ..errors import GdbextError, NotFoundError
from ..lazy import lazy_module
from ..render.text import escape
from .command import Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from ..cpython.runtime import Runtime
    from ..torch.tensor import Tensor
    from .command import Args
    from .session import Session


content, resolution, objects = lazy_module("cpython.content"), lazy_module("cpython.resolution"), lazy_module("cpython.objects")
locate, tensors = lazy_module("torch.locate"), lazy_module("torch.tensor_impl")

ANY = Option("any", help="take a name from the nearest outer frame that has it")
_ADDRESS = re.compile(r"(0x[0-9a-fA-F]+|\d{5,})$")


def value_of(session: Session, args: Args) -> tuple[Runtime, Any]:
    """Evaluates the operand in the selected Python frame -> (Runtime, value). A frame is needed only if a name is used."""
    rt = session.runtime(args.on)
    try:
        frame = session.frame(args.on)
    except GdbextError:
        frame = None
    frames, level = ([], 0) if frame is None else (frame.stack, frame.level)
    found = resolution.resolve(rt, args.operand_text, frames, level=level, outward=args.any, last=session.last)
    return rt, found.value


def tensor_of(session: Session, args: Args) -> tuple[Tensor, str, Runtime | None]:
    """-> (Tensor, how EXPR was understood, Runtime or None)"""
    if args.cxx:
        return (*_from_gdb(session, args), runtime_or_none(session, args))
    if _ADDRESS.match(args.operand_text) and not args.py:
        rt = runtime_or_none(session, args)
        return (*locate.at_address(session.target(args.on), rt, int(args.operand_text, 0)), rt)
    try:
        rt, value = value_of(session, args)
    except NotFoundError as e:
        if args.py or not session.in_gdb or args.on is not None:
            raise
        try:  # the Python frame first, then a gdb expression
            return (*_from_gdb(session, args), runtime_or_none(session, args))
        except GdbextError:
            raise e from None
    session.last = value
    if not isinstance(value, objects.Object):
        raise GdbextError(f"{args.operand_text} is a {type(value).__name__}, no tensor; pyprint shows it")
    if not tensors.is_tensor(value):
        raise GdbextError(
            f"{args.operand_text} is a {escape(value.type_name)}, no tensor{locate.where_to_look(args.operand_text, value)}"
        )
    return tensors.read_tensor(rt, value.address), "Python", rt


def hidden_names(session: Session, args: Args) -> Collection[str]:
    """The names whose content a command does not show: none with -show-content, nor where the process runs no Python engine."""
    rt = runtime_or_none(session, args)
    return frozenset() if rt is None else session.private(rt, args)


def hides_values(text: str, tensor: Tensor, private: Collection[str]) -> bool:
    """Whether the values of the tensor that an expression names are tokens: of an integer type, by way of a private name."""
    return bool(private) and tensor.dtype.name.startswith(("int", "uint")) and bool(content.names_in(text) & frozenset(private))


def runtime_or_none(session: Session, args: Args) -> Runtime | None:
    """The process's Python, or None: a C++ program has tensors too."""
    try:
        return session.runtime(args.on)
    except GdbextError:
        return None


def _from_gdb(session, args):
    """A C++ expression: a pointer to or the number of an address, or an at::Tensor itself."""
    if not hasattr(session, "gdb_value"):
        raise GdbextError(f"{args.operand_text}: C++ expressions need gdb: run this inside gdb, or give an address")
    address = locate.address_of(session.gdb_value(args.operand_text))
    tensor, what = locate.at_address(session.target(args.on), runtime_or_none(session, args), address)
    return tensor, "C++, " + what
