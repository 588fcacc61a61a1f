"""llm-bundle: one file for a whole engine, that fits into an issue."""

from __future__ import annotations

import json
import os
import time
from typing import Any, Sequence

from .. import __version__
from ..access.proctable import ProcTable
from ..access.snapshot import CoreFileTarget
from ..answers.each_node import FAILED
from ..answers.places import PAUSE
from ..answers.requests import request_data
from ..api import bundled_memory, choosing
from ..api.verdicts import Verdict
from ..bundle import contents, format, page
from ..errors import GdbextError
from ..render import files
from ..render.fields import NUMBER, REAL, TEXT, Field, Fields
from ..render.text import Style, escape, seconds, size
from ..session.command import Answer, Args, Command, Option, UsageError
from ..session.session import Session
from ..stacks import prefetch, snapshots
from ..stacks.snapshots import ProcessSnapshot
from ..verdict import examine as examining
from ..verdict import exchange
from .snapshot_reader import READER

MAX_BYTES = 20_000_000
WITHOUT = (
    "prompts, texts, token ids, the environment and the values of options that are not known: in no file of the bundle",
    "memory that no answer reads: big tensors, objects far from every frame (llm-snapshot has more, and prompts too)",
)

INSIDE = Fields(
    Field("label", str),
    Field("pid", NUMBER),
    Field("role", str, "of an engine's process"),
    Field("instance", NUMBER, "the same for all processes of one running engine"),
    Field("program", str),
    Field("pause", REAL, "seconds for which it was stopped"),
    Field("time", REAL, "when it was copied, seconds after the epoch"),
    Field("file", TEXT, "its snapshot in the archive; null where there is none"),
    Field("bytes", NUMBER, "of that, unpacked"),
    Field("left_out_bytes", NUMBER, "private memory that is not in it"),
    Field("partial", [str], "what is missing, and why"),
)


class LlmBundle(Command):
    """Write one file for a whole engine, small enough for an issue, and a page of Markdown to paste.

    Judges as llm-hang does, copies what answers read of each process, all in one moment, in a pause of milliseconds each, and
    writes a zip archive: the verdict, the requests, a small snapshot of each process, and page.md, which is also written beside
    it. No prompt, token id or secret is in it: of memory only the bytes stay that the reading commands read, without content.

      $ gdbext bundle all -o hang.gdbext
      hang.gdbext  6.1 MiB  4 processes, copied within 3.10 ms
      hang.gdbext.md  the page for the issue
      lock-held: TP1 holds the Lock self.lock and does not release it, in put (cache.py:31)

    The file stands wherever the file of a core may stand: llm-hang ./hang.gdbext judges it, also several of several machines
    together; pybt -all -on ./hang.gdbext/TP1, llm-stacks, llm-requests, llm-locks and gdbext.open() read it. What was left out
    is said when it is asked for."""

    name = "llm-bundle"
    copies = 1
    group = "hang"
    fields = Fields(
        Field("file", TEXT),
        Field("page", TEXT, "the file of the page"),
        Field("bytes", int),
        Field("processes", [INSIDE]),
        Field("spread", REAL, "seconds from the first copy to the last"),
        *(Field(name, str, "as of llm-hang") for name in ("verdict", "sentence")),
        Field("left_out", [str], "sentences"),
        Field("pauses", [PAUSE]),
        Field("failed", [FAILED]),
    )
    operand = "[WHAT...]"
    completion = "what"
    takes_target = False
    standalone = True
    options = (
        Option("o", "str", "the file to write (gdbext-TIME.gdbext)", metavar="FILE"),
        Option("max-bytes", "int", "the most that the file may have; the biggest snapshots are left out first", MAX_BYTES, "N"),
        Option("wait", "float", "seconds to watch before the stop, as for llm-hang", 1.0, "S"),
        Option("force", help="replace files that are there"),
    )

    def run(self, session: Session, args: Args) -> Answer:
        path = args.o or time.strftime(f"gdbext-%Y%m%d-%H%M%S{format.SUFFIX}")
        if not 0 <= args.wait <= 600 or args.max_bytes < 1:
            raise UsageError("llm-bundle: -wait is 0 to 600 seconds, -max-bytes 1 or more")
        beside = path + ".md"
        for one in (path, beside):
            files.may_write(one, "-o", args.force)
        found = choosing.resolve_processes(session, args.operand_text, routers=True)
        if any(one.pid is None for one in found):
            raise GdbextError(f"{args.operand_text} is a file already")
        told = _Told(session, examining.examine(found, session.targets, args.wait, (prefetch.KV,), kept=READER))
        total = told.write(path, args.max_bytes, args.force)
        files.write(beside, "-o", told.page, args.force)
        data = self.fields.of(
            file=os.path.abspath(os.path.expanduser(path)),
            page=os.path.abspath(os.path.expanduser(beside)),
            bytes=total,
            processes=told.processes,
            spread=told.spread,
            verdict=told.verdict.kind,
            sentence=told.verdict.sentence,
            left_out=told.left_out,
            pauses=told.verdict.pauses,
            failed=snapshots.failed(told.shots),
        )

        def text(style: Style) -> str:
            count = sum(one["file"] is not None for one in told.processes)
            within = f", copied within {seconds(told.spread)}" if count > 1 else ""
            lines = [f"{style.file(escape(path))}  {size(total)}  {count} process{'es' * (count != 1)}{within}"]
            lines += [f"{style.file(escape(beside))}  the page for the issue"]
            lines += [f"{escape(told.verdict.kind)}: {escape(told.verdict.sentence)}"]
            lines += [style.bad(f"{escape(f['label']) or f['pid']}  not taken: {escape(f['reason'])}") for f in data["failed"]]
            return "\n".join(lines)

        over = f"the bundle has {size(total)}, more than -max-bytes, and no snapshot is left to leave out"
        return Answer(data, text, [*told.verdict.partial, *([over] if total > args.max_bytes else [])])


