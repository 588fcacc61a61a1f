"""`value[key]` and `x in value` of an expression."""

from __future__ import annotations

import array
from typing import Any

from ..errors import GdbextError, NotFoundError
from . import comparisons, hiding
from .adapters import Adapter
from .comparisons import same
from .objects import MAX_ITEMS, Object
from .spending import brief
from .types import DICT, LIST, TUPLE
from .values import NoneOperand, adapter_of, describe, hashable, is_none, kind, made_of, members, own_code, plain, view_of


def item(value: Any, key: Any) -> Any:
    """`value[key]`; `NotFoundError` for an index or key that is not there."""
    if isinstance(value, hiding.Hidden):
        key = _plain_key(key)
        with value.opened() as held:
            return hiding.part(_item(held, key))
    return hiding.item_of(value, key, _item(value, key))


def _item(value: Any, key: Any) -> Any:
    adapter = adapter_of(value)
    known = adapter.item(_plain_key(key)) if adapter is not None else NotImplemented
    if known is not NotImplemented:
        return known
    if is_none(value):
        raise NoneOperand("None has no items")
    if isinstance(value, Adapter):
        raise GdbextError(f"{describe(value)} has no items that can be read")
    if isinstance(key, slice):
        key = _plain_key(key)
    if not isinstance(value, Object):
        return _made_item(value, key)
    own_code(value, "__getitem__")
    made = made_of(value)
    if made is not None:
        return made[key if isinstance(key, slice) else plain(key)]
    if isinstance(key, slice):
        return _slice(value, key)
    if value.type.flags & DICT or value.isa("mappingproxy"):
        return _entry(value, key)
    if value.type.flags & (LIST | TUPLE) or value.isa("collections.deque", "array.array"):
        return value.item(plain(key))
    raise GdbextError(f"{describe(value)} has no items that can be read")


def _plain_key(key: Any) -> Any:
    if isinstance(key, slice):
        return slice(*(plain(p) for p in (key.start, key.stop, key.step)))
    return tuple(_plain_key(k) for k in key) if isinstance(key, tuple) else plain(key)


def _made_item(value: Any, key: Any) -> Any:
    if not isinstance(value, dict):
        return value[key if isinstance(key, slice) else plain(key)]
    hashable(key)
    for known, held in value.items():
        if same(known, key):
            return held
    raise NotFoundError(f"the dict has no key {brief(key, 80)}")


def _entry(value: Object, key: Any) -> Any:
    """The value under a dict's key: by identity, else by equality."""
    hashable(key)
    found = None

    def is_it(pair: tuple[Any, Any]) -> bool:
        nonlocal found
        found = pair[1] if same(pair[0], key) else None
        return found is not None

    if not hiding.told_of(value.items(), is_it, lambda pair: hiding.key_of(pair[0])):
        shown = describe(key) if isinstance(key, (Object, Adapter)) else f"{brief(key, 80)}"
        raise NotFoundError(f"{describe(value)} has no key {shown}")
    return found


def _slice(value: Object, part: slice) -> Any:
    if value.type.flags & (LIST | TUPLE):
        found = [value.rt.object(a) for a in value.element_addresses()[part]]
        return found if value.type.flags & LIST else tuple(found)
    if value.isa("array.array"):
        whole = range(value.len())[part]
        low, high = (min(whole[0], whole[-1]), max(whole[0], whole[-1]) + 1) if whole else (0, 0)
        if high - low > MAX_ITEMS:
            raise GdbextError(f"a slice of {high - low} elements is more than is read at once ({MAX_ITEMS})")
        numbers = value.array_numbers(low, high)[1]
        return array.array(value.array_numbers(0, 0)[0], [numbers[i - low] for i in whole])
    raise GdbextError(f"{describe(value)} cannot be sliced by reading memory")


def holds(name: str, left: Any, right: Any) -> bool:
    """`left OPERATOR right`; `name`: of the ast node ("Lt", "Is", "In")."""
    if name in ("Is", "IsNot"):
        return comparisons.one_object(left, right) == (name == "Is")
    if name in ("Eq", "NotEq"):
        return comparisons.equal(left, right) == (name == "Eq")
    if name in ("In", "NotIn"):
        return contains(right, left) == (name == "In")
    return comparisons.ordered(name, left, right)


def contains(container: Any, value: Any) -> bool:
    """`value in container`; `NoneOperand` where either is None and the other is text or a container."""
    if is_none(container):
        raise NoneOperand("None contains nothing")
    if isinstance(container, Object):
        own_code(container, "__contains__")
        made = made_of(container)
        container = container if made is None else made
    if isinstance(container, str) and is_none(value):
        raise NoneOperand("None is no text")
    if isinstance(container, (str, bytes, bytearray)):
        return plain(value) in container
    if isinstance(container, range):
        return any(same(value, v) for v in container) if isinstance(value, (Object, Adapter)) else value in container
    view = view_of(container)
    if kind(container) in ("set", "dict", "odict") or view is not None and view.kind == "keys":
        hashable(value)
    return hiding.told_of(members(container), lambda member: same(member, value))
