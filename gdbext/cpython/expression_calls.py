"""The calls that an expression may make: built-in functions, and methods of text, containers and adapters, on memory alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Iterator, Sequence

from .. import log
from ..errors import GdbextError, NotFoundError
from ..render.text import escape
from . import comparisons, containers, hiding, spending, value_attributes
from .adapters import Adapter
from .frames import PyFrame
from .objects import Object
from .runtime import Runtime
from .types import BYTES, DICT, STR, TYPE
from .values import DictView, NoneOperand, describe, is_none, kind, length, members, own_code, plain, truth, type_of

if TYPE_CHECKING:
    from .reprs import Repr

MAX_RANGE = 10_000_000
# Methods of str and bytes that touch nothing but the text and cannot make it grow without bound.
_TEXT = frozenset(
    "startswith endswith lower upper title capitalize casefold swapcase strip lstrip rstrip removeprefix removesuffix split"
    " rsplit splitlines partition rpartition find rfind index rindex count isalpha isdigit isdecimal isnumeric isalnum isspace"
    " islower isupper istitle isascii isidentifier hex".split()
)
_NUMBER = frozenset("bit_length is_integer conjugate hex".split())


# ---- functions -------------------------------------------------------------------------------------------------------
def function(rt: Runtime | None, frame: PyFrame | None, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """`name(*args, **kwargs)` of a built-in function; `GdbextError` for arguments that it does not take here."""
    if name in ("dir", "vars") and not args:
        if frame is None:
            raise GdbextError(f"no Python frame is selected, so {name}() means nothing")
        own = {n: hiding.under(n, v) for n, v in frame.locals() if v is not None}
        return sorted(own) if name == "dir" else own
    work, low, high = FUNCTIONS[name]
    if kwargs or not low <= len(args) <= high:
        count = str(low) if low == high else f"{low} to {high}"
        raise GdbextError(f"{name}() takes {count} argument{'s' if high != 1 else ''} here")
    return work(rt, *args)


def _id(rt: Runtime | None, value: Any) -> int:
    if not isinstance(value, Object):
        raise GdbextError("id() needs an object of the process")
    return value.address


def _sum(rt: Runtime | None, value: Any, start: Any = 0) -> Any:
    """`sum()` as the process's own Python adds. From 3.12 on, a sum of floats carries a second term for what rounding lost
    (Python/bltinmodule.c)."""
    total, lost = plain(start), 0.0
    if isinstance(total, (str, bytes, bytearray)):
        raise GdbextError("sum() adds no text")
    for member in members(value):
        number = plain(member)
        if isinstance(number, (str, bytes, bytearray)) or number is None:
            raise NoneOperand("sum() met None") if number is None else GdbextError("sum() adds no text")
        if isinstance(total, (list, tuple)):
            spending.made(total)  # made anew with each
        carried = rt is not None and rt.minor.sums_carry and type(total) is float and type(number) in (int, float)
        if not carried:
            total, lost = (total + lost if lost and type(total) is float else total) + number, 0.0
            continue
        x = float(number)
        added = total + x
        lost += (total - added) + x if abs(total) >= abs(x) else (x - added) + total
        total = added
    return total + lost if lost and lost - lost == 0 else total


class _Key:
    """A value as Python's own `sorted`, `min` and `max` compare it."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Key) -> bool:
        return comparisons.ordered("Lt", self.value, other.value)

    def __gt__(self, other: _Key) -> bool:
        return comparisons.ordered("Gt", self.value, other.value)


def _extreme(choose: Callable[..., Any]) -> Callable[..., Any]:
    def work(rt: Runtime | None, *args: Any) -> Any:
        candidates = spending.gathered(members(args[0])) if len(args) == 1 else args
        if not candidates:
            raise GdbextError(f"{choose.__name__}() of something empty has no value")
        return choose(candidates, key=_Key)

    return work


