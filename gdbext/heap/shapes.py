"""The size and the references of each type's objects: `sys.getsizeof` as arithmetic on their words, and where references lie.

The formulas have no branches, so that they work on one object's numbers and on columns of a million. Sources: Python/sysmodule.c
(_PySys_GetSizeOf), Objects/object.c, typeobject.c, dictobject.c, odictobject.c, listobject.c, setobject.c, unicodeobject.c,
longobject.c, bytearrayobject.c, codeobject.c, Modules/_collectionsmodule.c, arraymodule.c of each minor; numpy's array_sizeof in
core/src/multiarray/methods.c.
"""

from __future__ import annotations

from typing import Any, Callable

from .. import log
from ..cpython.objects import DEQUE_BLOCK
from ..cpython.runtime import Runtime
from ..cpython.types import BYTES, DICT, HEAPTYPE, INLINE_VALUES, LIST, LONG, MANAGED_DICT, STR, TUPLE, TYPE, TypeInfo
from ..errors import GdbextError
from .weak import weak_offsets
from .words import Columns

HAVE_GC, MANAGED_WEAKREF = 1 << 14, 1 << 3
HEAD = 32  # bytes before an object that may hold its dict and values
MAX_BODY = 4096  # bytes of an object's fixed part that are looked through for references
LEAVES = frozenset(
    "NoneType bool float complex ellipsis NotImplementedType re.Pattern range_iterator member_descriptor "
    "getset_descriptor method_descriptor wrapper_descriptor PyCapsule numpy.dtype decimal.Decimal datetime.datetime "
    "datetime.date datetime.time datetime.timedelta".split()
)
OWN_SIZE = "__sizeof__"
MEASURED = frozenset(  # types whose own one `Shape.size` gives
    "object type str int list dict frozendict collections.OrderedDict set frozenset collections.deque bytearray array.array "
    "numpy.ndarray code frame generator coroutine async_generator".split()
)


class Table:
    """References outside an object's body: `count` records of `step` words from `start` on. `picks`: which words of a record are
    references."""

    __slots__ = ("start", "count", "step", "picks")

    def __init__(self, start: Any, count: Any, step: int = 1, picks: tuple[int, ...] = (0,)) -> None:
        self.start, self.count, self.step, self.picks = start, count, step, picks


