"""gdb's convenience functions of the pack, for `print`, `printf` and breakpoint conditions. What they need loads at their first
use.

They read memory alone: no gdb.execute and nothing called, so that a breakpoint's condition may use them.
"""

from __future__ import annotations

import gdb

from .. import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable


def _tensor(value: Any) -> Any:
    """The `Tensor` that a `gdb.Value` means: a C++ tensor, an address, or a str with a Python expression. Tokens of users are
    refused."""
    from ..errors import GdbextError
    from ..session.command import Args
    from ..session.evaluation import hides_values, tensor_of
    from ..session.gdb_session import session
    from ..torch.locate import address_of, at_address

    kind = value.type.strip_typedefs()
    if kind.code == gdb.TYPE_CODE_ARRAY and kind.target().strip_typedefs().sizeof == 1:
        args = Args({"py": True, "cxx": False, "any": False, "frame": None, "on": None, "show_content": False}, value.string())
        named = tensor_of(session, args)
        if named.rt is not None and hides_values(args.operand_text, named.tensor, session.private(named.rt, args), named.private):
            raise GdbextError(f"{args.operand_text} holds tokens, private: pytensor {args.operand_text} -show-content shows them")
        return named.tensor
    try:
        rt = session.runtime()
    except GdbextError as e:
        log.passed_over(e)
        rt = None  # a C++ program
    address = address_of(value)
    found = at_address(session.target(), rt, address)[0]
    args = Args({"on": None, "show_content": False}, hex(address))
    if rt is not None and kind.code == gdb.TYPE_CODE_INT and hides_values(args.operand_text, found, session.private(rt, args)):
        raise GdbextError(f"{args.operand_text} may hold tokens, private: pytensor {args.operand_text} -show-content shows them")
    return found


class _Function(gdb.Function):
    name = ""

    answer: Callable[..., Any]  # what the function gives for its arguments; raises `GdbextError`

    def invoke(self, *arguments: Any) -> Any:
        from ..errors import GdbextError
        from ..render.text import one_line

        try:
            return self.answer(*arguments)
        except GdbextError as e:
            raise gdb.GdbError(one_line(f"${self.name}: {e}")) from None


class TensorText(_Function):
    """$tensor(EXPR): a torch tensor's repr on one line.

    EXPR: an at::Tensor, an address, or a Python expression in quotes.
      (gdb) print $tensor(t)
      "tensor([[0., 1., 2.], [3., 4., 5.]])"
      (gdb) print $tensor("self.seq_lens")"""

    name = "tensor"

    def answer(self, value: gdb.Value) -> str:
        from ..errors import GdbextError
        from ..render.text import escape
        from ..session.gdb_session import session
        from ..torch import repr as reprs

        found = _tensor(value)
        try:
            rt = session.runtime()
        except GdbextError as e:
            log.passed_over(e)
            rt = None
        return escape(" ".join(reprs.tensor_repr(found, reprs.process_options(rt, found.table)).split()))


class TensorItem(_Function):
    """$tensor_item(EXPR, I, J, ...): one element of a torch tensor, as a number.

    (gdb) print $tensor_item(t, 1, 2)
    $1 = 5
    (gdb) break decode if $tensor_item(seq_lens, 0) > 4096"""

    name = "tensor_item"

    def answer(self, value: gdb.Value, *indices: gdb.Value) -> int | float | bool:
        from ..errors import GdbextError

        found = _tensor(value)
        index = [int(i) for i in indices]
        if found.shape is None or len(index) != len(found.shape):
            raise GdbextError(f"a tensor of {len(found.shape or ())} dimensions needs as many indices, not {len(index)}")
        for dim, (i, n) in enumerate(zip(index, found.shape)):
            if not -n <= i < n:
                raise GdbextError(f"index {i} is out of bounds for dimension {dim} with size {n}")
        (element,) = found.values([tuple(i % n for i, n in zip(index, found.shape))])
        if isinstance(element, complex):
            raise GdbextError("the element is complex, which gdb has no number for; $tensor shows it")
        number: int | float | bool = element
        return number


def register() -> None:
    """Adds the functions to this gdb."""
    for kind in (TensorText, TensorItem):
        kind(kind.name)
