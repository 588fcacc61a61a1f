"""A request over all processes of an engine (`Tracked`): its verdict, and the process that must act."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Iterable

from ..engines.sightings import Exchange, Look, Sighting, Transfer
from ..kvcache.model import Request

MOVING, QUEUED, BEHIND, PARKED = "moving", "queued", "behind", "parked"
NEVER_FITS, LOST, ZOMBIE, THRASH = "never-fits", "lost", "zombie", "thrash"
KEPT = "kept"  # it has ended here, and its blocks are kept for a reader elsewhere
STUCK = (NEVER_FITS, PARKED, BEHIND, LOST, ZOMBIE, THRASH)


@dataclass
class Place:
    """A process, and its thread where that is known."""

    label: str
    pid: int
    tid: int | None = None
    thread: str = ""

    def data(self) -> dict[str, Any]:
        """As JSON; the thread only where it is known."""
        found: dict[str, Any] = {"label": self.label, "pid": self.pid}
        if self.tid is not None:
            found["tid"] = self.tid
        if self.thread:
            found["thread"] = self.thread
        return found


@dataclass
class Tracked:
    """One request over all processes.

    * `hops`: `[(Look, Sighting)]` in the order of its way
    * `verdict`: '' where one look cannot tell
    * `sure`: the verdict does not rest on time alone, which a long step could explain
    * `moved`: None after one look
    * `holder`: the process or thread that must act, None where no single one can
    * `behind`: ids of the requests that it waits for
    * `partner`: (instance, request id) of its transfer's other end, where that was looked at
    """

    request_id: str
    hops: list[tuple[Look, Sighting]]
    external_id: str = ""
    verdict: str = ""
    sure: bool = True
    moved: bool | None = None
    at: Place | None = None
    holder: Place | None = None
    waits_for: str = ""
    age: float | None = None
    behind: list[str] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    partner: tuple[str, str] | None = None

    def sighting(self, *stages: str) -> tuple[Look, Sighting] | None:
        """The hop at the first of these stages at which it was seen, or None."""
        for stage in stages:
            for hop in self.hops:
                if hop[1].stage == stage:
                    return hop
        return None

    @property
    def exchange(self) -> Exchange | None:
        """The server's exchange, where the engine does not know the request."""
        return self.hops[0][1].exchange if len(self.hops) == 1 else None

    @property
    def paused(self) -> bool:
        """Whether it waits for the user, who has paused its engine."""
        return self.verdict == PARKED and any(s.paused for _, s in self.hops)

    @property
    def transfer(self) -> Transfer | None:
        """Its transfer of KV between instances, None where it has none."""
        return next((s.transfer for _, s in self.hops if s.transfer is not None), None)

    @property
    def request(self) -> Request | None:
        """The scheduler's numbers, None where no scheduler has it."""
        return next((s.request for _, s in self.hops if s.request is not None), None)


def meant(wanted: str, requests: Iterable[tuple[str, Tracked]]) -> list[Tracked]:
    """Those of `requests`, (instance, request) each, that an id names, the engine's own or the user's; else those whose id begins
    with it. INSTANCE/ID names one instance's, with or without its machine; an id may have a slash itself."""
    known = list(requests)
    among = [(wanted, one) for _, one in known]
    for whole, one in known if "/" in wanted else ():
        for name in dict.fromkeys((whole, whole.partition(":")[2])):
            if name and wanted.lower().startswith(name.lower() + "/") and len(wanted) > len(name) + 1:
                among.append((wanted[len(name) + 1 :], one))
    exact = [one for text, one in among if text in (one.request_id, one.external_id)]
    return exact or [one for text, one in among if one.request_id.startswith(text)]


def linked(ends: Iterable[tuple[str, Tracked]]) -> bool:
    """Whether requests, (instance, request) each, are all ends of one transfer: one request."""
    keys = [
        {("end", name, one.request_id)}
        | ({("end", *one.partner)} if one.partner is not None else set())
        | ({("key", *one.transfer.key)} if one.transfer is not None else set())
        for name, one in ends
    ]
    group = set(keys[0]) if keys else set()
    for _ in keys:
        group = group.union(*(one for one in keys if one & group))
    return bool(keys) and all(one <= group for one in keys)


@dataclass
class Counter:
    """A number of one process that grows as it works, at both looks. `what`: in words."""

    label: str
    pid: int
    what: str
    before: int
    after: int

    @property
    def moved(self) -> bool:
        """Whether it made progress."""
        return self.before != self.after