def _isinstance(rt: Runtime | None, value: Any, classes: Any) -> bool:
    wanted = list(members(classes)) if kind(classes) == "tuple" else [classes]
    own = type_of(rt, value)
    line = own.rt.type(own.address).mro
    for one in wanted:
        if kind(one) == "tuple":
            if _isinstance(rt, value, one):
                return True
            continue
        if not isinstance(one, Object) or not one.type.flags & TYPE:
            raise GdbextError("isinstance() needs a class of the process, or a tuple of some")
        if one.address in line:
            return True
        definer = one.type.python_definer("__instancecheck__")
        if definer is not None or one.type.name == "ABCMeta":
            raise GdbextError(
                f"whether it is an instance is up to code of {describe(one)} ({definer.name if definer else 'ABCMeta'})"
            )
    return False


def _hasattr(rt: Runtime | None, value: Any, name: Any) -> bool:
    try:
        value_attributes.attribute(value, _attribute_name(name))
        return True
    except NotFoundError as e:
        if "__getattr__" in str(e):
            raise GdbextError(str(e)) from None
        return False


def _getattr(rt: Runtime | None, value: Any, name: Any, *default: Any) -> Any:
    if default and not _hasattr(rt, value, name):
        return default[0]
    return value_attributes.attribute(value, _attribute_name(name))


def _attribute_name(value: Any) -> str:
    name = plain(value)
    if not isinstance(name, str):
        raise GdbextError("the name of an attribute is text")
    return name


def _sorted(rt: Runtime | None, value: Any) -> list[Any]:
    found = spending.gathered(members(value))
    if any(_is_nan(v) for v in found):
        raise GdbextError("a nan among them: sorted(), min() and max() have no defined result")
    return sorted(found, key=_Key)


def _is_nan(value: Any) -> bool:
    return (
        isinstance(value, float)
        and value != value
        or isinstance(value, Object)
        and value.isa("float")
        and value.floating() != value.floating()
    )


def _range(rt: Runtime | None, *args: Any) -> range:
    found = range(*(plain(a) for a in args))
    if len(found) > MAX_RANGE:
        raise GdbextError(f"a range of {len(found)} is more than gdbext reads ({MAX_RANGE})")
    return found


# ---- dir, vars, help -------------------------------------------------------------------------------------------------
def _dir(rt: Runtime | None, value: Any) -> list[str]:
    if isinstance(value, Adapter):
        return sorted(value.names())
    if not isinstance(value, Object):
        return dir(value)
    if value.isa("module"):
        contents = value.rt.object(value.rt.target.u64(value.address + value.rt.layout["module.md_dict"]))
        if any(k.equals("__dir__") for k, _ in contents.items()):
            raise GdbextError(f"{describe(value)} has a __dir__ of its own, which only running code could answer")
        return sorted(k.string(4096) for k, _ in contents.items())
    own_code(value, "__dir__")
    bases = (value.rt.type(value.address) if value.type.flags & TYPE else value.type).bases()
    if value.type.flags & TYPE and value.type.name in ("EnumMeta", "EnumType"):
        raise GdbextError("dir() of an enum's class is made by its metaclass: list(…) gives its members")
    adapter = value.adapter
    found = {n for base in bases for n in base.namespace} | set(adapter.names() if adapter is not None else ())
    return sorted(found | (set() if value.type.flags & TYPE else {n for n, _ in value.instance_entries()}))


def _vars(rt: Runtime | None, value: Any) -> Any:
    if not isinstance(value, Object):
        raise GdbextError("vars() needs an object of the process")
    if value.isa("module"):
        return value.rt.object(value.rt.target.u64(value.address + value.rt.layout["module.md_dict"]))
    if value.type.flags & TYPE:
        return {n: hiding.under(n, value.rt.object(a)) for n, a in value.rt.type(value.address).namespace.items()}
    own = value.instance_entries()
    if own or value.type.lookup("__dict__"):
        pointer = value.rt.dialect.dict_pointer(value.rt, value)
        return value.rt.object(pointer) if pointer else {n: hiding.under(n, value.rt.object(a)) for n, a in own}
    fields = value.fields()
    if not fields:
        raise GdbextError(f"{describe(value)} has no __dict__")
    return {n: hiding.under(n, v) for n, v in fields}  # of slots: Python's own vars() has nothing for them


