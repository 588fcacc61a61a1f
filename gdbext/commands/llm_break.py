"""llm-break: stop at an attention kernel's launch."""

import os
import re

from ..errors import GdbextError, NotFoundError
from ..lazy import lazy_module
from ..render.jsonline import Address
from ..render.text import escape, seconds
from ..session.command import Answer, Command, Option, UsageError
from .llm_kernels import compiled

catalogues, points = lazy_module("kernels.catalogue"), lazy_module("control.kernel_breakpoints")
conditions = lazy_module("control.launch_conditions")

RESERVED = ("request", "step", "oom", "nan")


class LlmBreak(Command):
    """Stop the process where an attention kernel is launched; resumes nothing itself.

      (gdb) llm-break paged-attention                     whatever this engine computes attention with
      (gdb) llm-break paged_attention_v1_kernel if grid.y > 1 and args[4] == 8
      (gdb) llm-break request req-7      when that request was computed for the first time, and when it is freed
      (gdb) llm-break nan                when logits hold NaN or an infinity
      (gdb) llm-break oom                when the KV cache is full and a request's blocks are taken back, or an OutOfMemoryError is raised; also: step
      (gdb) llm-break -trace 20 reshape_and_cache_flash_kernel      log 20 launches, stop at none
      (gdb) continue
      (gdb) llm-launch                                    kernel, grid, stream and every argument of the launch stopped at

    NAME is a kernel's identifier, its qualified name, a regular expression of its whole name (llm-kernels shows them), or paged-attention. COND
    knows grid, block, cluster (each with x, y, z), stream, shared_bytes, name, args[i] and, where debug information names them, the arguments.
    gdb's own ignore, disable, enable and delete work on the numbers. Without NAME: what is set, and what looking at launches cost.

    In cuda-gdb it stops in the kernel itself (-host: at the launch, as everywhere else; stops on a GPU were never tried).

    The launch is on the host, before the GPU runs anything. Where the kernel has host code with symbols, launches of other kernels are not
    disturbed; otherwise each launch of the process is looked at for a moment. The replay of a CUDA graph passes no launch: run with
    enforce_eager (vLLM) or --disable-cuda-graph (SGLang). Nothing found: it waits for the library. -delete [NAME] takes it away, hidden parts
    and what waits included."""

    name = "llm-break"
    group = "kernels"
    operand = "[NAME [if COND]]"
    takes_target = False
    gdb_only = True
    options = (
        Option("rank", "str", "in this attached process instead of the selected one", metavar="R"),
        Option("trace", "int", "log N launches and go on instead of stopping", metavar="N"),
        Option("host", help="in cuda-gdb: at the launch, as in plain gdb, instead of in the kernel"),
        Option("delete", help="take NAME (or everything) away"),
    )

    def complete(self, session, text):
        return [catalogues.PAGED, *RESERVED] + sorted({k.kernel for k in catalogues.catalogue().kernels})

    def run(self, session, args):
        if not session.in_gdb:
            raise GdbextError("llm-break needs a process that gdb holds: run it inside gdb")
        name, condition = _split(args.operand_text)
        if args.delete:
            return _delete(name)
        if not name:
            return _list()
        if name.partition(" ")[0] in RESERVED:
            return _preset(session, args, name, condition)
        if args.trace is not None and args.trace < 1:
            raise UsageError(f"llm-break: -trace {args.trace}: how many launches is a number from 1 on")
        if condition:
            import ast

            try:
                ast.parse(conditions.prepared(condition), mode="eval")
            except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
                raise UsageError(f"llm-break: cannot parse the condition {condition!r}: {getattr(e, 'msg', e)}") from None
        if not points.catalogue.chosen([], name) and not re.fullmatch(r"[\w:-]+", name):
            compiled(name)
        return _place(session, args, name, condition)


def _preset(session, args, name, condition):
    """What the reserved names stand for: Python breakpoints, control/presets.py."""
    from ..control import presets
    from .pybreak import labels, set_text

    rows = [p.data() for p in presets.place(labels(session), name, condition, args.rank or "")]
    return Answer(
        {"breakpoints": [{**r, "kernel": None, "where": "host"} for r in rows]},
        lambda style: "\n".join(set_text(r, style) for r in rows),
    )


def _split(text):
    """`NAME if COND` -> (NAME, COND)"""
    found = re.match(r"(.*?)(?:\s+if\s+(.*))?$", text.strip(), re.S)
    name, condition = found.group(1).strip(), (found.group(2) or "").strip()
    if re.search(r"\sif$", text):
        raise UsageError("llm-break: there is nothing behind 'if'")
    return name.strip("'\""), condition


