"""Recordings of several machines as one, on one time base: seconds since all were told to begin.

No clocks are compared. A machine says how long after it was told its recording began; how long the word was on its way lies
between nothing and the time until the machine's answer came."""

from __future__ import annotations

from array import array
from typing import NamedTuple, Sequence

from .recording import DROPPED, ProcessTrack, Recording

APART = 10_000_000  # above every pid: added to those that another machine has too


class Part(NamedTuple):
    """The recording of one machine: its name, when it was told to begin (seconds since the first was), how long after that the
    recording began by its own clock, and how long the word was on its way at most (None: not known)."""

    node: str
    recording: Recording
    told: float
    began: float
    way: float | None

    @property
    def offset(self) -> float:
        """When it began, on the common time base."""
        return self.told + self.began + (self.way or 0.0) / 2


class Merged(NamedTuple):
    """One recording, with {pid in it: (machine, what to take from that pid, and from its threads' tids)}."""

    recording: Recording
    places: dict[int, tuple[str, int]]


def merged(parts: Sequence[Part], began: float) -> Merged:
    """The recordings of several machines as one. `began`: when the first was told to begin, seconds since 1970. Names of
    processes that two machines have get the machine's before them."""
    whole = Recording(min((p.recording.rate for p in parts), default=0.0), began)
    names = [process.label for part in parts for process in part.recording.processes]
    taken = {name for name in names if names.count(name) > 1}
    places: dict[int, tuple[str, int]] = {}
    for part in parts:
        nodes = _grafted(whole, part.recording)
        for process in part.recording.processes:
            more = next(n * APART for n in range(len(parts) + 1) if process.pid + n * APART not in places)
            places[process.pid + more] = part.node, more
            _move(process, part.offset, more, nodes)
            process.label = f"{part.node}:{process.label}" if process.label in taken else process.label
            whole.processes.append(process)
        whole.cost += part.recording.cost
        whole.failing |= part.recording.failing
        whole.notes += [f"{part.node}: {note}" for note in part.recording.notes]
        whole.seconds = max(whole.seconds, part.offset + part.recording.seconds)
    return Merged(whole, places)


def _grafted(whole: Recording, part: Recording) -> array[int]:
    """The number in `whole` of each stack of `part`, whose stacks are added to it."""
    tree, own = whole.tree, part.tree
    frames = [tree.frame(*frame) for frame in own.frames]
    found = array("I", [0])
    for parent, number in zip(own.parents[1:], own.numbers[1:]):
        found.append(tree.child(found[parent], frames[number]))
    return found


def _move(process: ProcessTrack, offset: float, more: int, nodes: array[int]) -> None:
    process.pid += more
    process.begins = array("d", (at + offset for at in process.begins))
    process.ends = array("d", (at + offset for at in process.ends))
    process.finish += offset
    process.counters = {name: [(at + offset, value) for at, value in held] for name, held in process.counters.items()}
    for thread in process.threads:
        thread.tid += more
        thread.nodes = array("I", (n if n == DROPPED else nodes[n] for n in thread.nodes))
