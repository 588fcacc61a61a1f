"""The differences between CPython minors beyond offsets: small named strategies, one set chosen per minor.

A `Runtime` calls its `Dialect`; `for_version` picks it. Sources: Objects/dictobject.c, Include/internal/pycore_dict.h,
pycore_object.h, pycore_frame.h, Include/cpython/unicodeobject.h of each minor.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Callable, Collection, Iterable, Iterator

from .. import log
from ..errors import FaultError, LayoutError
from . import linetable
from .objects import MAX_ITEMS, Object
from .types import INLINE_VALUES, MANAGED_DICT, TypeInfo, named

if TYPE_CHECKING:
    from .runtime import Runtime

MAX_FRAMES = 20000
MAX_PASSED = 200000  # further frames outward, until their activation is found
MAX_THREADS = 100000
OWNED_BY_GENERATOR = 1
OWNED_BY_C = 3  # and above: a frame on the C stack, with which C code called Python (3.12 on)
OLDEST, NEWEST = (3, 9), (3, 15)  # a newer one is added here once its headers were compared with these strategies


# ---- dictionaries ----------------------------------------------------------------------------------------------------
def _keys_sized(rt: Runtime, keys: int) -> tuple[int, int, int, int]:
    """3.9, 3.10: dk_size gives the width of an index; entries of (hash, key, value). -> (entries address, count, step, 8)"""
    L, t = rt.layout, rt.target
    size, count = t.u64(keys + L["dictkeys.dk_size"]), t.u64(keys + L["dictkeys.dk_nentries"])
    width = 1 if size <= 0xFF else 2 if size <= 0xFFFF else 4 if size <= 0xFFFFFFFF else 8
    return keys + L["dictkeys.dk_indices"] + size * width, count, 24, size


def _keys_logged(rt: Runtime, keys: int) -> tuple[int, int, int, int]:
    """3.11+: sizes as log2. Entries have no hash where all keys are str (kinds 1 and 2)."""
    L, t = rt.layout, rt.target
    log2_bytes, kind = t.u8(keys + L["dictkeys.dk_log2_index_bytes"]), t.u8(keys + L["dictkeys.dk_kind"])
    log2_size, count = t.u8(keys + L["dictkeys.dk_log2_size"]), t.u64(keys + L["dictkeys.dk_nentries"])
    if kind > 2 or log2_bytes > 40 or log2_size > 40:
        raise LayoutError(f"no dict keys at {keys:#x}")
    return keys + L["dictkeys.dk_indices"] + (1 << log2_bytes), count, 24 if kind == 0 else 16, 1 << log2_size


def _dict_entries(
    rt: Runtime,
    read_keys: Callable[[Runtime, int], tuple[int, int, int, int]],
    keys: int,
    values: int,
    limit: int,
    order: Callable[[Runtime, int, int], list[int]] | None = None,
) -> list[tuple[int, int]]:
    at, count, step, size = read_keys(rt, keys)
    if count > min(size, MAX_ITEMS):
        raise LayoutError(f"the dict keys at {keys:#x} claim {count} entries in {size} places")
    if not count:
        return []
    words = struct.unpack(f"<{count * step // 8}Q", rt.target.read(at, count * step))
    skip = 1 if step == 24 else 0
    names = words[skip :: step // 8]
    if values:
        held = rt.target.words(values + rt.layout.get("dictvalues.values", 0), count)
        pairs = list(zip(names, held))
        if order:
            places = [i for i in order(rt, values, count) if i < count]
            if sorted(places) == sorted(set(places)) and {i for i, v in enumerate(held) if v} == set(places):
                pairs = [pairs[i] for i in places]
    else:
        pairs = list(zip(names, words[skip + 1 :: step // 8]))
    found = [(k, v) for k, v in pairs if k and v]
    return found if len(found) <= limit else found[:limit]


def _order_before(rt: Runtime, values: int, count: int) -> list[int]:
    """3.11, 3.12: the order of insertion lies before the values: size at -2, its members at -3, -4, …"""
    head = rt.target.read(values - 2 - count, count + 2)
    return [head[-3 - i] for i in range(min(head[-2], count))]


def _order_after(rt: Runtime, values: int, count: int) -> list[int]:
    """3.13+: the order of insertion lies after `capacity` values."""
    L, t = rt.layout, rt.target
    capacity, size = t.u8(values + L["dictvalues.capacity"]), t.u8(values + L["dictvalues.size"])
    return list(t.read(values + L["dictvalues.values"] + 8 * capacity, min(size, capacity)))


# ---- instance attributes ---------------------------------------------------------------------------------------------
def _offset_dict(rt: Runtime, obj: Object) -> int:
    """The address of the `__dict__` pointer's value by tp_dictoffset, 0 when there is none (all versions, other types)."""
    info, t = obj.type, rt.target
    offset = info.dictoffset
    if offset < 0:
        size = abs(t.i64(obj.address + rt.layout["varobj.ob_size"]))  # an int's digits count too; 3.12+ keep no dict this way
        offset += (info.basicsize + size * info.itemsize + 7) & ~7
    return t.u64(obj.address + offset) if offset > 0 else 0


