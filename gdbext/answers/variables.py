"""Variables and attributes as the JSON `locals`, and their lines of text."""

from __future__ import annotations

from ..errors import GdbextError
from ..lazy import lazy_module
from ..render.jsonline import Address
from ..render.text import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Any

    from ..cpython.objects import Object
    from ..cpython.reprs import Limits
    from ..render.text import Style


reprs = lazy_module("cpython.reprs")
objects = lazy_module("cpython.objects")
MAX_FIELDS = 200


def variables(
    found: list[tuple[str, Object | None]], private: Collection[str], limits: Limits | None = None
) -> list[dict[str, Any]]:
    """`[(name, Object or None)]` -> the JSON `locals`; a variable that is not set is left out, private content only
    counted."""
    shown = []
    for name, value in found:
        if value is None:
            continue
        try:
            kind = value.type_name
        except GdbextError:
            kind = "?"
        shown.append(
            {
                "name": escape(name),
                "type": escape(kind),
                "address": Address(value.address),
                "text": escape(reprs.Repr(limits or reprs.SHORT, private).named(name, value)),
            }
        )
    return shown


def fields_of(value: Object, private: Collection[str], limits: Limits) -> list[dict[str, Any]]:
    """The instance's attributes as the JSON `locals`."""
    found = []
    for name, field in value.fields()[:MAX_FIELDS]:
        if isinstance(field, objects.Object):
            kind, address = "?", Address(field.address)
            try:
                kind = field.type_name
            except GdbextError:
                pass
        else:
            kind, address = type(field).__name__, None
        found.append(
            {
                "name": escape(name),
                "type": escape(kind),
                "address": address,
                "text": escape(reprs.Repr(limits, private).named(name, field)),
            }
        )
    return found


def variable_lines(found: list[dict[str, Any]], style: Style, indent: str = "      ") -> list[str]:
    """Text of `variables`; a module's own `__machinery__` stays out (JSON has it)."""
    found = [v for v in found if not (v["name"].startswith("__") and v["name"].endswith("__"))]
    lines = [f"{indent}{style.value(v['name'])} = {v['text']}" for v in found]
    return lines or [indent + style.dim("(no variables)")]
