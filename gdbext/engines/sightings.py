"""A request as one process knows it (`Sighting`), and what one process says of its requests (`Look`): what the engines' readers
fill in."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

if TYPE_CHECKING:
    from ..kvcache.model import Request
    from ..observe.window import ThreadSample

# Where in its way a process has a request, in the order of the way.
FRONTEND, INPUT, QUEUE, RUNNING, WORKER, OUTPUT, DETOKENIZER = (
    "frontend",
    "input",
    "queue",
    "running",
    "worker",
    "output",
    "detokenizer",
)
STAGES = (FRONTEND, INPUT, QUEUE, RUNNING, WORKER, OUTPUT, DETOKENIZER)
IN_SCHEDULER = (QUEUE, RUNNING)


@dataclasses.dataclass
class Sighting:
    """One request in one process. `state`: the engine's word for where it is; `progress`: numbers that grow while it is worked
    on; `tokens` of its answer that have come so far; `waits_for`: in words; `parked`: it waits for something that others deliver,
    `keeper`: the thread that is to deliver it, `after`: ids of the requests that are served there first; `ended`: this process is
    done with it; `tid`: of the thread that has it in its hands; `undelivered`: this process has not handed it on yet; `unowned`:
    the engine asked itself, and need not wait for the answer; `replica`: number of the scheduler that a front end gave it to;
    `sender`: the address from which its blocks are to come."""

    request_id: str
    stage: str
    state: str
    external_id: str = ""
    progress: Tuple[int, ...] = ()
    tokens: Optional[int] = None
    waits_for: str = ""
    parked: bool = False
    never_fits: bool = False
    ended: bool = False
    undelivered: bool = False
    unowned: bool = False
    keeper: Optional[Keeper] = None
    after: Tuple[str, ...] = ()
    replica: Optional[int] = None
    tid: Optional[int] = None
    age: Optional[float] = None
    request: Optional[Request] = None  # the scheduler's own numbers
    sampling: Optional[Dict[str, Any]] = None
    sender: str = ""


@dataclasses.dataclass
class Keeper:
    """A thread that moves requests on, or the task of an event loop that does."""

    name: str
    tid: Optional[int]  # None: it has ended, or there never was one
    stands: str = ""  # where it is blocked or runs, '' at rest
    woken: bool = False  # it is where it rests, but the kernel has it ready to run
    sample: Optional[ThreadSample] = None  # of its thread, its stack inside of its loop's own frames; None: nothing to go by
    turns: Optional[int] = None  # a count that grows with each turn of its loop
    ring: str = ""  # where it waits for another process's message, of which there is none to read
    kind: str = "thread"  # or "task": then `tid`, `stands` and `sample` are of the thread that runs its loop

    @property
    def rests(self) -> bool:
        """It waits for more: everything that was sent to it has been taken in."""
        return self.tid is not None and not self.stands and not self.woken


@dataclasses.dataclass
class Look:
    """What one process says at one moment. `parts`: which of "frontend", "scheduler", "worker", "detokenizer" it is; `keepers`:
    by the stage that they serve; `counters`: numbers that grow as it works; `notes`: what could not be read; `replica`: its
    number among several schedulers; `rings`: those that it writes answers to; `transfers`: {request id: where its KV connector
    has it}; `stopped`: who has stopped it, in words."""

    label: str
    pid: int
    role: str
    parts: Tuple[str, ...] = ()
    sightings: List[Sighting] = dataclasses.field(default_factory=list)
    keepers: Dict[str, Keeper] = dataclasses.field(default_factory=dict)
    counters: Dict[str, int] = dataclasses.field(default_factory=dict)
    limits: Dict[str, Any] = dataclasses.field(default_factory=dict)
    notes: List[str] = dataclasses.field(default_factory=list)
    engine: str = ""
    replica: Optional[int] = None
    rings: Tuple[str, ...] = ()
    transfers: Dict[str, str] = dataclasses.field(default_factory=dict)
    stopped: str = ""
