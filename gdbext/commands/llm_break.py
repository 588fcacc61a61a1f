"""llm-break: stop at an attention kernel's launch."""

from __future__ import annotations

import re
from typing import Any

from .. import log
from ..answers.breakpoints import BREAKPOINT, set_text
from ..answers.launches import ANSWER, PLACED, breakpoint_lines, breakpoint_rows, row_lines
from ..api.choosing import view_of
from ..control import launch_conditions as conditions
from ..errors import GdbextError, NotFoundError
from ..kernels import catalogue as catalogues
from ..render.text import Style
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.gdb_only import PENDING, labels_of_attached, require_gdb
from ..session.optional_packages import need
from ..session.session import Session

RESERVED = ("request", "step", "oom", "nan")


class LlmBreak(Command):
    """Stop the process where an attention kernel is launched; resumes nothing itself.

      (gdb) llm-break paged-attention                     whatever this engine computes attention with
      (gdb) llm-break paged_attention_v1_kernel if grid.y > 1 and args[4] == 8
      (gdb) llm-break request req-7      when that request was computed for the first time, and when it is freed
      (gdb) llm-break nan                when logits hold NaN or an infinity; after that, at the first module with a NaN
      (gdb) llm-break -layers nan        at the first module of a step that returns a NaN, with its inputs; any torch program
      (gdb) llm-break oom                when blocks are taken back from a request, or an OutOfMemoryError is raised; also: step
      (gdb) llm-break -trace 20 reshape_and_cache_flash_kernel      log 20 launches, stop at none
      (gdb) continue
      (gdb) llm-launch                                    kernel, grid, stream and every argument of the launch stopped at

    NAME is a kernel's identifier, its qualified name, a regular expression of its whole name (llm-kernels shows them), or
    paged-attention. COND knows grid, block, cluster (each with x, y, z), stream, shared_bytes, name, args[i] and, where debug
    information names them, the arguments. gdb's own ignore, disable, enable and delete work on the numbers. Without NAME: what is
    set, and what looking at launches cost.

    In cuda-gdb it stops in the kernel itself (-host: at the launch, as everywhere else); paged-attention is there what Triton has
    loaded, else the engine's own libraries, their instances for the KV cache's head size and type.

    The launch is on the host, before the GPU runs anything. Where the kernel has host code with symbols, launches of other
    kernels are not disturbed; otherwise each launch of the process is looked at for a moment. The replay of a CUDA graph passes
    no launch: run with enforce_eager (vLLM) or --disable-cuda-graph (SGLang). Nothing found: it waits for the library. -delete
    [NAME] takes it away, hidden parts and what waits included."""

    name = "llm-break"
    group = "kernels"
    fields = ANSWER
    operand = "[NAME [if COND]]"
    takes_target = False
    gdb_only = True
    options = (
        Option("on", "str", "in this attached process instead of the selected one", metavar="WHAT", was="rank"),
        Option("trace", "int", "log N launches instead of stopping", metavar="N"),
        Option("layers", help="with nan: check what each torch.nn.Module returns, from now on (about 1 ms for each call)"),
        Option("host", help="in cuda-gdb: at the launch, as in plain gdb, instead of in the kernel"),
        PENDING,
        Option("delete", help="remove NAME (or all)"),
    )

    def complete(self, session: Session, text: str) -> list[str]:
        return [catalogues.PAGED, *RESERVED] + sorted({k.kernel for k in catalogues.catalogue().kernels})

    def run(self, session: Session, args: Args) -> Answer:
        kernel_breakpoints = require_gdb(session, "kernel_breakpoints")
        name, condition = _split(args.operand_text)
        if args.delete:
            return _delete(session, kernel_breakpoints, args.operand_text)
        if not name:
            kernel_breakpoints.sweep()
            rows = breakpoint_rows(kernel_breakpoints.breakpoints())
            presets = [p.data() for p in require_gdb(session, "pybreak").listed() if p.command == "llm-break"]
            found = [b for r in rows for b in r["breakpoints"]] + [_preset_data(p) for p in presets]

            def text(style: Style) -> str:
                lines = row_lines(rows, style) + [set_text(p, style) + f", {p['hits']} hits" for p in presets]
                return "\n".join(lines) or "no llm-break is set"

            return Answer(self.fields.of(breakpoints=found, set=rows), text)
        if args.layers and name != "nan":
            raise UsageError("llm-break: -layers goes with nan: llm-break -layers nan")
        if name.partition(" ")[0] in RESERVED:
            return _preset(session, args, name, condition)
        _check(args, name, condition)
        if not args.pending:
            _refuse_typo(name)
        device = session.sees_device() and not args.host
        if device and (condition or args.trace):
            raise UsageError(
                "llm-break: in cuda-gdb conditions and -trace are of the launch: add -host; in the kernel gdb's own 'condition N "
                "EXPR' works (slowly)"
            )
        inferior = session.attached_inferior(args.on)
        one = kernel_breakpoints.KernelBreakpoint(inferior, session.target_of_inferior, name, condition, args.trace or 0)
        partial = require_gdb(session, "kernel_placing").place(one, (lambda: _kv_shape(session, args)) if device else None)
        data = PLACED.data(one)
        return Answer(data, lambda style: "\n".join(breakpoint_lines(one, data, style)), partial)


