"""The counters of torch's CUDA caching allocator, as torch.cuda.memory_stats() gives them, read from the process's own memory: no
GPU and no call is needed.

`c10::cuda::CUDACachingAllocator::allocator`, a symbol that libc10_cuda exports, points to the allocator in force. Its vtable
gives its class. For torch's own allocator, layouts/torch_allocator.json says where the devices' allocators and their counters lie
(scripts/make-torch-allocator-layouts measures it on each release's library). Each device's counters are believed only after a
proof: the relations between them must hold. CPU memory has no such counters: torch's CPU allocator keeps none.
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

from .. import package
from ..access.base import Target
from ..cpython.runtime import Runtime
from ..errors import LayoutError
from . import layout, rtti


class NumberOf(Protocol):
    """A counter of a device: `what` is a member of Stat, `pool` 0 for all blocks, 1 the small, 2 the large ones."""

    def __call__(self, field: str, what: str = ..., pool: int = ...) -> int: ...


SYMBOL = "_ZN3c104cuda20CUDACachingAllocator9allocatorE"  # std::atomic<CUDAAllocator*>
NATIVE = "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator"
MAX_DEVICES = 64
TRIES = 3  # of a device whose counters change while they are read
BYTES = ("requested_bytes", "allocated_bytes", "active_bytes", "reserved_bytes")  # each is at most the next
COUNTS = ("allocation", "active")  # likewise


def rows() -> dict[str, Any]:
    """{torch minor: offsets in NativeCachingAllocator, DeviceCachingAllocator, DeviceStats and Stat}."""
    return {k: v for k, v in package.table("layouts/torch_allocator.json").items() if isinstance(v, dict)}


def read(target: Target, rt: Runtime | None = None) -> list[dict[str, int]]:
    """One row per CUDA device for which the allocator has been set up: `{device, allocated_bytes, allocated_peak_bytes,
    reserved_bytes, reserved_peak_bytes, active_bytes, requested_bytes, inactive_split_bytes, allocations, segments, retries,
    ooms}`.

    [] for a process without libc10_cuda, or in which CUDA was not initialised. `LayoutError` for an allocator of unknown layout:
    another torch, another machine, cudaMallocAsync, an allocator of the engine's own.
    """
    row, devices = devices_of(target, rt)
    return [of_device(target, row, number, device) for number, device in devices]


def devices_of(target: Target, rt: Runtime | None = None) -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """(torch's row of the table, `[(number, address of its DeviceCachingAllocator)]`) of the CUDA devices for which the allocator
    has been set up; errors and empty result as for `read`."""
    library = next((m for m in target.modules() if m.name.startswith("libc10_cuda.so")), None)
    if library is None:
        return {}, []
    if target.arch != "x86-64":
        raise LayoutError(f"torch's CUDA allocator is known for x86-64, not for {target.arch}")
    at = library.symbol(SYMBOL)
    if at is None:
        raise LayoutError(f"{library.name} does not export the CUDA allocator in force (torch before 2.0?)")
    allocator = target.u64(at)
    if not allocator:
        return {}, []
    (kind, *_), _ = rtti.class_hierarchy(target, allocator)
    if kind != NATIVE:
        raise LayoutError(f"the CUDA allocator in force is {kind}, which keeps its counters in a way that is not known")
    version = layout.torch_version(target, rt)
    row = rows().get(layout.minor_of(version))
    if row is None:
        raise LayoutError(
            f"torch {version}: where its CUDA allocator keeps its counters is not known; see scripts/make-torch-allocator-layouts"
        )
    return row, devices_at(target, row, allocator)


def devices_at(target: Target, row: dict[str, Any], allocator: int) -> list[tuple[int, int]]:
    """`[(number, address of its DeviceCachingAllocator)]` of those that are set up, in torch's own allocator at `allocator`:
    std::vector<std::unique_ptr<DeviceCachingAllocator>>."""
    begin, end, room = struct.unpack("<3Q", target.read(allocator + row["NativeCachingAllocator"]["device_allocator"], 24))
    count, rest = divmod(end - begin, 8)
    if rest or not 0 <= count <= MAX_DEVICES or room < end or begin % 8:
        raise LayoutError("torch's CUDA allocator does not have the layout that the table gives for its release")
    words = struct.unpack(f"<{count}Q", target.read(begin, 8 * count)) if count else ()
    return [(number, device) for number, device in enumerate(words) if device]


def of_device(target: Target, row: dict[str, Any], number: int, device: int) -> dict[str, int]:
    """The counters of the device whose DeviceCachingAllocator is at `device`, a row of `read`."""
    fields, stat = row["DeviceStats"], row["Stat"]
    for _ in range(TRIES):
        blob = target.read(device + row["DeviceCachingAllocator"]["stats"], fields["sizeof"])

        def number_of(field: str, what: str = "current", pool: int = 0, blob: bytes = blob) -> int:
            found: int = struct.unpack_from("<q", blob, fields[field] + pool * stat["sizeof"] + stat[what])[0]
            return found

        if _proved(number_of):
            return {
                "device": number,
                **{f: number_of(f) for f in ("allocated_bytes", "reserved_bytes", "active_bytes", "requested_bytes")},
                "inactive_split_bytes": number_of("inactive_split_bytes"),
                "allocated_peak_bytes": number_of("allocated_bytes", "peak"),
                "reserved_peak_bytes": number_of("reserved_bytes", "peak"),
                "allocations": number_of("allocation"),
                "segments": number_of("segment"),
                "retries": struct.unpack_from("<q", blob, fields["num_alloc_retries"])[0],
                "ooms": struct.unpack_from("<q", blob, fields["num_ooms"])[0],
            }
    raise LayoutError(f"the counters of torch's CUDA allocator for device {number} contradict one another")


def _proved(number_of: NumberOf) -> bool:
    """Whether the numbers can be an allocator's counters. Each is kept for all blocks, the small and the large ones."""
    every = (*BYTES, *COUNTS, "segment", "inactive_split", "inactive_split_bytes")
    for field in every:
        both, small, large = (number_of(field, pool=pool) for pool in range(3))
        if (
            min(small, large) < 0
            or both != small + large
            or any(number_of(field, "peak", pool) < number_of(field, pool=pool) for pool in range(3))
        ):
            return False
    return all(number_of(less) <= number_of(more) for names in (BYTES, COUNTS) for less, more in zip(names, names[1:]))
