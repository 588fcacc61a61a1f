"""The grammar that a request's answer must follow (structured output: JSON, a regular expression), and its mask of the tokens
that may come next. The engines' `grammar` modules use it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterator

from .. import log
from ..cpython.objects import Object
from ..cpython.runtime import Runtime
from ..errors import GdbextError
from ..torch.tensor_impl import read_tensor
from .objects import settled_frames

COMPILING, READY, ENDED, FAILED = "compiling", "ready", "ended", "failed"


@dataclass
class Grammar:
    """The state of a request's grammar.

    * `backend`: its class, '' while it is compiled
    * `state`: one of the above
    * `accepted`: how many tokens it has taken, None where it does not count
    * `vocabulary`: the number of tokens in the mask
    * `allowed`: ids of the tokens that the mask allows; None where no mask can be read, with the reason in `why`"""

    state: str
    backend: str = ""
    accepted: int | None = None
    vocabulary: int | None = None
    allowed: list[int] | None = None
    why: str = ""

    def read_mask(self, rt: Runtime, mask: Object, row: int) -> None:
        """Fills in `allowed` from a row of a mask as xgrammar and llguidance have it: int32 words, a bit for each token."""
        try:
            tensor = read_tensor(rt, mask.address)
            if tensor.doubt:
                raise GdbextError(tensor.doubt)
            shape, stride = tensor.shape or (), tensor.stride or ()
            if tensor.dtype.name != "int32" or len(shape) != 2 or stride[1] != 1 or row >= shape[0]:
                raise GdbextError(f"a mask of {tensor.dtype.name} {list(shape)} is not one of packed bits")
            data = tensor.read_bytes(4 * row * stride[0], 4 * shape[1])
        except GdbextError as e:
            self.why = str(e)
            return
        end = min(8 * len(data), self.vocabulary or 8 * len(data))
        bits = [8 * place + bit for place, byte in enumerate(data) for bit in range(8) if byte >> bit & 1]
        self.vocabulary, self.allowed = end, [token for token in bits if token < end]


def _is_set(value: Object) -> bool:
    """Whether a variable holds an object that is not None."""
    return hasattr(value, "is_none") and not value.is_none()


def variables(rt: Runtime, *names: str) -> Iterator[dict[str, Object]]:
    """{name: Object} of the local variables with the given names, for each frame in which one of them is not None."""
    for frames in settled_frames(rt):
        for frame in frames:
            try:
                held = [(name, value) for name, value in frame.locals() if name in names]
            except GdbextError as e:
                log.passed_over(e)
                continue
            found = {name: value for name, value in held if value is not None and _is_set(value)}
            if found:
                yield found


def compiled(made: Object) -> Object | None:
    """The result of a grammar that may be compiled in another thread (a Future); None before it is ready."""
    if made.type_name != "Future":
        return made
    result = made.attr("_result")
    return None if result.is_none() else result
