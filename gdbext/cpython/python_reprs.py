"""Reprs that Python code makes and that have one fixed form: enum members, dataclasses, namedtuples, Counters, classes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from .. import log
from ..errors import GdbextError
from .frames import Code
from .objects import Object
from .runtime import Runtime
from .types import LONG, STR, TUPLE, TYPE, TypeInfo

if TYPE_CHECKING:
    from .reprs import Repr

_METACLASSES = ("enum.EnumMeta", "enum.EnumType", "typing._AnyMeta")  # whose __repr__ `show_class` knows


def show(printer: Repr, value: Object, definer: TypeInfo, depth: int) -> str | None:
    """The repr of a value whose `__repr__` is Python code of class `definer`; None where its form is not known here."""
    info = value.type
    if info.flags & TYPE:
        return show_class(value) if definer.full_name in _METACLASSES else None
    if definer.module == "enum" or "_member_map_" in definer.namespace:
        return _enum(printer, value, definer, depth)
    if "__dataclass_fields__" in definer.namespace and _generated(value, definer):
        return _dataclass(printer, value, definer, depth)
    if info.flags & TUPLE and "_fields" in definer.namespace:
        pairs = list(zip(value.namedtuple_fields(), value.elements(1000)))
        inner = printer.each(len(pairs), pairs, lambda p: f"{p[0]}={printer.named(p[0], p[1], depth + 1)}")
        return f"{info.name}({inner})"
    if definer.full_name == "collections.Counter":
        return _counter(printer, value, depth)
    return None


def show_class(value: Object) -> str:
    """The repr of a class; an enum's as its metaclass words it."""
    info = value.rt.type(value.address)
    if value.type.name in ("EnumMeta", "EnumType") and value.type.module == "enum":
        flag = value.rt.minor.flag_enums and any(b.full_name == "enum.Flag" for b in info.bases())
        return f"<{'flag' if flag else 'enum'} {info.name!r}>"
    if value.type.full_name == "typing._AnyMeta" and info.full_name == "typing.Any":
        return "typing.Any"
    return f"<class '{info.qualname if info.module == 'builtins' else info.full_name}'>"


def _counter(printer: Repr, value: Object, depth: int) -> str:
    """The commonest first; by insertion where the counts cannot be compared."""
    entries = value.dict_entries()
    try:
        entries.sort(key=lambda p: -value.rt.object(p[1]).plain())
    except (GdbextError, TypeError) as e:
        log.passed_over(e)
    inner = printer.each(len(entries), entries[: printer.limits.items], printer.pair(value, depth))
    return f"{value.type.name}({{{inner}}})" if entries else f"{value.type.name}()"


# ---- enums -----------------------------------------------------------------------------------------------------------
def _enum(printer: Repr, value: Object, definer: TypeInfo, depth: int) -> str | None:
    """`<Color.RED: 1>`. Combinations of flags are named as in enum.py of each minor. Members that `enum.global_enum` (3.11)
    exported are named by their module, as `re.IGNORECASE`. None where the class has a `__repr__` of its own."""
    fields, code = dict(value.fields()), _repr_code(value.rt, definer)
    if "_value_" not in fields or code is None or os.path.basename(code.file) != "enum.py":
        return None
    if code.name in ("global_enum_repr", "global_flag_repr"):
        return _global_enum(printer, value, fields, code.name == "global_flag_repr", depth)
    name, shown = fields.get("_name_"), printer.show(fields["_value_"], depth + 1)
    if isinstance(name, Object) and name.type.flags & STR:
        return f"<{value.type.name}.{name.string(200)}: {shown}>"
    if value.rt.minor.flag_enums:
        return f"<{value.type.name}: {shown}>"
    names = _flag_names(value, fields["_value_"])
    return f"<{value.type.name}.{names}: {shown}>" if names else None


def _global_enum(printer: Repr, value: Object, fields: dict[str, Object], flag: bool, depth: int) -> str:
    module, name = value.type.module.rpartition(".")[2], fields.get("_name_")
    if not isinstance(name, Object) or not name.type.flags & STR:
        return f"{module}.{value.type.name}({printer.show(fields['_value_'], depth + 1)})"
    names = name.string(1000).split("|") if flag else [name.string(200)]
    return "|".join(one if one[:1].isdigit() else f"{module}.{one}" for one in names)


def _flag_names(value: Object, number: Object) -> str:
    """Up to 3.10: the names of the flags in a combination, the greatest first (enum.py `_decompose`); '' where they cannot be
    told."""
    held, info = number.plain(), value.type
    members = value.rt.object(info.address).attr("_member_map_").items(10_000)
    known = [(member.attr("_value_").plain(), name.string(200)) for name, member in members]
    if not isinstance(held, int) or any(not isinstance(v, int) for v, _ in known):
        return ""
    if held < 0 and info.flags & LONG:
        return ""  # IntFlag: the rest of its bits would be listed
    rest, found = held, []
    for flag, name in known:
        if flag and flag & held == flag:
            found.append((flag, name))
            rest &= ~flag
    if rest and info.flags & LONG:
        return ""
    unique = dict(sorted(found, key=lambda f: f[0], reverse=True))
    if len(unique) > 1 and next(iter(unique)) == held:
        unique.pop(held)
    return "|".join(unique.values()) or str(held)


# ---- dataclasses -----------------------------------------------------------------------------------------------------
def _dataclass(printer: Repr, value: Object, definer: TypeInfo, depth: int) -> str:
    if depth >= printer.limits.depth:
        printer.truncated = True
        return f"{value.type.qualname}(...)"
    held = dict(value.fields())

    def show(key: str) -> str:
        try:
            got = held[key] if key in held else value.attr(key)
        except GdbextError as e:
            log.passed_over(e)
            return f"{key}=<not set>"
        return f"{key}={printer.named(key, got, depth + 1)}"

    names = _shown_fields(value.rt, definer)
    return f"{value.type.qualname}({printer.each(len(names), names, show)})"


def _shown_fields(rt: Runtime, definer: TypeInfo) -> list[str]:
    """The names of the fields that the `__repr__` of a dataclass shows; there may be hundreds."""

    def find() -> list[str]:
        found = []
        for name, field in rt.object(definer.namespace["__dataclass_fields__"]).items(1000):
            parts = dict(field.fields())
            kind, visible = parts.get("_field_type"), parts.get("repr")
            if visible is not None and visible.plain() is False:
                continue
            called = None if kind is None else dict(kind.fields()).get("name")
            if called is None or called.string() == "_FIELD":
                found.append(name.string())
        return found

    return rt.target.cached(("fields of a dataclass", definer.address), find)


def _generated(value: Object, definer: TypeInfo) -> bool:
    """Whether a class's `__repr__` is the one that `dataclasses` made: its code comes from no file of the user's."""

    def look() -> bool:
        code = _repr_code(value.rt, definer)
        return code is not None and (code.file == "<string>" or code.file.endswith("dataclasses.py"))

    return value.rt.target.cached(("a dataclass's own repr", definer.address), look)


def _repr_code(rt: Runtime, definer: TypeInfo) -> Code | None:
    """The code of a class's `__repr__`; None where it is no function of Python's."""
    func = rt.object(definer.namespace["__repr__"])
    try:
        own = dict(func.instance_entries())  # wrapped against recursion: __wrapped__ is the generated one
        func = rt.object(own["__wrapped__"]) if "__wrapped__" in own else func
        return rt.code(rt.target.u64(func.address + rt.layout["func.func_code"]))
    except GdbextError as e:
        log.passed_over(e)
        return None
