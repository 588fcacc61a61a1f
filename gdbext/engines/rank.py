"""An engine's process as a `Rank`, and its label. No gdb here, no memory."""

from __future__ import annotations

import os
import re
from typing import Sequence

from .spec import Match

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..access.proctable import Process
    from .instances import Instance

# Groups that multiply the number of ranks, in the order of vLLM's titles; the others divide one of these and come last.
MULTIPLYING = ("dp", "pp", "pcp", "tp")
DIVIDING = ("attn_cp", "moe_dp", "dcp", "ep", "moe_tp", "attn_tp")

STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in the kernel",
    "T": "stopped",
    "t": "traced",
    "Z": "zombie",
    "X": "dead",
    "I": "idle",
    "W": "waking",
    "P": "parked",
}


class Rank:
    """One engine process.

    * `ranks`: rank by group (`world` the global one, `tp pp dp ep pcp dcp ...`); a group that does not exist is absent
    * `sizes`: group sizes, where they were read from memory
    * `rank_source`: the evidence for role and ranks: "title", "memory", "environ", "argv" (its own, or order of start and a
      parent's), "tree" (a parent or child of the engine), "libraries" or "comm"
    * `marks`: its faults: "orphan", "stopped", "zombie", "crashed", "fork"
    * `notes`: sentences for people
    * `inferior`: filled in by the command
    """

    def __init__(self, process: Process, engine: str, match: Match, source: str) -> None:
        self.process, self.engine, self.role = process, engine, match.role
        self.ranks: dict[str, int] = dict(match.ranks)
        self.sizes: dict[str, int] = {}
        self.prefix, self.unconfirmed, self.name = match.prefix, match.unconfirmed, match.name
        self.rank_source = self.origin = source  # `origin` stays when memory is read
        self.label_ranks: dict[str, int] = dict(match.ranks)  # the ranks in its label
        self.serves = True  # its engine answers requests
        self.marks: list[str] = []
        self.notes: list[str] = []
        self.index: int | None = None
        self.label = ""  # no other process here has it
        self.short = ""  # within its engine
        self.instance: Instance | None = None  # the running engine that it is of
        self.inferior: int | None = None
        self.family: int | None = None  # a number that the processes of one running engine share
        self.kin: list[Rank] = []  # these processes
        self.aliases: list[str] = []
        self.replica: int | None = None  # data-parallel index of its engine core, where its own title has none (dense models)
        self.parent: Rank | None = None  # the Rank that started it, where that is one
        self.title_is_comm = True  # setproctitle sets both
        self.from_libraries = False  # nothing but its mapped libraries speaks for it

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def ppid(self) -> int:
        return self.process.ppid

    @property
    def ns_pid(self) -> int:
        return self.process.ns_pid

    @property
    def state(self) -> str:
        return self.process.state

    @property
    def orphan(self) -> bool:
        return "orphan" in self.marks

    @property
    def is_left(self) -> bool:
        """Whether it, or the process that started it, is an orphan: no process can reach it any more."""
        return self.orphan or self.parent is not None and self.parent.is_left

    @property
    def stopped(self) -> bool:
        return "stopped" in self.marks

    @property
    def zombie(self) -> bool:
        return "zombie" in self.marks

    def __repr__(self) -> str:
        return f"Rank({self.label or self.role}, {self.engine}, pid {self.pid})"

    @property
    def unreadable(self) -> list[str]:
        return sorted(self.process.unreadable)

    @property
    def runs_model(self) -> bool:
        """Whether its role is that of a process that holds a model's shard."""
        return self.role in ("worker", "scheduler", "rank")

    def mark(self, word: str, note: str = "") -> None:
        """Adds a mark, and a note that explains it."""
        if word not in self.marks:
            self.marks.append(word)
        if note:
            self.note(note)

    def note(self, text: str) -> None:
        """Adds a sentence for people, once."""
        if text not in self.notes:
            self.notes.append(text)

    def whose(self) -> str:
        """', user NAME' of another user's process: any process may set the title of a rank."""
        return f", user {self.process.user}" if self.process.uid not in (None, os.geteuid()) else ""


# ---- labels ----------------------------------------------------------------------------------------------------------
_ROLE_LABELS = {
    "engine-core": "EngineCore",
    "worker": "Worker",
    "scheduler": "scheduler",
    "detokenizer": "detokenizer",
    "api-server": "server",
    "frontend": "frontend",
    "coordinator": "DPCoordinator",
}


def rank_label(rank: Rank) -> str:
    """The label from role and ranks alone: `TP0`, `DP1.TP3`, `EngineCore.DP1`, `scheduler`.

    The label of a process with a shard names the groups that multiply ranks. EP, DCP and the like only divide them: they are
    named only where no other group is. Groups known to have one member are not named.
    """
    shown = {g: r for g, r in rank.label_ranks.items() if rank.sizes.get(g, 2) > 1}
    if rank.replica is not None:
        shown.setdefault("dp", rank.replica)
    if rank.runs_model and not rank.name:
        for order in (MULTIPLYING, DIVIDING):
            words = [f"{g.upper()}{shown[g]}" for g in order if g in shown]
            if words:
                return ".".join(words)
    base = rank.name or _ROLE_LABELS.get(rank.role, rank.role)
    return f"{base}.DP{shown['dp']}" if "dp" in shown and not rank.name else base


def set_labels(ranks: Sequence[Rank]) -> None:
    """Fills `label` and `aliases` of one engine's processes in; equal labels get `#2`, `#3` in order of start."""
    seen: dict[str, int] = {}
    for rank in sorted(ranks, key=lambda r: ("fork" in r.marks, "zombie" in r.marks, r.process.started, r.pid)):
        label = rank_label(rank)
        if "fork" in rank.marks:
            label += ".fork"
        seen[label.lower()] = count = seen.get(label.lower(), 0) + 1
        rank.label = rank.short = label if count == 1 else f"{label}#{count}"
    shards = [r for r in ranks if r.runs_model and "fork" not in r.marks]
    lone = shards or [r for r in ranks if r.role == "engine-core"]
    if len(lone) == 1 and not (set(lone[0].label_ranks) - {"world"}):
        lone[0].aliases.append("TP0")  # the only shard of an engine without groups


def label_parts(text: str) -> dict[str, int]:
    """`DP1.TP3`, `dp1_tp3` -> `{"dp": 1, "tp": 3}`; {} when it is not such a label."""
    parts: dict[str, int] = {}
    for word in re.split(r"[._]", text.lower()):
        m = re.fullmatch(r"([a-z]+)([0-9]{1,6})", word)
        if not m or m.group(1) not in MULTIPLYING + DIVIDING or m.group(1) in parts:
            return {}
        parts[m.group(1)] = int(m.group(2))
    return parts