class Shape:
    """How the objects of one type are measured and followed. `leaf`: they hold no references. `body`: the byte offsets at which
    references may lie, `heap_body` those of types that are made at run time alone. `need`: bytes to read of each object. Weak
    references do not count."""

    def __init__(self, rt: Runtime, info: TypeInfo) -> None:
        self.rt, self.info, self.layout = rt, info, rt.layout
        flags = info.flags
        self.kind = _kind(info)
        leaf = bool(flags & (STR | LONG | BYTES)) or not info.builtin_bases().isdisjoint(LEAVES)
        self.leaf = leaf and not info.is_python  # an instance of a class of Python code has attributes
        self.head = _presize(rt, flags)
        self.var = 16 if "object.ob_refcnt" not in rt.layout else rt.layout["varobj.ob_size"]
        self.need = max(min(info.basicsize, MAX_BODY), _NEEDS.get(self.kind, 0), self.var + 8)
        first = rt.layout["varobj.__size"] if info.itemsize else rt.layout["object.__size"]
        if self.kind in ("set", "dict", "list", "bytearray"):
            first = min(rt.layout[self.kind + ".__size"], info.basicsize) & ~7
        last = first if self.leaf else min(info.basicsize, MAX_BODY) & ~7
        weak = weak_offsets(rt, info)
        body = [offset for offset in range(first, last, 8) if offset not in weak]
        static = rt.layout["type.__size"] if self.kind == "type" else last  # behind it a type of C code has nothing of its own
        self.body, self.heap_body = tuple(o for o in body if o < static), tuple(o for o in body if o >= static)
        self.inline = 0
        if flags & INLINE_VALUES and rt.minor.inline_values and not self.leaf:
            self.inline = rt.layout["dictvalues.values"] + 8 * _capacity(rt, info)
            self.need = max(self.need, info.basicsize + self.inline)
        self.room = _capacity(rt, info) if flags & MANAGED_DICT and rt.minor.values_apart else 0
        self.tagged = bool(rt.dialect.tag_mask) and (self.kind == "generator" or info.builtin_name == "frame")

    @property
    def exact(self) -> bool:
        """Whether `size` agrees with `sys.getsizeof`."""
        try:
            return _sizeof_known(self.rt, self.info)
        except GdbextError as e:
            log.passed_over(e)
            return False

    @property
    def form(self) -> tuple[object, ...]:
        """All that determines `size`, `length` and `tables`. Types with equal forms are measured and followed together."""
        i = self.info
        own = (self.kind, self.leaf, self.head, self.need, self.body, self.heap_body, self.inline, self.room, self.tagged)
        return (*own, i.basicsize, i.itemsize, i.dictoffset, i.flags & MANAGED_DICT)

    def size(self, c: Columns) -> Any:
        """`sys.getsizeof` of one object or of a column of them."""
        return _SIZES.get(self.kind, _object_size)(self, c) + (self.head if self.kind != "type" else 0)

    def length(self, c: Columns) -> Any:
        """`len()` of a container; -1 for other objects."""
        key = _LENGTHS.get(self.kind)
        return c.word(self.var if key == "" else self.layout[key]) if key is not None else -1 + 0 * c.at

    def pointers(self, c: Columns) -> list[Any]:
        """References that lie at a fixed place, before an object or behind its body."""
        if self.leaf:
            return []
        found = _managed_dict(self, c)
        if self.heap_body:
            heap = (c.word(self.layout["type.tp_flags"]) & HEAPTYPE) != 0
            found += [c.word(offset) * heap for offset in self.heap_body]
        if self.inline:
            first = self.info.basicsize + self.layout["dictvalues.values"]
            found += [c.word(offset) for offset in range(first, self.info.basicsize + self.inline, 8)]
        return found

    def tables(self, c: Columns) -> list[Table]:
        """Where the references outside the body lie."""
        if self.leaf:
            return []
        found = _managed_values(self, c)
        make = _TABLES.get(self.kind)
        if make is not None:
            found += make(self, c)
        elif self.info.itemsize == 8:
            found.append(Table(c.at + self.info.basicsize, abs(c.word(self.var))))
        if self.info.dictoffset < 0 and self.rt.minor.dicts_behind:  # behind the elements
            length = self.info.basicsize + self.info.itemsize * abs(c.word(self.var))
            found.append(Table(c.at + ((length + 7) & ~7) + self.info.dictoffset, 1 + 0 * c.at))
        return found


def counted(rt: Runtime, word: Any) -> Any:
    """Whether an object's first word can be its reference count: in freed memory a pointer lies there. 3.14+ keep flags above the
    count."""
    if rt.minor.flags_above_count:
        word = word & 0xFFFFFFFFFFFF
    return (word > 0) & (word <= 0xFFFFFFFF)


def _kind(info: TypeInfo) -> str:
    flags, names = info.flags, info.builtin_bases()
    if flags & TYPE:
        return "type"
    for flag, kind in ((STR, "str"), (LONG, "int"), (LIST, "list"), (TUPLE, "tuple")):
        if flags & flag:
            return kind
    if flags & DICT:
        return "odict" if "collections.OrderedDict" in names else "dict"
    if "frame" in names:
        return "frame"
    for name, kind in (
        ("frozendict", "dict"),
        ("set", "set"),
        ("frozenset", "set"),
        ("collections.deque", "deque"),
        ("bytearray", "bytearray"),
        ("array.array", "array"),
        ("numpy.ndarray", "ndarray"),
        ("code", "code"),
        ("generator", "generator"),
        ("coroutine", "generator"),
        ("async_generator", "generator"),
    ):
        if name in names:
            return kind
    return "object"


