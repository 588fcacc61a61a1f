"""Stacks of many machines: answers of llm-stacks as JSON, from files or from a Ray cluster's nodes, made into processes again.

gdbext opens no port for this: each node runs the same command line (srun, kubectl exec, mpirun, Ray), and its answer is a file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from .. import package
from ..access.files import JSON_SIZE, Budget, contents, json_of
from ..errors import GdbextError, NotFoundError
from ..render.jsonline import expect
from .threads import Frame

if TYPE_CHECKING:
    from collections.abc import Iterable

MAX_FILE = 256 << 20
RAY_TIMEOUT = 120  # seconds for a node's answer


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


_TEXT, _NUMBER = (str, None), (int, None)
ANSWER = {  # what is read of an answer of `llm-stacks -json`
    "groups": [
        {
            "frames": [{"kind": str, "function": str, "file?": _TEXT, "library?": _TEXT, "line?": _NUMBER}],
            "members": [{"host": str, "label": str, "pid": _NUMBER, "role?": str, "tid": int, "name": str}],
            "idle?": bool,
            "engine?": str,
        }
    ],
    "failed": [{"label": _TEXT, "pid": _NUMBER, "reason": str}],
    "pauses": [{"pid": int, "seconds": (int, float), "woken?": int}],
    "ranks_total": int,
    "collecting?": [{"host": str, "label": str, "pid": _NUMBER, "tid": _NUMBER, "name?": str}],
    "partial?": [str],
}


class MergedAnswers:
    """Several answers together: `processes`, `failed`, `pauses`, `collecting`, `partial`; `total`: the number of processes asked
    for."""

    def __init__(self) -> None:
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
        if "error" in answer:
            self.failed.append({"label": source, "pid": None, "reason": str(answer["error"])})
            return
        found: dict[tuple[str, int | None], SavedProcess] = {}
        try:
            expect(answer, ANSWER)
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


def from_folder(folder: str) -> MergedAnswers:
    """`MergedAnswers` of every *.json file in a folder."""
    try:
        names = sorted(n for n in os.listdir(folder) if n.endswith(".json"))
    except OSError as e:
        raise GdbextError(f"{folder}: {e.strerror}: name the folder that holds the nodes' answers") from None
    if not names:
        raise NotFoundError(f"{folder}: no *.json file: write each node's answer there: gdbext llm-stacks all --json > NODE.json")
    merged, budget = MergedAnswers(), Budget(folder, JSON_SIZE, seconds=RAY_TIMEOUT)
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


def from_ray(words: Iterable[str]) -> MergedAnswers:
    """`MergedAnswers` of every node of the Ray cluster that this machine belongs to: each runs `llm-stacks WORDS -json` in a task
    that is tied to it. Needs the `ray` of the engine's own environment."""
    try:
        import ray  # type: ignore[import-not-found,unused-ignore]
        from ray.exceptions import RayError  # type: ignore[import-not-found,unused-ignore]
        from ray.util.scheduling_strategies import (  # type: ignore[import-not-found,unused-ignore]
            NodeAffinitySchedulingStrategy,
        )
    except ImportError:
        raise GdbextError(
            "-ray needs the package ray: run it with the engine's own python: PYTHON -m gdbext llm-stacks -ray"
        ) from None
    if package.in_archive():
        raise GdbextError(
            f"-ray sends the pack to each node, which needs it unpacked: python3 {package.ROOT} gdb DIR, then run it there"
        )
    started = not ray.is_initialized()
    try:
        if started:
            ray.init(address="auto", log_to_driver=False, logging_level="ERROR", runtime_env={"py_modules": [package.FOLDER]})
        nodes = [n for n in ray.nodes() if n["Alive"]]
        asked = []
        for node in nodes:
            tied = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
            task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=tied)(_on_node)
            asked.append((node["NodeManagerHostname"], task.remote(list(words))))
        merged, budget = MergedAnswers(), Budget("the nodes' answers", JSON_SIZE, seconds=10 * RAY_TIMEOUT)
        for host, reference in asked:
            try:
                merged.add(json_of(ray.get(reference, timeout=RAY_TIMEOUT).encode(), host, budget), host)
            except GdbextError as e:
                merged.failed.append({"label": host, "pid": None, "reason": str(e)})
            except (RayError, ValueError) as e:  # the node is named and the others are read
                merged.failed.append(
                    {"label": host, "pid": None, "reason": f"{type(e).__name__}: {(str(e).strip().splitlines() or [''])[-1]}"}
                )
        return merged.finish()
    except (RayError, ConnectionError, RuntimeError, ValueError) as e:
        raise GdbextError(
            f"the Ray cluster cannot be reached: {str(e).splitlines()[0] if str(e) else type(e).__name__}"
        ) from None
    finally:
        if started and ray.is_initialized():
            ray.shutdown()


def _on_node(words: Iterable[str]) -> str:
    """Runs on a node: the answer of llm-stacks there, as text."""
    import os
    import subprocess
    import sys

    import gdbext

    root = os.path.dirname(os.path.dirname(os.path.abspath(gdbext.__file__)))
    done = subprocess.run(
        [sys.executable, "-m", "gdbext", "llm-stacks", *words, "--json"],
        cwd=root,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=110,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        raise RuntimeError((done.stderr.strip() or f"exit status {done.returncode}").splitlines()[-1])
    return lines[-1]
