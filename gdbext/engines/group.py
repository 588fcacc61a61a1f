"""One running engine: several processes by label, each read through its own Target."""

from __future__ import annotations

from typing import Callable, Iterable, Sequence

from ..access.base import Target
from ..errors import GdbextError, NotFoundError
from .processes import ProcessRef
from .recognition import MAX_RANK
from .registry import SPECS
from .spec import SCHEDULERS, EngineSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .rank import Rank

SHARDS = ("worker", "scheduler", "rank")
FRONT_ENDS = ("frontend", "api-server")


class Engine:
    """The processes of one running engine. `open_target` gives the Target of a process: the debugger's where it is attached, else
    one that reads through /proc without stopping it."""

    def __init__(self, ranks: Iterable[Rank], open_target: Callable[[ProcessRef], Target]) -> None:
        self.ranks = list(ranks)
        self._open = open_target

    @property
    def name(self) -> str:
        """The engine's word in answers: "vllm"; '' where there is no process."""
        return self.ranks[0].engine if self.ranks else ""

    @property
    def instance(self) -> str:
        """Its name, which no other engine here has."""
        instance = self.ranks[0].instance if self.ranks else None
        return instance.name if instance is not None else self.name

    @property
    def spec(self) -> EngineSpec | None:
        """The engine's spec, None where there is no process."""
        return SPECS.get(self.name)

    def labels(self) -> list[str]:
        """The labels of its processes, in the order of llm-ranks."""
        return [r.label for r in self.ranks]

    def rank(self, label: str) -> Rank:
        """The process with that label, without regard to case; `NotFoundError` lists the existing labels."""
        found = [r for r in self.ranks if label.lower() in (r.label.lower(), r.short.lower())]
        if not found:
            raise NotFoundError(f"no process {label} in this engine; it has {', '.join(self.labels()) or 'none'}")
        return found[0]

    def only(self, ranks: Iterable[Rank]) -> Engine:
        """The same engine with some of its processes."""
        return Engine(ranks, self._open)

    def of_pid(self, pid: int) -> Rank | None:
        """Its process with that pid, or None."""
        return next((r for r in self.ranks if r.pid == pid), None)

    def alive(self) -> list[Rank]:
        """Its processes that have memory to read, forks that have not titled themselves left out."""
        return [r for r in self.ranks if "fork" not in r.marks and not r.zombie]

    def with_role(self, *roles: str) -> list[Rank]:
        """Its living processes of those roles, by global rank where it is known."""
        found = [r for r in self.alive() if r.role in roles]
        return sorted(found, key=lambda r: (r.ranks.get("world", MAX_RANK), r.index if r.index is not None else 0))

    def shards(self) -> list[Rank]:
        """The processes that hold the model: workers or schedulers; without any, the engine core itself."""
        return self.with_role(*SHARDS) or self.with_role("engine-core")

    def schedulers_for(self, rank: Rank) -> list[Rank]:
        """The processes that schedule for `rank`: the engine core that started it, else all of the engine's."""
        cores = [r for r in self.alive() if r.role in SCHEDULERS]
        return [r for r in cores if r.pid == rank.ppid] or cores

    def replicas(self) -> list[list[Rank]]:
        """The processes that schedule, one list for each KV cache. Each rank of one SGLang model has a scheduler, and all of them
        do the same."""
        found: list[list[Rank]] = []
        for rank in self.with_role(*SCHEDULERS):
            same = next((ranks for ranks in found if rank in self.shards_for(ranks[0])), None)
            if same is None:
                found.append([rank])
            else:
                same.append(rank)
        return found

    def shards_for(self, rank: Rank) -> list[Rank]:
        """The processes that hold the model's parts for the scheduler of `rank`: those of its data-parallel replica."""
        shards = [r for r in self.alive() if r.role in ("worker", "scheduler")]
        if rank.role == "engine-core":
            own = [r for r in shards if r.ppid == rank.pid]
        elif rank.role == "worker":
            own = [r for r in shards if r.ppid == rank.ppid]
        else:
            own = [r for r in shards if r.ranks.get("dp") == rank.ranks.get("dp")]
        return own or shards or [rank]

    def target(self, rank: Rank) -> Target:
        """The Target of one of its processes; `GdbextError` for one whose memory is gone."""
        if rank.zombie:
            raise GdbextError(f"{rank.label} (pid {rank.pid}) is a zombie: its memory is gone")
        return self._open(ProcessRef.of_rank(rank))


def engines_of(ranks: Sequence[Rank], open_target: Callable[[ProcessRef], Target]) -> list[Engine]:
    """One `Engine` per family of processes, in the order of the list."""
    families: dict[object, list[Rank]] = {}
    for rank in ranks:
        families.setdefault(rank.family, []).append(rank)
    return [Engine(group, open_target) for group in families.values()]