def _place(session, args, name, condition):
    inferior = session.attached_inferior(args.rank)
    watch = points.KernelBreakpoint(inferior, session.target_of_inferior, name, condition, args.trace or 0)
    partial, gates, rows = [], [], []
    device = session.sees_device() and not args.host
    if device and (condition or args.trace):
        raise UsageError(
            "llm-break: in cuda-gdb conditions and -trace are of the launch: add -host; in the kernel gdb's own 'condition N EXPR' works (slowly)"
        )
    with session.in_inferior(inferior):
        if inferior.pid:
            target = watch.target
            if not target.is_live:
                raise GdbextError(
                    f"{target.describe()} does not run: nothing can be stopped in it (llm-launch decodes a launch that its threads stood at)"
                )
            try:
                watch.rt = session.runtime() if args.rank is None else None
            except GdbextError:
                pass  # no Python there: then no Triton either
            rows, gates, unread = catalogues.search(target, None, watch.rt, conditions.word_of(name))
            if not catalogues.chosen(rows, name):  # a kernel that the catalogue does not know
                try:
                    rows = catalogues.search(target, re.compile(name), None)[0]
                except re.error:
                    pass
            if unread:
                partial.append(
                    f"{len(unread)} libraries could not be read: {', '.join(sorted(map(os.path.basename, unread))[:4])}"
                )
            if not device:
                watch.place(rows, gates)
                watch.wait_for_libraries()
        if device:
            watch.place_in_device(rows)
    points.add(watch)
    if not inferior.pid and not session.tells_of_libraries():
        partial.append(
            "auto-solib-add is off: gdb tells of no library of a process that does not run yet; give this again once it stands at main"
        )
    driver = any(r.kernel.launch == "driver" for r in watch.kernels)
    if driver and not any(points.launch.is_driver(g.entry) for g in watch.numbered):
        partial.append("no driver is loaded yet: kernels launched by it are waited for")
    data = {
        "name": name,
        "condition": condition or None,
        "pending": watch.pending,
        "breakpoints": _breakpoints(watch),
        "hidden": len(watch.internal),
        "kernels": len(watch.kernels),
    }

    def text(style):
        lines = []
        for b in data["breakpoints"]:
            at = f" at {style.address(hex(b['address']))}" if b["address"] is not None else f" {b['kernel']}"
            lines.append(
                f"Breakpoint {b['number']}{at}: {b['where']}" + (f" in {os.path.basename(b['library'])}" if b["library"] else "")
            )
        for row in watch.kernels[:24]:
            many = f", {row.instances} instances" if row.instances > 1 else ""
            lines.append(
                f"  {style.name(row.name)} ({row.kernel.backend or 'other'}{many}, {os.path.basename(row.library) or row.module})"
            )
        if len(watch.kernels) > 24:
            lines.append(f"  … {len(watch.kernels) - 24} more kernels")
        if watch.pending and watch.kernels:
            lines.append(
                "its GPU code is here, but neither its host code nor the runtime's launch functions have names (stripped, or not loaded yet): it waits for a library "
                "that has them"
            )
        elif watch.pending:
            lines.append(f"no library here has {name} yet: it is set when one that has it is loaded")
        if watch.by_name:
            lines.append(
                "every launch of the process is looked at for a moment (llm-break alone tells the cost): these kernels have no launching code with a name to stop at"
            )
        if any(g.entry for g in watch.numbered):
            lines.append(style.dim("host side, before the GPU runs; the replay of a CUDA graph passes no launch and is not seen"))
        return "\n".join(lines)

    return Answer(data, text, partial)


def _breakpoints(watch):
    kernels = list(dict.fromkeys(r.name for r in watch.kernels if r.kernel.launch != "cpu" and r.kernel.role != "launcher"))
    found = []
    for gate in watch.numbered:
        own = [points.signatures.parse(gate.symbol).name] if gate.symbol else kernels
        found.append(
            {
                "number": gate.number,
                "kernel": own[0] if len(own) == 1 else watch.name,
                "kernels": [escape(k) for k in own],
                "where": ("every launch through " if watch.always(gate) else "launches through ") + gate.entry
                if gate.entry
                else "function " + escape(own[0]),
                "address": Address(int(gate.location.lstrip("*"), 16)),
                "library": escape(gate.library),
            }
        )
    for b in watch.device:
        found.append(
            {
                "number": b.number,
                "kernel": points.signatures.parse(b.name).name,
                "where": "in the kernel, on the device",
                "address": None,
                "library": escape(b.library),
            }
        )
    return found


def _list():
    rows = [
        {
            "name": w.name,
            "condition": w.condition or None,
            "pending": w.pending,
            "done": w.done,
            "breakpoints": _breakpoints(w),
            "hidden": len(w.internal),
            "logged": len(w.logged),
            **w.cost(),
        }
        for w in points.breakpoints()
    ]

    def text(style):
        lines = []
        for r in rows:
            numbers = ", ".join(str(b["number"]) for b in r["breakpoints"]) or "pending"
            lines.append(
                f"{numbers}: {style.name(r['name'])}"
                + (f" if {r['condition']}" if r["condition"] else "")
                + (f", {r['logged']} logged" if r["logged"] else "")
            )
            lines.append("  " + cost_line(r))
        return "\n".join(lines) or "no llm-break is set"

    return Answer({"breakpoints": [b for r in rows for b in r["breakpoints"]], "set": rows}, text)


def cost_line(cost):
    """What looking at launches cost, in words."""
    if not cost["launches_looked_at"]:
        return "no launch was looked at yet"
    line = f"{cost['stops']} stops, {cost['launches_looked_at']} launches looked at, {seconds(cost['seconds_each'])} each in our hands"
    if cost["seconds_each_at_most"]:
        line += (
            f", {seconds(cost['seconds_each_at_most'])} from one to the next at best, gdb's own part and the program's included"
        )
    if cost["unnamed"]:
        line += f"; {cost['unnamed']} of functions whose name is not known went by (the driver handed them out before llm-break was set)"
    return line


def _delete(name):
    gone = [w for w in points.breakpoints() if not name or w.name == name]
    if name and not gone:
        raise NotFoundError(f"no llm-break {name} is set; set are: {', '.join(w.name for w in points.breakpoints()) or 'none'}")
    numbers = [g.number for w in gone for g in w.numbered]
    for watch in gone:
        watch.delete()
    return Answer({"deleted": numbers, "breakpoints": []}, f"{len(gone)} taken away")
