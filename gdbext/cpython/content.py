"""What of users' prompts and tokens an expression would show: content is counted, not shown, however it is reached."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from ..errors import GdbextError
from .expressions import free_names, last_name, parsed
from .objects import Object
from .reprs import content_length, counted
from .types import BYTES, LIST, STR, TUPLE

if TYPE_CHECKING:
    from .reprs import Repr

MAX_LOOKED_AT = 16  # items of a container that tell what it holds


def names_in(text: str) -> set[str]:
    """Every name, attribute and key that an expression mentions."""
    tree = parsed(text)
    found: set[str] = set()
    for node in ast.walk(tree) if tree is not None else ():
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def is_content(value: Any, depth: int = 2) -> bool:
    """Whether a value is text or numbers, or a list or tuple of such: what prompts and tokens are made of."""
    if not isinstance(value, Object):
        if isinstance(value, (list, tuple)):
            return bool(depth) and any(is_content(v, depth - 1) for v in value[:MAX_LOOKED_AT])
        return isinstance(value, (str, bytes, int, float))
    try:
        if value.type.flags & (STR | BYTES) or value.isa("bytearray", "array.array", "int", "float"):
            return True
        if value.type.flags & (LIST | TUPLE) and depth:
            return any(is_content(value.item(i), depth - 1) for i in range(min(value.len(), MAX_LOOKED_AT)))
    except GdbextError:
        pass
    return False


def shown(repr_: Repr, text: str, value: Any) -> str:
    """The text of the value of an expression. Content is counted where the expression mentions one of the private names of
    `repr_`, and where no name tells what it is: at an address, behind `$py`."""
    if repr_.private and content_length(value):
        unnamed = not last_name(text) and not free_names(text) and ("$py" in text or "0x" in text)
        if names_in(text) & repr_.private or unnamed and is_content(value):
            repr_.hidden = True
            return counted(value)
    return repr_.named(last_name(text), value)
