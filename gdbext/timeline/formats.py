"""Recordings in the formats of other tools: Chrome's trace events, which Perfetto opens, and speedscope's.

Sources: "Trace Event Format" (Google, the document that chrome://tracing names; objects with `traceEvents`). How Perfetto's trace
processor nests slices (src/trace_processor, slice_tracker.cc: a slice that partly overlaps another is dropped). speedscope's
src/lib/file-format-spec.ts (`FileFormat.File`, version 0.0.1).
"""

from __future__ import annotations

import itertools
import json
from typing import Any, Iterator, Sequence

from ..render.text import escape
from . import stalls as stalls_of
from . import steps as steps_of
from . import torch_trace
from .recording import DROPPED, GIL, RUNNING, STATES, Frame, ProcessTrack, Recording, ThreadTrack
from .stalls import Stall
from .torch_trace import Trace

SPEEDSCOPE = "https://www.speedscope.app/file-format-schema.json"
OWN_TRACKS = 1 << 30  # thread ids of tracks that are no threads: Linux gives no such high ids


def microseconds(seconds: float) -> int:
    """Seconds as whole microseconds. Perfetto cuts off fractions of a nanosecond, and drops a slice that then begins before
    another's end."""
    return round(seconds * 1e6)


def _meta(pid: int, name: str, value: Any, tid: int = 0) -> dict[str, Any]:
    key = "sort_index" if name.endswith("sort_index") else "name"
    return {"ph": "M", "pid": pid, "tid": tid, "name": name, "args": {key: value}}


def chrome_events(rec: Recording, stalls: Sequence[Stall] = ()) -> Iterator[dict[str, Any]]:
    """The trace events; times in microseconds since the recording began. Each process has a track for each thread with its calls,
    and one with the thread's states. It also has tracks for the GIL, the collector, the steps and the stalls, and counters."""
    for number, process in enumerate(rec.processes):
        pid = process.pid
        yield _meta(pid, "process_name", escape(f"{process.label} {pid}" if process.label != str(pid) else process.label))
        yield _meta(pid, "process_sort_index", number)
        for index, thread in enumerate(process.threads):
            name = escape(thread.name or str(thread.tid))
            yield _meta(pid, "thread_name", name, thread.tid)
            yield _meta(pid, "thread_sort_index", 2 * index + 10, thread.tid)
            yield from _calls(rec, process, thread)
            state = OWN_TRACKS + 2 + index
            yield _meta(pid, "thread_name", f"{name}: state", state)
            yield _meta(pid, "thread_sort_index", 2 * index + 11, state)
            for begin, end, what in _states(process, thread):
                yield _slice(pid, state, STATES[what], begin, end, "state")
        yield from _interpreter(process)
        for counter, values in process.counters.items():
            for at, value in values:
                yield {"ph": "C", "pid": pid, "name": escape(counter), "ts": microseconds(at), "args": {"value": value}}
        for at, pause in zip(process.begins, process.pauses):
            yield {"ph": "C", "pid": pid, "name": "ms paused", "ts": microseconds(at), "args": {"value": 1000 * pause}}
    yield from _steps(rec)
    yield from _stalls(stalls)


def _stalls(stalls: Sequence[Stall]) -> Iterator[dict[str, Any]]:
    """A slice for each stall. Perfetto drops slices that partly overlap, so there are enough tracks for none to overlap
    another."""
    lanes: dict[int, list[float]] = {}
    for stall in sorted(stalls, key=lambda s: s.begin):
        pid, ends = stall.process.pid, lanes.setdefault(stall.process.pid, [])
        lane = next((i for i, end in enumerate(ends) if end <= stall.begin), len(ends))
        if lane == len(ends):
            ends.append(0.0)
            yield _meta(pid, "thread_name", "stalls", OWN_TRACKS - 2 - lane)
            yield _meta(pid, "thread_sort_index", -1, OWN_TRACKS - 2 - lane)
        ends[lane] = stall.end
        where = escape(f"{stall.frame.function} ({stall.frame.file}:{stall.frame.line})") if stall.frame is not None else ""
        args = {"thread": escape(stall.thread.name), "where": where, "why": stall.why, "waiting": escape(" ".join(stall.waiting))}
        yield _slice(pid, OWN_TRACKS - 2 - lane, f"stall: {stall.cause}", stall.begin, stall.end, "stall", args)


def _steps(rec: Recording) -> Iterator[dict[str, Any]]:
    """A slice for each step of a process, with the function in which it was longest."""
    finder = stalls_of.Finder(rec)
    for process in rec.processes:
        named = False
        for step in steps_of.steps(finder, process):
            if not named:
                yield _meta(process.pid, "thread_name", "steps", OWN_TRACKS - 1)
                yield _meta(process.pid, "thread_sort_index", -2, OWN_TRACKS - 1)
                named = True
            where = escape(f"{step.frame.function} ({step.frame.file}:{step.frame.line})") if step.frame is not None else ""
            yield _slice(process.pid, OWN_TRACKS - 1, "step", step.begin, step.end, "step", {"longest in": where})


def _slice(pid: int, tid: int, name: str, begin: float, end: float, category: str, args: Any = None) -> dict[str, Any]:
    event: dict[str, Any] = {"ph": "X", "pid": pid, "tid": tid, "name": name, "cat": category, "ts": microseconds(begin)}
    event["dur"] = microseconds(end) - event["ts"]
    if args:
        event["args"] = args
    return event


