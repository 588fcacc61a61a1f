"""msgspec Structs: `Name(field=value, …)`, as their C code prints them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..adapters import Adapter

if TYPE_CHECKING:
    from ..reprs import Repr


class StructAdapter(Adapter):
    reprs = None  # one with a repr of its own shows its fields, marked as such

    def text(self, printer: Repr, depth: int) -> Any:
        obj = self.own
        if obj.type.python_definer("__repr__") is not None:
            printer.opaque = True
        names = obj.rt.object(obj.type.address).metaclass_member("__struct_fields__").elements(1000)
        held = dict(obj.fields())
        return printer.record(obj.type.name, [(name, held.get(name)) for name in (n.string(200) for n in names)], depth)