class _Told:
    """All that a bundle says of an examination, whose copies it keeps."""

    def __init__(self, session: Session, found: examining.Examination) -> None:
        self.verdict, self.found = Verdict.of(found), found
        self.shots = _shots(session, found)
        self.dropped: dict[str, str] = {}  # names in the archive of snapshots that do not fit, and why
        moments = [shot.moment for shot in self.shots if shot.target is not None and shot.moment]
        self.spread = max(moments, default=0.0) - min(moments, default=0.0)
        self.names = {s.pid: s.name for s in found.seen if s.pid}
        self.memory = bundled_memory.written([(s.pid, s.name) for s in found.seen if s.pid and s.view is not None])
        self.requests = [request_data(None, one) for one in found.requests or ()]
        self.table = ProcTable().processes
        self.processes: list[dict[str, Any]] = []
        self.left_out: list[str] = []
        self.page = ""

    def write(self, path: str, most: int, force: bool) -> int:
        """Writes the archive; -> its bytes."""
        while True:
            members = self._members()
            try:
                manifest = {
                    "schema": format.BUNDLE,
                    "time": time.time(),
                    "gdbext": __version__,
                    "node": os.uname().nodename,
                    "spread": self.spread,
                    "processes": self.processes,
                    "left_out": self.left_out,
                }
                return format.write(path, manifest, members, "-o", force, most)
            except format.TooBig as e:
                for name, packed in e.without.items():
                    self.dropped[name] = f"{size(packed)}: the bundle would have more than {size(most)}"

    def _members(self) -> dict[str, Any]:
        snaps = [(shot, _member(shot)) for shot in self.shots]
        kept = {name: shot.target.file.data for shot, name in snaps if shot.target is not None and name not in self.dropped}
        self.processes = [self._process(shot, name if name in kept else None) for shot, name in snaps]
        self.left_out = [*WITHOUT, *(f"the memory of {name}: {why}" for name, why in self.dropped.items())]
        for one in self.processes:
            self.left_out += [f"{one['label'] or one['pid']}: {reason}" for reason in one["partial"]]
        self.page = self._page()
        facts = exchange.facts_data(self.found.seen, self.found.sides, os.uname().nodename, __version__)
        facts["pauses"] = self.verdict.pauses
        hang = Answer(self.verdict.data, "", self.verdict.partial).json("llm-hang")
        requests = Answer({"requests": self.requests}, "").json("llm-requests")
        return {
            format.HANG: hang.encode(),
            format.FACTS: json.dumps(facts).encode(),
            format.REQUESTS: requests.encode(),
            format.MEMORY: self.memory,
            format.PAGE: self.page.encode("utf-8", "backslashreplace"),
            **kept,
        }

    def _process(self, shot: ProcessSnapshot, member: str | None) -> dict[str, Any]:
        process = self.table.get(shot.pid or 0)
        reasons = [*shot.partial, *([f"not read: {shot.reason}"] if shot.reason else [])]
        return {
            "label": self.names.get(shot.pid or 0) or shot.name,
            "pid": shot.pid,
            "role": shot.rank.role if shot.rank is not None else "",
            "instance": shot.rank.family if shot.rank is not None else None,
            "program": os.path.basename(process.exe) if process is not None else "",
            "pause": sum(shot.pauses),
            "time": shot.moment,
            "file": member,
            "bytes": shot.bytes if member else None,
            "left_out_bytes": shot.left_out if member else None,
            "partial": reasons,
        }

    def _page(self) -> str:
        rows = [
            {
                "process": one["label"],
                "pid": one["pid"],
                "role": one["role"],
                "paused": seconds(one["pause"]) if one["pause"] else "not",
                "memory in the file": size(one["bytes"]) if one["bytes"] else "none",
            }
            for one in self.processes
        ]
        requests = [
            {"request": r["request_id"], "verdict": r.get("verdict"), "state": r["status"], "waits for": r.get("waits_for")}
            for r in self.requests
        ]
        known = [(one["label"], self.table[one["pid"]]) for one in self.processes if one["pid"] in self.table]
        return page.page(
            {
                "title": f"{self.verdict.kind}: {self.verdict.sentence}",
                "verdict": self.verdict.text(),
                "requests": requests,
                "processes": rows,
                "versions": [("gdbext", __version__), *_versions(self.found)],
                "hardware": contents.hardware(),
                "commands": [(label, contents.command_line(process.argv)) for label, process in known],
                "left_out": self.left_out,
            }
        )


