"""Recordings of each rank over time, together with the engines' counters: how they are made, as JSON and as text."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..access import holder
from ..engines import group as groups
from ..engines import targets
from ..engines.processes import ProcessRef, ranks_of
from ..engines.spec import SCHEDULERS
from ..errors import UnstoppableError
from ..render.fields import NUMBER, REAL, TEXT, Field, Fields, or_none
from ..render.text import Style, escape, table, thread_text
from ..render.text import seconds as duration
from ..requests import meter
from ..timeline import flame, native, page, recording, sampler, stalls, steps, torch_trace
from ..timeline.recording import Frame, ProcessTrack, Recording
from ..timeline.stalls import Stall
from ..timeline.step_counter import STEPS
from ..timeline.torch_trace import Trace
from .each_node import FAILED, nodes

SHOWN, LISTED, SHOWN_STALLS = 12, 100, 20  # functions of text, and of JSON; stalls of text


MUCH_DROPPED = 0.1  # part of the looks: the answer says it
LEAST = 0.0005  # of the time: less is no change
SPARSE = 0.7  # part of the requested samples: with fewer the answer warns


def _share(sign: str = "") -> Callable[[float], str]:
    return lambda part: f"{100 * part:{sign}.1f} %"


def _last(values: Sequence[Any]) -> dict[str, Any]:
    of = [value for _, value in values]
    return {"first": of[0], "last": of[-1], "least": min(of), "most": max(of)}


def _frame(name: str) -> Callable[[Any], Any]:
    return lambda stall: _place(stall.frame)[name]


RECORDED = Fields(
    Field("label", str),
    Field("pid", int),
    Field("threads", int, read=lambda p: len(p.threads)),
    Field("looks", int, read=lambda p: len(p.begins) - p.splits),
    Field("samples", int),
    Field("dropped", int),
    Field("torn", int, "reads that were thrown away and made again"),
    Field(
        "longest_look",
        float,
        "from the begin to the end of a look, or of the part of it that was done at one time",
        "s",
        lambda p: max((end - begin for begin, end in zip(p.begins, p.ends)), default=0.0),
        digits=5,
    ),
    Field(
        "longest_gap",
        float,
        "between the begins of two",
        "s",
        lambda p: max((b - a for a, b in zip(p.begins, p.begins[1:])), default=0.0),
        digits=5,
    ),
    Field("cpu", float, "", "s", digits=3),
    Field(
        "counters",
        dict,
        "{name: {first, last, least, most}}",
        read=lambda p: {escape(name): _last(values) for name, values in p.counters.items() if values},
    ),
    Field("seconds", float, "", "s", lambda p: p.finish, digits=3),
)
PAUSES = Fields(Field("median", float), Field("longest", float), Field("part", float, "of the time"))
NATIVE = Fields(
    Field("stops", int, "looks at which threads of it stood still"),
    Field("pause", PAUSES, "of each such look", "s"),
    Field("unstopped", int, "stacks that have Python frames alone, as their thread could not be stopped"),
)
STALL = Fields(
    Field("cause", str, "`gc`, `gil`, `loop`, `disk`, `lock`, `spin`, `processor`, `stopped`, `late-rank`"),
    Field("begin", float, "since the recording began", "s", digits=4),
    Field("seconds", float, "", "s", lambda s: s.end - s.begin, digits=4),
    Field("label", str, read=lambda s: s.process.label),
    Field("pid", int, read=lambda s: s.process.pid),
    Field("tid", int, read=lambda s: s.thread.tid),
    Field("thread", str, read=lambda s: s.thread.name),
    Field("function", TEXT, read=_frame("function")),
    Field("file", TEXT, read=_frame("file")),
    Field("line", NUMBER, read=_frame("line")),
    Field("waiting", [str], "ranks that waited for a late one", read=lambda s: [escape(label) for label in s.waiting]),
    Field("why", TEXT, "it was late", read=or_none("why")),
)
FUNCTION = Fields(
    Field("self", REAL, "share of the time", head="self", cell=_share()),
    Field("total", REAL, head="total", cell=_share()),
    Field("function", str, head="function", cell=str),
)
DIFFERENCE = Fields(
    Field("change", REAL, head="change", cell=_share("+")),
    Field("before", REAL, "share of the time", head="before", cell=_share()),
    Field("after", REAL, head="after", cell=_share()),
    Field("function", str, head=" ", cell=str),
)
STEP = Fields(
    *(f for f in STALL if f.name in ("begin", "seconds", "label", "pid")),
    Field("ranks", list, "{label, pid, state, part, function, file, line} of each: what it did meanwhile"),
    Field("late", [str], "ranks that others waited for, the longest first"),
    Field("stalls", list, "as `stalls`"),
)
TRACE = Fields(
    Field("file", str),
    Field("began", REAL, "seconds after the epoch"),
    Field("seconds", float),
    Field("events", int),
    Field("rows", list, "{name, category, count, total, self, longest}"),
)
ANSWER = Fields(
    Field("samples", int, "stacks read"),
    Field("dropped", int, "those of them that were torn"),
    Field("rate", Fields(Field("asked", float), Field("reached", float)), "samples a second at each process"),
    Field("cost", Fields(Field("cpu", float), Field("per_process", float, "share of a processor")), "the recorder's own", "s"),
    Field("seconds", float),
    Field("native", bool, "it has native frames"),
    Field(
        "processes",
        [Fields(*RECORDED, Field("native", NATIVE, "with -native"))],
        "over machines with `node`, as stalls and steps",
    ),
    Field("functions", [FUNCTION], "without threads that rest, unless -idle"),
    Field("resting", int, "threads that were left out for that"),
    Field("stalls", [STALL]),
    Field(
        "beside", [Fields(Field("file", str), Field("events", int), Field("begin", float, "after the recording's"))], "of -with"
    ),
    Field("slowest", [STEP], "with -slowest"),
    Field("without_steps", [str], "with -slowest: those that count none, and whose main thread waited nowhere between two"),
    Field("differences", [DIFFERENCE], "with -diff"),
    Field("trace", TRACE, "-read of a trace of torch, alone"),
    Field("file", TEXT, "the first that was written"),
    Field("files", [str]),
    Field("failed", [FAILED]),
    nodes(
        Field("processes", int),
        Field("offset", float, "the second on the common time base at which it began"),
        Field("exact", REAL, "by how much that may be wrong; null: not known"),
    ),
    Field("recording", str, "with -facts; no contract"),
    Field("began", float, "with -facts; no contract"),
)


def record(
    watched: Sequence[tuple[Any, str]],
    found: Sequence[ProcessRef],
    rate: float,
    seconds: float,
    failed: list[dict[str, Any]],
    *,
    frames: bool = False,
    realtime: bool = False,
    marks: tuple[bool, bool] = (False, False),
    tell: Callable[[float], None] = lambda passed: None,
) -> Recording:
    """Records processes, [(its Target, label)], for `seconds`, and also the counters of the engines of those that were `found`.

    `frames`: native frames too. `marks`: as of `sampler.record`. `realtime`: the recorder has priority over other processes.
    `tell` is called with the seconds that have passed. `failed`: gets the processes that end."""
    opened = targets.Targets()  # of no debugger: a thread of its own reads the engines, through /proc
    engines = groups.engines_of(ranks_of(found), opened.of)
    schedulers = {rank.pid for engine in engines for rank in engine.with_role(*SCHEDULERS, "frontend")}
    how: dict[str, Any] = {
        "realtime": realtime,
        "marks": marks,
        "schedulers": schedulers,
        "beside": lambda rec, passed: tell(passed),
    }
    with contextlib.ExitStack() as around:
        beside = around.enter_context(meter.Beside(engines))
        holds, alone = None, []
        if frames:
            try:
                holds = around.enter_context(holder.Holder())
                how["sampler_of"] = functools.partial(native.NativeSampler, holder=holds)
            except UnstoppableError as e:
                alone = [f"{e}: stacks have no native frames"]
        rec = sampler.record(watched, rate, seconds, failed, **how)
    rec.cost += holds.cpu if holds is not None else 0.0
    rec.notes += beside.notes + alone
    steps.count_loop_lags(rec)
    tracks = {p.pid: p for p in rec.processes}
    for engine in engines:  # a step that its scheduler counts is one of each of its ranks
        for rank in engine.with_role(*SCHEDULERS):
            counted = tracks[rank.pid].counters.get(STEPS) if rank.pid in tracks else None
            for shard in engine.shards_for(rank):
                if counted and shard.pid in tracks:
                    tracks[shard.pid].counters.setdefault(STEPS, counted)
    for at, engine, reading in beside.readings:
        for (pid, name), number in reading.counted.items() if rec.clock <= at <= rec.clock + rec.seconds else ():
            if pid in tracks:
                tracks[pid].counters.setdefault(name, []).append((at - rec.clock, float(number)))
        pids = [r.pid for r in (*engine.with_role(*SCHEDULERS), *engine.ranks) if r.pid in tracks]
        for name, value in meter.counters(reading).items() if pids and rec.clock <= at <= rec.clock + rec.seconds else ():
            tracks[pids[0]].counters.setdefault(name, []).append((at - rec.clock, value))
    return rec


def recording_data(rec: Recording, what: flame.Counted, failed: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The fields of llm-record."""
    what = what._replace(idle=what.idle or rec.failing)
    own = flame.stacks(rec, what)
    whole = sum(own.values())
    rows = flame.functions(own.items())[:LISTED] if whole else []
    share = rec.cost / rec.seconds / max(1, len(rec.processes)) if rec.seconds else 0.0
    return {
        "samples": sum(p.samples for p in rec.processes),
        "dropped": sum(p.dropped for p in rec.processes),
        "rate": {"asked": rec.rate, "reached": round(rec.reached, 2)},
        "cost": {"cpu": round(rec.cost, 3), "per_process": round(share, 5)},
        "seconds": round(rec.seconds, 3),
        "native": rec.native,
        "processes": [{**RECORDED.data(p), **_native(p)} for p in rec.processes],
        "resting": 0 if what.idle else flame.resting(rec),
        "functions": [{"function": n, "self": round(s / whole, 5), "total": round(t / whole, 5)} for n, s, t in rows],
        "failed": list(failed),
    }