def _cached_keys(rt: Runtime, info: TypeInfo) -> int:
    return rt.target.u64(info.address + rt.layout["heaptype.ht_cached_keys"])


def _place_by_offset(rt: Runtime, obj: Object) -> tuple[int, int]:
    """3.9, 3.10: -> (dict address, values address)"""
    return _offset_dict(rt, obj), 0


def _place_two_words(rt: Runtime, obj: Object) -> tuple[int, int]:
    """3.11: managed dicts keep a values pointer and a dict pointer before the object."""
    if not obj.type.flags & MANAGED_DICT:
        return _offset_dict(rt, obj), 0
    return rt.target.u64(obj.address - 24), rt.target.u64(obj.address - 32)


def _place_tagged(rt: Runtime, obj: Object) -> tuple[int, int]:
    """3.12: one word before the object, its low bit says values (the pointer is off by one) or dict."""
    if not obj.type.flags & MANAGED_DICT:
        return (_offset_dict(rt, obj), 0) if obj.type.dictoffset > 0 else (0, 0)
    word = rt.target.u64(obj.address - 24)
    return (0, word + 1) if word & 1 else (word, 0)


def _place_inline(rt: Runtime, obj: Object) -> tuple[int, int]:
    """3.13+: values inside the object as long as they are valid, else the dict pointer before it."""
    info, L, t = obj.type, rt.layout, rt.target
    if not info.flags & MANAGED_DICT:
        return (_offset_dict(rt, obj), 0) if info.dictoffset > 0 else (0, 0)
    pointer = t.u64(obj.address - (8 if L.free_threaded else 24))
    if info.flags & INLINE_VALUES:
        values = obj.address + info.basicsize
        if t.u8(values + L["dictvalues.valid"]):
            return pointer, values
    return pointer, 0


# ---- strings ---------------------------------------------------------------------------------------------------------
def _string_bits_low(state: int) -> tuple[int, int, int]:
    """interned:2 kind:3 compact:1 ascii:1"""
    return state >> 2 & 7, state >> 5 & 1, state >> 6 & 1


def _string_bits_byte(state: int) -> tuple[int, int, int]:
    """Free-threaded 3.14: interned takes a whole byte."""
    return state >> 8 & 7, state >> 11 & 1, state >> 12 & 1


# ---- frames ----------------------------------------------------------------------------------------------------------
class RawFrame:
    """One raw frame. `lasti`: in bytes, None where it cannot be read. `anchor`: the address of the object that this frame's
    interpreter activation left on the C stack (0: unknown)."""

    __slots__ = ("address", "code", "lasti", "owner", "anchor", "complete")

    def __init__(self, address: int, code: int, lasti: int, owner: int, anchor: int, complete: bool = True) -> None:
        self.address, self.code, self.lasti = address, code, lasti
        self.owner, self.anchor, self.complete = owner, anchor, complete


