"""pythreads: Python's threads, and who holds and who waits for the GIL."""

from __future__ import annotations

from typing import Any

from ..cpython.runtime import Runtime
from ..engines.rank import STATES
from ..errors import GdbextError
from ..observe import gil_samples
from ..render.fields import NUMBER, REAL, Field, Fields
from ..render.text import Style, escape
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session
from ..stacks import threads
from ..stacks.ending import daemons

MAX_SAMPLES = 100_000


def _at(th: Any, style: Style) -> str:
    line = f":{th['line']}" if th["line"] is not None else ""
    return f"{th['function']} ({style.path(th['file'])}{line})" if th["function"] else "(no Python frame)"


def _part(name: str) -> Any:
    """Of a thread's samples those in which it had a state."""
    return lambda th, style: f"{100 * th[name] // max(1, th['samples'])} %" if name in th else ""


def _top(name: str, none: Any) -> Any:
    return lambda view: getattr(view.python[0], name) if view.python else none


THREAD = Fields(  # of a view
    Field("tid", int, head="tid", draw=lambda th, style: str(th["tid"] or "?")),
    Field("name", str, head="name", draw=lambda th, s: th["name"] + " (daemon)" * bool(th["daemon"])),
    Field("gil", str, "`holds`, `waits`, `none`, `disabled`, `unknown`", head="GIL"),
    Field(
        "state",
        str,
        "as in /proc/PID/stat",
        read=lambda v: v.state or "?",
        head="state",
        cell=lambda letter: STATES.get(letter, letter),
    ),
    Field("ident", int, "threading.get_ident()"),
    Field("function", str, read=lambda v: escape(_top("function", "")(v))),
    Field("file", str, read=lambda v: escape(_top("file", "")(v))),
    Field("line", NUMBER, read=_top("line", None)),
)
ROW = Fields(
    Field("here", bool, head=" ", draw=lambda th, style: ">" if th["tid"] == th["here"] else ""),
    *(f for f in THREAD if f.head),
    Field("held", str, head="held", draw=_part("held")),
    Field("waited", str, head="waited", draw=_part("waited")),
    Field("unknown", str, head="unknown", draw=_part("unknown")),
    Field("at", str, head="at", draw=_at, short=True),
)
COUNTS = Fields(
    Field("count", int), Field("seconds", REAL), Field("free", int, "without a holder"), Field("starved", [int], "tids")
)
ANSWER = Fields(
    Field(
        "threads",
        [
            Fields(
                *THREAD,
                Field("daemon", (bool, None)),
                Field("held", int, "with -samples: samples in which it had the GIL"),
                Field("waited", int, "with -samples"),
                Field("unknown", int, "with -samples: it ran, and may have wanted the GIL"),
            )
        ],
    ),
    Field("holder", NUMBER, "tid"),
    Field("samples", COUNTS, "with -samples"),
)


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
    fields = ANSWER
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
        found = [{**THREAD.data(view), "daemon": daemon.get(view.ident)} for view in views]
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
    of = {"samples": sampled["count"] if sampled else 0, "here": here}
    lines = [ROW.table([{**of, **th} for th in data["threads"]], style)]
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
