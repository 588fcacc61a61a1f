"""A pool of SGLang out of memory: its free slots or pages (srt/mem_cache/allocator/*.py, memory_pool.py, memory_pool_host.py)."""

from __future__ import annotations

from typing import Iterable

from ...cpython.objects import Object
from ...cpython.runtime import Runtime
from ...errors import LayoutError
from ...kvcache.model import Pool
from ...torch.tensor_impl import is_tensor
from ..absences import holds_default
from ..objects import at_once, has, is_set, length, needed, numbers
from .paths import FREE, GROUPS, MAX_SLOTS


def page_size(allocator: Object) -> int:
    """The tokens of a page; 1 in releases without pages."""
    return 1 if not has(allocator, "page_size") and holds_default(allocator, "page_size") else needed(allocator, "page_size")


def read_pool(rt: Runtime, what: str, allocator: Object, page: int) -> Pool:
    """`Pool` of an allocator, of the Mamba states' or of the host memory's."""
    size = needed(allocator, "size")
    if not 0 < page <= 1 << 20 or not 0 <= size <= MAX_SLOTS:
        raise LayoutError(f"the {allocator.type_name} at {allocator.address:#x} claims {size} slots in pages of {page}")
    unit = "state" if what == "mamba" else ("host " if what == "host" else "") + ("slot" if page == 1 else "page")
    pages = size // page
    pool = Pool("pool" if what == "full" else what, pages, pages if what == "host" else pages + 1, page, unit=unit, reserved=(0,))
    free: list[int] = []
    on_device = False
    held = [piece for name in FREE if is_set(allocator, name) for piece in _pieces(allocator.attr(name))]
    if not held and not any(is_set(allocator, name) for name in FREE):
        raise LayoutError(f"the {allocator.type_name} at {allocator.address:#x} has none of {', '.join(FREE)}")
    pool.num_free = sum(length(rt, piece) for piece in held)
    for piece in held:
        found = numbers(rt, piece)
        on_device = on_device or found is None
        free += found or ()
    if what == "host":  # its list is of slots, whole pages at a time
        pool.num_free //= page
        free = [slot // page for slot in free[::page]]
    pool.counters.update(available=pool.num_free * page, allocator=allocator.type_name)
    waiting = sum(waiting_frees(rt, allocator))
    if waiting:
        pool.counters["waiting_frees"] = waiting
    if on_device:
        pool.notes.append(f"the list of free {unit}s is on the device: only its length is known here")
    else:
        pool.free_ids = free
    return pool


def _pieces(obj: Object) -> list[Object]:
    """A tensor or list of numbers itself; the tensors of a list of those."""
    if obj.isa("list") and obj.len() and is_tensor(obj.item(0)):
        return obj.elements(100_000)
    return [obj]


def waiting_frees(rt: Runtime, allocator: Object) -> list[int]:
    """How many numbers wait in each open group of frees."""
    return [
        length(rt, one)
        for name in GROUPS
        if is_set(allocator, name) and allocator.attr(name).isa("list")
        for one in allocator.attr(name).elements(100_000)
    ]


def moving(rt: Runtime, allocators: Iterable[Object | None]) -> list[tuple[int, int]]:
    """The state that changes with each step: the tensors that are the free lists, and their lengths.

    It is read again until it is consistent; the pools are then read from the same memory. A quick scheduler replaces these
    tensors within one read of everything."""
    holders = [one for one in allocators if one is not None]

    def read() -> list[tuple[int, int]]:
        held = [one.attr(name) for one in holders for name in FREE if is_set(one, name)]
        return [(obj.address, length(rt, obj)) for obj in held]

    return at_once(rt, read)
