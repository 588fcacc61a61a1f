"""llm-profile: the engine's own profiler, by its HTTP end points."""

from ..errors import GdbextError
from ..lazy import room
from ..render.text import escape
from .base import Answer, Command, UsageError

profiler = room("engines.profiler")


class LlmProfile(Command):
    """Start or stop the engine's own profiler, through the HTTP server of its ranks (the engine then writes its traces).

    Works on vLLM and SGLang, on all ranks of an engine at once; where the engine was started without its profiler, the answer says which
    setting turns it on. Nothing is attached or stopped.

        (gdb) llm-profile start all
        profiler started on TP0, TP1 (port 8000); traces land in /tmp/traces
        (gdb) llm-profile stop all

    Without a profiler: llm-stacks -samples 200 -folded FILE gives a flame graph of what the ranks do.
    """

    name = "llm-profile"
    group = "hang"
    operand = "start|stop [WHAT]"
    completes = "what"
    reads = False
    alone = True

    def run(self, session, args):
        verb, _, what = args.rest.partition(" ")
        if verb not in ("start", "stop"):
            raise UsageError(f"llm-profile: takes start or stop, not {verb!r}")
        ranks = [r for r in session.resolve(what.strip() or "all") if hasattr(r, "engine")]
        if not ranks:
            raise GdbextError(f"{what.strip() or 'this machine'} has no rank of an engine: see llm-ranks")
        port, folder = profiler.switch(ranks, verb)
        names = [r.label for r in ranks]
        data = {"ranks": [{"pid": r.pid, "label": r.label} for r in ranks], "port": port, "files": [folder] if folder else []}
        done = "started" if verb == "start" else "stopped"
        lands = f"; traces land in {escape(folder)}" if folder else "; where the traces land, the engine's log says"
        return Answer(data, f"profiler {done} on {', '.join(map(escape, names))} (port {port}){lands}")
