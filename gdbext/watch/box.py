"""The box on disk: one file (`bundle.format`), whole or absent: what a verdict rests on and the last minutes (`ring.json`)."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import re
import stat
import time
from dataclasses import dataclass
from typing import Any, Callable

from .. import __version__, log
from ..bundle import format as bundles
from ..errors import GdbextError
from ..render import files
from ..render.text import escape, size
from . import model
from .beside import TRACEBACK
from .found import Verdict
from .loop import Watch

RING, REPORT = "ring.json", "report.html"
BURST, SPAN = 4, 600.0  # so many boxes in so many seconds
MOST_BYTES = 512 << 20  # of all boxes of a watch that are kept: less than the volume that units.py gives it
LAST_FRAMES = 12  # of a stack on the page
STAMP = re.compile(r"\d{8}-\d{6}(-\d+)?")  # of a box's name
MAX_NAMES = 1000  # of boxes of one second


@dataclass
class Boxes:
    """Where boxes go. `keep`: how many stay there, the newest, also of watches before; `most`: bytes of one; the biggest
    snapshots are left out first."""

    folder: str
    keep: int = 10
    most: int = 20_000_000
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._times: dict[bool, collections.deque[float]] = {asked: collections.deque([], BURST) for asked in (False, True)}
        self._written: list[str] = []  # names without their endings
        self._before: list[str] | None = None  # the same of watches before this one, once the folder was listed
        self.last: dict[str, Any] = {}

    @property
    def newest(self) -> str:
        """The path of the last box, "" before the first."""
        return self._written[-1] + bundles.SUFFIX if self._written else ""

    def refusal(self, asked: bool = False) -> str:
        """Why no box may be written now; "" where one may. Boxes that others have `asked` for are counted for themselves."""
        recent = [at for at in self._times[asked] if self.clock() - at < SPAN]
        return f"{len(recent)} boxes were written in the last {SPAN / 60:.0f} minutes" if len(recent) >= BURST else ""

    def keep_one(self, why: str, verdict: Verdict | None, watch: Watch, asked: bool = False) -> dict[str, Any] | None:
        """Writes a box. -> the fields of its answer; None where none may be written now."""
        refused = self.refusal(asked)
        if refused:
            watch.tell(model.NO_BOX, why=refused)
            return None
        self.last = self._write(why, verdict, watch)
        self._times[asked].append(self.clock())
        self._forget()
        return self.last

    def keep_end(self, why: str, watch: Watch) -> dict[str, Any]:
        """The box of a watch that ends: what it has in memory, and nothing is read or stopped. It takes no other's place."""
        self._forget()
        return self._write(why, None, watch)

    def _write(self, why: str, verdict: Verdict | None, watch: Watch) -> dict[str, Any]:
        try:
            lacks = verdict.complete() if verdict is not None else []
        except Exception as e:  # what was read of damaged memory costs no box
            log.passed_over(e)
            lacks = [f"a part of what was examined: {model.reason(e)}"]
        base = self._free()
        path, kept = base + bundles.SUFFIX, dict(verdict.memory) if verdict is not None else {}
        dropped: dict[str, str] = {}
        while True:
            manifest, members = contents(why, verdict, watch, set(kept), dropped)
            manifest["left_out"] += lacks
            try:
                length = bundles.write(path, manifest, {**members, **kept}, "-o", False, self.most)
                break
            except bundles.TooBig as e:
                for name, packed in e.without.items():
                    dropped[name] = f"{size(packed)}: the box would have more than {size(self.most)}"
                    del kept[name]
            except (GdbextError, OSError) as e:  # a disk that is almost full may have room for what is small
                if os.path.lexists(path):  # another watch of the same second has taken the name
                    base = self._free()
                    path = base + bundles.SUFFIX
                    continue
                if not kept:
                    raise
                dropped.update(dict.fromkeys(kept, str(e)))
                kept.clear()
        self._written.append(base)
        report, partial = path, [*lacks, *(f"the memory of {name}: {word}" for name, word in dropped.items())]
        try:
            report = _report(base + ".html", verdict.page) if verdict is not None and verdict.page else path
        except (GdbextError, OSError) as e:  # the box has it too
            partial.append(f"no report: {e}")
        made = {"why": why, "file": report, "bytes": os.path.getsize(report), "box": path, "box_bytes": length}
        inside = [one for one in manifest["processes"] if one["file"]]
        snapshots = [{"label": o["label"], "pid": o["pid"], "file": f"{path}/{o['file']}", "bytes": o["bytes"]} for o in inside]
        over = [f"the box has {size(length)}, more than -max-bytes, and no snapshot is left to leave out"] * (length > self.most)
        return {**made, "snapshots": snapshots, "partial": [*partial, *over]}

    def _free(self) -> str:
        """A path without an ending that no file has."""
        folder = files.folder_for(self.folder, "-o")
        stamp = os.path.join(folder, time.strftime("%Y%m%d-%H%M%S"))
        names = (f"{stamp}-{number}" if number > 1 else stamp for number in range(1, MAX_NAMES))
        return next(one for one in names if not os.path.lexists(one + bundles.SUFFIX) and not os.path.lexists(one + ".html"))

    def _forget(self) -> None:
        """Removes the oldest boxes of watches, where there are more than are kept."""
        if self._before is None:
            self._before = [one for one in _boxes_in(self.folder) if one not in self._written]
        sizes = {base: _size(base) for base in [*self._before, *self._written]}
        while len(sizes) > 1 and (len(sizes) > self.keep or sum(sizes.values()) > MOST_BYTES):
            base = next(iter(sizes))
            for ending in (".html", bundles.SUFFIX):
                with log.passing_over(OSError):
                    os.unlink(base + ending)
            del sizes[base]
        self._before = [base for base in self._before if base in sizes]
        self._written = [base for base in self._written if base in sizes]