class HelpText(Adapter):
    """The part of `help()` that is in memory: the name, the parameters of a function, the docstring."""

    type_name = "help"

    def __init__(self, lines: list[str]) -> None:
        super().__init__(None)
        self.lines = lines

    def text(self, printer: Repr, depth: int) -> str:
        printer.multiline = True
        return printer.cut("\n".join(self.lines), printer.limits.total)


def _help(rt: Runtime | None, value: Any) -> HelpText:
    if isinstance(value, value_attributes.BoundMethod):
        value = value.func
    if not isinstance(value, Object):
        raise GdbextError("help() needs an object of the process")
    title = value.type.full_name
    if value.type.flags & TYPE:
        title = f"class {value.rt.type(value.address).full_name}"
    elif value.isa("function"):
        title = f"{_text(value, '__qualname__')}({', '.join(_parameters(value))})"
    elif value.isa("module"):
        title = f"module {_text(value, '__name__')}"
    doc = _docstring(value)
    return HelpText([escape(title), *("    " + line for line in doc.expandtabs().strip().splitlines())])


def _text(value: Object, name: str) -> str:
    found = value_attributes.attribute(value, name)
    return str(found.string(100_000) if isinstance(found, Object) else found)


def _docstring(value: Object) -> str:
    """`__doc__` of a function, class, module, or of an instance's class; a note where there is none."""
    try:
        if value.isa("function") and "func.func_doc" in value.rt.layout:
            held = value.rt.object(value.rt.target.u64(value.address + value.rt.layout["func.func_doc"]))
            return held.string(100_000) if held.type.flags & STR else "(no docstring)"
        info = value.rt.type(value.address) if value.type.flags & TYPE else value.type
        if value.isa("module"):
            return _text(value, "__doc__")
        found = value.rt.object(info.namespace["__doc__"])
        return found.string(100_000) if found.type.flags & STR else "(no docstring)"
    except (GdbextError, KeyError) as e:
        log.passed_over(e)
        return "(no docstring)"


def _parameters(func: Object) -> list[str]:
    """The parameters as `def` has them, without annotations and values."""
    rt = func.rt
    code = rt.code(rt.target.u64(func.address + rt.layout["func.func_code"]))

    def count(key: str) -> int:
        return rt.target.i32(code.address + rt.layout[f"code.{key}"])

    names = [n for n, _ in code.variables]
    positional, only = count("co_argcount"), count("co_kwonlyargcount")
    has_star, has_stars = bool(code.flags & 4), bool(code.flags & 8)
    after = positional + only
    shown = names[:positional]
    if has_star:
        shown.append("*" + names[after])
    elif only:
        shown.append("*")
    shown += names[positional:after]
    return shown + (["**" + names[after + has_star]] if has_stars else [])


def _any(rt: Runtime | None, value: Any) -> bool:
    return any(truth(v) for v in members(value))


def _all(rt: Runtime | None, value: Any) -> bool:
    return all(truth(v) for v in members(value))


def _each(work: Callable[..., Any], collect: Callable[..., Any] = iter) -> Callable[..., Any]:
    """zip, enumerate, reversed: their items one by one."""

    def give(rt: Runtime | None, *args: Any) -> Iterator[Any]:
        yield from work(*(collect(members(a)) for a in args))

    return give


# name -> (function, fewest, most arguments)
FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "len": (lambda rt, value: length(value), 1, 1),
    "type": (type_of, 1, 1),
    "id": (_id, 1, 1),
    "any": (_any, 1, 1),
    "all": (_all, 1, 1),
    "min": (_extreme(min), 1, 100),
    "max": (_extreme(max), 1, 100),
    "sum": (_sum, 1, 2),
    "abs": (lambda rt, value: abs(plain(value)), 1, 1),
    "bool": (lambda rt, value: truth(value), 1, 1),
    "list": (lambda rt, value: spending.gathered(members(value)), 1, 1),
    "tuple": (lambda rt, value: tuple(spending.gathered(members(value))), 1, 1),
    "set": (lambda rt, value: comparisons.plain_set(value), 1, 1),
    "sorted": (_sorted, 1, 1),
    "range": (_range, 1, 3),
    "enumerate": (_each(enumerate), 1, 1),
    "zip": (_each(zip), 1, 20),
    "reversed": (_each(reversed, spending.gathered), 1, 1),
    "isinstance": (_isinstance, 2, 2),
    "hasattr": (_hasattr, 2, 2),
    "getattr": (_getattr, 2, 3),
    "hex": (lambda rt, value: hex(plain(value)), 1, 1),
    "dir": (_dir, 0, 1),
    "vars": (_vars, 0, 1),
    "help": (_help, 1, 1),
}


