"""The reprs of C types about types and templates: unions, generic aliases, type parameters, `type` statements, t-strings.

All that they show are C members, which the classes themselves describe. Each function of `BY_NAME` takes (printer, value,
depth) and gives the text that tp_repr gives. Sources: Objects/genericaliasobject.c (ga_repr), unionobject.c (union_repr),
typevarobject.c, templateobject.c, interpolationobject.c, sentinelobject.c, lazyimportobject.c of each minor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import NotFoundError
from .builtin_reprs import default_repr
from .objects import Object
from .types import LIST, MAX_NAME, TUPLE, TYPE

if TYPE_CHECKING:
    from .reprs import Repr

MAX_PARTS = 64  # of a dotted name


def _member(printer: Repr, value: Object, name: str, depth: int) -> str:
    held = value.attr(name)
    return printer.show(held, depth + 1) if hasattr(held, "address") else repr(held)


def _named(printer: Repr, value: Object, depth: int, name: str = "__name__") -> str:
    """The name as it stands, not its repr."""
    shown: str = value.attr(name).string(printer.limits.string)
    return shown


def _alias_name(printer: Repr, value: Object, depth: int) -> str:
    """A `type` statement's: its name; from 3.15 on the qualified one."""
    return _named(printer, value, depth, "__qualname__" if value.rt.minor.qualified_aliases else "__name__")


def _parameter(printer: Repr, value: Object, depth: int) -> str:
    """A TypeVar or ParamSpec (3.12 on): with the sign of its variance, unless that is inferred."""
    name = _named(printer, value, depth)
    if value.attr("__infer_variance__"):
        return name
    return ("+" if value.attr("__covariant__") else "-" if value.attr("__contravariant__") else "~") + name


def _part(printer: Repr, value: Object, depth: int) -> str:
    """One argument: a class by its name, everything else by its repr."""
    if value.isa("ellipsis"):
        return "..."
    if value.isa("typing.TypeAliasType") and value.rt.minor.qualified_aliases:
        return default_repr(value)  # there it is named with its module, which only a call tells
    if value.type.flags & TYPE:
        info = value.rt.type(value.address)
        if info.raw_name == "NoneType" and value.rt.minor.none_arguments:
            return "None"
        return info.qualname if info.module == "builtins" else info.full_name
    if value.type.flags & LIST and depth < printer.limits.depth:
        return "[" + ", ".join(_part(printer, held, depth + 1) for held in value.elements(printer.limits.items)) + "]"
    return printer.show(value, depth + 1)


def _parts(printer: Repr, value: Object, depth: int) -> list[str]:
    held: Any = value.attr("__args__")
    if not held.type.flags & TUPLE:
        raise NotFoundError(f"the arguments of the {value.type_name} at {value.address:#x} are no tuple")
    shown = [_part(printer, one, depth) for one in held.elements(printer.limits.items)]
    if held.len() > len(shown):
        printer.truncated = True
        shown.append("...")
    return shown


def _union(printer: Repr, value: Object, depth: int) -> str:
    return " | ".join("None" if part == "NoneType" else part for part in _parts(printer, value, depth))


def _generic(printer: Repr, value: Object, depth: int) -> str:
    star = "*" if value.rt.minor.starred_aliases and value.attr("__unpacked__") else ""
    return f"{star}{_part(printer, value.attr('__origin__'), depth)}[{', '.join(_parts(printer, value, depth)) or '()'}]"


def _template(printer: Repr, value: Object, depth: int) -> str:
    held = (f"{name}={_member(printer, value, name, depth)}" for name in ("strings", "interpolations"))
    return f"{value.type.name}({', '.join(held)})"


def _interpolation(printer: Repr, value: Object, depth: int) -> str:
    names = ("value", "expression", "conversion", "format_spec")
    return f"{value.type.name}({', '.join(_member(printer, value, name, depth) for name in names)})"


def _lazy_import(printer: Repr, value: Object, depth: int) -> str:
    """What a `lazy import` statement left: a module's name, or (what it is an attribute of, the attribute's name).

    `import a.b` without a list of names stands for `a`. C code alone knows these words, which lie behind the builtins; they are
    believed where they are of these types."""
    rt, one = value.rt, value
    names: list[str] = []
    for _ in range(MAX_PARTS):
        of, name = map(rt.object, rt.target.words(one.address + rt.layout["object.__size"] + 8, 2))
        if not of.address or not of.isa("lazy_import"):
            break
        names.insert(0, name.string(MAX_NAME) if name.isa("str") else "")
        one = of
    if not of.address or not of.isa("str") or not all(names):
        return default_repr(value)
    module = of.string(MAX_NAME)
    parts = [module.partition(".")[0] if names and not name.address else module, *names]
    return f"<lazy_import {'.'.join(parts)!r}>"


BY_NAME = {
    "types.GenericAlias": _generic,
    "types.UnionType": _union,  # up to 3.13
    "typing.Union": _union,
    "typing.TypeVar": _parameter,
    "typing.ParamSpec": _parameter,
    "typing.TypeVarTuple": _named,
    "typing.TypeAliasType": _alias_name,
    "string.templatelib.Template": _template,
    "string.templatelib.Interpolation": _interpolation,
    "sentinel": _named,
    "lazy_import": _lazy_import,
}
