"""llm-memory: where the resident memory of each rank is."""

from __future__ import annotations

import time
from typing import Any

from ..access.files import reading as file_reading
from ..access.proc import ProcTarget
from ..answers import grow
from ..answers.each_node import FAILED
from ..answers.rank_memory import RANK, memory_of
from ..api import bundled_memory
from ..api.choosing import resolve_processes
from ..errors import GdbextError
from ..heap import grow_watch
from ..render import files
from ..render.fields import Field, Fields
from ..render.text import PLAIN, Style, size, table
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session
from ..torch import cuda_blocks

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
ANSWER = Fields(Field("ranks", [RANK]), Field("grow", [grow.GROW], "with -grow"), Field("failed", [FAILED]))
MOST = 16  # processes that -grow watches


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
    C++ holds count with malloc. WHAT as for llm-stacks; the processes are read while they run; of a bundle or box it is what was
    read when that was made.

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
    print(v.segment_plot(json.load(open('FILE'))))" > FILE.html

    -grow S watches the processes for S seconds, a minute say, and names what keeps growing: kind of memory, library, Python
    line, thread, since when, bytes a minute, and what part is given back. Nothing is stopped; it takes less than 1 % of a CPU.

      (gdb) llm-memory -grow 60 TP0
      TP0 4711: 2.1 GiB -> 2.5 GiB resident; 60 s watched, 0.4 s of CPU, nothing stopped
      a minute   memory     by                                           thread       since          given back
      401.2 MiB  anonymous  libucm.so.0 ucm_mmap, pull (transfer.py:88)  worker 4719  the beginning  0 %
      next: pybreak transfer.py:88: stops there (in gdb); llm-bt shows the native calls

    Where the kernel gives samples of page faults (perf_event_open: for whoever may trace the process, unless perf_event_paranoid
    is above 2 or a container forbids it) each has its native stack and its Python line. Else, or with -no-perf, the threads that
    take most are followed for moments in which they run: a line in which one's count of faults rises takes the memory. Their
    stacks, with what calls that have returned left there, show whose malloc or mmap took it (x86-64). That names fewer places
    than samples do; the answer says what it cannot see. Who touches memory first need not keep it: where it was given back and
    used again, the answer says who touched it, and that who keeps it is not known. What warms up, or is taken and given back,
    within the time is not named; what does so over a longer time needs a longer -grow. -o FILE writes a page with the curve
    then."""

    name = "llm-memory"
    fields = ANSWER
    tool = "memory"
    group = "tensors"
    operand = "[WHAT...]"
    completion = "what"
    options = (
        Option("o", "str", "write the GPUs' blocks as torch.cuda.memory._snapshot() has them", metavar="FILE", for_agents=False),
        Option("force", help="-o replaces a file that is there", for_agents=False),
        Option("grow", "float", "seconds to watch: which library and line grows", metavar="S"),
        Option("no-perf", help="-grow without samples of page faults", for_agents=False),
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
        if args.grow is not None:
            return _grow(session, args)
        for one in resolve_processes(session, args.operand_text):
            target = session.open(one)
            label = one.label or str(target.pid or one.core)
            try:
                row, why, snapshot = _bundled(one.core, label) or memory_of(target, label)
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


def _bundled(path: str, label: str) -> Any:
    """As `bundled_memory.read`; what cannot be shown is damage."""
    told = bundled_memory.read(path, label)
    with file_reading(path):
        if told is not None:
            _text(told[0], PLAIN)
    return told


def _grow(session: Session, args: Args) -> Answer:
    if not 5 <= args.grow <= 86400:
        raise UsageError("llm-memory: -grow takes 5 to 86400 seconds")
    failed: list[dict[str, Any]] = []
    watches: list[grow_watch.GrowWatch] = []
    began = time.process_time()
    for one in resolve_processes(session, args.operand_text):
        label = one.label or str(one.pid or one.core)
        try:
            if session.open(one).is_stopped or not one.pid:
                raise GdbextError("it is stopped: only a process that runs grows")
            if len(watches) >= MOST:
                raise GdbextError(f"-grow watches {MOST} processes")
            watches.append(grow_watch.GrowWatch(ProcTarget(one.pid), label, args.grow, not args.no_perf))
        except GdbextError as e:
            failed.append({"label": label, "pid": one.pid, "reason": str(e)})
    if not watches:
        raise GdbextError(failed[0]["reason"])
    grow_watch.run(watches, args.grow)
    rows = [watch.finish() for watch in watches]
    spent = time.process_time() - began
    found = [grow.grow_data(watch, own, spent) for watch, own in zip(watches, rows)]
    partial = [f"{f['label']}: {f['reason']}" for f in failed]
    partial += [f"{watch.label}: it ended while it was watched" for watch in watches if watch.ended]
    if args.o:
        with files.writing(args.o, "-o", args.force) as f:
            f.write(grow.page(found).encode())
    data = {"ranks": [], "grow": found, "failed": failed}
    return Answer(data, lambda style: "\n".join(grow.grow_text(r, style) for r in found), partial)


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
