"""llm-memory: where the resident memory of each rank is."""

from __future__ import annotations

from ..access.retry import retry_reading
from ..errors import GdbextError
from ..lazy import lazy_module
from ..render.text import escape, size, table
from ..session.command import Answer, Command
from ..session.process_selection import resolve_processes

census, resident, runtimes = lazy_module("torch.census"), lazy_module("heap.resident"), lazy_module("cpython.runtime")
cuda_allocator = lazy_module("torch.cuda_allocator")

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ..access.base import Target
    from ..cpython.runtime import Runtime
    from ..render.text import Style
    from ..session.command import Args
    from ..session.session import Session
    from ..torch.census import Found


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
    how often it gave its cache back to go on (retries) and ran out of memory. They are read from torch 2.1 to 2.14 on x86-64;
    another allocator (cudaMallocAsync, one of the engine's own) is named. torch's CPU allocator keeps no counters.

        GPU 0: 218.3 MiB allocated (peak 293.7 MiB), 322.0 MiB reserved (peak 322.0 MiB) in 20 segments;
        0 retries, 0 out of memory"""

    name = "llm-memory"
    group = "ranks"
    operand = "[WHAT...]"
    completion = "what"
    takes_target = False
    standalone = True

    def run(self, session: Session, args: Args) -> Answer:
        ranks, partial, failed = [], [], []
        for one in resolve_processes(session, args.operand_text):
            target = session.open(one)
            label = getattr(one, "label", "") or str(target.pid or one)
            try:
                row, why = _rank(session, target, label)
            except GdbextError as e:
                failed.append({"label": label, "pid": target.pid, "reason": str(e)})
                continue
            ranks.append(row)
            partial += session.partial(target) + [f"{label}: {reason}" for reason in why]
        if not ranks:
            raise GdbextError(failed[0]["reason"])
        partial += [f"{f['label']}: {f['reason']}" for f in failed]
        return Answer({"ranks": ranks, "failed": failed}, lambda style: "\n".join(_text(r, style) for r in ranks), partial)


def _rank(session: Session, target: Target, label: str) -> tuple[dict[str, Any], list[str]]:
    """One rank's row, and why it is not whole."""
    why: list[str] = []
    rt, found = None, []
    try:
        rt = runtimes.open_runtime(target)
        if rt.module("torch") is not None:
            found, why = retry_reading(target, lambda: _tensors(rt))
    except GdbextError as e:
        why.append(f"its CPU tensors are counted with malloc: {e}" + ("" if target.is_stopped else ": it runs on, ask again"))
    rss, parts = resident.parts(target, rt, found)
    gpu = sum({f.tensor.storage: f.tensor.storage_bytes or 0 for f in found if f.tensor.device.startswith("cuda")}.values())
    rows = [{"what": what, "bytes": count} for what, count in parts.items()]
    row = {"label": escape(label), "pid": target.pid, "rss": rss, "parts": rows, "gpu_tensor_bytes": gpu, "cuda_allocator": []}
    try:
        row["cuda_allocator"] = cuda_allocator.read(target, rt)
    except GdbextError as e:
        why.append(escape(str(e)))
    return row, why


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
    return "\n".join(lines + [_gpu_text(g) for g in rank["cuda_allocator"]])


def _gpu_text(gpu: dict[str, int]) -> str:
    return (
        f"  GPU {gpu['device']}: {size(gpu['allocated_bytes'])} allocated (peak {size(gpu['allocated_peak_bytes'])}), "
        f"{size(gpu['reserved_bytes'])} reserved (peak {size(gpu['reserved_peak_bytes'])}) in {gpu['segments']} segments; "
        f"{gpu['retries']} retries, {gpu['ooms']} out of memory"
    )
