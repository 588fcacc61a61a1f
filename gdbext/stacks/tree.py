"""Stacks of many threads and processes as one prefix tree, and sets of ranks as short text. Pure: it reads no process.

A *member* is (process name, tid). Its stack is a list of frames, outermost first here, with `key`, `where` and `function`.
"""

from __future__ import annotations

import re
from typing import Any, Iterable, Iterator, Sequence

from ..observe.window import ThreadWindow
from ..render.text import escape
from .threads import Frame, ProcessView


class Node:
    """A frame that all its `members` share, with every frame outside it. `lines`: their lines in that frame."""

    __slots__ = ("frame", "children", "members", "lines", "ends")

    def __init__(self, frame: Frame | None = None) -> None:
        self.frame: Any = frame  # None of the root, which has none
        self.children: dict[tuple[str, str, str], Node] = {}
        self.members: list[tuple[str, int]] = []
        self.lines: list[int] = []
        self.ends: list[tuple[str, int]] = []

    def processes(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self.members))

    def branches(self) -> list[Node]:
        """The children, the biggest first."""
        return sorted(self.children.values(), key=lambda n: (-len(n.members), n.frame.key))

    def run(self) -> list[Node]:
        """This node and those below it, as long as all members share them: `[Node]`."""
        found = [self]
        while len(found[-1].children) == 1 and not found[-1].ends:
            found.append(next(iter(found[-1].children.values())))
        return found

    def chains(self) -> Iterator[tuple[int, list[Node]]]:
        """The nodes below as `(depth, [Node])`: runs of frames, indented once where the members part."""
        todo = [(0, child) for child in self.branches()]
        while todo:
            depth, child = todo.pop(0)
            run = child.run()
            yield depth, run
            todo = [(depth + 1, c) for c in run[-1].branches()] + todo


def build(stacks: Iterable[tuple[tuple[str, int], Sequence[Frame]]]) -> Node:
    """`[(member, frames innermost first)]` -> the root `Node`. Frames are equal by function and file; their lines are
    collected."""
    root = Node()
    for member, frames in stacks:
        node = root
        node.members.append(member)
        for frame in reversed(frames):
            child = node.children.get(frame.key)
            if child is None:
                child = node.children[frame.key] = Node(frame)
            child.members.append(member)
            if frame.line is not None and frame.line not in child.lines:
                child.lines.append(frame.line)
            node = child
        node.ends.append(member)
    return root


def rank_set(names: Iterable[str]) -> str:
    """["TP0", "TP1", "TP2", "TP6", "EngineCore"] -> "EngineCore, TP0-2,6"."""
    groups: dict[str, list[int]] = {}
    singles: list[str] = []
    for name in dict.fromkeys(names):
        found = re.fullmatch(r"(.*[A-Za-z])(\d{1,9})", name)
        if found:
            groups.setdefault(found.group(1), []).append(int(found.group(2)))
        else:
            singles.append(name)
    parts = singles
    for prefix, numbers in groups.items():
        runs: list[list[int]] = []
        for n in sorted(set(numbers)):
            if runs and runs[-1][1] == n - 1:
                runs[-1][1] = n
            else:
                runs.append([n, n])
        parts = parts + [prefix + ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)]
    return ", ".join(parts)


def where(node: Node) -> str:
    """`file.py:12,17` of a node."""
    base: str = node.frame.file.rpartition("/")[2]
    if node.frame.kind != "python" or not node.lines:
        return base
    return base + ":" + ",".join(str(n) for n in sorted(node.lines)[:4]) + (",…" if len(node.lines) > 4 else "")


def common(root: Node) -> tuple[Node, Node | None, list[str], list[str]] | None:
    """Where the processes part, in a tree of one thread per process. -> (the deepest `Node` that all share, the biggest branch
    below it or None, that branch's processes, the others); None for fewer than two members."""
    if len(root.members) < 2:
        return None
    node = root
    while True:
        whole = [c for c in node.children.values() if len(c.members) == len(root.members)]
        if not whole or node.ends:
            break
        node = whole[0]
    best = node.branches()[:1]
    names = root.processes()
    if not best:
        return node, None, names, []
    reached = best[0].processes()
    return node, best[0], reached, [n for n in names if n not in reached]


def folded(stacks: Iterable[tuple[Sequence[str], Sequence[Frame]]]) -> list[str]:
    """Lines for flame graphs: `outer;inner count`, from `[(heads, frames innermost first)]`. The words of `heads` come first."""
    counts: dict[str, int] = {}
    for head, frames in stacks:
        line = ";".join(
            [_plain(word) for word in head] + [_plain(f.function or "??") + f" ({_plain(f.where)})" for f in reversed(frames)]
        )
        counts[line] = counts.get(line, 0) + 1
    return [f"{line} {count}" for line, count in sorted(counts.items())]


def _plain(text: str) -> str:
    return escape(re.sub(r"[;\s\x00-\x1f]+", " ", text))


class Movement:
    """Which threads move from sample to sample: those with a stack that changed in a frame or a line."""

    def __init__(self) -> None:
        self.windows: dict[tuple[str, int | None, int, str], ThreadWindow] = {}
        self.looks = 0

    def add(self, views: Iterable[ProcessView]) -> None:
        """Adds one sample of all processes."""
        self.looks += 1
        for view in views:
            for th in view.threads:
                window = self.windows.setdefault((view.name, view.pid, th.tid, escape(th.name)), ThreadWindow())
                window.stacks.append(hash(tuple((f.key, f.line) for f in th.frames)))  # a thousand samples stay small

    def data(self) -> dict[str, Any]:
        """The JSON field `samples` of llm-stacks."""
        seen = {key: window.changes for key, window in self.windows.items() if len(window.stacks) > 1}
        moved = [
            {"label": label, "pid": pid, "tid": tid, "name": name, "changes": n}
            for (label, pid, tid, name), n in seen.items()
            if n
        ]
        return {
            "count": self.looks,
            "moved": sorted(moved, key=lambda m: -m["changes"]),
            "still": sum(not n for n in seen.values()),
        }
