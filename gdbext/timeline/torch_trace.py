"""A trace that torch.profiler wrote: as a table, and as tracks next to a recording.

Sources: Kineto's libkineto/src/output_json.cpp (`baseTimeNanoseconds`, `traceEvents`; times in microseconds after that base;
without a base, after the epoch), "Trace Event Format". Its names are hostile text, like those of any file.
"""

from __future__ import annotations

import gzip
import io
import math
import os
from typing import Any, Iterator

from ..access.files import DAMAGE, JSON_SIZE, Budget, json_of, open_regular, take_json
from ..errors import GdbextError
from ..render.text import escape, shorten

PIECE_READ = 1 << 20
ENDINGS = (".json", ".json.gz")
SINCE_EPOCH = 1e15  # microseconds: September 2001; no machine is up for so long
NAME = 200  # characters of a name
TRACKS = 1 << 29  # thread ids of its tracks next to our own: Linux gives no such high ids
NO_WORK = ("Trace",)  # categories of frames around everything


class Event:
    """An event with a duration: `begin` in seconds since the epoch (NaN where the trace has no base), `seconds`."""

    __slots__ = ("name", "category", "pid", "tid", "begin", "seconds")

    def __init__(self, plain: dict[str, Any], base: float) -> None:
        self.name, self.category = shorten(str(plain["name"]), NAME), str(plain.get("cat") or "")
        self.pid, self.tid = plain["pid"], plain["tid"]
        self.begin, self.seconds = base + float(plain["ts"]) / 1e6, float(plain["dur"]) / 1e6
        if not isinstance(self.pid, (int, str)) or not isinstance(self.tid, (int, str)) or not 0 <= self.seconds < math.inf:
            raise ValueError("an event without a place or a time")


class Trace:
    """A trace. `events`: by time; `names`: {pid: the trace's name for the process}; `began`, `ended`: seconds since the epoch."""

    def __init__(self, path: str, plain: Any) -> None:
        self.path, base = path, plain.get("baseTimeNanoseconds")
        events = [one for one in plain["traceEvents"] if isinstance(one, dict)]
        lasting = [one for one in events if one.get("ph") == "X" and one.get("cat") not in NO_WORK]
        if base is None and lasting and min(float(one["ts"]) for one in lasting) < SINCE_EPOCH:
            self.base = math.nan
        else:
            self.base = float(base or 0) / 1e9
        self.events = sorted((Event(one, self.base) for one in lasting), key=lambda e: (e.begin, -e.seconds))
        named = [one for one in events if one.get("ph") == "M" and one.get("name") in ("process_name", "process_labels")]
        self.names = {one["pid"]: shorten(str(next(iter(one["args"].values()))), NAME) for one in named}
        if not self.events:
            raise GdbextError(f"{path}: a trace in which nothing lasts: it was written before anything was profiled")
        self.began = min(e.begin for e in self.events)
        self.ended = max(e.begin + e.seconds for e in self.events)

    @property
    def has_base(self) -> bool:
        """Whether its times can be compared with those of other recordings."""
        return not math.isnan(self.base)


def is_trace(path: str) -> bool:
    """Whether a file's name is that of a trace."""
    return path.endswith(ENDINGS) and not path.endswith(".speedscope.json")


def read(path: str) -> Trace:
    """The trace in a file, packed or not; `GdbextError` where it has none, or is too large."""
    try:
        with open_regular(os.path.expanduser(path)) as f:
            source: Any = gzip.GzipFile(fileobj=io.BufferedReader(f)) if path.endswith(".gz") else f  # type: ignore[type-var]
            budget, pieces = Budget(path, JSON_SIZE), []
            for piece in iter(lambda: source.read(PIECE_READ), b""):
                take_json(budget, piece)
                pieces.append(piece)
        return Trace(path, json_of(b"".join(pieces), path, taken=True))
    except OSError as e:
        raise GdbextError(f"{path}: {e.strerror or 'no trace of torch.profiler'}") from None
    except DAMAGE as e:
        raise GdbextError(f"{path}: no trace of torch.profiler: {type(e).__name__}") from None


def table(trace: Trace) -> list[dict[str, Any]]:
    """A row for each name: `{name, category, count, total, self, longest}` in seconds, the largest `self` first. `self` is
    without the events inside it on the same thread or stream."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    above: dict[tuple[Any, Any], list[tuple[float, dict[str, Any]]]] = {}
    for event in trace.events:
        key = event.category, event.name
        row = rows.get(key)
        if row is None:
            known: dict[str, Any] = {"name": escape(event.name), "category": escape(event.category)}
            row = rows[key] = {**known, "count": 0, "total": 0.0, "self": 0.0, "longest": 0.0}
        row["count"] += 1
        row["longest"] = max(row["longest"], event.seconds)
        row["self"] += event.seconds
        stack, end = above.setdefault((event.pid, event.tid), []), event.begin + event.seconds
        while stack and stack[-1][0] <= event.begin:
            stack.pop()
        if stack and end <= stack[-1][0] + 1e-6:
            stack[-1][1]["self"] -= event.seconds
        if all(one is not row for _, one in stack):  # a function that calls itself is counted once
            row["total"] += event.seconds
        stack.append((end, row))
    return sorted(rows.values(), key=lambda r: -float(r["self"]))


def chrome_events(trace: Trace, began: float, pids: dict[int, str]) -> Iterator[dict[str, Any]]:
    """Its events as Chrome's, in microseconds after `began`. Each of its threads has its own track next to those of the
    recording: Perfetto drops a slice that partly overlaps another. `pids`: {pid: label} of the recorded processes."""
    tracks: dict[tuple[Any, Any], int] = {}
    for event in trace.events:
        place = event.pid, event.tid
        if place not in tracks:
            tracks[place] = TRACKS + len(tracks)
            if event.pid not in pids:
                name = escape(f"torch: {trace.names.get(event.pid, event.pid)}")
                yield {"ph": "M", "pid": event.pid, "tid": 0, "name": "process_name", "args": {"name": name}}
            name = escape(f"torch: {event.tid}")
            yield {"ph": "M", "pid": event.pid, "tid": tracks[place], "name": "thread_name", "args": {"name": name}}
        begin, end = round((event.begin - began) * 1e6), round((event.begin + event.seconds - began) * 1e6)
        plain = {"ph": "X", "pid": event.pid, "tid": tracks[place], "name": escape(event.name), "cat": escape(event.category)}
        yield {**plain, "ts": begin, "dur": end - begin}
