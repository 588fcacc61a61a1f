"""Weak references: where an object keeps its list of them, and where each keeps its object. Source: Objects/weakrefobject.c."""

from __future__ import annotations

from ..cpython.runtime import Runtime
from ..cpython.types import TypeInfo

WEAK = frozenset(  # up to 3.12 without their module
    "weakref weakproxy weakcallableproxy weakref.ReferenceType weakref.ProxyType weakref.CallableProxyType".split()
)


def weak_offsets(rt: Runtime, info: TypeInfo) -> set[int]:
    """Offsets of the words that hold nothing in the objects of a type: the list of their weak references; in a weak reference its
    object and its neighbours in that list."""
    found = {info.weaklistoffset}
    if not info.builtin_bases().isdisjoint(WEAK):
        found |= {rt.layout[f"weakref.{name}"] for name in ("wr_object", "wr_prev", "wr_next")}
    return found


def weak_references(rt: Runtime, address: int, limit: int) -> list[int]:
    """The addresses of at most `limit` weak references to an object, from its list of them."""
    found: dict[int, None] = {}
    offset = rt.object(address).type.weaklistoffset
    at = rt.target.u64(address + offset) if offset else 0
    while at and at not in found and len(found) < limit:
        found[at] = None
        at = rt.target.u64(at + rt.layout["weakref.wr_next"])
    return list(found)