def _shots(session: Session, found: examining.Examination) -> list[ProcessSnapshot]:
    """The copies that the examination has made; those of processes that gdb has attached are made now."""
    shots = [s.snapshot for s in found.seen if s.snapshot is not None]
    missing = [n for n, shot in enumerate(shots) if shot.target is not None and not isinstance(shot.target, CoreFileTarget)]
    late = snapshots.snapshots_of([shots[n].ref for n in missing])
    snapshots.at_one_moment(late, None, [prefetch.KV], 0, reader=READER)
    for n, shot in zip(missing, late):
        shots[n] = shot
    return shots


def _member(shot: ProcessSnapshot) -> str:
    return "memory/" + snapshots.file_name(shot).lstrip(".")


def _versions(found: examining.Examination) -> Sequence[tuple[str, str]]:
    """[(package, its versions, with who has which where they differ)]"""
    by: dict[str, dict[str, list[str]]] = {}
    for s in found.seen:
        rt = s.view.rt if s.view is not None else None
        for name, version in {"CPython": rt.layout.name, **prefetch.versions(rt)}.items() if rt is not None else ():
            by.setdefault(name, {}).setdefault(version, []).append(s.name)
    return [
        (name, "; ".join(v if len(versions) == 1 else f"{v} ({', '.join(who)})" for v, who in versions.items()))
        for name, versions in by.items()
    ]