def _calls(rec: Recording, process: ProcessTrack, thread: ThreadTrack) -> Iterator[dict[str, Any]]:
    """Begin and end of each call that stays the same from look to look, in the order of time. Of two calls that begin at the same
    time the outer one comes first: Perfetto takes the later one for the callee. A look with a torn stack is a gap."""
    open_calls: list[Frame] = []
    end = 0.0
    for run in process.runs(thread):
        stack = [] if run.node == DROPPED else rec.tree.stack(run.node)
        same = 0
        while same < min(len(stack), len(open_calls)) and stack[same].place == open_calls[same].place:
            same += 1
        yield from _closed(process, thread, open_calls, same, run.begin)
        for frame in stack[same:]:
            event = _edge("B", process.pid, thread.tid, escape(frame.function), run.begin)
            yield {**event, "cat": "native" if frame.native else "python", "args": _source(frame)}
        open_calls += stack[same:]
        end = run.end
    yield from _closed(process, thread, open_calls, 0, end)


def _source(frame: Frame) -> dict[str, Any]:
    file = escape(frame.file)
    return {"file": file} if frame.native else {"file": file, "line": frame.line}


def _closed(process: ProcessTrack, thread: ThreadTrack, calls: list[Frame], keep: int, at: float) -> Iterator[dict[str, Any]]:
    while len(calls) > keep:
        yield _edge("E", process.pid, thread.tid, escape(calls.pop().function), at)


def _edge(phase: str, pid: int, tid: int, name: str, at: float) -> dict[str, Any]:
    return {"ph": phase, "pid": pid, "tid": tid, "name": name, "ts": microseconds(at)}


def _states(process: ProcessTrack, thread: ThreadTrack) -> Iterator[tuple[float, float, int]]:
    begin, end, what = 0.0, 0.0, -1
    for run in process.runs(thread):
        if run.state != what:
            if what >= 0:
                yield begin, end, what
            begin, what = run.begin, run.state
        end = run.end
    if what >= 0:
        yield begin, end, what


def _interpreter(process: ProcessTrack) -> Iterator[dict[str, Any]]:
    """The holder of the GIL, the times of collections, and the numbers of threads that run or wait for the GIL."""
    pid, threads = process.pid, process.threads
    for number, name in enumerate(("GIL", "garbage collection")):
        yield _meta(pid, "thread_name", name, OWN_TRACKS + number)
        yield _meta(pid, "thread_sort_index", number, OWN_TRACKS + number)
    for begin, end, index in process.spans(process.gil):
        if index >= 0:
            yield _slice(pid, OWN_TRACKS, escape(threads[index].name or str(threads[index].tid)), begin, end, "GIL")
    for begin, end, collecting in process.spans(process.gc):
        if collecting:
            yield _slice(pid, OWN_TRACKS + 1, "garbage collection", begin, end, "gc")
    for state, name in ((RUNNING, "threads that run"), (GIL, "threads that wait for the GIL")):
        changes: dict[float, int] = {}
        for thread in threads:
            for begin, end, what in _states(process, thread):
                if what == state:
                    changes[begin] = changes.get(begin, 0) + 1
                    changes[end] = changes.get(end, 0) - 1
        count = 0
        for at in sorted(changes):
            count += changes[at]
            if changes[at]:
                yield {"ph": "C", "pid": pid, "name": name, "ts": microseconds(at), "args": {"value": count}}


def chrome_text(rec: Recording, stalls: Sequence[Stall] = (), beside: Sequence[Trace] = ()) -> Iterator[str]:
    """The trace as JSON, in pieces. `beside`: traces of torch.profiler, on the same time base."""
    about = {"recorder": "gdbext llm-record", "began": rec.began, "rate": rec.rate, "reached": round(rec.reached, 2)}
    yield '{"displayTimeUnit":"ms","otherData":' + json.dumps(about) + ',"traceEvents":[\n'
    between = ""
    pids = {process.pid: process.label for process in rec.processes}
    others = (torch_trace.chrome_events(trace, rec.began, pids) for trace in beside)
    for event in itertools.chain(chrome_events(rec, stalls), *others):
        yield between + json.dumps(event, separators=(",", ":"))
        between = ",\n"
    yield "\n]}\n"


def speedscope(rec: Recording, cpu: bool = False) -> dict[str, Any]:
    """The recording as speedscope's file: a profile for each thread. `cpu`: only while the thread ran."""
    frames: list[dict[str, Any]] = []
    known: dict[int, int] = {}
    paths: dict[int, list[int]] = {}

    def path(node: int) -> list[int]:
        if node not in paths:
            found, at = [], node
            while at:
                number = rec.tree.numbers[at]
                if number not in known:
                    frame = rec.tree.frames[number]
                    known[number] = len(frames)
                    frames.append({"name": escape(frame.function), **_source(frame)})
                found.append(known[number])
                at = rec.tree.parents[at]
            paths[node] = found[::-1]
        return paths[node]

    profiles = []
    for process in rec.processes:
        for thread in process.threads:
            runs = [r for r in process.runs(thread) if r.state == RUNNING or not cpu]
            if not runs:
                continue
            profiles.append(
                {
                    "type": "sampled",
                    "name": escape(f"{process.label} {thread.name or thread.tid}"),
                    "unit": "seconds",
                    "startValue": runs[0].begin,
                    "endValue": runs[0].begin + sum(r.end - r.begin for r in runs),
                    "samples": [[] if r.node == DROPPED else path(r.node) for r in runs],
                    "weights": [r.end - r.begin for r in runs],
                }
            )
    return {
        "$schema": SPEEDSCOPE,
        "shared": {"frames": frames},
        "profiles": profiles,
        "name": "gdbext llm-record",
        "exporter": "gdbext",
        "activeProfileIndex": 0,
    }
