"""Where the memory of one rank is, as llm-memory answers it."""

from __future__ import annotations

from typing import Any

from .. import log
from ..access.base import Target
from ..access.retry import retry_reading
from ..cpython import runtime as runtimes
from ..cpython.runtime import Runtime
from ..engines import kv_view
from ..errors import GdbextError
from ..heap import resident
from ..render.fields import NUMBER, Field, Fields
from ..render.text import escape
from ..torch import census, cuda_allocator, cuda_blocks, cuda_owners
from ..torch.census import Found

WHAT = (
    "`parameter`, `kv-cache`, `private-pool`, `private-pool-free`, `tensor`, `untracked` (no live Python tensor), `pending` (an "
    "event), `split` (free, beside blocks in use) or `free` (a segment)"
)
COUNTERS = "device allocated_bytes allocated_peak_bytes reserved_bytes reserved_peak_bytes active_bytes requested_bytes"
COUNTERS += " inactive_split_bytes allocations segments retries ooms"
BLOCKS = Fields(
    Field("owner", str, WHAT),
    Field("pool", (list, None), "of a private pool: its id, two numbers"),
    Field("bytes", int),
    Field("blocks", int),
)
GPU = Fields(
    Field("device", int),
    Field("reserved_bytes", int),
    Field("largest_split_bytes", int),
    Field("parts", [BLOCKS], "add up to `reserved_bytes`"),
)
RANK = Fields(
    Field("label", str),
    Field("pid", NUMBER),
    Field("rss", int, "", "bytes"),
    Field("parts", [Fields(Field("what", str), Field("bytes", int))], "add up to `rss`"),
    Field("gpu_tensor_bytes", int),
    Field(
        "cuda_allocator", [Fields(*(Field(name, NUMBER) for name in COUNTERS.split()))], "as torch.cuda.memory_stats() has them"
    ),
    Field("gpu_blocks", [GPU]),
)


def memory_of(target: Target, label: str) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
    """One rank's row, why it is not whole, and its GPUs' blocks (cuda_blocks.snapshot; `why`, where they cannot be read)."""
    why: list[str] = []
    rt: Runtime | None = None
    found: list[Found] = []
    try:
        python = rt = runtimes.open_runtime(target)
        if python.module("torch") is not None:
            found, why = retry_reading(target, lambda: _tensors(python))
    except GdbextError as e:
        why.append(f"its CPU tensors are counted with malloc: {e}" + ("" if target.is_stopped else ": it runs on, ask again"))
    rss, parts = resident.parts(target, rt, found)
    gpu = sum({f.tensor.storage: f.tensor.storage_bytes or 0 for f in found if f.tensor.device.startswith("cuda")}.values())
    own = {"label": escape(label), "pid": target.pid, "rss": rss, "gpu_tensor_bytes": gpu}
    rows = [{"what": what, "bytes": count} for what, count in parts.items()]
    row = RANK.of(**own, parts=rows, cuda_allocator=[], gpu_blocks=[])
    snapshot: dict[str, Any] = {"segments": []}
    try:
        row["cuda_allocator"] = cuda_allocator.read(target, rt)
        if row["cuda_allocator"]:
            snapshot = cuda_blocks.snapshot(target, rt)
            row["gpu_blocks"] = cuda_owners.name_owners(snapshot, found, _caches(target) if snapshot["segments"] else [])
    except GdbextError as e:
        why.append(escape(str(e)))
        snapshot["why"] = escape(str(e))
    return row, why, snapshot


def _caches(target: Target) -> list[int]:
    """Addresses of the storages of the KV cache that this process holds; [] where it has none that can be read."""
    try:
        workers = kv_view.View(target).workers()
    except GdbextError as e:
        log.passed_over(e)
        return []
    parts = [part for worker in workers for layer in worker.layers for part in layer.parts]
    return [part.tensor.storage_data for part in parts if part.tensor is not None]


def _tensors(rt: Runtime) -> tuple[list[Found], list[str]]:
    why: list[str] = []
    return census.live(rt, why), why
