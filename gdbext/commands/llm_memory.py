"""llm-memory: where the resident memory of each rank is."""

from __future__ import annotations

from typing import Any

from .. import log
from ..access.base import Target
from ..access.retry import retry_reading
from ..answers.each_node import FAILED
from ..api.choosing import resolve_processes
from ..cpython import runtime as runtimes
from ..cpython.runtime import Runtime
from ..engines import kv_view
from ..errors import GdbextError
from ..heap import resident
from ..render import files
from ..render.fields import NUMBER, Field, Fields
from ..render.text import Style, escape, size, table
from ..session.command import Answer, Args, Command, Option
from ..session.session import Session
from ..torch import census, cuda_allocator, cuda_blocks, cuda_owners
from ..torch.census import Found

OWNERS = {  # what a part of a GPU's reserved memory is called in text, and what is said of it
    "parameter": ("parameters", ""),
    "kv-cache": ("KV caches", ""),
    "private-pool": ("private pool {}", "of CUDA graphs or torch.cuda.MemPool"),
    "tensor": ("other tensors", ""),
    "untracked": ("no live Python tensor", "C++ holds it, or a tensor that could not be read"),
    "pending": ("freed, waits for an event", ""),
    "private-pool-free": ("private pool {}, free", "no other pool gets it"),
    "split": ("free pieces", "in segments with blocks in use: what fragmentation keeps; the largest is {}"),
    "free": ("free segments", "torch.cuda.empty_cache() releases them"),
}
WHAT = (
    "`parameter`, `kv-cache`, `private-pool` or `private-pool-free`, `tensor`, `untracked` (no live Python tensor is in it), "
    "`pending` (waits for an event), `split` (free, in a segment with blocks in use) or `free` (a free segment)"
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
ANSWER = Fields(Field("ranks", [RANK]), Field("failed", [FAILED]))


class LlmMemory(Command):
    """Show where the resident memory of each rank is: Python's arenas, malloc, tensors, shared memory, libraries, files.

      (gdb) llm-memory EngineCore
      EngineCore 21913: 1.2 GiB resident
        libraries                       512.3 MiB   42 %
        torch: CPU tensors              310.0 MiB   25 %
        pymalloc: used                  201.4 MiB   16 %
        malloc: heap                    120.9 MiB   10 %
        anonymous, unknown               30.1 MiB    2 %

    The parts add up to what the kernel counts (VmRSS), but for what changes meanwhile. "pymalloc: free" is what Python's own
    allocator holds and has no object in: fragmented pools that it cannot give back. "malloc: blocks of their own" are large
    blocks that malloc mapped one by one, tensors told apart. What is not recognised is "anonymous, unknown". Tensors that only
    C++ holds count with malloc. WHAT as for llm-stacks; the processes are read while they run.

    Memory of GPUs is not resident memory. Below the parts stand, for each GPU, the counters of torch's CUDA caching allocator, as
    torch.cuda.memory_stats() has them: "allocated" is what tensors have, "reserved" what torch took from the driver and keeps;
    how often it gave its cache back to go on (retries) and ran out of memory. They are read from torch 2.1 to 2.15 on x86-64;
    another allocator (cudaMallocAsync, one of the engine's own) is named. torch's CPU allocator keeps no counters.

        GPU 0: 218.3 MiB allocated (peak 293.7 MiB), 322.0 MiB reserved (peak 322.0 MiB) in 20 segments;
        0 retries, 0 out of memory
          parameters                      120.0 MiB   37 %
          KV caches                        64.0 MiB   20 %
          private pool 0,1                 24.0 MiB    7 %  of CUDA graphs or torch.cuda.MemPool
          free pieces                      29.7 MiB    9 %  in segments with blocks in use: what fragmentation keeps
          free segments                    84.3 MiB   26 %  torch.cuda.empty_cache() releases them

    The lines below a GPU tell its reserved bytes apart, by the allocator's own blocks and the live Python tensors in them; they
    add up. What NCCL, cuBLAS and the driver allocate themselves torch does not know: it is in no line.

    -o FILE writes the blocks of one process as JSON in the structure of torch.cuda.memory._snapshot(), each with its owner; no
    pickle. torch draws it, on any machine: python3 -c "import json, torch.cuda._memory_viz as v;
    print(v.segment_plot(json.load(open('FILE'))))" > FILE.html"""

    name = "llm-memory"
    fields = ANSWER
    tool = "memory"
    group = "tensors"
    operand = "[WHAT...]"
    completion = "what"
    options = (
        Option("o", "str", "write the GPUs' blocks as torch.cuda.memory._snapshot() has them", metavar="FILE", for_agents=False),
        Option("force", help="-o replaces a file that is there", for_agents=False),
    )
    takes_target = False
    standalone = True

    def run(self, session: Session, args: Args) -> Answer:
        ranks: list[dict[str, Any]] = []
        partial: list[str] = []
        failed: list[dict[str, Any]] = []
        snapshots: list[dict[str, Any]] = []
        without: list[str] = []  # why a process has none
        if args.o:
            files.may_write(args.o, "-o", args.force)
        for one in resolve_processes(session, args.operand_text):
            target = session.open(one)
            label = one.label or str(target.pid or one.core)
            try:
                row, why, snapshot = _rank(target, label)
            except GdbextError as e:
                failed.append({"label": label, "pid": target.pid, "reason": str(e)})
                continue
            ranks.append(row)
            if snapshot["segments"]:
                snapshots.append(snapshot)
            else:
                without.append(f"{label}: {snapshot.get('why') or 'torch has set up no GPU in it'}")
            partial += session.partial(target) + [f"{label}: {reason}" for reason in why]
        if not ranks:
            raise GdbextError(failed[0]["reason"])
        partial += [f"{f['label']}: {f['reason']}" for f in failed]
        if args.o:
            if len(snapshots) != 1:
                what = f"{len(snapshots)} processes have" if snapshots else "no process has"
                without += [f"{f['label']}: {f['reason']}" for f in failed]
                reason = "name one of them" if snapshots else "; ".join(without)
                raise GdbextError(f"-o {args.o}: {what} blocks of torch's CUDA allocator to write: {reason}")
            with files.writing(args.o, "-o", args.force) as f:
                f.write(cuda_blocks.as_json(snapshots[0]))
        return Answer({"ranks": ranks, "failed": failed}, lambda style: "\n".join(_text(r, style) for r in ranks), partial)


def _rank(target: Target, label: str) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
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
    rows = [{"what": what, "bytes": count} for what, count in parts.items()]
    row: dict[str, Any] = {"label": escape(label), "pid": target.pid, "rss": rss, "parts": rows, "gpu_tensor_bytes": gpu}
    row.update(cuda_allocator=[], gpu_blocks=[])
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


def _text(rank: dict[str, Any], style: Style) -> str:
    whole = max(1, rank["rss"])
    cells = [["  " + p["what"], size(p["bytes"]), f"{100 * p['bytes'] / whole:.0f} %"] for p in rank["parts"]]
    name = rank["label"] if rank["label"] == str(rank["pid"]) else f"{rank['label']} {rank['pid']}"
    lines = [
        f"{style.title(name)}: {size(rank['rss'])} resident",
        table(cells, ["  part", "bytes", ""], style, right=("bytes", "")),
    ]
    if rank["gpu_tensor_bytes"]:
        lines.append(f"  tensors on GPUs: {size(rank['gpu_tensor_bytes'])}")
    for gpu in rank["cuda_allocator"]:
        lines += [_gpu_text(gpu), *(_blocks_text(b, style) for b in rank["gpu_blocks"] if b["device"] == gpu["device"])]
    return "\n".join(lines)


def _blocks_text(gpu: dict[str, Any], style: Style) -> str:
    cells = []
    for part in gpu["parts"]:
        name, note = OWNERS[part["owner"]]
        share = f"{100 * part['bytes'] / gpu['reserved_bytes']:.0f} %"
        pool = ",".join(map(str, part["pool"] or ()))
        cells.append(["    " + name.format(pool), size(part["bytes"]), share, note.format(size(gpu["largest_split_bytes"]))])
    return str(table(cells, ["    part", "bytes", "", " "], style, right=("bytes", "")))


def _gpu_text(gpu: dict[str, int]) -> str:
    return (
        f"  GPU {gpu['device']}: {size(gpu['allocated_bytes'])} allocated (peak {size(gpu['allocated_peak_bytes'])}), "
        f"{size(gpu['reserved_bytes'])} reserved (peak {size(gpu['reserved_peak_bytes'])}) in {gpu['segments']} segments; "
        f"{gpu['retries']} retries, {gpu['ooms']} out of memory"
    )