def _walk_frame_objects(rt: Runtime, tstate: int, limit: int = MAX_FRAMES) -> list[RawFrame]:
    """3.9, 3.10: a chain of PyFrameObjects. 3.10 counts instructions, 3.9 bytes; 3.10 has a cframe for each activation."""
    L, t = rt.layout, rt.target
    scale = rt.minor.code_unit
    anchors = _cframes(rt, tstate) if "tstate.cframe" in L and limit > 1 else []
    address = t.u64(tstate + L["tstate.frame"])
    seen: set[int] = set()
    steps = []
    while address and address not in seen and len(seen) < limit:
        seen.add(address)
        lasti = t.i32(address + L["frameobj.f_lasti"])
        steps.append(RawFrame(address, t.u64(address + L["frameobj.f_code"]), lasti * scale if lasti >= 0 else -1, 0, 0))
        address = t.u64(address + L["frameobj.f_back"])
    if len(anchors) == len(steps):  # one activation of the interpreter per Python frame
        for step, anchor in zip(steps, anchors):
            step.anchor = anchor
    return steps


def _cframes(rt: Runtime, tstate: int) -> list[int]:
    """The chain of _PyCFrame on the C stack, innermost first. It ends at the one inside the thread state, whose `previous` is not
    set."""
    L, t = rt.layout, rt.target
    found: list[int] = []
    at = t.u64(tstate + L["tstate.cframe"])
    while at and not tstate <= at < tstate + L["tstate.__size"] and len(found) < MAX_FRAMES and at not in found[-3:]:
        found.append(at)
        at = t.u64(at + L["cframe.previous"])
    return found


def outermost_cframe(rt: Runtime, tstate: int) -> int:
    """3.11: the address of the _PyCFrame of a thread's first activation; 0 where there is none."""
    return (_cframes(rt, tstate) or [0])[-1]


def _walk_cframes(rt: Runtime, tstate: int, limit: int = MAX_FRAMES) -> Iterator[RawFrame]:
    """3.11: interpreter frames grouped by `is_entry`; the n-th group belongs to the n-th cframe."""
    L, t = rt.layout, rt.target
    anchors, group = _cframes(rt, tstate) if limit > 1 else [], 0
    cframe = t.u64(tstate + L["tstate.cframe"])
    address = t.u64(cframe + L["cframe.current_frame"]) if cframe else 0
    seen: set[int] = set()
    size = L["iframe.__size"]
    code_at, lasti_at, previous_at, owner_at, entry_at = (
        L["iframe." + name] for name in ("f_code", "prev_instr", "previous", "owner", "is_entry")
    )
    while address and address not in seen and len(seen) < limit:
        seen.add(address)
        blob = t.read(address, size)
        code = _word(blob, code_at)
        lasti = _word(blob, lasti_at) - (code + L["code.co_code_adaptive"])
        yield _step(rt, address, code, lasti, blob[owner_at], anchors[group] if group < len(anchors) else 0)
        if blob[entry_at]:
            group += 1
        address = _word(blob, previous_at)


def _walk_shims(rt: Runtime, tstate: int, limit: int = MAX_FRAMES) -> list[RawFrame]:
    """3.12, 3.13: a shim frame on the C stack (owner 3) ends each activation. 3.14+: see `_shim_owners`."""
    L, t = rt.layout, rt.target
    if "tstate.current_frame" in L:
        address = t.u64(tstate + L["tstate.current_frame"])
    else:
        cframe = t.u64(tstate + L["tstate.cframe"])
        address = t.u64(cframe + L["cframe.current_frame"]) if cframe else 0
    seen: set[int] = set()
    group: list[RawFrame] = []
    found: list[RawFrame] = []
    size = L["iframe.__size"]
    code_at, instruction_at = L.frame_code, L.frame_instruction
    while address and address not in seen and len(seen) < 2 * MAX_FRAMES and len(found) < limit:  # a shim for each at most
        seen.add(address)
        blob = t.read(address, size)
        owner = blob[L["iframe.owner"]]
        if owner >= 3:
            for step in group:
                step.anchor = address
            group = []
        else:
            code = _word(blob, code_at) & ~rt.dialect.tag_mask
            lasti = _word(blob, instruction_at) - (code + L["code.co_code_adaptive"])
            group.append(_step(rt, address, code, lasti, owner, 0))
            found.append(group[-1])
        address = _word(blob, L["iframe.previous"])
    if len(found) > 1 and group and address not in seen:  # cut: the activation of the outermost ones is further out
        anchor = _shim_above(rt, address)
        for step in group:
            step.anchor = anchor
    return found