def much_dropped(rec: Recording) -> list[str]:
    """What to say of processes of which a tenth or more of the looks at threads that do not rest were dropped."""
    said = []
    for process in rec.processes:
        looks = dropped = 0
        for thread in process.threads:
            if not flame.rests(process, thread):
                for run in process.runs(thread):
                    looks += run.looks
                    dropped += run.looks if run.node == recording.DROPPED else 0
        if dropped and dropped >= MUCH_DROPPED * looks:
            part = f"{dropped} of {looks} stacks ({100 * dropped / looks:.0f} %)"
            said.append(
                f"{process.label}: {part} changed while they were read and were dropped: shares are of those that were kept"
            )
    return said


def _native(process: ProcessTrack) -> dict[str, Any]:
    """How long a process was paused for its native frames."""
    if not process.pauses:
        return {}
    each = sorted(pause for pause in process.pauses if pause)
    pause = {
        "median": round(each[len(each) // 2] if each else 0.0, 6),
        "longest": round(max(each, default=0.0), 6),
        "part": round(sum(each) / process.finish if process.finish else 0.0, 6),
    }
    return {"native": {"stops": len(each), "pause": pause, "unstopped": process.unstopped}}


def _place(frame: Frame | None) -> dict[str, Any]:
    if frame is None:
        return {"function": None, "file": None, "line": None}
    return {"function": escape(frame.function), "file": escape(frame.file), "line": frame.line}


def step_data(rec: Recording, shown: Sequence[Stall], begin: float, end: float, process: ProcessTrack) -> dict[str, Any]:
    """A step that took long; `late`: the ranks that others waited for in it, the longest first."""
    ranks = [
        {"label": escape(p.label), "pid": p.pid, "state": recording.STATES[state], "part": round(part, 3), **_place(frame)}
        for p, frame, state, part in steps.what_others_did(rec, begin, end)
    ]
    inside = [s for s in shown if min(s.end, end) - max(s.begin, begin) > stalls.MUCH * min(s.end - s.begin, end - begin)]
    late = sorted((s for s in inside if s.cause == "late-rank"), key=lambda s: s.begin - s.end)
    return {
        "begin": round(begin, 4),
        "seconds": round(end - begin, 4),
        "label": escape(process.label),
        "pid": process.pid,
        "ranks": ranks,
        "late": [escape(s.process.label) for s in late],
        "stalls": [STALL.data(s) for s in inside],
    }


def recording_text(data: dict[str, Any], style: Style) -> str:
    count = len({p["pid"] for p in data["processes"]})  # one that runs another program later has two parts
    lines = [
        f"{count} process{'es' if count != 1 else ''}, {data['seconds']:.2f} s at {data['rate']['reached']:.1f} of "
        f"{data['rate']['asked']:g} samples a second: {data['samples']} stacks, {data['dropped']} dropped; "
        f"{100 * data['cost']['per_process']:.1f} % of a core for each process"
    ]
    if data["rate"]["reached"] < SPARSE * data["rate"]["asked"] and count:
        seen = max((p["longest_gap"] for p in data["processes"]), default=0.0)
        lines.append(
            f"the recorder got no CPU for up to {seen:.2f} s: shorter stalls may be missing; a lower -rate, or -realtime"
        )
    lines += [_pause_text(p) for p in data["processes"] if "native" in p]
    if data["functions"]:
        lines.append(FUNCTION.table(data["functions"][:SHOWN], style))
    if data["resting"]:
        lines.append(style.dim(flame.left_out(data["resting"])))
    lines += [_stall_text(s, style) for s in data["stalls"][:SHOWN_STALLS]]
    if len(data["stalls"]) > SHOWN_STALLS:
        lines.append(f"{len(data['stalls']) - SHOWN_STALLS} more stalls: -json, or -o F.html")
    for step in data.get("slowest", ()):
        lines.append(f"step at {step['begin']:.3f} s of {step['seconds']:.3f} s on {step['label']}:")
        lines += [f"  {r['label']}: {r['state']} in {r['function']}, {100 * r['part']:.0f} % of it" for r in step["ranks"]]
    if data.get("without_steps"):
        lines.append(f"no steps of {' '.join(data['without_steps'])}: the main thread waited nowhere between two")
    lines += [f"written: {escape(path)}" for path in data["files"]]
    return "\n".join(lines)


def _pause_text(process: dict[str, Any]) -> str:
    own = process["native"]
    median, longest = 1000 * own["pause"]["median"], 1000 * own["pause"]["longest"]
    text = f"{process['label']} paused at {own['stops']} of {process['looks']} samples: median {median:.2f} ms, longest "
    text += f"{longest:.2f} ms, {own['pause']['part']:.2%} of the time"
    return text + (f"; {own['unstopped']} stacks without native frames" if own["unstopped"] else "")


def _stall_text(stall: dict[str, Any], style: Style) -> str:
    file = (stall["file"] or "").rpartition("/")[2]
    text = f"stall at {stall['begin']:.3f} s for {stall['seconds']:.3f} s: {style.bad(stall['cause'])} "
    where = (
        (f"in {stall['function']}" + (f" ({file}:{stall['line']})" if file else "")) if stall["function"] else "outside Python"
    )
    if stall["waiting"]:
        return f"{text}{stall['label']} {where}, {' '.join(stall['waiting'])} waited; {stall['why']}"
    return f"{text}on {thread_text(stall['tid'], stall['thread'] or '', stall['label'])} {where}"


def trace_data(trace: Trace) -> dict[str, Any]:
    """The fields of llm-record -read of a trace of torch.profiler."""
    rows = [{**r, **{key: round(r[key], 9) for key in ("total", "self", "longest")}} for r in torch_trace.table(trace)]
    about = {"file": trace.path, "began": trace.began if trace.has_base else None, "seconds": trace.ended - trace.began}
    return {"trace": {**about, "events": len(trace.events), "rows": rows[:LISTED]}, "file": None, "files": []}


def trace_text(data: dict[str, Any], style: Style) -> str:
    """The functions that took the time in a trace of torch.profiler."""
    trace = data["trace"]
    whole = sum(r["self"] for r in trace["rows"]) or 1.0
    rows = [
        [f"{100 * r['self'] / whole:.1f} %", duration(r["self"]), duration(r["total"]), str(r["count"]), r["category"], r["name"]]
        for r in trace["rows"][:SHOWN]
    ]
    right = ("part", "self", "total", "count")
    head = f"{trace['events']} events of torch.profiler, {trace['seconds']:.3f} s"
    return head + "\n" + table(rows, ["part", "self", "total", "count", "category", "name"], style, right=right)


def difference_data(after: dict[Any, float], before: dict[Any, float], files: Sequence[str]) -> dict[str, Any]:
    """The fields of llm-record -diff, of the stacks of two recordings."""
    rows = page.changes(after, before)[:LISTED]
    found = [{"function": n, "before": round(b, 5), "after": round(a, 5), "change": round(c, 5)} for n, b, a, c in rows]
    return {"differences": found, "file": files[0] if files else None, "files": list(files)}


def difference_text(data: dict[str, Any], style: Style) -> str:
    """The functions whose part changed most."""
    rows = [row for row in data["differences"] if abs(row["change"]) >= LEAST][:SHOWN]
    lines = [DIFFERENCE.table(rows, style) if rows else f"no function's part changed by {LEAST:.2%} or more"]
    return "\n".join(lines + [f"written: {escape(path)}" for path in data["files"]])
