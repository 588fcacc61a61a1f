"""C++ objects by their debug information: members by name and the containers of libstdc++, read by gdb without a call in the
process.

Containers are walked by their members' names in GCC's libstdc++ (stl_vector.h, stl_tree.h, hashtable_policy.h, stl_list.h,
shared_ptr_base.h, unique_ptr.h); every walk is bounded.
"""

from __future__ import annotations

from typing import Any, Sequence

import gdb

from ..errors import FaultError, GdbextError, LayoutError, NotFoundError

MAX_FRAMES = 200
MAX_ITEMS = 1 << 24


class Cxx:
    """A C++ value. `field("a.b")`: a member, of base classes too; pointers, references and smart pointers on the way are
    followed."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @property
    def type_name(self) -> str:
        return str(self.value.type.strip_typedefs().unqualified())

    @property
    def address(self) -> int:
        return int(self.value.address) if self.value.address is not None else 0

    def object(self) -> Cxx | None:
        """The target of a pointer, reference, shared_ptr or unique_ptr, as its dynamic type; any other object itself. None for
        null."""
        value = self.value
        for _ in range(4):
            kind = value.type.strip_typedefs()
            if kind.code in (gdb.TYPE_CODE_REF, gdb.TYPE_CODE_RVALUE_REF):
                value = value.referenced_value()
            elif kind.code == gdb.TYPE_CODE_PTR:
                if int(value) == 0:
                    return None
                value = value.cast(kind.target().strip_typedefs().pointer())  # gdb finds no dynamic type behind a typedef
                value = value.cast(value.dynamic_type).dereference()
            elif kind.name and kind.name.startswith(("std::shared_ptr<", "std::__shared_ptr<")):
                value = value["_M_ptr"]
            elif kind.name and kind.name.startswith("std::unique_ptr<"):
                value = _head(value["_M_t"]["_M_t"])
            else:
                break
        return Cxx(value)

    def field(self, path: str) -> Cxx | None:
        """The member at a dotted path; None where a pointer on the way is null. `NotFoundError` names a member that a type
        lacks."""
        at: Cxx = self
        for name in path.split("."):
            holder = at.object()
            if holder is None:
                return None
            try:
                at = Cxx(holder.value[name])
            except gdb.error:
                raise NotFoundError(f"a {holder.type_name} has no member {name}") from None
        return at.object()

    def _fault(self, error: Exception) -> FaultError:
        return FaultError(self.address, self.value.type.sizeof, f"of a {self.type_name}: {error}")

    def integer(self) -> int:
        """The value of a number; `FaultError`, or `LayoutError` where it is none."""
        try:
            return int(self.value)
        except gdb.MemoryError as e:
            raise self._fault(e) from None
        except gdb.error as e:
            raise LayoutError(f"a {self.type_name} is no number: {e}") from None

    def engaged(self) -> bool:
        """Whether a std::optional holds something."""
        try:
            return bool(self.value["_M_payload"]["_M_engaged"])
        except gdb.error as e:
            raise LayoutError(f"a {self.type_name} is no optional: {e}") from None

    def items(self, limit: int = MAX_ITEMS) -> list[Any]:
        """Elements of a std::vector, list, set (Cxx) or of a map or unordered_map ((key, value) pairs). `LayoutError` for another
        type or a damaged one."""
        kind = self.value.type.strip_typedefs()
        name = (kind.name or str(kind)).replace("std::__cxx11::", "std::")
        walks = {
            "std::vector<": _vector,
            "std::list<": _list,
            "std::set<": _tree,
            "std::map<": _tree,
            "std::unordered_map<": _hashed,
        }
        walk = next((w for start, w in walks.items() if name.startswith(start)), None)
        if walk is None:
            raise LayoutError(f"a {name} is no container that is known")
        try:
            return walk(self.value, kind, limit)
        except gdb.MemoryError as e:
            raise self._fault(e) from None
        except gdb.error as e:
            raise LayoutError(f"{name}: {e}") from None


def _head(pair: Any) -> Any:
    """The first element of a std::tuple: in its base _Head_base<0, …>."""
    for _ in range(4):
        bases = [f for f in pair.type.strip_typedefs().fields() if f.is_base_class]
        first = next((f for f in bases if "_Head_base<0" in str(f.type)), bases[0] if bases else None)
        if first is None:
            break
        pair = pair[first]
        if "_Head_base<0" in str(first.type):
            return pair["_M_head_impl"]
    raise LayoutError("a unique_ptr that holds its pointer in no way that is known")


def _checked(count: int, limit: int) -> int:
    if not 0 <= count <= limit:
        raise LayoutError(f"a container that claims {count} elements")
    return count


def _vector(value: Any, kind: Any, limit: int) -> list[Any]:
    impl = value["_M_impl"]
    start, finish = impl["_M_start"], impl["_M_finish"]
    count = _checked(int(finish - start), limit)
    if not count:
        return []
    element = start.type.target().strip_typedefs()
    if element.code == gdb.TYPE_CODE_INT:  # one read for all
        array = start.cast(start.type.target().array(count - 1).pointer()).dereference()
        return [Cxx(array[i]) for i in range(count)]
    return [Cxx((start + i).dereference()) for i in range(count)]


def _list(value: Any, kind: Any, limit: int) -> list[Any]:
    head, element = value["_M_impl"]["_M_node"], kind.template_argument(0)
    found: list[Any] = []
    at, end = head["_M_next"], int(head.address)
    while int(at) != end:
        _checked(len(found) + 1, limit)
        found.append(Cxx(_behind(at, element)))
        at = at["_M_next"]
    return found


def _tree(value: Any, kind: Any, limit: int) -> list[Any]:
    impl = value["_M_t"]["_M_impl"]
    count = _checked(int(impl["_M_node_count"]), limit)
    key = kind.template_argument(0)
    pairs = kind.name.startswith("std::map<")
    found: list[Any] = []
    stack: list[Any] = []
    at = impl["_M_header"]["_M_parent"]
    while int(at) or stack:  # in order
        while int(at):
            stack.append(at)
            if len(stack) > 128:
                raise LayoutError("a tree deeper than any of its size")
            at = at["_M_left"]
        at = stack.pop()
        found.append(_pair(at, key, kind.template_argument(1)) if pairs else Cxx(_behind(at, key)))
        if len(found) > count:
            raise LayoutError(f"a tree that counts {count} nodes and holds more")
        at = at["_M_right"]
    if len(found) != count:
        raise LayoutError(f"a tree that counts {count} nodes and holds {len(found)}")
    return found


def _hashed(value: Any, kind: Any, limit: int) -> list[Any]:
    table = value["_M_h"]
    count = _checked(int(table["_M_element_count"]), limit)
    key, mapped = kind.template_argument(0), kind.template_argument(1)
    found: list[Any] = []
    at = table["_M_before_begin"]["_M_nxt"]
    while int(at):
        if len(found) >= count:
            raise LayoutError(f"a table that counts {count} entries and holds more")
        found.append(_pair(at, key, mapped))
        at = at["_M_nxt"]
    return found


def _pair(node: Any, key: Any, mapped: Any) -> tuple[Cxx, Cxx]:
    """The key and the value of a std::pair in a node. The value follows the key, at the first place that its alignment allows. A
    key smaller than the value's alignment stands where the pair begins."""
    align = max(key.alignof, mapped.alignof)
    start = -(-(int(node) + node.type.strip_typedefs().target().strip_typedefs().sizeof) // align) * align
    return Cxx(_placed(start, key)), Cxx(_placed(start + key.sizeof, mapped))


def _behind(node: Any, wanted: Any) -> Any:
    """The element of a container's node: it follows the links that every node has, at the first place that its alignment
    allows."""
    return _placed(int(node) + node.type.strip_typedefs().target().strip_typedefs().sizeof, wanted)


def _placed(address: int, wanted: Any) -> Any:
    return gdb.Value(-(-address // wanted.alignof) * wanted.alignof).cast(wanted.pointer()).dereference()


def _known(name: str) -> bool:
    try:
        gdb.lookup_type(name)
    except gdb.error:
        return False
    return True


def this_of(classes: Sequence[str], types: Sequence[str]) -> tuple[str, Cxx, list[tuple[str, str]]] | None:
    """-> (class, Cxx, inner) of a frame of the selected inferior that runs a method of one of `classes` (names without
    namespace), or None.

    The first thread with such a frame counts, and the class that stands first in the list. inner: `[(class, method)]` of that
    frame and of the frames that it called. Frames are looked at only where debug information knows one of `types`. gdb's
    selection is left as it was."""
    if not any(_known(name) for name in types):
        return None
    was_thread, was_frame = gdb.selected_thread(), None
    try:
        was_frame = gdb.selected_frame() if was_thread else None
    except gdb.error:
        pass
    try:
        for thread in gdb.selected_inferior().threads():
            if not thread.is_valid():
                continue
            thread.switch()
            found = _methods(classes)
            for name in classes:
                if name in found:
                    return found[name]
        return None
    except gdb.error as e:
        raise GdbextError(f"the frames were not read: {e}") from None
    finally:
        if was_thread and was_thread.is_valid():  # not "is not None": the None of cuda-gdb 11.8 is another
            was_thread.switch()
            if was_frame and was_frame.is_valid():
                was_frame.select()


def _methods(classes: Sequence[str]) -> dict[str, tuple[str, Cxx, list[tuple[str, str]]]]:
    """{class: (class, its object, inner)} of the selected thread's frames."""
    frame: gdb.Frame | None = gdb.newest_frame()
    inner: list[tuple[str, str]] = []
    found: dict[str, tuple[str, Cxx, list[tuple[str, str]]]] = {}
    for _ in range(MAX_FRAMES):
        if not frame:
            break
        parts = (frame.name() or "").partition("(")[0].split("::")
        if len(parts) > 1:
            inner.append((parts[-2], parts[-1]))
            if parts[-2] in classes:
                try:
                    found[parts[-2]] = parts[-2], Cxx(frame.read_var("this")), list(inner)
                except (ValueError, gdb.error):
                    pass
        frame = frame.older()
    return found
