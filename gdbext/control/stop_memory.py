"""The memory of a process while one of its threads is at a breakpoint."""

from __future__ import annotations

from typing import Any, Callable, TypeVar

from ..access.proc import ProcTarget

T = TypeVar("T")

# Facts that stay the same while a process runs: its torch, the classes of vtables (in its libraries' files) and of tensors.
LASTING = ("torch layout", "rtti", "tensor class", "pthread size")


class StopMemory(ProcTarget):
    """A process's memory while one of its threads is in a breakpoint's `stop()`: `epoch` ends with the next one."""

    def __init__(self, pid: int, label: str = "") -> None:
        super().__init__(pid, label)
        self.count = 0
        # Not `lasting`, which is the pid's: after an exec the process is another program, with a view of its own.
        self._kept: dict[object, Any] = {}

    def cached(self, key: object, make: Callable[[], T]) -> T:
        """`make()` once per `epoch`. Values in `LASTING` are made only once: they would cost each stop tens of milliseconds."""
        if (key[0] if isinstance(key, tuple) else key) not in LASTING:
            return super().cached(key, make)
        if key not in self._kept:
            self._kept[key] = make()
        kept: T = self._kept[key]
        return kept

    @property
    def epoch(self) -> int:
        return self.count
