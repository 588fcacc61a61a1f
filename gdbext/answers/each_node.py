"""The answers of several machines, one after the other: where a command's merged answer begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import GdbextError
from ..render.jsonline import expect
from ..render.text import escape

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


def sound(
    answers: Sequence[tuple[str, Any]], expected: dict[str, Any], failed: list[dict[str, Any]]
) -> Iterator[tuple[str, str, Any]]:
    """(name of a machine, the same as its places have it in `node`, its answer) of each machine whose answer is as `expected`
    (`jsonline.expect`). Any other machine is named in `failed`; `GdbextError` at the end where none is left."""
    left = 0
    for name, answer in answers:
        try:
            if "error" in answer:
                raise GdbextError(str(answer["error"]))
            expect(answer, expected)
        except (GdbextError, ValueError) as e:
            failed.append({"label": name, "pid": None, "reason": str(e)})
            continue
        left += 1
        yield name, escape(name.partition(":")[2] or name), answer
    if not left:
        raise GdbextError("; ".join(f"{f['label']}: {f['reason']}" for f in failed))
