"""llm-focus and llm-step: the block that works on a sequence and a head, in cuda-gdb."""

from __future__ import annotations

import re
from typing import Any

from ..errors import GdbextError
from ..render.fields import NUMBER, TEXT, Field, Fields, each
from ..render.text import Style
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.gdb_only import require_gdb
from ..session.session import Session

_EXTENT = ([int], None)
FOCUSED = Fields(
    *each(TEXT, "kernel"),
    Field("number", int, "cuda-gdb's, of the kernel"),
    *each(_EXTENT, "grid block thread"),
    Field("arithmetic", [str], "how the block follows"),
    *each(NUMBER, "device sm warp lane"),
)
STEPPED = Fields(
    *each(TEXT, "kernel"),
    *each(_EXTENT, "block thread"),
    Field("ended", bool, "the kernel has"),
    Field("step", str, "`line`, `instruction` or `kv-block`"),
    Field("pc", str),
    *each(NUMBER, "sm warp active_lanes"),
    *each(NUMBER, "sequence head part", means="that the block works on"),
    Field("kv_block", NUMBER),
)
KINDS = ("line", "instruction", "kv-block")


def triples(t: tuple[int, int, int]) -> str:
    """(x,y,z) as cuda-gdb writes it."""
    return "({},{},{})".format(*t)


class LlmFocus(Command):
    """In cuda-gdb: focus the block of the running attention kernel that works on a sequence and a head.

      (cuda-gdb) llm-focus -seq 3 -head 5
      vllm::paged_attention_v1_kernel<float, 64, 16>  kernel 0, grid (8,4,1)
        x = head = 5
        y = sequence = 3
      block (5,3,0) thread (0,0,0)  device 0 sm 0 warp 2 lane 0

    -seq counts sequences in the batch as the kernel sees it. Which request a block serves is looked up where the kernel does:
    FlashInfer's request_indices is found in its parameters, Triton's query_start_loc, BLOCK_Q and heads in its parameters and the
    objects that Triton keeps in the process; where these are not to be had (a GPU core alone has no Python), -table, -block-q,
    -queries-per-kv and -heads tell them. Persistent kernels (FlashAttention 3, FlashInfer's plans, FlashMLA) map no block to a
    sequence: refused, with the reason. Nothing is resumed. In plain gdb: refused, it does not see the GPU."""

    name = "llm-focus"
    group = "kernels"
    fields = FOCUSED
    takes_target = False
    gdb_only = True
    options = (
        Option("seq", "int", "sequence in the batch, from 0", metavar="S"),
        Option("head", "int", "attention head of the query, from 0", metavar="H"),
        Option("part", "int", "partition, KV split, segment or block of query rows, from 0", metavar="P"),
        Option("kernel", "int", "cuda-gdb's number of the kernel instead of the one in focus", metavar="K"),
        Option("heads", "int", "query heads of the model on this rank, where a block has several", metavar="N"),
        Option("queries-per-kv", "int", "query heads to a KV head", metavar="N"),
        Option("block-q", "int", "query rows in a block of Triton's unified attention", metavar="N"),
        Option("table", "str", "device address of the kernel's index array", metavar="ADDR"),
    )

    def run(self, session: Session, args: Args) -> Answer:
        device = session.device()
        _check(args)
        asked = {
            "seq": args.seq,
            "head": args.head,
            "part": args.part,
            "heads": args.heads,
            "queries": args.queries_per_kv,
            "rows": args.block_q,
            "table": int(args.table, 16) if args.table else None,
        }
        data = require_gdb(session, "device_stepping").focus_on(device, args.kernel, asked, session.runtime)

        def text(style: Style) -> str:
            head = f"{style.name(data['kernel'])}  kernel {data['number']}, grid {triples(data['grid'])}"
            place = f"block {triples(data['block'])} thread {triples(data['thread'])}"
            hardware = "  ".join(["", f"device {data['device']} sm {data['sm']} warp {data['warp']} lane {data['lane']}"])
            return "\n".join([head, *("  " + line for line in data["arithmetic"]), place + hardware])

        return Answer(data, text)


def _check(args: Args) -> None:
    """Raises `UsageError` for numbers that are none of what they stand for."""
    if any(value is None or value < 0 for value in (args.seq, args.head)):
        raise UsageError("llm-focus: give -seq S and -head H, both from 0, such as: llm-focus -seq 3 -head 5")
    if args.part is not None and args.part < 0:
        raise UsageError(f"llm-focus: -part {args.part} is negative")
    for name in ("heads", "queries_per_kv", "block_q"):
        if getattr(args, name) is not None and getattr(args, name) < 1:
            raise UsageError(f"llm-focus: -{name.replace('_', '-')} is a number from 1 on")
    if args.table is not None and not re.fullmatch(r"0x[0-9a-fA-F]{1,16}", args.table):
        raise UsageError(f"llm-focus: -table {args.table}: give an address such as 0x7f2000000000")


class LlmStep(Command):
    """In cuda-gdb: step the focused warp; resumes the GPU. Then say where it is: warp, active lanes, sequence, head, KV block.

      (cuda-gdb) llm-step                 one source line, where the device code has lines; else one instruction, and it says so
      (cuda-gdb) llm-step instruction
      (cuda-gdb) llm-step kv-block        on until this warp comes by here again: the next turn of the loop over KV blocks
      warp 2 of SM 0 stepped, 32 lanes active   block (5,3,0): sequence 3, head 5   KV block 7

    A step is of a whole warp: its active lanes advance together, divergent ones wait. The wheels of the engines hold no device
    lines: build with NVCC_PREPEND_FLAGS=-lineinfo to have them; the KV block is told where a variable block_idx can be read
    (-G)."""

    name = "llm-step"
    group = "kernels"
    fields = STEPPED
    operand = "[line|instruction|kv-block]"
    takes_target = False
    gdb_only = True
    resumes = True

    def run(self, session: Session, args: Args) -> Answer:
        kind = args.operand_text or "line"
        found = [k for k in KINDS if k.startswith(kind)]
        if len(found) != 1:
            raise UsageError(f"llm-step: {kind!r} is none of {', '.join(KINDS)}")
        device = session.device()
        focus = device.focus()
        if focus is None:
            raise GdbextError("the focus is on the host: llm-focus a block of a running kernel first")
        if device.is_core():
            raise GdbextError("a GPU core cannot be stepped: it is what was there when it was written")
        data, reason = require_gdb(session, "device_stepping").step(device, focus, found[0])
        return Answer(data, lambda style: step_text(data, style), [reason] if reason else [])


def step_text(data: dict[str, Any], style: Style) -> str:
    """Where a step ended, in one line."""
    if data["ended"]:
        return "the kernel has ended: the focus is on the host"
    place = "".join(f", {name} {data[name]}" for name in ("sequence", "head", "part") if data[name] is not None)
    active = f", {data['active_lanes']} lanes active" if data["active_lanes"] is not None else ""
    kv = f"   KV block {data['kv_block']}" if data["kv_block"] is not None else ""
    head = f"warp {data['warp']} of SM {data['sm']} stepped{active}   block {triples(data['block'])}{place}{kv}"
    return f"{head}   pc {style.address(hex(data['pc']))}"