def _sizeof_known(rt: Runtime, info: TypeInfo) -> bool:
    """Whether `size` knows the `__sizeof__` of these objects. Names of attributes are interned, so the search is for the very str
    that `object` has."""

    def find() -> int:
        root = next(base for base in info.bases() if base.raw_name == "object")
        return next((key for key, _ in root.entries if rt.object(key).equals(OWN_SIZE)), 0)

    name = rt.target.cached("the name __sizeof__", find)
    owners = (base.builtin_name for base in info.bases() if any(key == name for key, _ in base.entries))
    return next(owners, "object") in MEASURED


def _presize(rt: Runtime, flags: int) -> int:
    """Bytes that the collector and managed dicts keep before an object, which `sys.getsizeof` counts."""
    own = 0 if rt.layout.free_threaded or not flags & HAVE_GC else rt.layout["gc.head.__size"]
    if rt.minor.counts_managed:
        extra = flags & (MANAGED_DICT | MANAGED_WEAKREF)
        return own + (16 if extra else 0)
    return own + (16 if rt.minor.dict_and_values and flags & MANAGED_DICT else 0)


def _capacity(rt: Runtime, info: TypeInfo) -> int:
    """How many attributes the shared keys of a class have room for."""
    L, t = rt.layout, rt.target
    keys = t.u64(info.address + L["heaptype.ht_cached_keys"]) if info.flags & HEAPTYPE else 0
    if not keys:
        return 0
    total = t.i64(keys + L["dictkeys.dk_nentries"]) + t.i64(keys + L["dictkeys.dk_usable"])
    return total if 0 <= total <= 256 else 0


# ---- sizes -----------------------------------------------------------------------------------------------------------
def _frame_words(s: Shape, frame: Columns, at: int) -> tuple[Any, Any]:
    """How many words the interpreter's frame at byte `at` of each record has for variables, and for its stack."""
    L = s.layout
    code = frame.follow(frame.word(at + L.frame_code) & ~7, L["code.__size"])
    variables, stack = code.u32(L["code.co_nlocalsplus"]), code.u32(L["code.co_stacksize"])
    good = variables + stack < 1 << 24
    return variables * good, stack * good


def _interpreter_frame(s: Shape, c: Columns) -> Columns:
    """The interpreter frame of a frame object. It lies inside the object once its function has returned."""
    return c.follow(c.word(s.layout["frameobj.f_frame"]), s.layout["iframe.localsplus"])


def _generator_size(s: Shape, c: Columns) -> Any:
    if "gen.gi_iframe" not in s.layout:
        return _object_size(s, c)
    variables, stack = _frame_words(s, c, s.layout["gen.gi_iframe"])
    return s.layout["gen.gi_iframe"] + s.layout["iframe.localsplus"] + 8 * (variables + stack)


def _object_size(s: Shape, c: Columns) -> Any:
    total = s.info.basicsize + 0 * c.at
    if s.info.itemsize > 0:
        total = total + s.info.itemsize * abs(c.word(s.var))
    return total


def _frame_size(s: Shape, c: Columns) -> Any:
    """Until 3.10 the first of the variables counts as one of the fields."""
    if "frameobj.f_frame" in s.layout:
        variables, stack = _frame_words(s, _interpreter_frame(s, c), 0)
        return s.info.basicsize + 8 * (variables + stack)
    count = c.word(s.var)
    return s.info.basicsize + 8 * (count - (count > 0))


