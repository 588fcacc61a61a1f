"""llm-record: what each rank did, over time."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

from ..access import holder, proc
from ..engines import group as groups
from ..engines import processes, targets
from ..errors import GdbextError
from ..render import files
from ..render.text import Style, escape, table
from ..requests import meter
from ..session import process_selection
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session
from ..timeline import flame, native, page, recording, sampler, stalls, steps, store
from ..timeline.recording import Frame, ProcessTrack, Recording
from ..timeline.stalls import Stall

RATE = 100.0  # looks a second
MAX_RATE, MAX_SECONDS = 1000.0, 24 * 3600.0
SHOWN, LISTED, SHOWN_STALLS = 12, 100, 20  # functions of text, and of JSON; stalls of text
SPARSE = 0.7  # part of the looks that were asked for: with fewer the answer warns


class LlmRecord(Command):
    """Record what every thread of all ranks does over time, without stopping them, for Perfetto, speedscope or a page.

    Reads the memory of each process through /proc -rate times a second for -for seconds: the Python stacks of all threads, what
    each waits for, who holds the GIL, whether the garbage collector is at work. All ranks are on one time base.

      (gdb) llm-record -for 30 -o slow.json.gz all
      4 processes, 30.00 s at 99.6 of 100 looks a second: 226112 stacks, 31 dropped; 0.9 % of a core for each process
      in itself  with calls
          41.2 %     41.2 %  Sampler.apply_penalties (sampler.py)
      stall at 12.412 s for 0.214 s: gc on TP1 MainThread in LLMEngine.step (engine.py:88)
      stall at 20.101 s for 0.310 s: late-rank TP3 in apply_penalties (sampler.py:41), TP0 TP1 TP2 waited; spin
      (gdb) llm-record -read slow.record -from 12 -to 14 -o part.html
      (gdb) llm-record -diff before.record after.record -o difference.html

    The ending of -o FILE chooses the format; -o may stand several times. .json, .json.gz: Chrome's trace, which Perfetto opens:
    ranks as processes, threads as tracks with their calls and states, the GIL, the collector, and counters: processors used,
    memory, how long asyncio's loop was in one callback, and of an engine requests, tokens and steps a second, free blocks (read
    about once a second). .speedscope.json; .collapsed (or .folded, .txt): a line per stack with milliseconds; .html: a page with
    a timeline and a flame graph that needs no network. .record: the recording itself, from which -read makes the others later,
    with -from and -to only a part of it.

    Stalls are times of 100 ms and more in which a thread or a rank did not get on: gc (the collector at work), gil (one thread
    kept the GIL while another waited for it), loop (a callback kept an asyncio loop), disk, lock, spin (it ran on in a function),
    processor (it got none), stopped (by a signal or a debugger), late-rank (others waited for it where they meet). -slowest N
    adds the longest steps (those that an engine's scheduler counts, else the work of a main thread between two waits), with what
    each rank did meanwhile. -diff BEFORE AFTER compares two recordings (.record or .collapsed) and writes a differential flame
    graph.

    Times are wall-clock times of threads, also of those that wait; -cpu takes only what ran. A stack that changed while it was
    read is dropped and counted, never mended; the answer tells the rate that was reached and what the recorder cost. On a full
    machine -realtime lets the recorder go before other processes, for half of the time at most (needs root). ^C ends it
    early and keeps what there is.

    -native records native frames too, 10 times a second unless -rate says otherwise. For that the threads that went on since
    the look before, and no others, stand still for the time that copying their stacks takes, without a signal; should the
    recorder be killed they run on. The answer says how long each process stood still."""

    name = "llm-record"
    group = "time"
    operand = "[WHAT...]"
    completion = "what"
    takes_target = False
    standalone = True
    options = (
        Option("rate", "float", "looks a second at each process: 100, or 10 with -native", metavar="HZ"),
        Option("for", "float", "seconds to record", 10.0, "S"),
        Option("native", help="native frames too: threads that went on stand still for moments, and the answer says how long"),
        Option("realtime", help="the recorder goes before other processes: on a full machine it looks in time (needs root)"),
        Option("o", "str", "write the recording; the ending chooses the format", metavar="FILE", repeat=True, for_agents=False),
        Option("force", help="-o replaces a file that is there", for_agents=False),
        Option("cpu", help="flame graphs, stacks and the list of functions: only while threads ran"),
        Option("read", "str", "take a recording (.record) instead of making one", metavar="FILE", for_agents=False),
        Option("slowest", "int", "also the N longest steps, and what each rank did meanwhile", 0, "N"),
        Option("diff", help="compare two recordings: BEFORE AFTER", for_agents=False),
        Option("from", "float", "of -read: only what comes after this second", metavar="S", for_agents=False),
        Option("to", "float", "of -read: only what comes before this second", metavar="S", for_agents=False),
    )

    def run(self, session: Session, args: Args) -> Answer:
        rate = args.rate if args.rate is not None else native.RATE if args.native else RATE
        if not 0.1 <= rate <= MAX_RATE or not 0.01 <= getattr(args, "for") <= MAX_SECONDS:
            raise UsageError(f"llm-record: -rate is 0.1 to {MAX_RATE:g}, -for 0.01 to {MAX_SECONDS:g} seconds")
        for path in args.o:
            store.check_ending(path)
            files.may_write(path, "-o", args.force)
        failed: list[dict[str, Any]] = []
        if args.diff:
            return _difference(args)
        if args.read is not None:
            rec = _read(args)
        elif getattr(args, "from") is not None or args.to is not None:
            raise UsageError("llm-record: -from and -to take a part of a recording: name it by -read FILE")
        else:
            found = process_selection.resolve_processes(session, args.operand_text)
            rec = _record(_targets(session, found, failed), found, rate, args, failed)
        written = _write([path for path in args.o if path.endswith(".record")], rec, (), args, failed)
        shown = stalls.find(rec)  # which takes a while: what cannot be done again is written by now
        written += _write([path for path in args.o if not path.endswith(".record")], rec, shown, args, failed)
        data = _data(rec, args, failed)
        data["files"] = [path for path in args.o if path in written]
        data["file"] = next(iter(data["files"]), None)
        data["stalls"] = [_stall(s) for s in shown]
        if args.slowest:
            data["slowest"] = [_step(rec, shown, *step) for step in steps.slowest(rec, args.slowest)]
            data["without_steps"] = [escape(process.label) for process in steps.without(rec)]
        partial = [*rec.notes, *(f"{f['label']}: {f['reason']}" for f in failed)]
        return Answer(data, lambda style: _text(data, style), partial)


def _write(paths: Sequence[str], rec: Recording, shown: Sequence[Stall], args: Args, failed: list[dict[str, Any]]) -> list[str]:
    """-> the files that were written; one that cannot be is a failed one, and the others are written all the same."""
    written = []
    for path in paths:
        try:
            store.write(path, rec, shown, cpu=args.cpu, force=args.force)
            written.append(path)
        except GdbextError as e:
            failed.append({"label": path, "pid": None, "reason": str(e)})
    return written


def _read(args: Args) -> Recording:
    if args.operand_text:
        raise UsageError("llm-record: -read takes what was recorded: it names no process")
    rec = store.read(args.read)
    start, end = getattr(args, "from"), args.to
    if start is None and end is None:
        return rec
    part = rec.cut(start or 0.0, rec.seconds if end is None else end)
    if not any(p.begins for p in part.processes):
        raise GdbextError(f"{args.read}: no look between -from and -to: it lasts {rec.seconds:.3f} s")
    return part


def _record(
    watched: Sequence[tuple[Any, str]], found: Sequence[Any], rate: float, args: Args, failed: list[dict[str, Any]]
) -> Recording:
    """Records processes, and beside them what their engines count."""
    opened = targets.Targets()  # of no debugger: a thread of its own reads the engines, through /proc
    engines = groups.engines_of(processes.ranks_of(found), opened.of)
    schedulers = {rank.pid for engine in engines for rank in engine.with_role(*groups.SCHEDULERS, "frontend")}
    how: dict[str, Any] = {"realtime": args.realtime, "schedulers": schedulers}
    with contextlib.ExitStack() as around:
        beside = around.enter_context(meter.Beside(engines))
        if args.native:
            holds = around.enter_context(holder.Holder())
            how["sampler_of"] = functools.partial(native.NativeSampler, holder=holds)
        rec = sampler.record(watched, rate, getattr(args, "for"), failed, **how)
    rec.cost += holds.cpu if args.native else 0.0
    rec.notes += beside.notes
    steps.count_loop_lags(rec)
    tracks = {p.pid: p for p in rec.processes}
    for engine in engines:  # a step that its scheduler counts is one of each of its ranks
        for rank in engine.with_role(*groups.SCHEDULERS):
            counted = tracks[rank.pid].counters.get(steps.STEPS) if rank.pid in tracks else None
            for shard in engine.shards_for(rank) if counted else ():
                if shard.pid in tracks:
                    tracks[shard.pid].counters.setdefault(steps.STEPS, counted)
    for at, engine, reading in beside.readings:
        for (pid, name), number in reading.counted.items() if rec.clock <= at <= rec.clock + rec.seconds else ():
            if pid in tracks:
                tracks[pid].counters.setdefault(name, []).append((at - rec.clock, float(number)))
        pids = [r.pid for r in (*engine.with_role(*groups.SCHEDULERS), *engine.ranks) if r.pid in tracks]
        for name, value in meter.counters(reading).items() if pids and rec.clock <= at <= rec.clock + rec.seconds else ():
            tracks[pids[0]].counters.setdefault(name, []).append((at - rec.clock, value))
    return rec


def _targets(session: Session, resolved: Sequence[Any], failed: list[dict[str, Any]]) -> list[tuple[Any, str]]:
    """(ProcTarget, label) of each process; one that cannot move is a failed one."""
    found = []
    for one in resolved:
        why = session.targets.why_still(one)
        if why:
            failed.append({"label": one.name, "pid": one.pid, "reason": why})
        else:
            found.append((proc.ProcTarget(one.pid, one.name), one.name))
    if not found:
        raise GdbextError(f"{failed[0]['label']}: {failed[0]['reason']}" if failed else "no process to record")
    return found


def _data(rec: Recording, args: Args, failed: Sequence[dict[str, Any]]) -> dict[str, Any]:
    processes = [
        {
            "label": escape(p.label),
            "pid": p.pid,
            "threads": len(p.threads),
            "looks": len(p.begins) - p.splits,
            "samples": p.samples,
            "dropped": p.dropped,
            "torn": p.torn,
            "longest_look": round(max((e - b for b, e in zip(p.begins, p.ends)), default=0.0), 5),
            "longest_gap": round(max((b - a for a, b in zip(p.begins, p.begins[1:])), default=0.0), 5),
            "cpu": round(p.cpu, 3),
            "counters": {
                escape(name): {
                    "first": values[0][1],
                    "last": values[-1][1],
                    "least": min(v for _, v in values),
                    "most": max(v for _, v in values),
                }
                for name, values in p.counters.items()
                if values
            },
            "seconds": round(p.finish, 3),
            **_native(p),
        }
        for p in rec.processes
    ]
    own = flame.stacks(rec, args.cpu)
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
        "processes": processes,
        "functions": [{"function": n, "self": round(s / whole, 5), "total": round(t / whole, 5)} for n, s, t in rows],
        "failed": list(failed),
    }


def _native(process: ProcessTrack) -> dict[str, Any]:
    """How long a process stood still for its native frames."""
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


def _stall(stall: Stall) -> dict[str, Any]:
    return {
        "cause": stall.cause,
        "begin": round(stall.begin, 4),
        "seconds": round(stall.end - stall.begin, 4),
        "label": escape(stall.process.label),
        "pid": stall.process.pid,
        "tid": stall.thread.tid,
        "thread": escape(stall.thread.name),
        **_place(stall.frame),
        "waiting": [escape(label) for label in stall.waiting],
        "why": stall.why or None,
    }


def _step(rec: Recording, shown: Sequence[Stall], begin: float, end: float, process: ProcessTrack) -> dict[str, Any]:
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
        "stalls": [_stall(s) for s in inside],
    }


def _difference(args: Args) -> Answer:
    """Two recordings beside each other."""
    names = args.operand_text.split()
    if len(names) != 2:
        raise UsageError("llm-record: -diff takes two recordings: llm-record -diff BEFORE AFTER -o F.html")
    before, after = (store.stacks_of(name, args.cpu) for name in names)
    if not before or not after:
        raise GdbextError(f"{names[1 if before else 0]}: no stack was seen in it")
    for path in args.o:
        store.write_difference(path, after, before, args.force)
    rows = page.changes(after, before)[:LISTED]
    found = [{"function": n, "before": round(b, 5), "after": round(a, 5), "change": round(c, 5)} for n, b, a, c in rows]
    data = {"differences": found, "file": args.o[0] if args.o else None, "files": list(args.o)}

    def text(style: Style) -> str:
        cells = [
            [f"{100 * d['change']:+.1f} %", f"{100 * d['before']:.1f} %", f"{100 * d['after']:.1f} %", d["function"]]
            for d in found
        ]
        lines = [table(cells[:SHOWN], ["change", "before", "after", ""], style, right=("change", "before", "after"))]
        return "\n".join(lines + [f"written: {escape(path)}" for path in data["files"]])

    return Answer(data, text)


def _text(data: dict[str, Any], style: Style) -> str:
    count = len(data["processes"])
    lines = [
        f"{count} process{'es' if count != 1 else ''}, {data['seconds']:.2f} s at {data['rate']['reached']:.1f} of "
        f"{data['rate']['asked']:g} looks a second: {data['samples']} stacks, {data['dropped']} dropped; "
        f"{100 * data['cost']['per_process']:.1f} % of a core for each process"
    ]
    if data["rate"]["reached"] < SPARSE * data["rate"]["asked"] and count:
        seen = max((p["longest_gap"] for p in data["processes"]), default=0.0)
        lines.append(
            f"the recorder got no processor for up to {seen:.2f} s: shorter stalls may be missing; a lower -rate, or -realtime"
        )
    lines += [_pause_text(p) for p in data["processes"] if "native" in p]
    rows = [[f"{100 * f['self']:.1f} %", f"{100 * f['total']:.1f} %", f["function"]] for f in data["functions"][:SHOWN]]
    if rows:
        lines.append(table(rows, ["in itself", "with calls", ""], style, right=("in itself", "with calls")))
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
    text = f"{process['label']} stood still at {own['stops']} of {process['looks']} looks: median {median:.2f} ms, longest "
    text += f"{longest:.2f} ms, {own['pause']['part']:.2%} of the time"
    return text + (f"; {own['unstopped']} stacks without native frames" if own["unstopped"] else "")


def _stall_text(stall: dict[str, Any], style: Style) -> str:
    file = (stall["file"] or "").rpartition("/")[2]
    thread = stall["thread"] or stall["tid"]
    text = f"stall at {stall['begin']:.3f} s for {stall['seconds']:.3f} s: {style.bad(stall['cause'])} "
    where = f"in {stall['function']} ({file}:{stall['line']})"
    if stall["waiting"]:
        return f"{text}{stall['label']} {where}, {' '.join(stall['waiting'])} waited; {stall['why']}"
    return f"{text}on {stall['label']} {thread} {where}"
