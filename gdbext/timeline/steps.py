"""The steps of a rank, and the times for which an event loop stays in one callback."""

from __future__ import annotations

import bisect
import os
from typing import Iterator, NamedTuple, Sequence

from ..engines import registry
from .recording import GIL, NETWORK, POLL, QUEUED, RUNNING, Frame, ProcessTrack, Recording
from .stalls import MUCH, Finder, Path, Segment, awaits, idle
from .step_counter import STEPS


class Step(NamedTuple):
    """One step, or the work of a main thread between two waits. `frame`: where it was for the longest part."""

    begin: float
    end: float
    frame: Frame | None


def steps(finder: Finder, process: ProcessTrack) -> Iterator[Step]:
    """The steps of a process: those that its engine counts, else its work between two waits. A step that was under way when the
    recording began or ended is left out: it was not seen whole."""
    counted = process.counters.get(STEPS, ())
    yield from _counted(finder, process, [at for at, _ in counted]) if len(counted) > 1 else _between_waits(finder, process)


def _counted(finder: Finder, process: ProcessTrack, marks: list[float]) -> Iterator[Step]:
    """The steps between `marks`. A step after an idle period begins when work arrives."""
    segments = list(finder.segments(process, process.threads[0])) if process.threads else []
    begins, ends = [s.begin for s in segments], [s.end for s in segments]
    resting = _resting([s.path for s in segments if s.path])
    for begin, end in zip(marks, marks[1:]):
        inside = segments[bisect.bisect_right(ends, begin) : bisect.bisect_left(begins, end)]
        begin = max([begin, *(s.end for s in inside if s.end < end and s.path in resting)])
        own = [s for s in inside if s.end > begin]
        longest = max(own, key=lambda s: min(s.end, end) - max(s.begin, begin), default=None)
        yield Step(begin, end, finder.frame(longest.node) if longest is not None else None)


def _between_waits(finder: Finder, process: ProcessTrack) -> Iterator[Step]:
    """The work of a main thread between two waits."""
    begin = end = -1.0
    waited = False
    longest: Segment | None = None
    for segment in finder.segments(process, process.threads[0]) if process.threads else ():
        if _waits(segment):
            if longest is not None:
                yield Step(begin, end, finder.frame(longest.node))
            longest, waited = None, True
        elif waited:
            begin, end = segment.begin if longest is None else begin, segment.end
            if longest is None or segment.end - segment.begin > longest.end - longest.begin:
                longest = segment


def slowest(rec: Recording, count: int) -> list[tuple[float, float, ProcessTrack]]:
    """[(begin, end, process)] of the longest steps, the longest first. A step that overlaps a longer one by half, on another
    rank, counts as the same step."""
    finder = Finder(rec)
    found = [(step.begin, step.end, process) for process in rec.processes for step in steps(finder, process)]
    kept: list[tuple[float, float, ProcessTrack]] = []
    for step in sorted(found, key=lambda s: s[0] - s[1]):
        if not any(min(step[1], k[1]) - max(step[0], k[0]) > MUCH * (step[1] - step[0]) for k in kept):
            kept.append(step)
        if len(kept) >= count:
            break
    return kept


def without(rec: Recording) -> list[ProcessTrack]:
    """The processes of which no step is known: their main threads never waited twice."""
    finder = Finder(rec)
    return [process for process in rec.processes if next(steps(finder, process), None) is None]


def count_loop_lags(rec: Recording) -> None:
    """Adds a counter to each process that runs asyncio loops: the length of each callback, at its end. The loop can run no other
    callback during it."""
    finder = Finder(rec)
    for process in rec.processes:
        lags = []
        for thread in process.threads:
            if len(thread.looks) > 1:
                for begin, end, _ in finder.callbacks(list(finder.segments(process, thread))):
                    lags += [(begin, 0.0), (end, end - begin), (end, 0.0)]
        if lags:
            process.counters["event loop lag"] = sorted(lags, key=lambda pair: pair[0])


def what_others_did(rec: Recording, begin: float, end: float) -> list[tuple[ProcessTrack, Frame | None, int, float]]:
    """[(process, the innermost frame of its main thread for the longest part of a time, its state then, that part)]."""
    finder = Finder(rec)
    found = []
    for process in rec.processes:
        if process.threads:
            segments = list(finder.segments(process, process.threads[0], begin, end))
            longest = max(segments, key=lambda s: min(s.end, end) - max(s.begin, begin), default=None)
            if longest is not None:
                first, last = max(longest.begin, begin), min(longest.end, end)
                state = finder.state(process, process.threads[0], first, last)
                found.append((process, finder.frame(longest.node), state, (last - first) / (end - begin or 1.0)))
    return found


def _resting(paths: Sequence[Path]) -> set[Path]:
    """Those of `paths` in which a scheduler has nothing to do. Such a path has a function in which schedulers wait for work: its
    innermost one, or one that not all paths share."""
    always, known = len(os.path.commonprefix(paths)) if paths else 0, set(paths)
    resting = {name for name in {name for path in known for name, _ in path} if registry.schedules_nothing_in(name)}
    return {path for path in known if any(name in resting for name, _ in path[min(always, len(path) - 1) :])}


def _waits(segment: Segment) -> bool:
    rests = idle(segment.path) and segment.part(RUNNING, QUEUED, GIL) < MUCH
    return segment.part(NETWORK, POLL) > MUCH or rests or awaits(segment.path)
