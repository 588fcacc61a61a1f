"""llm-focus and llm-step: the block that works on a sequence and a head, in cuda-gdb."""

import re

from ..errors import GdbextError, NotFoundError
from ..lazy import lazy_module
from ..render.jsonline import Address
from ..render.text import escape
from ..session.command import Answer, Command, Option, UsageError

catalogues, rules, signatures = lazy_module("kernels.catalogue"), lazy_module("kernels.focus"), lazy_module("kernels.signatures")
parameters, triton = lazy_module("kernels.parameters"), lazy_module("kernels.triton")
cuda = lazy_module("control.cudagdb")

KINDS = ("line", "instruction", "kv-block")


def rule_of(name):
    """The catalogue's entry of a running kernel, by the name that cuda-gdb gives; None where it has none."""
    signature = signatures.parse(name)
    book = catalogues.catalogue()
    found = [k for k in book.kernels if k.role != "launcher" and k.fits(signature)] or book.named(signature.base)
    return next((k for k in found if k.focus), found[0] if found else None)


def chosen(device, number):
    """(`Running`, its catalogue entry): the one asked for, in focus, or the first that the catalogue has a rule for."""
    running = device.kernels()
    if not running:
        raise NotFoundError(
            "no kernel is on the device: stop in one (cuda-gdb: set cuda break_on_launch application; llm-break; target cudacore FILE)"
        )
    if number is not None:
        running = [k for k in running if k.id == number]
        if not running:
            raise NotFoundError(
                f"there is no kernel {number}; there are {', '.join(str(k.id) for k in device.kernels())} (info cuda kernels)"
            )
    running.sort(key=lambda k: not k.current)
    for kernel in running:
        entry = rule_of(kernel.name)
        if entry is not None and entry.focus:
            return kernel, entry
    return running[0], rule_of(running[0].name)


def triples(t):
    return "({},{},{})".format(*t)


class LlmFocus(Command):
    """In cuda-gdb: focus the block of the running attention kernel that works on a sequence and a head, with the arithmetic shown.

      (cuda-gdb) llm-focus -seq 3 -head 5
      vllm::paged_attention_v1_kernel<float, 64, 16>  kernel 0, grid (8,4,1)
        x = head = 5
        y = sequence = 3
      block (5,3,0) thread (0,0,0)  device 0 sm 0 warp 2 lane 0

    -seq counts sequences in the batch as the kernel sees it. Which request a block serves is looked up where the kernel does: FlashInfer's request_indices is
    found in its parameters, Triton's query_start_loc, BLOCK_Q and heads in its parameters and the objects that Triton keeps in the process; where these are
    not to be had (a GPU core alone has no Python), -table, -block-q, -queries-per-kv and -heads tell them. Persistent kernels (FlashAttention 3) map no block
    to a sequence. Nothing is resumed. In plain gdb: refused, it does not see the GPU."""

    name = "llm-focus"
    group = "kernels"
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

    def run(self, session, args):
        device = session.device()
        for name in ("seq", "head"):
            value = getattr(args, name)
            if value is None or value < 0:
                raise UsageError("llm-focus: give -seq S and -head H, both from 0, such as: llm-focus -seq 3 -head 5")
        if args.part is not None and args.part < 0:
            raise UsageError(f"llm-focus: -part {args.part} is negative")
        for name in ("heads", "queries_per_kv", "block_q"):
            if getattr(args, name) is not None and getattr(args, name) < 1:
                raise UsageError(f"llm-focus: -{name.replace('_', '-')} is a number from 1 on")
        if args.table is not None and not re.fullmatch(r"0x[0-9a-fA-F]{1,16}", args.table):
            raise UsageError(f"llm-focus: -table {args.table}: give an address such as 0x7f2000000000")
        kernel, entry = chosen(device, args.kernel)
        if entry is None or not entry.focus:
            raise NotFoundError(
                f"{escape(kernel.name)}: how its blocks are laid out is not known: focus a block by number with: cuda block (x,y,z)"
            )
        if not kernel.current:
            device.execute("cuda kernel {}", kernel.id)  # its parameters are those of the kernel in focus
        question = rules.Question(
            args.seq,
            args.head,
            args.part,
            kernel.grid,
            args.heads,
            args.queries_per_kv,
            args.block_q,
            int(args.table, 16) if args.table else None,
            device.read,
            lambda: parameters.read(device),
            lambda: triton_facts(session, device, kernel),
            device.variable,
            kernel.name,
        )
        block, lines = rules.block_of(entry.focus, question)
        now = device.set_focus(kernel.id, block)
        data = {
            "kernel": escape(kernel.name),
            "number": kernel.id,
            "grid": kernel.grid,
            "block": block,
            "thread": now.thread,
            "arithmetic": lines,
            "device": now.device,
            "sm": now.sm,
            "warp": now.warp,
            "lane": now.lane,
        }

        def text(style):
            head = f"{style.name(data['kernel'])}  kernel {kernel.id}, grid {triples(kernel.grid)}"
            return "\n".join(
                [head]
                + ["  " + line for line in lines]
                + [
                    f"block {triples(block)} thread {triples(now.thread)}  device {now.device} sm {now.sm} "
                    f"warp {now.warp} lane {now.lane}"
                ]
            )

        return Answer(data, text)


