"""Objects and tensors of a process. Reading them follows the rules of expressions (cpython/expressions.py): nothing of the
process runs, and what users sent stays hidden unless it was asked for."""

from __future__ import annotations

import operator
from typing import Any, Callable, Iterator, Mapping, NoReturn, TypeVar

from .. import log
from ..access.base import Target
from ..access.retry import retry_reading
from ..cpython import comparisons, containers, hiding, objects, reprs, spending, value_attributes, values
from ..cpython.adapters import Adapter
from ..cpython.expressions import evaluate
from ..cpython.frames import PyFrame
from ..cpython.runtime import Runtime, open_runtime
from ..cpython.types import DICT, LIST, STR, TUPLE
from ..engines import sensitive_names
from ..errors import FaultError, GdbextError, LayoutError, NotFoundError
from ..render import html
from ..session.evaluation import tensor_value
from ..session.session import register_adapters
from ..torch import arrays, stats
from ..torch.repr import tensor_repr
from ..torch.tensor import Tensor as Read

T = TypeVar("T")

PRIVATE = "it depends on private content: show_content=True reads it"
MAX_DEEP = 16  # levels of `plain`
_OF_NOTEBOOKS = ("_repr_", "_ipython_")  # what a notebook asks every object for


class MissingAttribute(NotFoundError, AttributeError):
    """An object of the process has no such attribute."""


class MissingItem(NotFoundError, KeyError, IndexError):
    """A frame, dict or sequence of the process has no such name, key or index."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would quote it


class PrivateContent(GdbextError):
    """What was asked depends on what users sent or got; `show_content=True` reads it."""


class Memory:
    """One process's memory as the library reads it. `show_content`: nothing is hidden; `rt`: its `Runtime`."""

    def __init__(self, target: Target, show_content: bool = False) -> None:
        self.target, self._show = target, show_content
        register_adapters()

    @property
    def rt(self) -> Runtime:
        return open_runtime(self.target)

    @property
    def private(self) -> frozenset[str]:
        """The names whose content stays hidden."""
        if self._show:
            return frozenset()
        return self.target.cached("private names", lambda: sensitive_names.names_for(self.rt))

    def read(self, work: Callable[[], T]) -> T:
        """The result of `work`, which reads; of a running process again until what it reads stands still."""
        private = self.private

        def once() -> T:
            with hiding.expression(private) as told, spending.expression():
                try:
                    found = work()
                except FaultError as e:
                    if self.target.kind != "snapshot":
                        raise
                    more = "the copy lacks it: max_bytes takes more, live=True reads the process itself"
                    raise FaultError(e.address, e.size, more) from None
                except GdbextError:
                    if told.met:
                        raise PrivateContent(PRIVATE) from None
                    raise
                except (TypeError, ValueError, ArithmeticError, LookupError, RecursionError, MemoryError) as e:
                    raise GdbextError(f"it cannot be read: {type(e).__name__}: {e}") from None
            if told.met:
                raise PrivateContent(PRIVATE)
            return found

        if self.target.is_stopped:
            return once()
        self.target.drop_pages()
        return retry_reading(self.target, once)

    def made(self, value: Any, name: str = "") -> Object:
        """An `Object` of a value that was read under a name."""
        return Object(self, value, name)

    def evaluate(self, text: str, frame: PyFrame | None = None) -> Object:
        """The value of an expression, in a frame."""
        rt, private = self.rt, self.private

        def read() -> Any:
            return evaluate(rt, text, frame, private=private)

        found = read() if self.target.is_stopped else retry_reading(self.target, read)
        if isinstance(found, hiding.Hidden) and found.held is hiding.UNKNOWN:
            raise PrivateContent(f"{text}: {PRIVATE}")
        return self.made(found, text)

    def object_at(self, address: int) -> Object:
        """The object at an address; `GdbextError` where no object is there."""
        found = self.rt.object(address)

        def read() -> Any:
            _ = found.type  # raises where there is none
            return hiding.under("_", found)

        return self.made(self.read(read))

    def text(self, value: Any, name: str, limits: reprs.Limits = reprs.NORMAL) -> str:
        """As Python's own `repr`, bounded; private content is counted."""
        shown = reprs.Repr(limits, self.private)
        if not self.target.is_stopped:
            self.target.drop_pages()
        try:
            text = shown(value) if isinstance(value, hiding.Hidden) else shown.named(name.rpartition(".")[2], value)
        except GdbextError as e:
            return f"<unreadable: {e}>"
        return text.replace("-show-content", "show_content=True") if shown.hidden else text


