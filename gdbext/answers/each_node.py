"""The answers of several machines, one after the other: where a command's merged answer begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import GdbextError
from ..render.jsonline import expect
from ..render.text import escape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


def place_of(name: str) -> str:
    """A machine's name as its places have it in `node`."""
    return escape(name.partition(":")[2] or name)


def sound(
    answers: Sequence[tuple[str, Any]],
    expected: dict[str, Any],
    failed: list[dict[str, Any]],
    take: Callable[[str, Any], None] = lambda node, answer: None,
) -> Iterator[tuple[str, str, Any]]:
    """(name of a machine, the same as its places have it in `node`, its answer) of each machine whose answer is as `expected`
    (`jsonline.expect`), and that `take` (of its place and answer) takes. Any other machine is named in `failed`; `GdbextError` at
    the end where none is left."""
    left = 0
    for name, answer in answers:
        try:
            if "error" in answer:
                raise GdbextError(str(answer["error"]))
            expect(answer, expected)
            node = place_of(name)
            take(node, answer)
        except (GdbextError, ValueError) as e:
            failed.append({"label": name, "pid": None, "reason": str(e)})
            continue
        left += 1
        yield name, node, answer
    if not left:
        raise GdbextError("; ".join(f"{f['label']}: {f['reason']}" for f in failed))
