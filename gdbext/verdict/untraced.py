"""What /proc shows of a process that may not be traced: states, clocks and wait channels of its threads, over a window.

proc(5): every user may read stat, status, schedstat and comm of a thread; wchan needs the permission to trace."""

from __future__ import annotations

import re
import time
from typing import Any

from .. import log
from ..access.procfs import read_or_empty, wait_channel
from ..observe.log_reader import Logs
from ..observe.logs import AT_ONCE, Traceback
from .facts import ProcessState

BUSY = 0.05  # of a CPU: a thread that uses more is named
SHOWN = 8
STATES = {"R": "runs", "S": "sleeps", "D": "waits in the kernel", "T": "is stopped", "t": "is traced", "Z": "has ended"}


def is_refused(s: ProcessState) -> bool:
    """Whether permission to read a process was refused while its clocks could be read."""
    return s.view is None and "no permission" in s.why and bool(s.window.after)


def data(s: ProcessState) -> dict[str, Any]:
    """`{label, pid, state, seconds, threads: [{tid, name, state, cpu, woke, wchan}]}`. `cpu` is the part of a CPU that the thread
    used, `woke` how often it went to sleep in the window. Both are None for a thread that is new since the first sample."""
    threads = []
    for tid, clock in sorted(s.window.after.items()):
        seen = s.window.thread(tid)
        one: dict[str, Any] = {"tid": tid, "name": _text(s.pid, tid, "comm"), "state": clock.state}
        one["cpu"] = s.window.load(seen.ran)
        one["woke"] = None if seen.ran is None else seen.woke
        wait = wait_channel(s.pid, tid)
        threads.append({**one, "wchan": wait if re.fullmatch(r"[a-z_]\w+", wait) else None})
    return {"label": s.name, "pid": s.pid, "state": s.state, "seconds": s.window.seconds, "threads": threads}


def _text(pid: int, tid: int, name: str) -> str:
    return read_or_empty(pid, f"task/{tid}/{name}").decode("utf-8", "replace").strip()


def log_of(pid: int, logs: Logs) -> dict[str, Any] | None:
    """What the end of a process's log tells, `{levels: {level: lines}, quiet: seconds since it was written to, error, frames}`,
    the last two of the last traceback; None where it has none that may be read, or one that was read for another process."""
    with log.passing_over(OSError):
        key = logs.join(pid, AT_ONCE)
        said = logs.read(key) if key is not None and len(logs.users(key)) == 1 else None
        if said is None:
            return None
        last = said.tracebacks[-1] if said.tracebacks else Traceback((), "")
        quiet = max(0.0, time.time() - said.written)
        return {"levels": said.levels, "quiet": round(quiet, 1), "error": last.error, "frames": list(last.frames)}
    return None


def log_lines(told: dict[str, Any] | None) -> list[str]:
    """`log_of` in words, not escaped."""
    if told is None:
        return []
    counted = ", ".join(f"{n} {level}" for level, n in told["levels"].items() if level in ("CRITICAL", "ERROR", "WARNING"))
    last = f"; the last traceback ends in {told['frames'][-1]}" if told["frames"] else ""
    error = f" ({told['error']})" if told["error"] else ""
    counted = f"; lines at its end: {counted}" if counted else ""
    return [f"  its log: nothing was written for {told['quiet']:.0f} s{counted}{last}{error}"]


def lines(one: dict[str, Any], verbose: bool = False) -> list[str]:
    """`data` in words, not escaped; `verbose`: each thread."""
    threads = one["threads"]
    busy = [t for t in threads if (t["cpu"] or 0) >= BUSY]
    woke = [t for t in threads if t not in busy and t["woke"]]
    still = len(threads) - len(busy) - len(woke)
    found = [
        f"{one['label']} may not be traced; this is from /proc, in {one['seconds']:.1f} s: "
        f"{len(busy)} of {len(threads)} threads ran, {len(woke)} woke and slept, {still} did not run"
    ]
    if verbose:
        return found + [_line(t) for t in threads]
    for t in sorted(busy, key=lambda t: -t["cpu"])[:SHOWN]:
        found.append(f"  {t['tid']} {t['name']}: {t['cpu'] * 100:.0f} % CPU")
    main = next((t for t in threads if t["tid"] == one["pid"]), None)
    if main is not None and main not in busy:
        where = f" in {main['wchan']}" if main["wchan"] else ""
        found.append(f"  {main['tid']} {main['name']}, its main thread: {STATES.get(main['state'], main['state'])}{where}")
    return found


def _line(t: dict[str, Any]) -> str:
    where = f" in {t['wchan']}" if t["wchan"] else ""
    did = "" if t["cpu"] is None else f", {t['cpu'] * 100:.0f} % CPU" + (f", woke {t['woke']} times" if t["woke"] else "")
    return f"  {t['tid']} {t['name']}: {STATES.get(t['state'], t['state'])}{where}{did}"
