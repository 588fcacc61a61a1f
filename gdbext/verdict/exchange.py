"""The facts of one machine as JSON (render/records.py), and facts made again from the JSON of several machines, for one judge
over all of them.

The sources of the facts are not sent: no memory, no copy, no token. Idle threads that no wait names are left out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Iterable, Sequence

from ..engines import sightings
from ..engines.shm_rings import Ring
from ..errors import GdbextError
from ..observe.families import Outsider
from ..observe.system_calls import Call, Source
from ..render.records import DAMAGE, Codec, Reading, Writing
from ..requests.instances import Side
from ..requests.model import Counter, Place, Tracked
from ..stacks.async_waits import LoopState, TaskState
from ..stacks.threads import Frame
from ..stacks.waits import Edge
from ..torch.collectives import Count
from .closed import acts
from .facts import Facts, ProcessState, ThreadState

SCHEMA = "llm-observed/2"
FRAMES = 64  # of a stack


def _sent(value: Any) -> Any:
    """What is sent of an object: frames of any kind without what they were read from, looks by their names."""
    if hasattr(value, "function") and hasattr(value, "file") and not isinstance(value, Frame):
        return Frame("python", value.function or "", value.file or "", value.line)
    if isinstance(value, Tracked):
        return replace(value, hops=[(sightings.Look(look.label, look.pid, look.role), one) for look, one in value.hops])
    return replace(value, frames=list(value.frames)[:FRAMES]) if isinstance(value, ThreadState) else value


CODEC = Codec(
    (ProcessState, ThreadState, Edge, TaskState, LoopState, Counter, Ring, Count, Call, Source, Frame, Side)
    + (sightings.Look, sightings.Sighting, sightings.Keeper, sightings.Transfer, sightings.Connector, Tracked, Place)
    + (sightings.InStep, sightings.Start, sightings.Offload, sightings.Exchange, Outsider),
    left={  # members that stay where they were read
        "ProcessState": {"rank", "snapshot", "view", "window", "partial", "requests", "outside", "reach"},
        "TaskState": {"key"},
        "Keeper": {"sample"},
        "Sighting": {"sampling", "request"},
    },
    becomes=_sent,
    alike=("Frame",),
)
MACHINE = 32  # bits: pids of the machine with number N begin at N << MACHINE


# ---- out -------------------------------------------------------------------------------------------------------------------
def facts_data(seen: Sequence[ProcessState], sides: Sequence[Side], host: str, version: str) -> dict[str, Any]:
    """The facts of this machine as JSON. `sides`: its engine instances, whose requests are judged with all others."""
    named = {node for f in seen for edge in f.edges for node in (edge.owner, *edge.candidates, *edge.bystanders) if node}
    facts, processes, resting, writing = Facts(seen), [], 0, Writing(CODEC)
    for f in seen:
        kept = [t for t in f.threads if t.main or not t.idle or t.edge is not None or t.node in named]
        sent = {t.node for t in kept}
        left = [t for t in f.threads if t.node not in sent]
        resting += len(left)
        alone = sum(acts(facts, f, t) for t in left)
        processes.append(writing.data(replace(f, threads=kept, left_out=len(left), unsent=alone)))
    return {
        **sides_data(sides, host, version, writing),
        "processes": processes,
        "resting": resting,
        "partial": [f"{f.name}: {reason}" for f in seen for reason in f.partial],
        "not_read": [{"label": f.name, "pid": f.pid, "reason": f.why} for f in seen if f.why],
    }


def sides_data(sides: Sequence[Side], host: str, version: str, writing: Writing | None = None) -> dict[str, Any]:
    """The engine instances of this machine with their requests, without facts of threads; by the `writing` of what is read before
    them."""
    writing = writing or Writing(CODEC)
    known = [writing.data(side) for side in sides]
    return {"schema": SCHEMA, "version": version, "host": host, "processes": [], "sides": known}


# ---- in --------------------------------------------------------------------------------------------------------------------
class _Decoder(Reading):
    """Makes one machine's facts from JSON. `number`: the machine's; `called`: {name of a process there: its name among all
    machines}."""

    def __init__(self, number: int, called: dict[str, str]) -> None:
        super().__init__(CODEC)
        self.number, self.called = number, called

    def tuple(self, found: tuple[Any, ...]) -> tuple[Any, ...]:
        return (self.called.get(found[0], found[0]), *found[1:]) if found and isinstance(found[0], str) else found

    def made(self, name: str, found: Any) -> None:
        fix = _FIXES.get(name)
        if fix is not None:
            fix(self, found)

    def pid(self, pid: int) -> int:
        return self.number << MACHINE | pid if pid else 0

    def name(self, name: str) -> str:
        return self.called.get(name, name)


def _fix_process(d: _Decoder, f: ProcessState) -> None:
    f.name, f.pid, f.ancestors = d.name(f.name), d.pid(f.pid), set(map(d.pid, f.ancestors))
    f.read, f.wrote, f.per_node, f.left_out, f.unsent = map(int, (f.read, f.wrote, f.per_node, f.left_out, f.unsent))
    f.asker = set(map(d.pid, f.asker))
    f.children = {d.pid(pid): seconds for pid, seconds in f.children.items()}
    f.others = {d.pid(pid): replace(one, pid=d.pid(pid)) for pid, one in f.others.items()}
    f.dead_children = [(d.pid(pid), what) for pid, what in f.dead_children]
    f.gone, f.programs = list(map(d.pid, f.gone)), {d.pid(pid): what for pid, what in f.programs.items()}
    f.peers = {inode: [(d.pid(pid), writes) for pid, writes in held] for inode, held in f.peers.items()}
    f.family = (d.number, f.family) if f.family is not None else None


def _fix_edge(d: _Decoder, e: Edge) -> None:
    e.unread, e.pids = list(map(d.pid, e.unread)), list(map(d.pid, e.pids))
    e.pid, e.shared = d.pid(e.pid), (d.number, e.shared) if e.shared is not None else None


def _fix_call(d: _Decoder, call: Call) -> None:
    call.peers = [d.pid(pid) for pid in call.peers]


def _fix_labelled(d: _Decoder, one: Any) -> None:
    one.label, one.pid = d.name(one.label), d.pid(one.pid)


def _fix_frame(_: _Decoder, frame: Frame) -> None:
    said = [getattr(frame, name, None) for name in ("kind", "function", "file")]
    if not all(isinstance(one, str) for one in said) or not isinstance(getattr(frame, "line", 0), (int, type(None))):
        raise TypeError(f"a frame is {str(said)[:40]}")
    frame.line = getattr(frame, "line", None)


_FIXES: dict[str, Callable[[_Decoder, Any], None]] = {
    "ProcessState": _fix_process,
    "Edge": _fix_edge,
    "Frame": _fix_frame,
    "Call": _fix_call,
    "Place": _fix_labelled,
    "Look": _fix_labelled,
    "Counter": _fix_labelled,
}


class Machine:
    """The facts of one machine. `name`: as the user named it; `number`: makes its pids differ from those of other machines;
    `host`: its own name for itself."""

    def __init__(self, name: str, number: int, processes: list[ProcessState], sides: list[Side], data: dict[str, Any]) -> None:
        self.name, self.number, self.processes, self.sides = name, number, processes, sides
        self.host = str(data["host"])
        self.partial = [str(reason) for reason in data.get("partial", ())]
        self.not_read = list(data.get("not_read", ()))
        self.version = str(data.get("version", ""))


def names_in(data: Any) -> list[str]:
    """The names of the processes in a machine's facts; `GdbextError` where the facts cannot be read."""
    try:
        if data["schema"] != SCHEMA:
            raise GdbextError(f"its facts are {str(data['schema'])[:80]}, not {SCHEMA}: another release of gdbext")
        looks = [look for side in data["sides"] for look in side["looks"]]
        return list({str(one["name"]) for one in data["processes"]} | {str(look["label"]) for look in looks})
    except (KeyError, TypeError) as e:
        raise GdbextError(f"its facts are damaged: {type(e).__name__} {e}") from None


def machine_of(name: str, number: int, data: dict[str, Any], taken: Iterable[str]) -> Machine:
    """The facts of a machine, made from JSON. `number`: its own, from 1; `taken`: process names that several machines have: these
    get the machine's name as a prefix. `GdbextError` where the facts are damaged."""
    node = name.partition(":")[2] or name
    called = {one: f"{node}:{one}" for one in taken}
    try:
        decoder = _Decoder(number, called)
        processes = [decoder.value(one) for one in data["processes"]]
        sides = [decoder.value(one) for one in data["sides"]]
        for f in processes:
            f.node = node
            f.threads = list(f.threads)
        for side in sides:
            side.name = f"{node}:{side.name}"
        return Machine(name, number, processes, sides, data)
    except DAMAGE as e:
        raise GdbextError(f"its facts are damaged: {type(e).__name__} {e}") from None