def triton_facts(session, device, kernel):
    """The `parameters.Facts` of a kernel that Triton compiled."""
    name = signatures.parse(kernel.name).base
    try:
        own = [c for c in triton.compiled(session.runtime()).values() if c.name == name]
    except GdbextError as e:
        return parameters.Facts(
            why=f"what was compiled in is in Triton's own objects, and there is no Python to read them from ({e})"
        )
    try:
        data = parameters.read(device)
    except GdbextError:
        data = b""
    return parameters.Facts([parameters.of_triton(c, data) for c in own], f"Triton has no compiled kernel {name} in this process")


class LlmStep(Command):
    """In cuda-gdb: step the focused warp; resumes the GPU. Then say where it is: warp, active lanes, sequence, head, KV block.

      (cuda-gdb) llm-step                 one source line, where the device code has lines; else one instruction, and it says so
      (cuda-gdb) llm-step instruction
      (cuda-gdb) llm-step kv-block        on until this warp comes by here again: the next turn of the loop over KV blocks
      warp 2 of SM 0 stepped, 32 lanes active   block (5,3,0): sequence 3, head 5   KV block 7

    A step is of a whole warp: its active lanes advance together, divergent ones wait. The wheels of the engines hold no device lines: build with
    NVCC_PREPEND_FLAGS=-lineinfo to have them; the KV block is told where a variable block_idx can be read (-G). Not tried on a real GPU yet."""

    name = "llm-step"
    group = "kernels"
    operand = "[line|instruction|kv-block]"
    takes_target = False
    gdb_only = True
    resumes = True

    def complete(self, session, text):
        return list(KINDS)

    def run(self, session, args):
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
        return stepped(device, focus, found[0])


def stepped(device, focus, kind):
    """One step of a `CudaGdb` whose focus is `focus`; -> `Answer`."""
    said = ""
    if kind == "line" and not device.has_lines():
        kind, said = "instruction", "the device code has no lines: one instruction instead"
    if kind == "line":
        device.execute("step")
    elif kind == "instruction":
        device.execute("stepi")
    else:
        where = " && ".join(
            f"{name}.{axis} == {at}"
            for name, t in (("blockIdx", focus.block), ("threadIdx", focus.thread))
            for axis, at in zip("xyz", t)
        )
        device.execute("tbreak *{} if {}", hex(device.pc()), where)
        device.execute("continue")
    now = device.focus()
    if now is None:
        return Answer(
            {"kernel": None, "block": None, "thread": None, "ended": True, "step": kind},
            "the kernel has ended: the focus is on the host",
            [said] if said else [],
        )
    kernel = next((k for k in device.kernels() if k.id == now.kernel), None)
    entry = rule_of(kernel.name) if kernel is not None else None
    on = rules.works_on(entry.focus, now.block) if entry is not None else {}
    lanes = device.warp(now)
    data = {
        "kernel": escape(kernel.name) if kernel else None,
        "block": now.block,
        "thread": now.thread,
        "ended": False,
        "step": kind,
        "pc": Address(device.pc() or 0),
        "sm": now.sm,
        "warp": now.warp,
        "active_lanes": bin(lanes[0]).count("1") if lanes else None,
        "sequence": on.get("seq"),
        "head": on.get("head"),
        "part": on.get("part"),
        "kv_block": device.variable("block_idx"),
    }

    def text(style):
        place = "".join(f", {name} {data[name]}" for name in ("sequence", "head", "part") if data[name] is not None)
        active = f", {data['active_lanes']} lanes active" if lanes else ""
        kv = f"   KV block {data['kv_block']}" if data["kv_block"] is not None else ""
        return f"warp {now.warp} of SM {now.sm} stepped{active}   block {triples(now.block)}{place}{kv}   pc {style.address(hex(data['pc']))}"

    return Answer(data, text, [said] if said else [])
