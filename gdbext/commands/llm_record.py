"""llm-record: what each rank did, over time."""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Sequence
from typing import Any

from ..answers import recording_nodes, recordings
from ..api import choosing
from ..engines.processes import ProcessRef
from ..errors import GdbextError
from ..render import files, progress
from ..render.text import Style, escape
from ..session import nodes
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session
from ..timeline import flame, merged, native, stalls, started, steps, store, torch_trace
from ..timeline.recording import Recording
from ..timeline.stalls import Stall

RATE, SECONDS = 100.0, 10.0  # samples a second; how long
MAX_RATE, MAX_SECONDS = 1000.0, 24 * 3600.0


class LlmRecord(Command):
    """Record what every thread of all ranks does over time, without stopping them, for Perfetto, speedscope or a page.

    Reads the memory of each process through /proc -rate times a second for -for seconds: the Python stacks of all threads, what
    each waits for, who holds the GIL, whether the garbage collector is at work. All ranks are on one time base.

      (gdb) llm-record -for 30 -o slow.json.gz all
      4 processes, 30.00 s at 99.6 of 100 samples a second: 226112 stacks, 31 dropped; 0.9 % of a core for each process
        self   total  function
      41.2 %  41.2 %  Sampler.apply_penalties (sampler.py)
      stall at 12.412 s for 0.214 s: gc on TP1 thread 4243 (MainThread) in LLMEngine.step (engine.py:88)
      stall at 20.101 s for 0.310 s: late-rank TP3 in apply_penalties (sampler.py:41), TP0 TP1 TP2 waited; spin
      (gdb) llm-record -read slow.record -from 12 -to 14 -o part.html
      (gdb) llm-record -diff before.record after.record -o difference.html

    The ending of -o FILE chooses the format; -o may stand several times. .json, .json.gz: Chrome's trace, which Perfetto opens:
    ranks as processes, threads as tracks with their calls and states, the GIL, the collector, and counters: processors used,
    memory, how long asyncio's loop was in one callback, and of an engine requests, tokens and steps a second, free blocks (read
    about once a second). .speedscope.json; .pb.gz (pprof); .collapsed (or .folded, .txt): a line per stack with milliseconds;
    .html: a page with a timeline and a flame graph, with zoom and search, that needs no network. .record: the recording itself,
    from which -read makes the others later, with -from and -to only a part of it. -format names one as py-spy does.

    Stalls are times of 100 ms and more in which a thread or a rank did not get on: gc (the collector at work), gil (one thread
    kept the GIL while another waited for it), loop (a callback kept an asyncio loop), disk, lock, spin (it ran on in a function),
    CPU (it got none), stopped (by a signal or a debugger), late-rank (others waited for it where they meet). -slowest N
    adds the longest steps (those that an engine's scheduler counts, else the work of a main thread between two waits), with what
    each rank did meanwhile. -diff BEFORE AFTER compares two recordings (.record or .collapsed) and writes a differential flame
    graph.

    Several machines (ssh:A ssh:B, pods/NS/app=x, slurm:JOB, ray:) are one recording on one time base, from when all were told to
    begin.

    Times are wall-clock times of threads, also of those that wait; -cpu takes only what ran. A stack that changed while it was
    read is dropped and counted, never mended; where a tenth or more was dropped the answer is partial, and shares are of what was
    kept. A process that runs another program (exec) is recorded on. The answer tells the rate that was reached and what the
    recorder cost. On a full machine -realtime lets the recorder go before other processes, for half of the time at most (needs
    root). ^C ends it early and keeps what there is. A terminal shows how far it is.

    -tasks puts the name of the asyncio task that runs into each stack. -failing keeps only the times in which a thread raises an
    exception or handles one (its except or finally runs), with the exception's class as the innermost call.

    -- COMMAND starts a program and records it until it ends: llm-record -o f.html -- python3 x.py

    -read of a trace that torch.profiler wrote (.json, .json.gz; llm-profile starts it) is a table of what took the time in it.
    -with TRACE puts its operators and kernels next to the recording, on one time base, in what -o FILE.json writes.

    -native records native frames too, 10 times a second unless -rate says otherwise. For that the threads that went on since
    the sample before, and no others, are paused for the time that copying their stacks takes, without a signal; should the
    recorder be killed they run on. The answer says how long each process was paused."""

    name = "llm-record"
    tool = "record"
    fields = recordings.ANSWER
    group = "time"
    operand = "[WHAT... | -- COMMAND]"
    starts = letters = True
    completion = "what"
    takes_target = False
    standalone = True
    options = (
        Option("rate", "float", "samples a second at each process: 100, or 10 with -native", metavar="HZ", was="r"),
        Option("for", "float", "seconds to record: 10; of a COMMAND until it ends", None, "S", was="d duration"),
        Option(
            "native", help="native frames too: threads that made progress are paused for moments, and the answer says how long"
        ),
        Option(
            "realtime",
            help="the recorder goes before other processes: on a full machine it samples in time (needs root)",
            for_agents=False,
        ),
        Option(
            "o",
            "str",
            "write the recording; the ending chooses the format",
            metavar="FILE",
            repeat=True,
            for_agents=False,
        ),
        Option(
            "format",
            list(store.FORMATS),
            "the format of -o FILE whatever its ending, or of a file with a name of its own",
            was="f",
            for_agents=False,
        ),
        Option("force", help="-o replaces a file that is there", for_agents=False),
        Option("idle", help="the list of functions and the page's flame graph: also idle threads (below 1 % of a CPU)"),
        Option("cpu", help="flame graphs, stacks and the list of functions: only while threads ran"),
        Option("gil", help="the same: only while threads held the GIL", was="g", for_agents=False),
        Option("lines", help="the same: each line of a function by itself", for_agents=False),
        Option("tasks", help="stacks have the asyncio task that runs, by its name", for_agents=False),
        Option(
            "failing", help="only while threads raise or handle an exception, by its class", was="exceptions", for_agents=False
        ),
        Option(
            "read",
            "str",
            "take a recording (.record), or a trace of torch, instead of making one",
            metavar="FILE",
            for_agents=False,
        ),
        Option(
            "with", "str", "in -o FILE.json also this trace of torch.profiler", metavar="TRACE", repeat=True, for_agents=False
        ),
        Option("slowest", "int", "also the N longest steps, and what each rank did meanwhile", 0, "N"),
        Option("diff", help="compare two recordings: BEFORE AFTER", for_agents=False),
        Option("from", "float", "of -read: only what comes after this second", metavar="S", for_agents=False),
        Option("to", "float", "of -read: only what comes before this second", metavar="S", for_agents=False),
        Option("facts", help="the recording itself: what each of several machines is asked for", for_agents=False),
    )
    node_words = ("--facts",)  # session/nodes.py
    merged_options = ("o", "force")

    @classmethod
    def parse(cls, line: str) -> Args:
        before, mark, program = f" {line}".partition(" -- ")
        args = super().parse(before.strip())
        args.program = shlex.split(program) if mark else []
        if mark and args.unstopped:
            raise UsageError(
                "llm-record: -unstopped would hold for the COMMAND too, which could then send no signal: leave it out"
            )
        if mark and (args.operand_text or not args.program):
            raise UsageError("llm-record: -- COMMAND starts a program: no WHAT beside it, and a program behind it")
        return args

    @staticmethod
    def node_seconds(args: Args) -> float:
        """Seconds that a node's answer takes beyond its usual ones."""
        return float(getattr(args, "for") or SECONDS)

    def run(self, session: Session, args: Args) -> Answer:
        rate = args.rate if args.rate is not None else native.RATE if args.native else RATE
        seconds = getattr(args, "for") if getattr(args, "for") is not None else MAX_SECONDS if args.program else SECONDS
        if not 0.1 <= rate <= MAX_RATE or not 0.01 <= seconds <= MAX_SECONDS:
            raise UsageError(f"llm-record: -rate is 0.1 to {MAX_RATE:g}, -for 0.01 to {MAX_SECONDS:g} seconds")
        if args.native and (args.tasks or args.failing):
            raise UsageError("llm-record: -tasks and -failing are of Python's stacks: leave -native out")
        if args.read is not None and (args.tasks or args.failing):
            raise UsageError("llm-record: -tasks and -failing are for a recording that is made: it has them, or has them not")
        if args.format and not args.o:
            args.o = [time.strftime("gdbext-%Y%m%d-%H%M%S") + store.FORMATS[args.format]]
        for path in args.o:
            store.check_ending(path, args.format or "")
            files.may_write(path, "-o", args.force)
        if args.diff:
            return _difference(args)
        if args.read is not None and torch_trace.is_trace(args.read):
            return _table(args)
        return self._recorded(session, args, rate, seconds)

    def _recorded(self, session: Session, args: Args, rate: float, seconds: float) -> Answer:
        failed: list[dict[str, Any]] = []
        if getattr(args, "with") and not any(map(torch_trace.is_trace, args.o)):
            raise UsageError("llm-record: -with puts a trace of torch and the recording into one file: add -o FILE.json")
        if args.read is not None:
            rec = _read(args)
        elif getattr(args, "from") is not None or args.to is not None:
            raise UsageError("llm-record: -from and -to take a part of a recording: name it by -read FILE")
        else:
            begun = started.start(args.program) if args.program else None
            found = [ProcessRef(begun.pid)] if begun else choosing.resolve_processes(session, args.operand_text)
            watched = [(target, one.name) for target, one in choosing.moving(session, found, failed)]
            if args.facts:
                nodes.all_are_ready()
            told = time.monotonic()
            how: dict[str, Any] = {"frames": args.native, "realtime": args.realtime, "marks": (args.tasks, args.failing)}
            with progress.shown(None if args.json else sys.stderr, "llm-record", seconds) as how["tell"]:
                rec = recordings.record(watched, found, rate, seconds, failed, **how)
            if begun is not None and begun.poll() is not None:
                rec.notes = [note for note in rec.notes if note != f"{begun.pid} has ended"]  # the recording's own end
            if args.facts:
                data = {"recording": store.text_of(rec), "began": rec.clock - told, "failed": failed}
                return Answer(data, lambda style: f"{len(rec.processes)} processes; -json has the recording")
        return self._answer(args, rec, failed)

    def merge(self, args: Args, answers: Sequence[tuple[str, Any]], failed: list[dict[str, Any]]) -> Answer:
        """The recordings of several machines as one, `(node, answer)` each (session/nodes.py)."""
        parts = []
        for name, answer in answers:
            try:
                parts.append(recording_nodes.part_of(name, answer, failed))
            except GdbextError as e:
                failed.append({"label": name, "pid": None, "reason": str(e)})
        if not parts:
            raise GdbextError("; ".join(f"{f['label']}: {f['reason']}" for f in failed))
        one = merged.merged(parts, time.time() - max(part.offset + part.recording.seconds for part in parts))
        answer = self._answer(args, one.recording, failed)
        said, machines = answer.text, recording_nodes.nodes_data(parts)
        answer.data = {**recording_nodes.there(answer.data, one.places), "nodes": machines}

        def text(style: Style) -> str:
            return "\n".join([said(style) if callable(said) else said, *recording_nodes.lines(machines)])

        answer.text = text
        return answer

    @staticmethod
    def _answer(args: Args, rec: Recording, failed: list[dict[str, Any]]) -> Answer:
        written = _write([path for path in args.o if path.endswith(".record")], rec, (), args, failed)
        beside = _beside(args, rec, failed)  # of this very time perhaps
        shown = [] if rec.failing else stalls.find(rec)  # which takes a while: what cannot be done again is written by now
        written += _write([path for path in args.o if not path.endswith(".record")], rec, shown, args, failed, beside)
        data = recordings.recording_data(rec, _counted(args), failed)
        data["files"] = [path for path in args.o if path in written]
        data["file"] = next(iter(data["files"]), None)
        data["stalls"] = [recordings.STALL.data(s) for s in shown]
        data["beside"] = [{"file": t.path, "events": len(t.events), "begin": t.began - rec.began} for t in beside]
        if args.slowest:
            data["slowest"] = [recordings.step_data(rec, shown, *step) for step in steps.slowest(rec, args.slowest)]
            data["without_steps"] = [escape(process.label) for process in steps.without(rec)]
        partial = [*rec.notes, *recordings.much_dropped(rec), *(f"{f['label']}: {f['reason']}" for f in failed)]
        return Answer(data, lambda style: recordings.recording_text(data, style), partial)