def _shim_above(rt: Runtime, address: int) -> int:
    """The address of the first shim frame outward from a frame; 0 where there is none within reach."""
    L, t = rt.layout, rt.target
    for _ in range(MAX_PASSED):
        if not address or t.u8(address + L["iframe.owner"]) >= OWNED_BY_C:
            return address
        address = t.u64(address + L["iframe.previous"])
    return 0


def _word(blob: bytes, offset: int) -> int:
    found: int = struct.unpack_from("<Q", blob, offset)[0]
    return found


def _step(rt: Runtime, address: int, code: int, lasti: int, owner: int, anchor: int) -> RawFrame:
    complete = True
    key = "code._co_firsttraceable"
    if owner != OWNED_BY_GENERATOR and key in rt.layout:
        try:  # a frame whose code has not reached its RESUME is not shown by Python itself
            complete = lasti >= 2 * rt.target.i32(code + rt.layout[key])
        except FaultError as e:
            log.passed_over(e)
    return RawFrame(address, code, lasti, owner, anchor, complete)


def raw_frame(rt: Runtime, address: int) -> RawFrame:
    """The raw frame at an address, even one that was unlinked just now. Its `anchor` is not looked for."""
    L, t = rt.layout, rt.target
    if "frameobj.f_lasti" in L:
        lasti = t.i32(address + L["frameobj.f_lasti"]) * rt.minor.code_unit
        return RawFrame(address, t.u64(address + L["frameobj.f_code"]), lasti, 0, 0)
    blob = t.read(address, L["iframe.__size"])
    code = _word(blob, L.frame_code) & ~rt.dialect.tag_mask
    at = _word(blob, L.frame_instruction)
    return _step(rt, address, code, at - (code + L["code.co_code_adaptive"]), blob[L["iframe.owner"]], 0)


