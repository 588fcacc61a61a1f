"""How torch's C++ values are shown: tensors through the pack's own reader, the rest by their fields.

Field names: c10/core/{Scalar,Device,SymInt,DispatchKeySet,StorageImpl}.h,
c10/util/{ArrayRef,intrusive_ptr,typeid,order_preserving_flat_hash_map}.h, ATen/core/{ivalue,List,Dict}.h; the same from torch 2.1
to 2.15 as far as used here. Calls nothing, needs no printers of libstdc++. Every count read from memory is bounded: IDEs ask for
all children.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import gdb

from .. import log
from ..errors import GdbextError, LayoutError
from ..render.text import escape
from ..session.gdb_session import session
from ..torch import dtypes
from ..torch import layout as layouts
from ..torch import tensor_impl as tensors
from ..torch.tensor import Tensor

MAX_CHILDREN = 2000  # where print elements says unlimited
MAX_TEXT = 1 << 16
_Base: Any = getattr(gdb, "ValuePrinter", object)  # gdb 14+


def _limit() -> Any:
    return min(gdb.parameter("print elements") or MAX_CHILDREN, MAX_CHILDREN)


def printer(value: Any, kind: Any, name: str) -> Any:
    """The printer for a value of the type `kind` called `name`; None for other types."""
    bare = re.sub(r"^const ", "", name).partition("<")[0]
    found = _PRINTERS.get(bare)
    return found(value) if found is not None else None


class _Printer(_Base):  # type: ignore[misc]
    def __init__(self, value: Any) -> None:
        self._value = value

    def to_string(self) -> str:
        try:
            found: str = self._text()
            return found
        except (GdbextError, gdb.error) as e:
            return f"<{escape(str(e))}>"


# ---- tensors -----------------------------------------------------------------------------------------------------------
def _table(target: Any) -> Any:
    try:
        rt = session.runtime()
    except GdbextError as e:
        log.passed_over(e)
        rt = None  # a C++ program
    return layouts.for_process(target, rt)


def read(impl: int) -> Tensor:
    """The pack's `Tensor` for a c10::TensorImpl's address."""
    target = session.target()
    return tensors.read_tensor_impl(target, _table(target), impl)


def described(tensor: Tensor) -> str:
    """ "Tensor[2, 3] float32 cpu" """
    if tensor.dtype.name == "undefined":
        return "undefined tensor"
    return tensor.one_line().replace("c10::TensorImpl[", "Tensor[", 1)


class TensorPrinter(_Printer):
    """at::Tensor, at::TensorBase, c10::TensorImpl: its description, and as children its first elements."""

    def _impl(self) -> int:
        try:
            return int(self._value["impl_"]["target_"])
        except gdb.error:
            address = self._value.address
            if address is None:
                raise GdbextError("a TensorImpl without an address") from None
            return int(address)

    def _text(self) -> Any:
        found = read(self._impl())
        return described(found)

    def children(self) -> Iterator[tuple[str, Any]]:
        try:
            found = read(self._impl())
            if found.unavailable or not found.shape or found.stride is None or found.device.startswith("meta"):
                return
            indices = [index for index, _ in zip(_indices(found.shape), range(_limit() + 1))]
            values = found.values(indices)
        except (GdbextError, gdb.error) as e:
            log.passed_over(e)
            return  # the text says why
        for index, value in zip(indices, values):
            yield str(list(index)), str(value) if isinstance(value, complex) else value


def _indices(shape: Any) -> Any:
    import itertools

    return itertools.product(*[range(n) for n in shape])


class StoragePrinter(_Printer):
    """c10::Storage, c10::StorageImpl."""

    def _text(self) -> str:
        try:
            address = int(self._value["storage_impl_"]["target_"])
        except gdb.error:
            address = int(self._value.address) if self._value.address is not None else 0
        if not address:
            return "no storage"
        target = session.target()
        data, size, device = tensors.read_storage(target, _table(target), address)
        return f"Storage of {'?' if size is None else size} bytes on {device} at {data:#x}"


class PointerPrinter(_Printer):
    """c10::intrusive_ptr<T>, c10::weak_intrusive_ptr<T>."""

    def _text(self) -> str:
        pointer = self._value["target_"]
        if not int(pointer):
            return "null"
        kind = pointer.type.target().name or "?"
        if kind in _TENSOR_TYPES:
            return described(read(int(pointer)))
        return f"{kind} at {int(pointer):#x}, {_references(pointer)} references"

    def children(self) -> Iterator[tuple[str, Any]]:
        pointer = self._value["target_"]
        if int(pointer) and (pointer.type.target().name or "") not in _TENSOR_TYPES:
            yield "*", pointer.dereference()


def _references(pointer: Any) -> int | str:
    for field in ("combined_refcount_", "refcount_"):
        try:
            word = pointer[field]
        except gdb.error:
            continue
        for inner in ("_M_i", "__a_"):
            try:
                return int(word[inner]) & 0xFFFFFFFF
            except gdb.error:
                continue
    return "?"


# ---- numbers, names ----------------------------------------------------------------------------------------------------
def _enumerator(value: Any) -> Any:
    return str(value).rpartition("::")[2]


def _device(value: Any) -> Any:
    kind, index = _enumerator(value["type_"]), int(value["index_"])
    name = "privateuseone" if kind == "PrivateUse1" else kind.lower()
    return name if index < 0 else f"{name}:{index}"


class DevicePrinter(_Printer):
    def _text(self) -> Any:
        return _device(self._value)


def dtype_text(enumerator: str) -> str:
    """A c10::ScalarType as torch names the dtype."""
    try:
        return "torch." + dtypes.from_scalar_type(enumerator).name
    except LayoutError as e:
        log.passed_over(e)
        return enumerator


class ScalarTypePrinter(_Printer):
    def _text(self) -> str:
        number = int(self._value)
        for field in self._value.type.strip_typedefs().unqualified().fields():
            if field.enumval == number:
                name = field.name.rpartition("::")[2]
                return name if name == "Undefined" else f"{name} ({dtype_text(name)})"
        return f"{number}, no ScalarType"


class TypeMetaPrinter(_Printer):
    def _text(self) -> Any:
        target = session.target()
        name = _table(target).name("ScalarType", int(self._value["index_"]))
        return dtype_text(name) if name else f"type {int(self._value['index_'])}"


class SymIntPrinter(_Printer):
    def _text(self) -> str:
        number = int(self._value["data_"])
        if number <= -(1 << 62) - 1:  # c10::SymInt::MAX_UNREPRESENTABLE_INT and below: a tagged SymNodeImpl*
            pointer = number & (1 << 61) - 1
            return f"symbolic, SymNodeImpl at {pointer if not pointer >> 60 else pointer | 7 << 61:#x}"
        return str(number)


class ScalarPrinter(_Printer):
    def _text(self) -> str:
        tag, v = _enumerator(self._value["tag"]), self._value["v"]
        if tag == "HAS_i":
            return str(int(v["i"]))
        if tag == "HAS_u":
            return str(int(v["u"]))
        if tag == "HAS_d":
            return repr(float(v["d"]))
        if tag == "HAS_b":
            return "true" if int(v["i"]) else "false"
        if tag == "HAS_z":
            return str(complex(float(v["z"]["real_"]), float(v["z"]["imag_"])))
        return f"symbolic, {tag} at {int(v['p']):#x}"


class KeySetPrinter(_Printer):
    """c10::DispatchKeySet: its backends and its functionality keys by name."""

    def _text(self) -> str:
        word, table = int(self._value["repr_"]), _table(session.target())
        backends = [table.name("BackendComponent", i + 1) for i in range(table.row["backends"]) if word >> i & 1]
        keys = [
            table.name("DispatchKey", i + 1) for i in range(64 - table.row["backends"]) if word >> (table.row["backends"] + i) & 1
        ]
        return "DispatchKeySet(" + ", ".join(str(n) for n in backends + keys) + ")"


# ---- containers --------------------------------------------------------------------------------------------------------
class ArrayRefPrinter(_Printer):
    """c10::ArrayRef<T>, up to `print elements` of it."""

    def _text(self) -> str:
        count = int(self._value["Length"])
        return f"ArrayRef of {count}" + (", more than memory holds" if count > 1 << 48 else "")

    def children(self) -> Iterator[tuple[str, Any]]:
        data, count = self._value["Data"], int(self._value["Length"])
        for i in range(min(count, _limit() + 1) if count <= 1 << 48 else 0):
            yield f"[{i}]", data[i]

    def display_hint(self) -> str:
        return "array"


def _engaged(value: Any) -> Any:
    """The content of a std::optional (libstdc++, libc++), an OptionalArrayRef or an old c10::optional; None for an empty one."""
    for outer in ("wrapped_opt_array_ref",):
        try:
            value = value[outer]
        except gdb.error:
            pass
    for flag, path in (
        ("_M_payload._M_engaged", "_M_payload._M_payload._M_value"),
        ("__engaged_", "__val_"),
        ("init_", "storage_.value_"),
    ):
        try:
            held = value
            for step in flag.split("."):
                held = held[step]
            if not int(held):
                return None
            for step in path.split("."):
                value = value[step]
            return value
        except gdb.error:
            continue
    raise GdbextError("an optional of a kind that is not known here")


class OptionalPrinter(_Printer):
    def _text(self) -> str:
        return "nullopt" if _engaged(self._value) is None else "optional"

    def children(self) -> Iterator[tuple[str, Any]]:
        try:
            found = _engaged(self._value)
        except GdbextError as e:
            log.passed_over(e)
            return
        if found is not None:
            yield "value", found


def _string(value: Any) -> str:
    """A std::string's text, escaped, by its fields."""
    pointer, count = value["_M_dataplus"]["_M_p"], int(value["_M_string_length"])
    if not 0 <= count <= MAX_TEXT:
        raise GdbextError(f"a string of {count} bytes")
    blob = session.target().read(int(pointer), count)
    return '"' + escape(blob.decode("utf-8", "replace")) + '"'