def _str_size(s: Shape, c: Columns) -> Any:
    L = s.layout
    kind, compact, ascii_ = s.rt.dialect.string_bits(c.u32(L["ascii.state"]))
    length = c.word(L["ascii.length"])
    plain = compact * ascii_
    wide = compact * (1 - ascii_)
    loose = 1 - compact
    data = c.word(L["unicode.data"]) if "unicode.data" in L else 0
    total = plain * (L["ascii.__size"] + length + 1) + wide * (L["compactunicode.__size"] + (length + 1) * kind)
    total = total + loose * (L["unicode.__size"] + (data != 0) * (length + 1) * kind)
    utf8 = c.word(L["compactunicode.utf8"])
    shared = wide * (c.at + L["compactunicode.__size"]) + loose * data
    own = (1 - plain) * (utf8 != 0) * (utf8 != shared)
    total = total + own * (c.word(L["compactunicode.utf8_length"]) + 1)
    if "ascii.wstr" in L:
        wstr = c.word(L["ascii.wstr"])
        ready = c.u32(L["ascii.state"]) >> 7 & 1
        begins = plain * (c.at + L["ascii.__size"]) + shared
        units = plain * length + (1 - plain) * c.word(L["compactunicode.wstr_length"])
        total = total + (wstr != 0) * (1 - ready * (wstr == begins)) * (units + 1) * 4
    return total


def _int_size(s: Shape, c: Columns) -> Any:
    L = s.layout
    if "long.long_value.lv_tag" in L:
        digits, first = c.word(L["long.long_value.lv_tag"]) >> 3, L["long.long_value.ob_digit"]
    else:
        digits, first = abs(c.word(s.var)), L["long.ob_digit"]
    least = (digits == 0) if s.rt.minor.zero_has_digit else 0
    return first + 4 * (digits + least)


def _list_size(s: Shape, c: Columns) -> Any:
    return s.info.basicsize + 8 * c.word(s.layout["list.allocated"])


def _keys_size(s: Shape, k: Columns) -> Any:
    """`_PyDict_KeysSize` of a table of keys."""
    L = s.layout
    if "dictkeys.dk_size" in L:
        size = k.word(L["dictkeys.dk_size"])
        return L["dictkeys.__size"] + size * _index_width(size) + 24 * _usable(size)
    kind = k.u8(L["dictkeys.dk_kind"])
    indices = 1 << (k.u8(L["dictkeys.dk_log2_index_bytes"]) & 63)
    size = 1 << (k.u8(L["dictkeys.dk_log2_size"]) & 63)
    return L["dictkeys.__size"] + indices + _usable(size) * (24 - 8 * (kind != 0))


def _usable(size: Any) -> Any:
    return (size << 1) // 3


def _index_width(size: Any) -> Any:
    return 1 + (size > 0xFF) + 2 * (size > 0xFFFF) + 4 * (size > 0xFFFFFFFF)


def _references(s: Shape, k: Columns) -> Any:
    """dk_refcnt of a table of keys."""
    count = k.word(s.layout["dictkeys.dk_refcnt"])
    return count & 0xFFFFFFFF if s.rt.minor.short_key_counts else count


def _dict_size(s: Shape, c: Columns) -> Any:
    L = s.layout
    k = c.follow(c.word(L["dict.ma_keys"]), 48)
    split = c.word(L["dict.ma_values"]) != 0
    if "dictkeys.dk_size" in L:
        shared = _usable(k.word(L["dictkeys.dk_size"]))
    else:
        shared = k.word(L["dictkeys.dk_nentries"]) + k.word(L["dictkeys.dk_usable"])
    return s.info.basicsize + split * shared * 8 + (_references(s, k) == 1) * _keys_size(s, k)


def _odict_size(s: Shape, c: Columns) -> Any:
    L = s.layout
    k = c.follow(c.word(L["dict.ma_keys"]), 48)
    size = k.word(L["dictkeys.dk_size"]) if "dictkeys.dk_size" in L else 1 << (k.u8(L["dictkeys.dk_log2_size"]) & 63)
    nodes = c.word(L["dict.ma_used"])
    fast = (c.word(L["odict.od_fast_nodes"]) != 0) * size * 8
    return _dict_size(s, c) + fast + L["odictnode.__size"] * nodes


def _set_size(s: Shape, c: Columns) -> Any:
    L = s.layout
    own = c.word(L["set.table"]) != c.at + L["set.smalltable"]
    return s.info.basicsize + own * (c.word(L["set.mask"]) + 1) * 16


