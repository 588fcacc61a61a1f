"""The reprs of CPython's own C types that are neither scalars nor containers: functions, modules, ranges, views, locks, …

Each function of `BY_NAME` takes (printer, value, depth). It gives the text that the type's tp_repr in CPython's sources gives.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import log
from ..errors import GdbextError, LayoutError
from . import lock_objects
from .objects import Object
from .types import LONG, STR

if TYPE_CHECKING:
    from .reprs import Repr

MAX_TEXT = 4096
_PLAIN_COUNT = (1 << 63) - 1  # PY_SSIZE_T_MAX: an itertools.count that has left the machine's integers


def default_repr(value: Object) -> str:
    """`<module.Class object at 0x…>`, as `object.__repr__` gives it."""
    info = value.type
    module = info.module
    name = info.qualname if module in ("", "builtins") else f"{module}.{info.qualname}"
    return f"<{name} object at {value.address:#x}>"


def _words(value: Object, prefix: str, keys: tuple[str, ...]) -> list[Object]:
    t, layout = value.rt.target, value.rt.layout
    return [value.rt.object(t.u64(value.address + layout[f"{prefix}.{k}"])) for k in keys]


def _after_header(value: Object, index: int) -> int:
    """The word that follows the object's header `index` words on."""
    return value.rt.target.u64(value.address + value.rt.layout["object.__size"] + 8 * index)


# ---- containers ------------------------------------------------------------------------------------------------------
def _set(printer: Repr, value: Object, depth: int) -> str:
    name, inner = value.type.name, printer.members(value, depth)
    if not inner:
        return f"{name}()"
    return "{" + inner + "}" if name == "set" else f"{name}({{{inner}}})"


def _deque(printer: Repr, value: Object, depth: int) -> str:
    longest = value.rt.target.i64(value.address + value.rt.layout["deque.maxlen"])
    tail = f", maxlen={longest}" if longest >= 0 else ""
    return f"{value.type.name}([{printer.members(value, depth)}]{tail})"


def _proxy(printer: Repr, value: Object, depth: int) -> str:
    return f"mappingproxy({printer.show(_words(value, 'mappingproxy', ('mapping',))[0], depth)})"


def _view(printer: Repr, value: Object, depth: int) -> str:
    """dict_keys, dict_values, dict_items and OrderedDict's."""
    kind, held = value.type.name, value.rt.object(_after_header(value, 0))
    pairs, count = held.ordered_entries(printer.limits.items), held.len()
    if kind.endswith("items"):
        show = printer.pair(held, depth, ", ")
        return f"{kind}([{printer.each(count, pairs, lambda p: f'({show(p)})')}])"
    members = [p[0] if kind.endswith("keys") else p[1] for p in pairs]
    return f"{kind}([{printer.each(count, members, lambda a: printer.show(value.rt.object(a), depth + 1))}])"


def _array(printer: Repr, value: Object, depth: int) -> str:
    try:
        count = value.len()
        take = min(count, printer.limits.items)
        code, numbers = value.array_numbers(0, take)
    except LayoutError as e:
        log.passed_over(e)
        return default_repr(value)
    if not count:
        return f"array('{code}')"
    printer.truncated |= take < count
    if code in "uw":
        return f"array('{code}', {''.join(map(chr, numbers))!r}{'...' if take < count else ''})"
    return f"array('{code}', [{', '.join(map(repr, numbers))}{', ...' if take < count else ''}])"


# ---- code ------------------------------------------------------------------------------------------------------------
def _function(printer: Repr, value: Object, depth: int) -> str:
    return f"<function {_qualname(value)} at {value.address:#x}>"


def _qualname(func: Object) -> str:
    """The `__qualname__`, else the `__name__`, of the function that a method is bound to; "?" where neither is a str."""
    for name in ("__qualname__", "__name__"):
        try:
            found = func.attr(name)
            if isinstance(found, str):
                return found
            if found.type.flags & STR:
                return str(found.string(MAX_TEXT))
        except (GdbextError, AttributeError) as e:
            log.passed_over(e)
            continue
    return "?"


def _method(printer: Repr, value: Object, depth: int) -> str:
    func, owner = _words(value, "method", ("im_func", "im_self"))
    return f"<bound method {_qualname(func)} of {printer.show(owner, depth + 1)}>"


def _builtin(printer: Repr, value: Object, depth: int) -> str:
    layout, t = value.rt.layout, value.rt.target
    name = t.cstring(t.u64(t.u64(value.address + layout["cfunc.m_ml"])), 300).decode("utf-8", "replace")
    owner = t.u64(value.address + layout["cfunc.m_self"])
    if not owner or value.rt.object(owner).isa("module"):
        return f"<built-in function {name}>"
    return f"<built-in method {name} of {_type_text(value.rt.object(owner))} object at {owner:#x}>"


def _type_text(value: Object) -> str:
    """tp_name: with the module for a type of C code, the bare name for a class of Python code."""
    return value.type.raw_name


