"""Stacks of many machines: answers of llm-stacks as JSON, from files or from nodes (session/nodes.py), made into processes
again.
"""

from __future__ import annotations

import os
from typing import Any

from ..access.files import JSON_SIZE, Budget, contents, json_of
from ..errors import GdbextError, NotFoundError
from ..render.jsonline import expect
from .threads import Frame

MAX_FILE = 256 << 20
READING = 120  # seconds for the files of a folder


class SavedThread:
    """A thread of an answer, with those attributes of `ThreadView` that the tree needs. `saved`: its frames as in the JSON."""

    py = None

    def __init__(self, tid: int, name: str, frames: list[Frame], saved: list[dict[str, Any]], idle: bool) -> None:
        self.tid, self.name, self.frames, self.saved, self.idle, self.gil = tid, name, frames, saved, idle, "none"

    @property
    def top(self) -> Frame | None:
        return next((f for f in self.frames if f.kind == "python"), next((f for f in self.frames if f.function), None))


class SavedProcess:
    """A process of an answer, like a `ProcessView`."""

    rank = None

    def __init__(self, host: str, label: str, pid: int | None, role: str, engine: str = "") -> None:
        self.host, self.name, self.pid, self.role, self.engine = host, label, pid, role, engine
        self.threads: list[SavedThread] = []

    @property
    def main(self) -> SavedThread | None:
        return next((th for th in self.threads if th.tid == self.pid), None)


SCHEMA = "llm-stacks/1"


class MergedAnswers:
    """Several answers together, each as `expected` (`jsonline.expect`): `processes`, `failed`, `pauses`, `collecting`, `partial`;
    `total`: the number of processes asked for."""

    def __init__(self, expected: Any) -> None:
        self.expected = expected
        self.processes: list[SavedProcess] = []
        self.failed: list[dict[str, Any]] = []
        self.pauses: list[dict[str, Any]] = []
        self.collecting: list[dict[str, Any]] = []
        self.total = 0
        self.partial: list[str] = []

    def add(self, answer: Any, source: str) -> None:
        """Adds the parsed JSON of one node. `source`: the name by which the node was asked. It replaces the host name in the
        answer; where the answer names several hosts, it is put before each."""
        if not isinstance(answer, dict) or not str(answer.get("schema", "")).startswith("llm-stacks/"):
            raise GdbextError(f"{source}: no answer of llm-stacks -json")
        if answer["schema"] != SCHEMA:
            raise GdbextError(f"{source}: {str(answer['schema'])[:80]} is of another release of gdbext: this one reads {SCHEMA}")
        if "error" in answer:
            self.failed.append({"label": source, "pid": None, "reason": str(answer["error"])})
            return
        found: dict[tuple[str, int | None], SavedProcess] = {}
        try:
            expect(answer, self.expected)
            several = len({m["host"] for group in answer["groups"] for m in group["members"]}) > 1
            for group in answer["groups"]:
                frames = [
                    Frame(
                        f["kind"],
                        f["function"],
                        (f.get("file") if f["kind"] == "python" else f.get("library")) or "",
                        f.get("line"),
                    )
                    for f in group["frames"]
                ]
                for m in group["members"]:
                    key = (m["host"], m["pid"])
                    process = found.get(key)
                    if process is None:
                        process = found[key] = SavedProcess(
                            f"{source}/{m['host']}" if several else source,
                            m["label"],
                            m["pid"],
                            m.get("role", ""),
                            group.get("engine", "").partition(" ")[0],
                        )
                    process.threads.append(SavedThread(m["tid"], m["name"], frames, group["frames"], group.get("idle", False)))
            self.failed += [
                {"label": f"{source}: {f['label'] or f['pid']}", "pid": f["pid"], "reason": f["reason"]} for f in answer["failed"]
            ]
            self.pauses += answer["pauses"]
            self.collecting += answer.get("collecting", ())
            self.total += answer["ranks_total"]
        except ValueError as e:
            raise GdbextError(f"{source}: an answer of llm-stacks that is damaged: {e}") from None
        self.processes += found.values()
        self.partial += [f"{source}: {reason}" for reason in answer.get("partial", ())]

    def finish(self) -> MergedAnswers:
        """Puts the machine before process names that two machines have, or that begin with a machine's name."""
        count: dict[str, int] = {}
        hosts = tuple({p.host + ":" for p in self.processes})
        for p in self.processes:
            count[p.name] = count.get(p.name, 0) + 1
        for p in self.processes:
            if count[p.name] > 1 or p.name.startswith(hosts):
                p.name = f"{p.host}:{p.name}"
        if not self.processes:
            raise GdbextError(
                "no process could be read: "
                + ("; ".join(dict.fromkeys(f"{f['label']}: {f['reason']}" for f in self.failed)) or "no answers")
            )
        return self


def from_folder(folder: str, expected: Any) -> MergedAnswers:
    """`MergedAnswers(expected)` of every *.json file in a folder."""
    try:
        names = sorted(n for n in os.listdir(folder) if n.endswith(".json"))
    except OSError as e:
        raise GdbextError(f"{folder}: {e.strerror}: name the folder that holds the nodes' answers") from None
    if not names:
        raise NotFoundError(f"{folder}: no *.json file: write each node's answer there: gdbext llm-stacks all --json > NODE.json")
    merged, budget = MergedAnswers(expected), Budget(folder, JSON_SIZE, seconds=READING)
    read: dict[str, Any] = {}
    for name in sorted(names, key=lambda one: _size(os.path.join(folder, one))):  # no file takes the room of smaller ones
        try:
            read[name] = json_of(contents(os.path.join(folder, name), MAX_FILE), name, budget)
        except ValueError as e:
            merged.failed.append({"label": name[:-5], "pid": None, "reason": f"{name} cannot be read: {e}"})
        except GdbextError as e:
            merged.failed.append({"label": name[:-5], "pid": None, "reason": str(e)})
    for name in filter(read.__contains__, names):
        try:
            merged.add(read[name], name[:-5])
        except GdbextError as e:
            merged.failed.append({"label": name[:-5], "pid": None, "reason": str(e)})
    return merged.finish()


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