def _deque_size(s: Shape, c: Columns) -> Any:
    L = s.layout
    blocks = (c.word(L["deque.leftindex"]) + c.word(s.var) + DEQUE_BLOCK - 1) // DEQUE_BLOCK
    return s.info.basicsize + blocks * L["dequeblock.__size"]


def _bytearray_size(s: Shape, c: Columns) -> Any:
    head = s.layout["bytes.ob_sval"] + 1 if s.rt.minor.bytearray_of_bytes else 0
    return s.info.basicsize + c.word(s.layout["bytearray.ob_alloc"]) + head


def _array_size(s: Shape, c: Columns) -> Any:
    L = s.layout
    kind = c.follow(c.word(L["array.ob_descr"]), L["arraydescr.__size"])
    return s.info.basicsize + c.word(L["array.allocated"]) * kind.u32(L["arraydescr.itemsize"])


def _type_size(s: Shape, c: Columns) -> Any:
    L = s.layout
    heap = (c.word(L["type.tp_flags"]) & HEAPTYPE) != 0
    pointer = c.word(L["heaptype.ht_cached_keys"]) * heap
    keys = c.follow(pointer, 48)
    return (1 - heap) * L["type.__size"] + heap * (s.head + L["heaptype.__size"] + (pointer != 0) * _keys_size(s, keys))


_ND_DATA, _ND_NDIM, _ND_DIMENSIONS, _ND_FLAGS, _ND_DESCR = 0, 8, 16, 48, 40  # PyArrayObject_fields behind the header
_ND_NUMBER = 12  # type_num of a PyArray_Descr
ND_OWNDATA, OBJECTS = 4, 17


def _ndarray_size(s: Shape, c: Columns) -> Any:
    """array_sizeof: the fields, the data where the array owns them, and two words for each dimension."""
    base = s.layout["object.__size"]
    return s.info.basicsize + 16 * c.u32(base + _ND_NDIM) + _own_elements(c, base) * _element_size(s, c, base)


def _own_elements(c: Columns, base: int) -> Any:
    """How many elements an array has, 0 where another object has its data."""
    ndim = c.u32(base + _ND_NDIM)
    extents = c.follow(c.word(base + _ND_DIMENSIONS), 256)
    count = 1 + 0 * c.at
    for i in range(32):
        count = count * (1 + (i < ndim) * (extents.word(8 * i) - 1))
    return count * (c.u32(base + _ND_FLAGS) & ND_OWNDATA != 0)


def _element_size(s: Shape, c: Columns, base: int) -> Any:
    """`itemsize` of each array's dtype: PyArray_Descr's elsize, an int until numpy 1, a word since numpy 2."""
    descr = c.follow(c.word(base + _ND_DESCR), 64)
    release = s.rt.release(("numpy",))
    return descr.u32(base + 16) if release.startswith("1.") else descr.word(base + 24)


_SIZES = {
    "str": _str_size,
    "int": _int_size,
    "list": _list_size,
    "dict": _dict_size,
    "odict": _odict_size,
    "set": _set_size,
    "deque": _deque_size,
    "bytearray": _bytearray_size,
    "array": _array_size,
    "type": _type_size,
    "ndarray": _ndarray_size,
    "generator": _generator_size,
    "frame": _frame_size,
}
_LENGTHS = {
    "list": "",
    "tuple": "",
    "deque": "",
    "dict": "dict.ma_used",
    "odict": "dict.ma_used",
    "set": "set.used",
    "bytearray": "",
}
_NEEDS = {"generator": 192, "str": 80, "type": 960, "ndarray": 96, "int": 32, "array": 64, "odict": 120}


# ---- references ------------------------------------------------------------------------------------------------------
def _managed_dict(s: Shape, c: Columns) -> list[Any]:
    """The word before an instance that leads to its attributes' dict, for types that have one."""
    if not s.info.flags & MANAGED_DICT or not s.rt.minor.managed_dicts:
        return []
    if s.rt.minor.tagged_values:
        return [c.word(-24) * (1 - (c.word(-24) & 1))]
    return [c.word(-8 if s.layout.free_threaded else -24)]


