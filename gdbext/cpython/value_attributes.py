"""`value.name` of an expression: instance, class, C fields, bound methods, and properties whose code only reads and computes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..errors import FaultError, GdbextError, NotFoundError
from . import getsets, hiding
from .adapters import Adapter
from .objects import Object, is_property
from .types import TYPE
from .values import PlainCode, describe, of_library, own_code, wrapped

if TYPE_CHECKING:
    from .reprs import Repr


class BoundMethod(Adapter):
    """An instance's attribute that is a function of its class: it is shown, never called."""

    type_name = "method"

    def __init__(self, func: Object, owner: Object, name: str) -> None:
        super().__init__(None)
        self.func, self.owner, self.name = func, owner, name

    def text(self, printer: Repr, depth: int) -> str:
        if self.func.isa("method_descriptor", "wrapper_descriptor", "classmethod_descriptor"):
            rt = self.func.rt
            name = rt.object(rt.target.u64(self.func.address + rt.layout["descr.d_name"])).string(4096)
            owner = "type" if self.owner.type.flags & TYPE else self.owner.type.raw_name
            kind = "method-wrapper '{}'" if self.func.isa("wrapper_descriptor") else "built-in method {}"
            return f"<{kind.format(name)} of {owner} object at {self.owner.address:#x}>"
        name = attribute(self.func, "__qualname__")
        shown = name.string(4096) if isinstance(name, Object) else name
        return f"<bound method {shown} of {printer.show(self.owner, depth + 1)}>"

    def attribute(self, name: str) -> Any:
        if name in ("__self__", "__func__"):
            return self.owner if name == "__self__" else self.func
        return attribute(self.func, name)


_C_DESCRIPTORS = ("member_descriptor", "getset_descriptor", "staticmethod")
_METHODS = ("function", "method_descriptor", "wrapper_descriptor")


def attribute(value: Any, name: str, depth: int = 10) -> Any:
    """`value.name`; `NotFoundError` where there is no such attribute, `GdbextError` where only code could tell."""
    return hiding.attribute_of(value, name, _read(value, name, depth))


def _read(value: Any, name: str, depth: int) -> Any:
    if isinstance(value, Adapter):
        for ask in (value.attribute, value.missing_attribute):
            found = ask(name)
            if found is not NotImplemented:
                return found
        raise NotFoundError(f"{describe(value)} has no attribute {name} that can be read")
    if not isinstance(value, Object):
        return _plain_attribute(value, name)
    if value.isa("module"):
        contents = value.rt.object(value.rt.target.u64(value.address + value.rt.layout["module.md_dict"]))
        try:
            return contents.item(name)
        except NotFoundError:
            raise NotFoundError(f"the module at {value.address:#x} has no {name}") from None
    if value.type.flags & TYPE:
        return _of_class(value, name)
    own_code(value, "__getattribute__")
    if any(n == name for n, _ in value.instance_entries()):
        return value.attr(name)
    held = value.type.lookup(name)
    if held is None:
        definer = value.type.python_definer("__getattr__")
        try:
            return value.attr(name)
        except NotFoundError as e:
            tail = f" (its class {definer.name} has a __getattr__, which only running code could ask)" if definer else ""
            raise NotFoundError(f"{e}{tail}") from None
    return _described(value, name, value.rt.object(held), depth)


def _described(value: Object, name: str, descriptor: Object, depth: int) -> Any:
    """Value of an instance's attribute that its class implements with `descriptor`."""
    adapter = value.adapter
    known = adapter.attribute(name) if adapter is not None else NotImplemented
    if known is not NotImplemented:
        return known
    if is_property(descriptor):
        return _property(value, name, descriptor, depth)
    kind = descriptor.type.builtin_name
    if kind in _METHODS:
        return BoundMethod(descriptor, value, name)
    if kind == "classmethod":
        return BoundMethod(wrapped(descriptor), value.rt.object(value.type.address), name)
    if kind not in _C_DESCRIPTORS and descriptor.type.python_definer("__get__") is not None:
        raise GdbextError(f"{name} of {describe(value)} is a {descriptor.type_name}, a descriptor that only its code can answer")
    return value.attr(name)


def _of_class(value: Object, name: str) -> Any:
    """An attribute of a class: classmethods are bound to it, getsets of `type` are read, the rest is as it stands."""
    held = value.rt.type(value.address).lookup(name)
    found = value.rt.object(held) if held is not None else None
    if found is not None and found.isa("classmethod"):
        return BoundMethod(wrapped(found), value, name)
    if found is not None and found.isa("staticmethod"):
        return wrapped(found)
    of_type = value.type.lookup(name)
    if of_type is not None and value.rt.object(of_type).isa("getset_descriptor"):  # a data descriptor goes before the class's own
        known = getsets.read(value, name)
        if known is not NotImplemented:
            return known
        if found is None or found.isa("getset_descriptor"):
            raise GdbextError(f"{name} of {describe(value)} is computed by a call, which reading cannot make")
    return value.attr(name)


def _property(value: Object, name: str, descriptor: Object, depth: int) -> Any:
    """A property's value where its code only reads and computes; else `GdbextError` that says why and names the likely field."""
    why = ""
    try:
        return _computed(value, descriptor, depth)
    except FaultError:
        raise
    except GdbextError as e:
        why = f" ({e})"
    fields = {n for n, _ in value.fields()}
    backing = next((b for b in value.backing_names(name) if b in fields), "")
    hint = f"; it has a field {backing}" if backing else ""
    raise GdbextError(f"{name} of {describe(value)} is a property that only running its code can answer{why}{hint}")


def _computed(value: Object, descriptor: Object, depth: int) -> Any:
    rt = value.rt
    if not descriptor.isa("property") or PlainCode.call is None or not depth:
        raise GdbextError("a class of its own makes it")
    getter = rt.object(rt.target.u64(descriptor.address + rt.layout["property.prop_get"]))
    if not getter.isa("function"):
        raise GdbextError(f"a {getter.type_name} computes it")
    return PlainCode.call(getter, [value])


def _plain_attribute(value: Any, name: str) -> Any:
    allowed = of_library(value) and not name.startswith("_")
    allowed = allowed or isinstance(value, (int, float, complex)) and name in ("real", "imag", "numerator", "denominator")
    allowed = allowed or isinstance(value, (range, slice)) and name in ("start", "stop", "step")
    found = getattr(value, name, NotImplemented) if allowed else NotImplemented
    if found is NotImplemented or callable(found):
        raise NotFoundError(f"{describe(value)} has no attribute {name} that can be read")
    return found
