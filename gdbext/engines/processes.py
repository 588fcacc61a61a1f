"""`ProcessRef`: one process or core file that a command's WHAT names. All commands pass processes in this form only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .rank import Rank


@dataclass(frozen=True)
class ProcessRef:
    """Two are equal where they mean the same process: the same pid of the same node, or the same core file."""

    pid: int | None = None  # None: a core file
    label: str = field(default="", compare=False)  # of llm-ranks; "" of a process that is no engine's
    core: str = ""  # the path of a core file, "" for a process
    rank: Rank | None = field(default=None, compare=False, repr=False)  # the engine's process that it is, as llm-ranks saw it
    node: str = ""  # the machine that it is on, "" for this one
    instance: int | None = field(default=None, compare=False)  # the same number for all processes of one running engine

    @classmethod
    def of_rank(cls, rank: Rank) -> ProcessRef:
        """The process of an engine; of a job that serves nobody, a process as any other, with its label."""
        if not rank.serves:
            return cls(rank.pid, rank.label)
        return cls(rank.pid, rank.label, rank=rank, instance=rank.family)

    @property
    def exact(self) -> str:
        """An unambiguous WHAT for it: its pid, or the path of the core file."""
        return str(self.pid) if self.pid is not None else self.core

    @property
    def name(self) -> str:
        """The word for people: its label, else its pid or path; after that of its node where that is another machine."""
        return f"{self.node}/{self.label or self.exact}" if self.node else self.label or self.exact


def ranks_of(found: Iterable[ProcessRef]) -> list[Rank]:
    """Those of them that are processes of engines, as `Rank`s."""
    return [one.rank for one in found if one.rank is not None]
