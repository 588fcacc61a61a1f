"""What else a thread is at, beside its stack: the asyncio task that its loop runs, and the exception that it raises or handles.

Both are read before and after the stack; they become frames of it where they were the same."""

from __future__ import annotations

from typing import NamedTuple, Sequence

from .. import log
from ..cpython.exceptions import failure
from ..cpython.runtime import Runtime
from ..cpython.tasks import running_loops, running_tasks
from ..engines.sensitive_names import shown_name
from ..errors import GdbextError
from .recording import StackTree

STEP = ("Handle._run", "_run")  # in events.py of asyncio, as releases name it: it runs a task's step


class Mark(NamedTuple):
    """`raised`: the class of the exception; `handled`: whether an except or finally has it; `task`: its name. "" for none."""

    raised: str = ""
    handled: bool = False
    task: str = ""


class Marks:
    """Reads the marks of one process's threads. `tasks`, `failures`: which are wanted; with `failures` a stack without an
    exception is the empty one."""

    def __init__(self, rt: Runtime, tasks: bool, failures: bool) -> None:
        self._rt, self._tasks, self._failures = rt, tasks, failures
        self._loops: dict[int, int] = {}

    def refresh(self) -> None:
        """Looks which loops run on which threads."""
        with log.passing_over(GdbextError):
            self._loops = running_loops(self._rt) if self._tasks else {}

    def of(self, tid: int, states: Sequence[int]) -> Mark:
        """The mark of a thread with these states, now."""
        self._rt.target.drop_pages()
        failed, name = ("", False), ""
        with log.passing_over(GdbextError):
            failed = next((found for found in (failure(self._rt, s) for s in states if self._failures) if found[0]), failed)
        with log.passing_over(GdbextError):
            if tid in self._loops.values():
                name = next((n for n, loop in running_tasks(self._rt).values() if self._loops.get(loop) == tid), "")
        return Mark(*failed, shown_name(self._rt, name))

    def marked(self, tree: StackTree, node: int, before: Mark, after: Mark) -> int:
        """The node of the stack of `node` with its mark in it."""
        if self._failures and (not after.raised or before != after):
            return 0
        if before != after or after == Mark():
            return node
        numbers: list[int] = []  # innermost first
        while node:
            numbers.append(tree.numbers[node])
            node = tree.parents[node]
        if after.task:
            frames = [tree.frames[number] for number in numbers]
            steps = (i for i, f in enumerate(frames) if f.function in STEP and f.file.endswith("asyncio/events.py"))
            at = next(steps, len(numbers))  # of a loop that is not Python: outermost
            numbers.insert(at, tree.frame(f"task {after.task}", "", 0))
        if after.raised:
            numbers.insert(0, tree.frame(f"{'handles' if after.handled else 'raises'} {after.raised}", "", 0))
        for number in reversed(numbers):
            node = tree.child(node, number)
        return node
