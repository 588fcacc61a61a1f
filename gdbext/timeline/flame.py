"""Time by stack: how long threads had which stack, over a whole recording, as a tree; and the difference between two."""

from __future__ import annotations

from typing import Iterable, Iterator, NamedTuple

from ..errors import GdbextError
from ..render.text import escape
from .recording import DROPPED, RUNNING, Frame, ProcessTrack, Recording, ThreadTrack


class Counted(NamedTuple):
    """Which time counts. `cpu`: only while the thread ran; `gil`: only while it held the GIL; `idle`: also of threads that rest;
    `lines`: calls at different lines of a function are different ones."""

    cpu: bool = False
    idle: bool = True
    gil: bool = False
    lines: bool = False


ALL, AT_WORK = Counted(), Counted(idle=False)


class Node:
    """A call in a flame graph. `seconds`: the time in it and in its calls; `before`: the same in the recording it is compared
    with."""

    __slots__ = ("name", "seconds", "before", "children")

    def __init__(self, name: str) -> None:
        self.name, self.seconds, self.before = name, 0.0, 0.0
        self.children: dict[str, Node] = {}

    def child(self, name: str) -> Node:
        """The node of a call of this name; it is made if missing."""
        found = self.children.get(name)
        if found is None:
            found = self.children[name] = Node(name)
        return found


def frame_name(frame: Frame, lines: bool = False) -> str:
    """`function (file.py)`: the same for every line of the function, or `function (file.py:12)`; a mark has no file."""
    where = frame.where if lines else frame.file.rpartition("/")[2]
    return f"{escape(frame.function)} ({escape(where)})" if where else escape(frame.function)


RESTS = 0.01  # a thread that had less of a CPU rests


def rests(process: ProcessTrack, thread: ThreadTrack) -> bool:
    """Whether the thread does not matter in a profile: it is not the main thread and hardly ran."""
    return thread.tid != process.pid and thread.cpu < RESTS * process.finish


def resting(rec: Recording) -> int:
    """How many threads rest."""
    return sum(rests(process, thread) for process in rec.processes for thread in process.threads)


def left_out(count: int) -> str:
    """The text about idle threads."""
    return f"{count} idle thread{'s' * (count != 1)} left out: -idle includes them"


def times(rec: Recording, what: Counted) -> Iterator[tuple[ProcessTrack, ThreadTrack, dict[int, float]]]:
    """Yields (process, thread, {stack of `rec.tree`: seconds}). Every look has the same weight, even one after which the recorder
    got no CPU for long."""
    for process in rec.processes:
        each = (process.finish - process.time_of(0)) / len(process.begins) if process.begins else 0.0
        for number, thread in enumerate(process.threads):
            if not what.idle and rests(process, thread):
                continue
            held = process.looks_with_gil(number) if what.gil else None
            spent: dict[int, float] = {}
            for look, run in zip(thread.looks, process.runs(thread)):
                if run.node != DROPPED and (run.node or not rec.failing) and (run.state == RUNNING or not what.cpu):
                    looks = run.looks if held is None else held(look, look + run.looks)
                    spent[run.node] = spent.get(run.node, 0.0) + each * looks
            yield process, thread, spent


def stacks(rec: Recording, what: Counted = ALL) -> dict[tuple[str, ...], float]:
    """{(process, thread, calls from the outermost): seconds}"""
    names: dict[int, tuple[str, ...]] = {0: ()}
    found: dict[tuple[str, ...], float] = {}
    for process, thread, spent in times(rec, what):
        head = (escape(process.label), escape(thread.name or str(thread.tid)))
        for node, seconds in spent.items():
            if node not in names:
                names[node] = tuple(frame_name(f, what.lines) for f in rec.tree.stack(node))
            key = head + names[node]
            found[key] = found.get(key, 0.0) + seconds
    return {key: seconds for key, seconds in found.items() if seconds or not what.gil}


def tree(own: dict[tuple[str, ...], float], before: dict[tuple[str, ...], float] | None = None) -> Node:
    """The calls of `stacks` as a tree."""
    root = Node("all")
    for which in (own, before or {}):
        for path, seconds in which.items():
            node = root
            for name in ("", *path):
                node = node.child(name) if name else node
                if which is own:
                    node.seconds += seconds
                else:
                    node.before += seconds
    return root


def functions(own: Iterable[tuple[tuple[str, ...], float]]) -> list[tuple[str, float, float]]:
    """[(function, seconds in it itself, seconds in it and in its calls)], the most first. The first two names of a path, process
    and thread, are no functions."""
    itself: dict[str, float] = {}
    within: dict[str, float] = {}
    for path, seconds in own:
        if len(path) > 2:
            itself[path[-1]] = itself.get(path[-1], 0.0) + seconds
            for name in set(path[2:]):
                within[name] = within.get(name, 0.0) + seconds
    return sorted(((name, itself.get(name, 0.0), total) for name, total in within.items()), key=lambda row: (-row[1], -row[2]))


def folded(own: dict[tuple[str, ...], float]) -> str:
    """Collapsed stacks: `a;b;c COUNT` a line, COUNT in milliseconds."""
    lines = [f"{_line(path)} {round(1000 * s)}" for path, s in sorted(own.items())]
    return "\n".join(line for line in lines if not line.endswith(" 0")) + "\n"


def folded_difference(own: dict[tuple[str, ...], float], before: dict[tuple[str, ...], float]) -> str:
    """Collapsed stacks of two recordings: `a;b;c BEFORE AFTER` a line, in milliseconds (what difffolded.pl writes)."""
    lines = []
    for path in sorted(set(own) | set(before)):
        old, new = round(1000 * before.get(path, 0.0)), round(1000 * own.get(path, 0.0))
        if old or new:
            lines.append(f"{_line(path)} {old} {new}")
    return "\n".join(lines) + "\n"


def _line(path: tuple[str, ...]) -> str:
    return ";".join(escape(name.replace(";", ",")) for name in path)


def parse_folded(text: str) -> dict[tuple[str, ...], float]:
    """The stacks that `folded` wrote. `GdbextError` for another text."""
    found: dict[tuple[str, ...], float] = {}
    for line in text.splitlines():
        path, _, count = line.rpartition(" ")
        if not path or not (count.isascii() and count.isdigit() and len(count) < 16):
            raise GdbextError(f"no line of collapsed stacks: {line[:100]!r}")
        names = tuple(path.split(";"))
        found[names] = found.get(names, 0.0) + int(count) / 1000
    return found