def _report(path: str, text: str) -> str:
    with contextlib.closing(files.Draft(path, "-o", mode=0o600)) as page:
        page.write(text)
        return page.keep()


def _boxes_in(folder: str) -> list[str]:
    """The boxes in a folder that watches of this user have written, without their endings, the oldest first."""
    found = []
    with log.passing_over(GdbextError, OSError), os.scandir(files.folder_for(folder, "-o")) as inside:
        for one in sorted(inside, key=lambda one: one.name):
            base, ending = os.path.splitext(one.path)
            if ending != bundles.SUFFIX or not STAMP.fullmatch(os.path.basename(base)):
                continue
            there = one.stat(follow_symlinks=False)
            if there.st_uid != os.geteuid() or not stat.S_ISREG(there.st_mode):
                continue
            with log.passing_over(Exception), contextlib.closing(bundles.Bundle(one.path)) as box:
                if box.kind == "box":
                    found.append((there.st_mtime, base))
    return [base for _, base in sorted(found)]


def _size(base: str) -> int:
    total = 0
    for ending in (".html", bundles.SUFFIX):
        with contextlib.suppress(OSError):
            total += os.lstat(base + ending).st_size
    return total


def contents(
    why: str, verdict: Verdict | None, watch: Watch, kept: set[str], dropped: dict[str, str]
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """-> (the manifest, {name: bytes} of the members that are no memory). `kept`: the names of those that are; `dropped`: why
    others are not there."""
    history = watch.history()
    seen = {one["pid"]: one for one in verdict.processes} if verdict is not None else {}
    processes = []
    for rank in history["ranks"]:
        told = seen.get(rank["pid"], {})
        file = told.get("file") if told.get("file") in kept else None
        own = {key: rank[key] for key in ("label", "pid", "role", "engine", "ended", "how", "signal", "first")}
        processes.append({"instance": None, "program": "", "pause": 0.0, "bytes": None, **told, **own, "file": file})
    manifest = {
        "schema": bundles.BOX,
        "gdbext": __version__,
        "time": history["now"],
        "began": history["began"],
        "node": os.uname().nodename,
        "why": why,
        "verdict": verdict.kind if verdict is not None else None,
        "sentence": verdict.data["sentence"] if verdict is not None else None,
        "processes": processes,
        "left_out": [f"the memory of {name}: {word}" for name, word in dropped.items()],
    }
    found = {RING: _json(history).encode(), **(verdict.members if verdict is not None else {})}
    if verdict is not None and verdict.page:
        found[REPORT] = verdict.page.encode("utf-8", "backslashreplace")
    found[bundles.PAGE] = page(manifest, history, verdict).encode("utf-8", "backslashreplace")
    return manifest, found


def _json(data: Any) -> str:
    return json.dumps(data, separators=(",", ":"), default=str)


def page(manifest: dict[str, Any], history: dict[str, Any], verdict: Verdict | None) -> str:
    """One page of Markdown, to paste."""
    lines = [f"# {escape(manifest['why'])}", ""]
    if verdict is not None:
        lines += ["```", *(_fenced(line) for line in verdict.text), "```", ""]
    lines += ["| process | pid | role | ended |", "| --- | --- | --- | --- |"]
    for one in manifest["processes"]:
        words = [one["label"], one["pid"], one["role"], f"{one['how']}{' (first)' if one['first'] else ''}"]
        lines.append("| " + " | ".join(escape(str(word)).replace("|", "\\|") for word in words) + " |")
    for rank in history["ranks"]:
        if rank["ended"] is not None:
            main = next((stack for tid, _, stack in rank["now"] if tid == rank["pid"]), None)
            stack = rank["stacks"][main][-LAST_FRAMES:] if main is not None else []
            lines += ["", f"Last seen in {_fenced(rank['label'])} (pid {rank['pid']}):", "", "```", *map(_fenced, stack), "```"]
    for rank in history["ranks"]:
        told = [values for _, what, values in rank["notes"] if what == TRACEBACK][-1:]
        for one in told:
            error = f", {escape(one['error'])}" if one["error"] else ""
            lines += ["", f"In the log of {_fenced(rank['label'])}, the last traceback{error}:", "", "```"]
            lines += [*map(_fenced, one["frames"][-LAST_FRAMES:]), "```"]
    lines += ["", "| engine | running | waiting | tokens | steps | KV | seconds without progress |", "| --- " * 7 + "|"]
    for engine in history["engines"]:
        now = engine["numbers"][-1] if engine["numbers"] else [None] * 10
        cells = [engine["name"], *now[1:6], now[9]]
        lines.append("| " + " | ".join("" if cell is None else escape(str(cell)).replace("|", "\\|") for cell in cells) + " |")
    growing = [(one["label"], one["pid"], one["numbers"][-1][6]) for one in history["ranks"] if one["numbers"]]
    growing = [one for one in growing if one[2]]
    if growing:
        lines += ["", "| memory that keeps growing | pid | a minute |", "| --- | --- | --- |"]
        lines += [f"| {escape(str(label)).replace('|', chr(92) + '|')} | {pid} | {size(more)} |" for label, pid, more in growing]
    lines += ["", "```"]
    for event in history["events"][-40:]:
        said = " ".join(
            f"{k}={v}" for k, v in event.items() if k not in ("kind", "time", "stack", "culprits") and v not in (None, "", [])
        )
        lines.append(_fenced(f"{time.strftime('%H:%M:%S', time.localtime(event['time']))} {event['kind']} {said}"))
    lines += ["```", "", f"gdbext {manifest['gdbext']}, ring of {sum(r['bytes'] for r in history['ranks']) >> 10} KiB"]
    return "\n".join(lines) + "\n"


def _fenced(text: str) -> str:
    """A line inside a code block, which it cannot end."""
    return escape(text).replace("```", "'''")