class IValuePrinter(_Printer):
    """c10::IValue: its tag and its value."""

    def _text(self) -> str:
        tag, payload = _enumerator(self._value["tag"]), self._value["payload"]
        if tag == "None":
            return "None"
        if tag == "Tensor":
            return described(read(int(payload["as_tensor"]["impl_"]["target_"])))
        u = payload["u"]
        if tag in ("Int", "UInt"):
            return str(int(u["as_int" if tag == "Int" else "as_uint"]))
        if tag == "Double":
            return repr(float(u["as_double"]))
        if tag == "Bool":
            return "true" if int(u["as_bool"]) & 1 else "false"
        pointer = u["as_intrusive_ptr"]
        if tag == "String":
            return _string(pointer.cast(gdb.lookup_type("c10::ivalue::ConstantString").pointer())["str_"])
        if tag == "Device":
            kind, index = _enumerator(u["as_device"]["type"]), int(u["as_device"]["index"])
            return f"Device {kind.lower()}" + (f":{index}" if index >= 0 else "")
        if tag.endswith("List"):
            return f"{tag} of {_list_size(_list_impl(pointer))}"
        return f"{tag} at {int(pointer):#x}"

    def children(self) -> Iterator[tuple[str, Any]]:
        try:
            if _enumerator(self._value["tag"]).endswith("List"):
                yield from _list_items(_list_impl(self._value["payload"]["u"]["as_intrusive_ptr"]))
        except (GdbextError, gdb.error) as e:
            log.passed_over(e)
            return


