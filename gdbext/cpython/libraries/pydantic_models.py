"""pydantic models: their fields as `BaseModel.__repr_args__` (pydantic 2) lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..adapters import Adapter
from ..objects import Object

if TYPE_CHECKING:
    from ..reprs import Repr


class ModelAdapter(Adapter):
    reprs = None  # one with a repr of its own shows its fields, marked as such

    def text(self, printer: Repr, depth: int) -> Any:
        obj = self.own
        for method in ("__repr__", "__repr_args__"):
            definer = obj.type.python_definer(method)
            if definer is None or definer.full_name != "pydantic.main.BaseModel":
                printer.opaque = True
        return printer.record(obj.type.name, self._fields(obj, printer), depth)

    def _fields(self, obj: Object, printer: Repr) -> list[tuple[str, Any]]:
        """The instance's fields that have a repr, then its extra values; None for a field that code computes."""
        rt, info = obj.rt, obj.type
        table = info.lookup("__pydantic_fields__") or info.lookup("model_fields")
        if table is None:
            return []
        visible = {name.string(200) for name, field in rt.object(table).items(1000) if field.attr("repr").plain()}
        pairs: list[tuple[str, Object | None]] = [
            (name, rt.object(address)) for name, address in obj.instance_entries() if name in visible
        ]
        extra = dict(obj.fields()).get("__pydantic_extra__")
        if extra is not None and not extra.is_none():
            pairs += [(name.string(200), held) for name, held in extra.items(1000)]
        decorators = info.lookup("__pydantic_decorators__")
        if decorators:
            for name, made in rt.object(decorators).attr("computed_fields").items(1000):
                if made.attr("info").attr("repr").plain():
                    printer.opaque = True
                    pairs.append((name.string(200), None))
        return pairs