def _counted(args: Args) -> flame.Counted:
    return flame.Counted(args.cpu, args.idle, args.gil, args.lines)


def _table(args: Args) -> Answer:
    """What took the time in a trace of torch.profiler."""
    if args.o or getattr(args, "with") or args.operand_text:
        raise UsageError("llm-record: -read of a trace gives a table; -with TRACE -o FILE.json combines it with a recording")
    data = recordings.trace_data(torch_trace.read(args.read))
    return Answer(data, lambda style: recordings.trace_text(data, style))


def _beside(args: Args, rec: Recording, failed: list[dict[str, Any]]) -> list[torch_trace.Trace]:
    """The traces of -with; what cannot be put beside the recording is a failed one, and what is of another time is noted."""
    found = []
    for path in getattr(args, "with"):
        try:
            trace = torch_trace.read(path)
            if not trace.has_base:
                raise GdbextError("its times count from an unknown moment and cannot be combined with others")
        except GdbextError as e:
            failed.append({"label": path, "pid": None, "reason": str(e)})
            continue
        found.append(trace)
        if trace.ended < rec.began or trace.began > rec.began + rec.seconds:
            when = f"{trace.began - rec.began:.3f} to {trace.ended - rec.began:.3f} s"
            rec.notes.append(f"{path} is of another time than the recording: {when} on its clock")
    return found


def _write(
    paths: Sequence[str],
    rec: Recording,
    shown: Sequence[Stall],
    args: Args,
    failed: list[dict[str, Any]],
    beside: Sequence[torch_trace.Trace] = (),
) -> list[str]:
    """-> the files that were written; one that cannot be is a failed one, and the others are written all the same."""
    written = []
    for path in paths:
        try:
            what, form = _counted(args), args.format or ""
            store.write(path, rec, shown, what=what, form=form, force=args.force, beside=beside)
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
        raise GdbextError(f"{args.read}: no sample between -from and -to: it lasts {rec.seconds:.3f} s")
    return part


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
    data = recordings.difference_data(after, before, args.o)
    return Answer(data, lambda style: recordings.difference_text(data, style))