def _descriptor(printer: Repr, value: Object, depth: int) -> str:
    """PyDescr_COMMON (Include/cpython/descrobject.h): d_type, d_name."""
    at = value.rt.layout["descr.d_name"]
    owner = value.rt.type(value.rt.target.u64(value.address + at - 8))
    name = value.rt.object(value.rt.target.u64(value.address + at)).string(MAX_TEXT)
    kind = {"wrapper_descriptor": "slot wrapper", "member_descriptor": "member", "getset_descriptor": "attribute"}
    return f"<{kind.get(value.type.name, 'method')} '{name}' of '{owner.raw_name}' objects>"


def _method_wrapper(printer: Repr, value: Object, depth: int) -> str:
    """wrapperobject (Objects/descrobject.c): descr, self."""
    descr, owner = value.rt.object(_after_header(value, 0)), value.rt.object(_after_header(value, 1))
    name = value.rt.object(value.rt.target.u64(descr.address + value.rt.layout["descr.d_name"])).string(MAX_TEXT)
    return f"<method-wrapper '{name}' of {_type_text(owner)} object at {owner.address:#x}>"


def _wrapped_callable(printer: Repr, value: Object, depth: int) -> str:
    """staticmethod and classmethod: from 3.10 on they name the wrapped object."""
    if not value.rt.minor.wrappers_name:
        return default_repr(value)
    return f"<{value.type.name}({printer.show(value.rt.object(_after_header(value, 0)), depth + 1)})>"


def _module(printer: Repr, value: Object, depth: int) -> str:
    """As importlib words it: by the spec where there is one (`_module_repr_from_spec`), else by name and file."""
    rt = value.rt
    own = {n: rt.object(a) for n, a in value.instance_entries()}
    spec = {} if own.get("__spec__") is None or own["__spec__"].is_none() else dict(own["__spec__"].fields())

    def text(held: dict[str, Object], key: str) -> str | None:
        found = held.get(key)
        return found.string(MAX_TEXT) if isinstance(found, Object) and found.type.flags & STR else None

    name = text(spec, "name") or text(own, "__name__") or "?"
    origin = text(spec, "origin")
    if spec and origin is not None:
        located = spec["_set_fileattr"].plain() if "_set_fileattr" in spec else True
        return f"<module {name!r} from {origin!r}>" if located else f"<module {name!r} ({origin})>"
    file = text(own, "__file__")
    if file is not None:
        return f"<module {name!r} from {file!r}>"
    loader = spec.get("loader") or own.get("__loader__")
    return (
        f"<module {name!r}>" if loader is None or loader.is_none() else f"<module {name!r} ({printer.show(loader, depth + 1)})>"
    )


def _generator(printer: Repr, value: Object, depth: int) -> str:
    name = value.rt.object(value.rt.target.u64(value.address + value.rt.layout["gen.gi_qualname"])).string(300)
    return f"<{value.type.builtin_name or value.type.name} object {name} at {value.address:#x}>"


def _code(printer: Repr, value: Object, depth: int) -> str:
    code = value.rt.code(value.address)
    return f'<code object {code.name} at {value.address:#x}, file "{code.file}", line {code.first}>'


def _partial(printer: Repr, value: Object, depth: int) -> str:
    fn, args, kw = _words(value, "partial", ("fn", "args", "kw"))
    shown = [printer.show(fn, depth + 1)] + [printer.named("args", a, depth + 1) for a in args.elements(printer.limits.items)]
    keywords = [(k.string(MAX_TEXT), v) for k, v in kw.items(printer.limits.items)]
    shown += [f"{name}={printer.named(name, v, depth + 1)}" for name, v in keywords]
    info = value.type
    named = info.raw_name if not info.is_python else info.full_name if value.rt.minor.full_partials else info.name
    return f"{named}({', '.join(shown)})"


# ---- others ----------------------------------------------------------------------------------------------------------
def _complex(printer: Repr, value: Object, depth: int) -> str:
    return repr(value.complex())


def _range(printer: Repr, value: Object, depth: int) -> str:
    return repr(value.range())


def _slice(printer: Repr, value: Object, depth: int) -> str:
    parts = (printer.show(o, depth + 1) for o in _words(value, "slice", ("start", "stop", "step")))
    return "slice({}, {}, {})".format(*parts)


def _cell(printer: Repr, value: Object, depth: int) -> str:
    inner = value.rt.target.u64(value.address + value.rt.layout["cell.ob_ref"])
    if not inner:
        return f"<cell at {value.address:#x}: empty>"
    return f"<cell at {value.address:#x}: {_type_text(value.rt.object(inner))} object at {inner:#x}>"


def _namespace(printer: Repr, value: Object, depth: int) -> str:
    shown = [f"{n}={printer.named(n, v, depth + 1)}" for n, v in value.fields()]
    name = "namespace" if value.type.name == "SimpleNamespace" else value.type.name
    return f"{name}({', '.join(shown)})"