def _kv_shape(session: Session, args: Args) -> tuple[int, str] | None:
    """(head size, dtype) of the KV cache of the engine that is stopped; None where it cannot be read."""
    try:
        view = view_of(session, args, session.target())
        sizes = [group.spec.get("head_size") for group in view.cache(as_read=True).groups]
        dtypes = [layer.dtype for worker in view.workers() for layer in worker.layers]
    except GdbextError as e:
        log.passed_over(e)
        return None
    return (sizes[0], dtypes[0]) if sizes and sizes[0] and dtypes else None


def _check(args: Args, name: str, condition: str) -> None:
    """Raises `UsageError` for a count, condition or regular expression that is none."""
    if args.trace is not None and args.trace < 1:
        raise UsageError(f"llm-break: -trace {args.trace}: how many launches is a number from 1 on")
    if condition:
        from ..cpython.expressions import syntax_tree  # here: it takes long to load, and few conditions are given

        try:
            syntax_tree(conditions.prepared(condition))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as e:
            raise UsageError(f"llm-break: cannot parse the condition {condition!r}: {getattr(e, 'msg', e)}") from None
    if not catalogues.chosen([], name) and not re.fullmatch(r"[\w:-]+", name):
        try:
            re.compile(name)
        except re.error as e:
            raise UsageError(f"llm-break: {name!r} is no regular expression: {e}") from None


def _refuse_typo(name: str) -> None:
    """Raises `NotFoundError` for what is nearly one of our own names, which no kernel has."""
    import difflib  # here: it takes long to load

    near = difflib.get_close_matches(name, [catalogues.PAGED, *RESERVED], 1, 0.75)
    if near and near[0] != name:
        raise NotFoundError(f"llm-break {name}: is {near[0]} meant? -pending waits for a kernel that is called so")


def _preset_data(preset: dict[str, Any]) -> dict[str, Any]:
    return BREAKPOINT.of(**preset, kernel=None, where="host")


def _preset(session: Session, args: Args, name: str, condition: str) -> Answer:
    """What the reserved names stand for: Python breakpoints, control/presets.py."""
    presets, labels = require_gdb(session, "presets"), labels_of_attached(session)
    if args.layers:
        need("numpy", "llm-break -layers")
        found = presets.place_in_modules(labels, condition, args.on or "")
    else:
        found = presets.place(labels, name, condition, args.on or "")
    rows = [p.data() for p in found]
    return Answer(
        LlmBreak.fields.of(breakpoints=[_preset_data(r) for r in rows]),
        lambda style: "\n".join(set_text(r, style) for r in rows),
    )


def _split(text: str) -> tuple[str, str]:
    """`NAME if COND` -> (NAME, COND)"""
    found = re.match(r"(.*?)(?:\s+if\s+(.*))?$", text.strip(), re.S)
    name, condition = (found[1].strip(), (found[2] or "").strip()) if found else (text.strip(), "")
    if re.search(r"\sif$", text):
        raise UsageError("llm-break: there is nothing behind 'if'")
    return name.strip("'\""), condition


def _delete(session: Session, kernel_breakpoints: Any, name: str) -> Answer:
    """Those at kernels, and those of the reserved names."""
    pybreak = require_gdb(session, "pybreak")
    kernel_breakpoints.sweep()
    found = kernel_breakpoints.breakpoints()
    gone = [one for one in found if not name or name in (one.name, *(str(b.number) for b in one.numbered))]
    presets = [p for p in pybreak.of_command("llm-break") if not name or name in p.names or name == p.preset.partition(" ")[0]]
    if name and not gone and not presets:
        there = [one.name for one in found] + [p.preset for p in pybreak.of_command("llm-break")]
        raise NotFoundError(f"no llm-break {name} is set; set are: {', '.join(dict.fromkeys(there)) or 'none'}")
    numbers = [b.number for one in gone for b in one.numbered] + [p.number for p in presets]
    for one in gone:
        one.delete()
    for point in presets:
        point.take_back()
    return Answer(LlmBreak.fields.of(deleted=numbers, breakpoints=[]), f"{len(gone) + len(presets)} taken away")