class Object:
    """A Python object of a process. `obj.name`, `obj[key]`, `len(obj)`, `for x in obj`, `x in obj`, `==`, `<`, `int(obj)` and
    `bool(obj)` are answered by reading its memory, `repr(obj)` as the process would. The process's own `plain`, `attr`, `fields`,
    `tensor`, `evaluate`, `address` and `type_name` are read by `obj.attr("plain")`."""

    __slots__ = ("_memory", "_value", "_name")

    def __init__(self, memory: Memory, value: Any, name: str = "") -> None:
        self._memory, self._value, self._name = memory, value, name

    @property
    def address(self) -> int:
        """Where it lies; 0 for a value that reading has made (a slice, a number)."""
        held = getattr(self._value, "held", self._value)
        return held.address if isinstance(held, objects.Object) else 0

    @property
    def type_name(self) -> str:
        """The name of its class, without the module."""
        value = self._value
        return self._memory.read(lambda: str(getattr(value, "type_name", type(value).__name__)))

    def attr(self, name: str) -> Object:
        """Its attribute, whatever the name. `MissingAttribute` (an `AttributeError`) where there is none; `GdbextError` for one
        that only running code could tell."""
        try:
            return self._memory.made(self._memory.read(lambda: value_attributes.attribute(self._value, name)), name)
        except NotFoundError as e:
            raise MissingAttribute(str(e)) from None

    def __getattr__(self, name: str) -> Object:
        if name.startswith("__") and name.endswith("__") or name.startswith(_OF_NOTEBOOKS):
            raise AttributeError(name)
        return self.attr(name)

    def fields(self) -> dict[str, Object]:
        """Its own attributes: of the instance's `__dict__`, then of slots that are set."""
        value = self._value
        if not isinstance(value, objects.Object):
            return {}
        found = self._memory.read(lambda: [(name, hiding.under(name, held)) for name, held in value.fields()])
        return {name: self._memory.made(held, name) for name, held in found}

    def plain(self) -> Any:
        """An equal Python value of this process: None, numbers, text, bytes, and lists, tuples, sets and dicts of such, in which
        an `Object` stands for what has no such value. `GdbextError` where the object itself has none."""
        found = self._memory.read(lambda: self._plain(self._value, MAX_DEEP))
        if isinstance(found, Object):
            raise GdbextError(f"{self._name or 'it'} is a {self.type_name}, which has no plain value: read its fields()")
        return found

    def _plain(self, value: Any, depth: int) -> Any:
        if isinstance(value, hiding.Hidden):
            raise hiding.refuse()
        held = isinstance(value, objects.Object) and value.adapter is None
        flags = value.type.flags if held else 0
        if depth and (flags & DICT or type(value) is dict):
            pairs = hiding.pairs_of(value, value.items())
            return {self._inner(k, depth): self._inner(v, depth) for k, v in pairs}
        kinds = ((list, LIST, "collections.deque"), (tuple, TUPLE, "tuple"), (set, 0, "set"), (frozenset, 0, "frozenset"))
        for kind, flag, name in kinds if depth else ():
            if flags & flag or held and value.isa(name) or type(value) is kind:
                return kind(self._inner(one, depth) for one in values.members(value))
        found = values.plain(value)
        return self._memory.made(found) if isinstance(found, (objects.Object, Adapter)) else found

    def _inner(self, value: Any, depth: int) -> Any:
        if isinstance(value, hiding.Hidden):
            return self._memory.made(value)
        try:
            return self._plain(value, depth - 1)
        except FaultError:
            raise
        except GdbextError as e:
            if isinstance(e, LayoutError) and not self._memory.target.is_stopped:
                raise  # it changed while it was read
            log.passed_over(e)
            return self._memory.made(value)

    def tensor(self) -> Tensor:
        """It as a tensor of torch or an array of numpy; `GdbextError` where it is none."""
        value, private = self._value, isinstance(self._value, hiding.Hidden)
        held = self._value.held if private else value
        found = tensor_value(self._memory.rt, held)
        if found is None:
            raise GdbextError(f"{self._name or 'it'} is a {self.type_name}, no tensor")
        return Tensor(self._memory, found, private)

    def evaluate(self, text: str) -> Object:
        """The value of an expression of Python in which `self` is this object: `obj.evaluate("[r.request_id for r in
        self.running]")`."""
        memory, names = self._memory, {"self": self._value}
        found = memory.read(lambda: evaluate(memory.rt, text, names=names, private=memory.private))
        return memory.made(found, text)

    def __getitem__(self, key: Any) -> Object:
        name = key if isinstance(key, str) and key.isidentifier() else self._name
        try:
            return self._memory.made(self._memory.read(lambda: containers.item(self._value, _raw(key))), name)
        except NotFoundError as e:
            raise MissingItem(str(e)) from None

    def __len__(self) -> int:
        return self._memory.read(lambda: values.length(self._value))

    def __iter__(self) -> Iterator[Object]:
        memory, value = self._memory, self._value
        found = memory.read(lambda: list(values.members(value)))
        return iter([memory.made(one, self._name) for one in found])

    def __contains__(self, one: Any) -> bool:
        return self._memory.read(lambda: containers.contains(self._value, _raw(one)))

    def __bool__(self) -> bool:
        return self._memory.read(lambda: values.truth(self._value))

    def __eq__(self, other: object) -> bool:
        return self._memory.read(lambda: comparisons.equal(self._value, _raw(other)))

    def __hash__(self) -> int:
        try:
            return hash(self.plain())
        except (GdbextError, TypeError) as e:
            log.passed_over(e)
            return hash(self.address or id(self))

    def _ordered(self, how: str, other: Any) -> bool:
        return self._memory.read(lambda: comparisons.ordered(how, self._value, _raw(other)))

    def __lt__(self, other: Any) -> bool:
        return self._ordered("Lt", other)

    def __le__(self, other: Any) -> bool:
        return self._ordered("LtE", other)

    def __gt__(self, other: Any) -> bool:
        return self._ordered("Gt", other)

    def __ge__(self, other: Any) -> bool:
        return self._ordered("GtE", other)

    def _number(self) -> Any:
        """Its plain value; of a tensor of one element that element."""
        held = getattr(self._value, "held", self._value)
        found = tensor_value(self._memory.rt, held) if isinstance(held, objects.Object) else None
        return self.plain() if found is None else self.tensor().item()

    def __int__(self) -> int:
        return int(self._number())

    def __index__(self) -> int:
        return int(self._number().__index__())

    def __float__(self) -> float:
        return float(self._number())

    def __round__(self, digits: int | None = None) -> Any:
        return round(self._number(), digits)

    def __format__(self, how: str) -> str:
        return format(self._number(), how) if how else str(self)

    def __neg__(self) -> Any:
        return -self._number()

    def __abs__(self) -> Any:
        return abs(self._number())

    def _with(self, work: Callable[[Any, Any], Any], other: Any, swapped: bool = False) -> Any:
        """The result of an operator on plain values, this one first."""
        pair = self._number(), other.plain() if isinstance(other, Object) else other
        return work(*reversed(pair)) if swapped else work(*pair)

    def __add__(self, other: Any) -> Any:
        return self._with(operator.add, other)

    def __radd__(self, other: Any) -> Any:
        return self._with(operator.add, other, True)

    def __sub__(self, other: Any) -> Any:
        return self._with(operator.sub, other)

    def __rsub__(self, other: Any) -> Any:
        return self._with(operator.sub, other, True)

    def __mul__(self, other: Any) -> Any:
        return self._with(operator.mul, other)

    def __rmul__(self, other: Any) -> Any:
        return self._with(operator.mul, other, True)

    def __truediv__(self, other: Any) -> Any:
        return self._with(operator.truediv, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with(operator.truediv, other, True)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(operator.floordiv, other)

    def __mod__(self, other: Any) -> Any:
        return self._with(operator.mod, other)

    def __str__(self) -> str:
        value = self._value
        is_text = isinstance(value, objects.Object) and self._memory.read(lambda: bool(value.type.flags & STR))
        return str(self.plain()) if is_text or isinstance(value, str) else repr(self)

    def __repr__(self) -> str:
        return self._memory.text(self._value, self._name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(name for name in self.fields() if name.isidentifier())]

    def _repr_html_(self) -> str:
        """Its text, and a table of its fields, for a notebook."""
        rows = [(name, one.type_name, self._memory.text(one._value, name, reprs.SHORT)) for name, one in self.fields().items()]
        return f"<code>{html.text(repr(self))}</code>" + (html.table(("field", "type", "value"), rows) if rows else "")


def _raw(value: Any) -> Any:
    return value._value if isinstance(value, Object) else value


class Tensor:
    """A tensor of torch, or an array of numpy, in a process's memory. Its values are read when they are asked for."""

    def __init__(self, memory: Memory, read: Read, private: bool = False) -> None:
        self._memory, self._read, self._private = memory, read, private

    @property
    def shape(self) -> tuple[int, ...]:
        """Its sizes; `GdbextError` where it has none of its own (a nested one)."""
        if self._read.shape is None:
            self._fail()
        return tuple(self._read.shape)

    @property
    def stride(self) -> tuple[int, ...] | None:
        """Steps in elements, None where it has none."""
        return self._read.stride

    @property
    def dtype(self) -> str:
        """ "float16", as its library calls it."""
        return self._read.dtype_name

    @property
    def device(self) -> str:
        """ "cpu", "cuda:0"."""
        return self._read.device

    @property
    def numel(self) -> int:
        """How many elements it has."""
        return self._read.numel or 0

    @property
    def data_ptr(self) -> int:
        """The address of its first element; 0 where it has no memory."""
        return self._read.data_ptr

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return self.numel * self._read.dtype.itemsize

    @property
    def unavailable(self) -> str:
        """Why its values cannot be read from here (in GPU memory, freed); '' where they can."""
        return "they may be tokens of users: show_content=True reads them" if self._private else self._read.unavailable

    def _fail(self) -> NoReturn:
        if self._private:
            raise PrivateContent(PRIVATE)
        raise GdbextError(f"{self._read.name}: {self._read.unavailable or 'it has no sizes'}")

    def __getitem__(self, key: Any) -> Tensor:
        keys = key if isinstance(key, tuple) else (key,)
        for one in keys:
            if isinstance(one, bool) or not (one is Ellipsis or isinstance(one, slice) or hasattr(one, "__index__")):
                raise GdbextError(f"[{key!r}]: a tensor is indexed by numbers, slices and ...: numpy() takes the rest")
        keys = tuple(one if one is Ellipsis or isinstance(one, slice) else operator.index(one) for one in keys)
        return Tensor(self._memory, self._read.indexed(keys), self._private)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a 0-d tensor")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[number] for number in range(len(self)))

    def __eq__(self, other: object) -> bool:
        raise GdbextError("tensors are compared by tolist() or numpy()")

    __hash__ = object.__hash__

    def tolist(self) -> Any:
        """Its values as Python numbers, in lists as its shape is; at most a million at once."""
        if self.unavailable:
            self._fail()
        shape = self.shape
        indices: list[tuple[int, ...]] = [()]
        for size in shape:
            indices = [(*index, i) for index in indices for i in range(size)]
        found: Any = self._read.values(indices)
        for size in reversed(shape):
            found = [found[i : i + size] for i in range(0, len(found), size)] if size else []
        return found[0] if found else found

    def item(self) -> Any:
        """The value of a tensor of one element."""
        if self.numel != 1:
            raise GdbextError(f"{self._read.name}: item() is of one element, and it has {self.numel}")
        found = self.tolist()
        while isinstance(found, list):
            (found,) = found
        return found

    def numpy(self) -> Any:
        """Its values as a `numpy.ndarray`, which needs numpy here: types that numpy lacks become float32."""
        if self.unavailable:
            self._fail()
        import numpy

        source = arrays.of_tensor(self._read)
        parts = [(box, source.numbers(box)) for box in source.boxes()]
        found = numpy.empty(self.shape, parts[0][1].dtype if parts else arrays.stored_dtype(self._read.dtype))
        for box, part in parts:
            found[box] = part
        return found

    def stats(self) -> Mapping[str, Any]:
        """`{min, max, mean, std, nan, inf, zeros, count}` as `pytensor -stats`; needs numpy."""
        if self.unavailable:
            self._fail()
        return stats.statistics(arrays.of_tensor(self._read))[0]

    def __repr__(self) -> str:
        if self._private or self._read.unavailable:
            return f"<{self._read.one_line}>"
        return tensor_repr(self._read)

    def _repr_html_(self) -> str:
        """Its repr, for a notebook."""
        return f"<pre>{html.text(repr(self))}</pre>"
