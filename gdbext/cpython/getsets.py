"""Attributes that C code computes (getset descriptors) and whose source field is known: exceptions, functions, classes, numbers.

Every other getset needs a call. Fields: Include/cpython/pyerrors.h, funcobject.h, object.h, longobject.h of each minor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .types import EXCEPTION, LONG, TYPE

if TYPE_CHECKING:
    from .objects import Object

_EXCEPTION = {"args": "args", "__traceback__": "traceback", "__context__": "context", "__cause__": "cause"}
_FUNCTION = {
    "__code__": "func_code",
    "__name__": "func_name",
    "__qualname__": "func_qualname",
    "__globals__": "func_globals",
    "__closure__": "func_closure",
    "__defaults__": "func_defaults",
    "__kwdefaults__": "func_kwdefaults",
}
_GENERATOR = {"__name__": "gi_name", "__qualname__": "gi_qualname"}


def read(obj: Object, name: str) -> Any:
    """The value of a getset, None for a field that holds NULL; `NotImplemented` where only a call could tell."""
    flags = obj.type.flags
    if flags & EXCEPTION and name in _EXCEPTION:
        return _pointed(obj, "exc." + _EXCEPTION[name])
    if obj.isa("function") and name in _FUNCTION and "func." + _FUNCTION[name] in obj.rt.layout:
        return _pointed(obj, "func." + _FUNCTION[name])
    if obj.isa("generator", "coroutine", "async_generator") and name in _GENERATOR:
        return _pointed(obj, "gen." + _GENERATOR[name])
    if name == "cell_contents" and obj.isa("cell"):
        return _pointed(obj, "cell.ob_ref")
    if flags & TYPE:
        return _of_class(obj, name)
    if flags & LONG and name in ("real", "numerator"):
        return obj.integer()
    if flags & LONG and name in ("imag", "denominator"):
        return 0 if name == "imag" else 1
    if obj.isa("float") and name in ("real", "imag"):
        return obj.floating() if name == "real" else 0.0
    if obj.isa("collections.deque") and name == "maxlen":
        longest = obj.rt.target.i64(obj.address + obj.rt.layout["deque.maxlen"])
        return longest if longest >= 0 else None
    if obj.isa("array.array") and name in ("typecode", "itemsize"):
        descr = obj.rt.target.u64(obj.address + obj.rt.layout["array.ob_descr"])
        code = chr(obj.rt.target.u8(descr + obj.rt.layout["arraydescr.typecode"]))
        return code if name == "typecode" else obj.rt.target.i32(descr + obj.rt.layout["arraydescr.itemsize"])
    return NotImplemented


def _pointed(obj: Object, key: str) -> Object | None:
    pointer = obj.rt.target.u64(obj.address + obj.rt.layout[key])
    return obj.rt.object(pointer) if pointer else None


def _of_class(obj: Object, name: str) -> Any:
    info = obj.rt.type(obj.address)
    if name in ("__name__", "__qualname__", "__module__"):
        return {"__name__": info.name, "__qualname__": info.qualname, "__module__": info.module}[name]
    if name == "__mro__":
        return tuple(obj.rt.object(a) for a in info.mro)
    return NotImplemented