# ---- methods ---------------------------------------------------------------------------------------------------------
def method(owner: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any], shown: str) -> Any:
    """`owner.name(*args, **kwargs)`, for methods that reading can answer; `shown`: the call as the user wrote it."""
    if is_none(owner) and name in _TEXT:
        raise NoneOperand(f"{shown}(…): None is no text")
    adapter = owner if isinstance(owner, Adapter) else owner.adapter if isinstance(owner, Object) else None
    if adapter is not None:
        known = adapter.call(name, [_argument(a) for a in args], {k: _argument(v) for k, v in kwargs.items()})
        if known is not NotImplemented:
            return hiding.result_of(owner, name, known)
    if isinstance(owner, Object):
        if owner.type.python_definer(name) is not None or any(n == name for n, _ in owner.instance_entries()):
            raise _refusal(shown)
    if kind(owner) in ("dict", "odict") or isinstance(owner, Object) and owner.isa("mappingproxy"):
        return _of_dict(owner, name, args, kwargs, shown)
    made = _plain_owner(owner)
    if isinstance(made, (str, bytes, bytearray)) and name in _TEXT or isinstance(made, (int, float)) and name in _NUMBER:
        given = [_argument(a) for a in args]
        if any(a is None for a in given) and name in ("startswith", "endswith", "find", "count", "index"):
            raise NoneOperand(f"{shown}(…): None is no text")
        if "split" in name:  # a few bytes become a text of their own
            spending.take(spending.ITEM * _pieces(made, given))
        return getattr(made, name)(*given, **{k: _argument(v) for k, v in kwargs.items()})
    if kind(owner) in ("list", "tuple", "deque") and name in ("count", "index") and len(args) == 1 and not kwargs:
        places = [i for i, member in enumerate(members(owner)) if comparisons.same(member, args[0])]
        if name == "index" and not places:
            raise NotFoundError(f"{shown}(…): no such member")
        return len(places) if name == "count" else places[0]
    raise _refusal(shown)


def _refusal(shown: str) -> GdbextError:
    return GdbextError(f"{shown}(…) would run code in the process; reading memory cannot answer it")


def _argument(value: Any) -> Any:
    return value if isinstance(value, slice) else plain(value)


def _pieces(text: Any, given: Sequence[Any]) -> int:
    """How many pieces a split of a text makes at most."""
    found: int = text.count(given[0]) if given and isinstance(given[0], type(text)) else len(text) // 2 + 1
    return found


def _plain_owner(owner: Any) -> Any:
    if isinstance(owner, Object) and owner.isa("bytearray"):
        return bytearray(owner.raw_bytes())
    if isinstance(owner, Object) and (owner.type.flags & (STR | BYTES) or not kind(owner)):
        try:
            return plain(owner)
        except GdbextError as e:
            log.passed_over(e)
            return owner
    return owner


def _of_dict(owner: Any, name: str, args: Sequence[Any], kwargs: dict[str, Any], shown: str) -> Any:
    if (
        kwargs
        or isinstance(owner, Object)
        and owner.type.flags & DICT
        and owner.type.python_definer("__getitem__")
        and name == "get"
    ):
        raise _refusal(shown)
    if name in ("keys", "values", "items") and not args:
        if isinstance(owner, Object):
            view = DictView(owner, name)
            view.looked_at = list(members(view)) if hiding.active() else None
            return view
        return list({"keys": owner.keys, "values": owner.values, "items": owner.items}[name]())
    if name == "get" and 1 <= len(args) <= 2:
        try:
            return containers.item(owner, args[0])
        except NotFoundError as e:
            log.passed_over(e)
            return args[1] if len(args) == 2 else None
    raise _refusal(shown)