def _managed_values(s: Shape, c: Columns) -> list[Table]:
    """The attributes of an instance in an array to which a word before it leads."""
    if not s.info.flags & MANAGED_DICT or not s.rt.minor.values_apart:
        return []
    if s.rt.minor.dict_and_values:
        return [Table(c.word(-32), s.room + 0 * c.at)]
    tagged = c.word(-24) & 1
    return [Table((c.word(-24) + 1) * tagged, s.room * tagged)]


def _keys_table(s: Shape, keys: Any, values: Any, c: Columns) -> list[Table]:
    """The entries of tables of keys. Where the `values` lie elsewhere: the keys alone, and those values."""
    L = s.layout
    k = c.follow(keys, 48)
    count, apart = k.word(L["dictkeys.dk_nentries"]), values != 0
    if "dictkeys.dk_size" in L:
        size = k.word(L["dictkeys.dk_size"])
        start, wide = keys + L["dictkeys.dk_indices"] + size * _index_width(size), 1 + 0 * size
    else:
        start = keys + L["dictkeys.dk_indices"] + (1 << (k.u8(L["dictkeys.dk_log2_index_bytes"]) & 63))
        wide = k.u8(L["dictkeys.dk_kind"]) == 0
    found = [Table(start, count * wide, 3, (1, 2)), Table(start, count * (1 - wide), 2, (0, 1))]
    return [*found, Table(values + L.get("dictvalues.values", 0), count * apart)]


def _dict_tables(s: Shape, c: Columns) -> list[Table]:
    return _keys_table(s, c.word(s.layout["dict.ma_keys"]), c.word(s.layout["dict.ma_values"]), c)


def _type_tables(s: Shape, c: Columns) -> list[Table]:
    heap = (c.word(s.layout["type.tp_flags"]) & HEAPTYPE) != 0
    return _keys_table(s, c.word(s.layout["heaptype.ht_cached_keys"]) * heap, 0 * c.at, c)


def _list_tables(s: Shape, c: Columns) -> list[Table]:
    return [Table(c.word(s.layout["list.ob_item"]), c.word(s.var))]


def _tuple_tables(s: Shape, c: Columns) -> list[Table]:
    return [Table(c.at + s.layout["tuple.ob_item"], c.word(s.var))]


def _set_tables(s: Shape, c: Columns) -> list[Table]:
    return [Table(c.word(s.layout["set.table"]), c.word(s.layout["set.mask"]) + 1, 2, (0,))]


def _ndarray_tables(s: Shape, c: Columns) -> list[Table]:
    """The elements of an array of objects."""
    base = s.layout["object.__size"]
    descr = c.follow(c.word(base + _ND_DESCR), 64)
    objects = descr.u32(base + _ND_NUMBER) == OBJECTS
    return [Table(c.word(base + _ND_DATA), objects * _own_elements(c, base))]


def _generator_tables(s: Shape, c: Columns) -> list[Table]:
    if "gen.gi_iframe" not in s.layout:
        return []
    at = s.layout["gen.gi_iframe"]
    return [Table(c.at + at + s.layout["iframe.localsplus"], sum(_frame_words(s, c, at)))]


def _frame_tables(s: Shape, c: Columns) -> list[Table]:
    if "frameobj.f_frame" not in s.layout:
        return [Table(c.at + s.info.basicsize, abs(c.word(s.var)))]
    frame = _interpreter_frame(s, c)
    return [Table(frame.at + s.layout["iframe.localsplus"], _frame_words(s, frame, 0)[0])]


_TABLES: dict[str, Callable[[Shape, Columns], list[Table]]] = {
    "generator": _generator_tables,
    "frame": _frame_tables,
    "dict": _dict_tables,
    "odict": _dict_tables,
    "type": _type_tables,
    "list": _list_tables,
    "tuple": _tuple_tables,
    "set": _set_tables,
    "ndarray": _ndarray_tables,
    "deque": lambda s, c: [],  # its blocks are a chain: walk.py follows it
}