def _list_impl(pointer: Any) -> Any:
    return pointer.cast(gdb.lookup_type("c10::detail::ListImpl").pointer()).dereference()


def _list_size(impl: Any) -> Any:
    vector = impl["list"]["_M_impl"]
    count = int(vector["_M_finish"]) - int(vector["_M_start"])
    size = vector["_M_start"].type.strip_typedefs().target().sizeof
    if count % size or not 0 <= count // size < 1 << 40:
        raise GdbextError(f"a list of which the memory ends {count} bytes after its start")
    return count // size


def _list_items(impl: Any) -> Iterator[Any]:
    start = impl["list"]["_M_impl"]["_M_start"]
    for i in range(min(_list_size(impl), _limit() + 1)):
        yield f"[{i}]", start[i]


class ListPrinter(_Printer):
    """c10::List<T>: a vector of IValues."""

    def _text(self) -> str:
        return f"List of {_list_size(self._value['impl_']['target_'].dereference())}"

    def children(self) -> Iterator[tuple[str, Any]]:
        try:
            yield from _list_items(self._value["impl_"]["target_"].dereference())
        except (GdbextError, gdb.error) as e:
            log.passed_over(e)
            return

    def display_hint(self) -> str:
        return "array"


class DictPrinter(_Printer):
    """c10::Dict<K, V>: an ordered hash map, whose entries are linked in the order of insertion."""

    def _map(self) -> Any:
        return self._value["impl_"]["target_"]["dict"]

    def _text(self) -> str:
        return f"Dict of {int(self._map()['num_elements'])}"

    def children(self) -> Iterator[tuple[str, Any]]:
        try:
            table = self._map()
            end, count = int(table["sentinel"]), int(table["num_elements"])
            node = table["sentinel"]["next"]
            seen: set[int] = set()
            while int(node) != end and int(node) not in seen and len(seen) < min(count, _limit()):
                seen.add(int(node))
                pair = node["value"]
                yield f"key {len(seen)}", pair["first"]
                yield f"value {len(seen)}", pair["second"]
                node = node["next"]
        except gdb.error:
            return

    def display_hint(self) -> str:
        return "map"


_TENSOR_TYPES = (
    "at::Tensor",
    "at::TensorBase",
    "c10::TensorImpl",
    "c10::UndefinedTensorImpl",
    "at::SparseTensorImpl",
    "at::SparseCsrTensorImpl",
    "at::QTensorImpl",
    "at::native::NestedTensorImpl",
)
_PRINTERS = dict.fromkeys(_TENSOR_TYPES, TensorPrinter)
_PRINTERS.update(
    {
        "c10::Storage": StoragePrinter,
        "c10::StorageImpl": StoragePrinter,
        "c10::intrusive_ptr": PointerPrinter,
        "c10::weak_intrusive_ptr": PointerPrinter,
        "c10::Device": DevicePrinter,
        "c10::ScalarType": ScalarTypePrinter,
        "torch::headeronly::ScalarType": ScalarTypePrinter,
        "caffe2::TypeMeta": TypeMetaPrinter,
        "c10::SymInt": SymIntPrinter,
        "c10::Scalar": ScalarPrinter,
        "c10::DispatchKeySet": KeySetPrinter,
        "c10::ArrayRef": ArrayRefPrinter,
        "c10::HeaderOnlyArrayRef": ArrayRefPrinter,
        "torch::headeronly::HeaderOnlyArrayRef": ArrayRefPrinter,
        "c10::OptionalArrayRef": OptionalPrinter,
        "c10::optional": OptionalPrinter,
        "std::optional": OptionalPrinter,
        "c10::IValue": IValuePrinter,
        "c10::List": ListPrinter,
        "c10::Dict": DictPrinter,
    }
)
