"""pythreads: Python's threads, and who holds and who waits for the GIL."""

from __future__ import annotations

from typing import Any

from ..cpython.runtime import Runtime
from ..errors import GdbextError
from ..observe import gil_samples
from ..render.text import Style, escape, table
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session
from ..stacks import threads
from ..stacks.ending import daemons

MAX_SAMPLES = 100_000


class PyThreads(Command):
    """List the Python threads: who holds the GIL, who waits for it, and where each one is.

        (gdb) pythreads
          tid  name       GIL   state at
        > 4123 MainThread waits S     run_busy_loop (vllm/v1/engine/core.py:1203)
          4140 monitor    holds R     spin (vllm/monitor.py:12)

      GIL: holds, waits, none (it neither has nor wants it now), disabled (a free-threaded build), unknown. A waiter is known by
      the address of its futex call; in a running process a thread between two states is unknown.
    -samples N samples a running process N times, without stopping it, and names the threads that wait and never get the GIL."""

    name = "pythreads"
    group = "python"
    options = (
        Option("samples", "int", "sample a running process N times: threads that never get the GIL", 0, "N"),
        Option("interval", "float", "seconds between two samples, on average", 0.005, "S"),
    )

    def run(self, session: Session, args: Args) -> Answer:
        if not 0 <= args.samples <= MAX_SAMPLES or not 0 <= args.interval <= 10:
            raise UsageError(f"pythreads: -samples is 0 to {MAX_SAMPLES}, -interval 0 to 10 seconds")
        if args.samples and args.still:
            raise UsageError("pythreads: -samples watches the process run, -still reads one moment of it: leave one out")
        rt = session.runtime(args.on)
        target, partial = rt.target, session.partial(rt.target)
        views = [v for v in threads.read_threads(target, rt, partial, native=False, unmatched=True) if v.py is not None]
        partial += threads.reasons_of(views)
        daemon = daemons(rt)
        found = [_thread(view, daemon) for view in views]
        unknown = sum(th["gil"] == "unknown" for th in found)
        if unknown and target.pid is not None and not target.is_stopped:
            partial.append(f"{unknown} of {len(found)} threads moved in each sample: llm-snapshot's file shows what they want")
        elif unknown:
            partial.append("which threads wait for the GIL is not known: neither registers nor /proc say what they wait on")
        data = {"threads": found, "holder": next((th["tid"] for th in found if th["gil"] == "holds"), None)}
        if args.samples:
            data["samples"] = _sampled(rt, args, found)
            partial.append("sampled")
        here = session.tid(args.on)
        return Answer(data, lambda style: _text(data, here, style), partial)


def _thread(view: Any, daemon: Any) -> dict[str, Any]:
    top = view.python[0] if view.python else None
    return {
        "tid": view.tid,
        "name": escape(view.name),
        "gil": view.gil,
        "state": view.state or "?",
        "daemon": daemon.get(view.ident),
        "ident": view.ident,
        "function": escape(top.function) if top else "",
        "file": escape(top.file) if top else "",
        "line": top.line if top else None,
    }


def _sampled(rt: Runtime, args: Args, threads: Any) -> dict[str, Any]:
    if threads and all(th["gil"] == "disabled" for th in threads):
        raise GdbextError(f"{rt.target.describe()} runs a free-threaded Python: it has no GIL to wait for")
    seen = gil_samples.sample(rt, args.samples, args.interval)
    for thread in threads:
        for key, counts in (("held", seen.held), ("waited", seen.waited), ("unknown", seen.unknown)):
            thread[key] = counts.get(thread["tid"], 0)
    return {"count": seen.count, "free": seen.free, "seconds": seen.seconds, "starved": seen.starved()}


def _text(data: dict[str, Any], here: Any, style: Style) -> str:
    sampled = data.get("samples")
    head = ["", "tid", "name", "GIL", "state"] + (["held", "waited", "unknown"] if sampled else []) + ["at"]
    rows = []
    for th in data["threads"]:
        at = (
            f"{th['function']} ({style.path(th['file'])}{':' + str(th['line']) if th['line'] is not None else ''})"
            if th["function"]
            else "(no Python frame)"
        )
        part = [f"{100 * th[k] // max(1, sampled['count'])} %" for k in ("held", "waited", "unknown")] if sampled else []
        name = th["name"] + (" (daemon)" if th["daemon"] else "")
        rows.append([">" if th["tid"] == here else "", str(th["tid"] or "?"), name, th["gil"], th["state"]] + part + [at])
    lines = [table(rows, head, style)]
    if sampled:
        names = {th["tid"]: th for th in data["threads"]}
        for tid in sampled["starved"]:
            th = names.get(tid, {"name": "", "waited": 0})
            lines.append(
                style.bad(
                    f'Thread {tid} "{th["name"]}" waited in {th["waited"]} of {sampled["count"]} samples and never held the GIL.'
                )
            )
        if not sampled["starved"]:
            lines.append(
                f"In {sampled['count']} samples over {sampled['seconds']:.2f} s no thread that waited was left without the GIL."
            )
    return "\n".join(lines)
