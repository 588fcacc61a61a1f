"""llm-profile: the engine's own profiler, by its HTTP end points."""

from __future__ import annotations

from typing import Any

from ..engines import processes, profiler
from ..errors import GdbextError
from ..render.fields import NUMBER, Field, Fields
from ..render.text import escape
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session


class LlmProfile(Command):
    """Start or stop the engine's own profiler, through the HTTP server of its ranks (the engine then writes its traces).

    vLLM and SGLang, each on all ranks of the engine that WHAT belongs to: their end points know no choice. Where the engine was
    started without its profiler, the answer says which setting turns it on. Nothing is attached or stopped.

    The options go with start, to engines whose end point takes them: SGLang all, vLLM -steps; one that is not taken is refused
    by name.

        (gdb) llm-profile start TP0
        profiler started on TP0, TP1 (port 8000); traces land in /tmp/traces
        (gdb) llm-profile stop TP0
        profiler stopped on TP0, TP1 (port 8000); traces in /tmp/traces:
          /tmp/traces/rank0.1763749000.pt.trace.json.gz

        (gdb) llm-profile start sglang:TP0 -activities CPU,GPU -steps 10 -o /tmp/traces

    Without a profiler: llm-stacks -samples 200 -folded FILE gives a flame graph of what the ranks do.
    """

    name = "llm-profile"
    group = "time"
    fields = Fields(
        Field("ranks", [Fields(Field("pid", int), Field("label", str))]),
        Field("port", NUMBER),
        Field("files", [str], "the traces, or their folder"),
    )
    operand = "start|stop [WHAT]"
    completion = "what"
    takes_target = False
    standalone = True
    options = (
        Option(
            "activities", "str", "what to record, such as CPU,GPU, and what else its end point knows (MEM, RPD)", metavar="LIST"
        ),
        Option("steps", "int", "end by itself after so many steps of the engine", metavar="N"),
        Option("o", "str", "the folder for the traces, as the engine's processes name it", metavar="DIR"),
        Option("stage", help="prefill and decode apart, -steps N of each"),
    )

    def run(self, session: Session, args: Args) -> Answer:
        verb, _, what = args.operand_text.partition(" ")
        if verb not in ("start", "stop"):
            given = f", not {verb!r}" if verb else ""
            raise UsageError(f"llm-profile: takes start or stop{given}, then a process of the engine: llm-profile start TP0")
        ranks = processes.ranks_of(session.resolve(what.strip() or "all"))
        if not ranks:
            raise GdbextError(f"{what.strip() or 'this machine'} has no rank of an engine: see llm-ranks")
        chosen = _chosen(args)
        if chosen and verb == "stop":
            raise UsageError(f"llm-profile: {', '.join('-' + name for name in chosen)} goes with start")
        done, failed = profiler.switch(ranks, session.ranks, verb, chosen)
        data = self.fields.of(
            ranks=[{"pid": r.pid, "label": r.label} for one in done for r in one.ranks],
            port=done[0].port,
            files=[f for one in done for f in one.files or [one.folder] if f],
        )
        return Answer(data, "\n".join(result_text(one, verb, chosen) for one in done), failed)


def _chosen(args: Args) -> dict[str, Any]:
    """{option: value} of those that were given."""
    if args.steps is not None and args.steps < 1:
        raise UsageError("llm-profile: -steps is 1 or more")
    if args.stage and args.steps is None:  # scheduler_components/profiler_manager.py: it adds 1 to a count that is None then
        raise UsageError("llm-profile: -stage goes with -steps N, of each stage: without it its scheduler dies of an error")
    given = {
        "activities": args.activities and args.activities.upper().split(","),
        "steps": args.steps,
        "o": args.o,
        "stage": args.stage,
    }
    return {name: value for name, value in given.items() if value}


def result_text(one: Any, verb: str, chosen: dict[str, Any] | None = None) -> str:
    """What came of one engine, in words. `chosen`: the options that were given."""
    steps, by_stage = (chosen or {}).get("steps"), (chosen or {}).get("stage")
    ends = f"; it ends by itself after {steps} steps{' of each stage' * bool(by_stage)}" if steps else ""
    labels = ", ".join(escape(r.label) for r in one.ranks)
    text = f"profiler {'started' if verb == 'start' else 'stopped'} on {labels} (port {one.port}); "
    if not one.folder:
        return text + "where the traces land, the engine's log says" + ends
    if verb == "start":
        return text + f"traces land in {escape(one.folder)}{ends}"
    return "\n  ".join([text + f"traces in {escape(one.folder)}" + ":" * bool(one.files), *map(escape, one.files)])