# ---- all of them -----------------------------------------------------------------------------------------------------
class Dialect:
    """The strategies of one minor; each is a plain function. `table_key`: the field with the line table. `tag_mask`: the bits of
    a frame's words that are no part of an address."""

    def __init__(
        self,
        *,
        keys: Callable[[Runtime, int], tuple[int, int, int, int]],
        order: Callable[[Runtime, int, int], list[int]] | None,
        place: Callable[[Runtime, Object], tuple[int, int]],
        string_bits: Callable[[int], tuple[int, int, int]],
        walk: Callable[..., Iterable[RawFrame]],
        line: Callable[[bytes, int, int], int | None],
        spans: Callable[[bytes, int], Iterable[Any]],
        table_key: str,
        tag_mask: int = 0,
    ) -> None:
        self._keys, self._order, self._place = keys, order, place
        self.string_bits, self.walk, self.line, self.spans = string_bits, walk, line, spans
        self.table_key, self.tag_mask = table_key, tag_mask

    def untag(self, word: int) -> int:
        """The object address in a frame's variable; 0 where it is empty or holds a tagged number."""
        if not self.tag_mask:
            return word
        return 0 if word & 3 == 3 or word < 4096 else word & ~self.tag_mask

    def dict_keys(self, rt: Runtime, keys: int) -> tuple[int, int, int, int]:
        """-> (address of the entries of a dict's keys object, their count, bytes of each, places of its table)"""
        return self._keys(rt, keys)

    def dict_entries(self, rt: Runtime, keys: int, values: int, limit: int) -> list[tuple[int, int]]:
        return _dict_entries(rt, self._keys, keys, values, limit, self._order)

    def instance_pairs(self, rt: Runtime, obj: Object) -> list[tuple[int, int]]:
        """`[(key address, value address)]` of an instance's own attributes."""
        try:
            pointer, values = self._place(rt, obj)
        except FaultError as e:
            log.passed_over(e)
            return []
        if pointer:
            return rt.object(pointer).dict_entries()
        return self.dict_entries(rt, _cached_keys(rt, obj.type), values, MAX_ITEMS) if values else []

    def instance_entries(self, rt: Runtime, obj: Object, wanted: Collection[str] | None = None) -> list[tuple[str, int]]:
        """`[(name, value address)]` of an instance's own attributes, as `named`."""
        return named(rt, self.instance_pairs(rt, obj), wanted)

    def attribute_place(self, rt: Runtime, obj: Object, name: str) -> int:
        """The address of the word that leads to an instance's own attribute; 0 where it has none of that name. It holds until the
        instance's dict is rebuilt."""
        L, t = rt.layout, rt.target
        pointer, values = self._place(rt, obj)
        if pointer:
            keys, values = t.u64(pointer + L["dict.ma_keys"]), t.u64(pointer + L["dict.ma_values"])
        elif values:
            keys = _cached_keys(rt, obj.type)
        else:
            return 0
        at, count, step, size = self._keys(rt, keys)
        skip = 1 if step == 24 else 0
        for i, key in enumerate(t.words(at, min(count, size, MAX_ITEMS) * step // 8)[skip :: step // 8]):
            if key and named(rt, [(key, key)], (name,)):
                return values + L.get("dictvalues.values", 0) + 8 * i if values else at + i * step + 8 * (skip + 1)
        return 0

    def dict_offset(self, rt: Runtime, info: TypeInfo) -> int:
        """Where the objects of a class keep the word that leads to their dict, as an offset from the object. 0 where the offset
        differs from object to object. In 3.12 a set low bit of that word means that it leads to no dict."""
        if info.flags & MANAGED_DICT:
            return -8 if rt.layout.free_threaded else -24
        return max(info.dictoffset, 0)

    def dict_pointer(self, rt: Runtime, obj: Object) -> int:
        """The address of the instance's dict object, 0 when it has none (yet)."""
        return self._place(rt, obj)[0]


def for_version(version: tuple[int, int], free_threaded: bool = False) -> Dialect:
    """The dialect of a minor; `LayoutError` for a minor whose sources were not compared with these strategies."""
    if not OLDEST <= version <= NEWEST:
        raise LayoutError(
            "CPython {}.{} is not known here: {}.{} to {}.{} are (cpython/dialects.py says what differs between minors; "
            "see also: scripts/make-cpython-layouts)".format(*version, *OLDEST, *NEWEST)
        )
    frames: dict[str, Any]
    if version < (3, 11):
        frames = {"keys": _keys_sized, "order": None, "place": _place_by_offset, "walk": _walk_frame_objects}
    elif version == (3, 11):
        frames = {"keys": _keys_logged, "order": _order_before, "place": _place_two_words, "walk": _walk_cframes}
    elif version == (3, 12):
        frames = {"keys": _keys_logged, "order": _order_before, "place": _place_tagged, "walk": _walk_shims}
    else:
        frames = {"keys": _keys_logged, "order": _order_after, "place": _place_inline, "walk": _walk_shims}
    lines: dict[str, Any]
    if version < (3, 10):
        lines = {"line": linetable.lnotab_line, "spans": linetable.lnotab_spans, "table_key": "code.co_lnotab"}
    elif version < (3, 11):
        lines = {"line": linetable.linetable_line, "spans": linetable.linetable_spans, "table_key": "code.co_linetable"}
    else:
        lines = {"line": linetable.location_line, "spans": linetable.positions, "table_key": "code.co_linetable"}
    return Dialect(
        **frames,
        **lines,
        string_bits=_string_bits_byte if free_threaded and version >= (3, 14) else _string_bits_low,
        tag_mask=3 if version >= (3, 14) else 0,
    )
