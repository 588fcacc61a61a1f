"""Every live Python tensor of a process, the path that holds it, and the bytes of all storages."""

from __future__ import annotations

import struct
from typing import Callable, Iterator

from .. import log
from ..access.retry import READINGS
from ..cpython import gc, referrers
from ..cpython.frames import PyFrame
from ..cpython.runtime import Runtime
from ..errors import FaultError, GdbextError
from . import layout as layouts
from .tensor import Tensor
from .tensor_impl import TENSOR_BASES, read_tensor

MAX_BASES = 256


def tensor_addresses(rt: Runtime) -> list[int]:
    """Addresses of all tensor objects, from the garbage collector's lists. Errors: those of cpython/gc.py."""
    base = _base_type(rt)
    if not base:
        return []
    known: dict[int, bool] = {}
    found = []
    for address, kind in gc.tracked(rt):
        wanted = known.get(kind)
        if wanted is None:
            wanted = known[kind] = _inherits(rt, kind, base)
        if wanted:
            found.append(address)
    return list(dict.fromkeys(found))


def _base_type(rt: Runtime) -> int:
    """The address of the type from which all tensors inherit; 0 where torch is not imported."""
    torch = rt.module("torch")
    try:
        own = rt.type(torch.item("Tensor").address) if torch is not None else None
    except FaultError:
        raise  # what cannot be read is not absent
    except GdbextError as e:
        log.passed_over(e)
        return 0
    return next((b.address for b in own.bases() if b.raw_name in TENSOR_BASES), 0) if own is not None else 0


def _inherits(rt: Runtime, kind: int, base: int) -> bool:
    """Whether a type has `base` in its MRO; by three reads, because a process has thousands of types."""
    L, t = rt.layout, rt.target
    try:
        mro = t.u64(kind + L["type.tp_mro"])
        count = t.i64(mro + L["varobj.ob_size"])
        return 0 < count <= MAX_BASES and base in t.words(mro + L["tuple.ob_item"], count)
    except (FaultError, struct.error) as e:
        log.passed_over(e)
        return False


class Found:
    """A live tensor: `tensor`, the `bytes` of its elements, and `owner`, a `referrers.Path` or None."""

    __slots__ = ("tensor", "owner")

    def __init__(self, tensor: Tensor, owner: referrers.Path | None = None) -> None:
        self.tensor, self.owner = tensor, owner

    @property
    def bytes(self) -> int:
        return (self.tensor.numel or 0) * self.tensor.dtype.itemsize

    @property
    def holds_memory(self) -> bool:
        return bool(self.tensor.storage_data)


def live(rt: Runtime, partial: list[str]) -> list[Found]:
    """`[Found]` without owners, in the collector's order. Inconsistent tensors are counted in `partial`; one that a running
    process has freed meanwhile is none of its live ones. `NotFoundError` where the process has no torch."""
    layouts.for_process(rt.target, rt)  # says so where there is no torch, or none that is known
    found: dict[int, Found] = {}
    bad: dict[int, str] = {}
    addresses = left = tensor_addresses(rt)
    if gc.collecting(rt):
        partial.append("a garbage collection is under way: objects that it visits are not listed")
    for _ in range(READINGS):
        bad = {}
        for address in left:
            try:
                found[address] = Found(read_tensor(rt, address))
            except GdbextError as e:  # of a running process also an object that has come where a tensor was
                bad[address] = str(e)
        if not bad or rt.target.is_stopped:
            break
        rt.target.drop_pages()
        there = set(tensor_addresses(rt))
        bad = {address: why for address, why in bad.items() if address in there}
        left = list(bad)
    if bad:
        partial.append(f"{len(bad)} of {len(addresses)} tensors cannot be read, the first: {next(iter(bad.values()))}")
    return [found[address] for address in addresses if address in found]


def name_owners(rt: Runtime, found: list[Found], frames: list[tuple[PyFrame, bool]]) -> None:
    """Sets `owner` of each `Found`. `frames`: [(PyFrame, whether it is selected)], the selected one first."""
    by_address = {f.tensor.address: f for f in found}
    for roots in (referrers.frame_roots(frames), referrers.module_roots(rt)):
        left = {a for a, f in by_address.items() if f.owner is None}
        if left:
            for address, path in referrers.find(rt, left, roots).items():
                by_address[address].owner = path


def total_bytes(found: list[Found]) -> int:
    """Bytes of all storages that have memory, each counted once, however many tensors share it."""
    return sum({f.tensor.storage: f.tensor.storage_bytes or 0 for f in found if f.holds_memory}.values())


def with_nan(found: list[Found], has_nan: Callable[[Tensor], bool]) -> Iterator[tuple[Found, str]]:
    """Yields those `Found` that hold a NaN. `has_nan` is called once for memory that several share. A tensor whose values cannot
    be read yields (Found, why)."""
    clean: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for f in found:
        t = f.tensor
        if t.dtype.kind not in ("float", "complex") or not t.numel or t.device.startswith("meta"):
            continue
        key, size = (t.storage, t.dtype.name), t.dtype.itemsize
        if t.stride is not None and t.shape is not None:
            lo = t.storage_offset * size
            hi = lo + (1 + sum((n - 1) * s for n, s in zip(t.shape, t.stride))) * size
            if any(a <= lo and hi <= b for a, b in clean.get(key, ())):
                continue
        else:
            lo = hi = 0
        try:
            bad = has_nan(t)
        except GdbextError as e:
            yield f, str(e)
            continue
        if bad:
            yield f, ""
        elif hi - lo == f.bytes and t.storage:
            clean.setdefault(key, []).append((lo, hi))