def _constant(printer: Repr, value: Object, depth: int) -> str:
    return {"ellipsis": "Ellipsis", "NotImplementedType": "NotImplemented"}[value.type.builtin_name]


def _count(printer: Repr, value: Object, depth: int) -> str:
    """itertools.count (Modules/itertoolsmodule.c countobject): cnt, long_cnt, long_step."""
    number = value.rt.target.i64(value.address + value.rt.layout["object.__size"])
    if number != _PLAIN_COUNT:
        return f"{value.type.name}({number})"
    start, step = value.rt.object(_after_header(value, 1)), value.rt.object(_after_header(value, 2))
    tail = "" if step.type.flags & LONG and step.integer() == 1 else f", {printer.show(step, depth + 1)}"
    return f"{value.type.name}({printer.show(start, depth + 1)}{tail})"


def _repeat(printer: Repr, value: Object, depth: int) -> str:
    """itertools.repeat: element, cnt (-1: without end)."""
    left = value.rt.target.i64(value.address + value.rt.layout["object.__size"] + 8)
    shown = printer.show(value.rt.object(_after_header(value, 0)), depth + 1)
    return f"{value.type.name}({shown})" if left < 0 else f"{value.type.name}({shown}, {left})"


def _memoryview(printer: Repr, value: Object, depth: int) -> str:
    """PyMemoryViewObject (Include/cpython/memoryviewobject.h): mbuf, hash, flags; _Py_MEMORYVIEW_RELEASED is 1."""
    flags = value.rt.target.i32(value.address + value.rt.layout["varobj.__size"] + 16)
    return f"<{'released memory' if flags & 1 else 'memory'} at {value.address:#x}>"


def _weakref(printer: Repr, value: Object, depth: int) -> str:
    """Objects/weakrefobject.c weakref_repr, proxy_repr."""
    rt = value.rt
    pointer = rt.target.u64(value.address + rt.layout["weakref.wr_object"])
    proxy = "proxy" in value.type.name
    kind = "weakproxy" if proxy else "weakref"
    target = rt.object(pointer) if pointer else None
    if target is None or target.is_none():
        return f"<{kind} at {value.address:#x}; {'to NoneType at' if proxy and not rt.minor.says_dead else 'dead'}>"
    name = target.type.raw_name
    if proxy:
        to = f"to '{name}'" if rt.minor.says_dead else f"to {name}"
        return f"<{kind} at {value.address:#x}; {to} at {pointer:#x}>"
    own = _own_name(target)
    return f"<{kind} at {value.address:#x}; to '{name}' at {pointer:#x}{f' ({own})' if own else ''}>"


def _own_name(target: Object) -> str:
    """`__name__`, where an object has one that is a str."""
    try:
        found = target.attr("__name__")
        if isinstance(found, Object):
            return found.string(MAX_TEXT) if found.type.flags & STR else ""
        return found if isinstance(found, str) else ""
    except GdbextError as e:
        log.passed_over(e)
        return ""


def _lock(printer: Repr, value: Object, depth: int) -> str:
    """Modules/_threadmodule.c lock_repr, rlock_repr."""
    lock = lock_objects.read(value)
    if lock is None:
        return default_repr(value)
    state = "locked" if lock.locked else "unlocked"
    name = "_thread.RLock" if lock.kind == "RLock" else "_thread.lock"
    owned = f" owner={lock.owner} count={lock.count}" if lock.kind == "RLock" else ""
    return f"<{state} {name} object{owned} at {value.address:#x}>"


BY_NAME = {
    "set": _set,
    "frozenset": _set,
    "collections.deque": _deque,
    "function": _function,
    "method": _method,
    "builtin_function_or_method": _builtin,
    "module": _module,
    "complex": _complex,
    "range": _range,
    "slice": _slice,
    "cell": _cell,
    "mappingproxy": _proxy,
    "array.array": _array,
    "generator": _generator,
    "coroutine": _generator,
    "async_generator": _generator,
    "code": _code,
    "types.SimpleNamespace": _namespace,
    "ellipsis": _constant,
    "NotImplementedType": _constant,
    **dict.fromkeys(("dict_keys", "dict_values", "dict_items", "odict_keys", "odict_values", "odict_items"), _view),
    **dict.fromkeys(("method_descriptor", "classmethod_descriptor", "wrapper_descriptor"), _descriptor),
    **dict.fromkeys(("member_descriptor", "getset_descriptor"), _descriptor),
    "method-wrapper": _method_wrapper,
    "staticmethod": _wrapped_callable,
    "classmethod": _wrapped_callable,
    "functools.partial": _partial,
    "itertools.count": _count,
    "itertools.repeat": _repeat,
    "memoryview": _memoryview,
    **dict.fromkeys(("weakref", "weakproxy", "weakcallableproxy"), _weakref),  # up to 3.12; with their module later
    **{f"weakref.{name}": _weakref for name in ("ReferenceType", "ProxyType", "CallableProxyType")},
    "_thread.lock": _lock,
    "_thread.RLock": _lock,
}
