"""A request as one process knows it (`Sighting`), and all requests that one process knows (`Look`). The engines' readers fill
them in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..kvcache.model import Request
    from ..observe.window import ThreadSample

# Where in its way a process has a request, in the order of the way.
HTTP, FRONTEND, INPUT, QUEUE, RUNNING, WORKER, OUTPUT, DETOKENIZER = (
    "http",
    "frontend",
    "input",
    "queue",
    "running",
    "worker",
    "output",
    "detokenizer",
)
STAGES = (HTTP, FRONTEND, INPUT, QUEUE, RUNNING, WORKER, OUTPUT, DETOKENIZER)
IN_SCHEDULER = (QUEUE, RUNNING)


# What a transfer waits for: the other side's word that it is there; its description of its memory; the bytes; that the scheduler
# here takes note of their arrival; KEPT: the sender is done and keeps the blocks until they are read.
PAIRING, HANDSHAKE, BYTES, COMPLETION, KEPT = "pairing", "handshake", "transfer", "completion", "kept"


@dataclass
class Transfer:
    """The KV of one request on its way between two instances, as one of the two knows it.

    * `key`: the same at both ends and unique otherwise
    * `sends`: this instance is the sender
    * `state`: what it waits for; '' where that is not known or it has not begun
    * `peer`, `address` (HOST:PORT): of the other instance, '' where this one does not know it
    * `until`: seconds until the lease on the blocks ends
    * `heard`: in words, what listens at the address on the machine of this end; '' where that is not known"""

    key: tuple[str, ...]
    sends: bool
    state: str = ""
    peer: str = ""
    address: str = ""
    until: float | None = None
    heard: str = ""


# What a request waits for of a tier below the device: whether it has its blocks; its blocks; those of its prefix, ahead of time.
LOOKUP, LOAD, PREFETCH = "lookup", "load", "prefetch"


@dataclass
class Offload:
    """KV of one request on its way between the device and a tier below it, as its scheduler knows it.

    * `state`: what it waits for
    * `job`: its number there; `pending` of `workers` have not reported it
    * `since`: seconds for which it has been put off
    * `lost`: why nobody can bring it any more"""

    state: str
    job: int | None = None
    pending: int | None = None
    workers: int | None = None
    since: float | None = None
    lost: str = ""


@dataclass
class Exchange:
    """An open HTTP or RPC exchange that its server has not handed to the engine: `server`, the library; `what`: method and path;
    `client`: HOST:PORT; `task`, `address`: of the asyncio task that has it, '' and 0 where a thread has it; `place`: where that
    stands; `pool`: [(tid, place)] of the threads of pools that have work, where it waits for a pool's."""

    server: str
    what: str = ""
    client: str = ""
    task: str = ""
    address: int = 0
    place: str = ""
    pool: list[tuple[int, str]] = field(default_factory=list)


@dataclass
class Sighting:
    """One request in one process.

    * `state`: the engine's word for where it is
    * `progress`: numbers that grow while it is worked on
    * `tokens`: of its answer, so far
    * `waits_for`: in words
    * `parked`: it waits for something that another thread delivers; `keeper`: that thread
    * `paused`: it waits for the engine's user, who has paused it
    * `after`: ids of the requests that are served there first
    * `ended`: this process is done with it
    * `tid`: of the thread that works on it
    * `undelivered`: this process has not handed it on yet
    * `unowned`: the engine itself made it, and need not wait for the answer
    * `replica`: number of the scheduler that a front end gave it to
    * `transfer`: of its KV between this instance and another
    * `offload`: of its KV between the device and a tier below it
    * `holds`: blocks that it has while it is parked, where another one lacks blocks
    * `exchange`: of the server's, for one that the engine does not know yet"""

    request_id: str
    stage: str
    state: str
    external_id: str = ""
    progress: tuple[int, ...] = ()
    tokens: int | None = None
    waits_for: str = ""
    parked: bool = False
    paused: bool = False
    never_fits: bool = False
    ended: bool = False
    undelivered: bool = False
    unowned: bool = False
    keeper: Keeper | None = None
    after: tuple[str, ...] = ()
    replica: int | None = None
    tid: int | None = None
    age: float | None = None
    request: Request | None = None  # the scheduler's own numbers
    sampling: dict[str, Any] | None = None
    transfer: Transfer | None = None
    offload: Offload | None = None
    holds: int = 0
    exchange: Exchange | None = None

    def pause(self, why: str) -> None:
        """Notes that it waits for the user, who has paused the engine: nothing that serves it need act."""
        self.parked = self.paused = True
        self.waits_for = why


@dataclass
class Keeper:
    """A thread that moves requests on, or the task of an event loop that does."""

    name: str
    tid: int | None  # None: it has ended, or there never was one
    stands: str = ""  # where it is blocked or runs, '' at rest
    woken: bool = False  # it is where it rests, but the kernel has it ready to run
    sample: ThreadSample | None = None  # of its thread, its stack above its loop's own frames; None: no evidence
    turns: int | None = None  # a count that grows with each turn of its loop
    meets: bool = False  # it waits for other ranks
    ring: str = ""  # where it waits for another process's message, of which there is none to read
    kind: str = "thread"  # or "task": `tid`, `stands` and `sample` are then those of the thread that runs its loop

    @property
    def rests(self) -> bool:
        """It waits for more: everything that was sent to it has been taken in."""
        return self.tid is not None and not self.stands and not self.woken


@dataclass
class Look:
    """One sample of one process's requests.

    * `parts`: which of "frontend", "scheduler", "worker", "detokenizer" it is
    * `keepers`: by the stage that they serve
    * `counters`: numbers that grow as it works
    * `notes`: what could not be read; `absent`: the attributes that its objects should have and do not
    * `replica`: its number among several schedulers
    * `rings`: those that it writes answers to
    * `transfers`: {request id: where its KV connector has it}
    * `receiving`: {request id: what that waits for}
    * `leases`: {request id: seconds until its blocks are given back}
    * `loads`: {request id: where its connector has its load from a tier}; None where it has no such connector
    * `stopped`: what has stopped the process, in words
    * `broken`: why it serves no requests any more, by its own data
    * `serves`: its KV connector's data on its instance
    * `stood`: {stage whose thread was at the same place in all samples: that place}
    * `in_step`: how far it is among ranks that go in step
    * `start`: the ranks whose start it waits for
    * `torn`: requests whose counts contradicted one another each time they were read, and are not known therefore
    * `bypassed`: stages of its engine that no request passes"""

    label: str
    pid: int
    role: str
    parts: tuple[str, ...] = ()
    sightings: list[Sighting] = field(default_factory=list)
    keepers: dict[str, Keeper] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    limits: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    engine: str = ""
    replica: int | None = None
    rings: tuple[str, ...] = ()
    transfers: dict[str, str] = field(default_factory=dict)
    receiving: dict[str, str] = field(default_factory=dict)
    leases: dict[str, float] = field(default_factory=dict)
    loads: dict[str, str] | None = None
    stopped: str = ""
    broken: str = ""
    serves: Connector | None = None
    stood: dict[str, str] = field(default_factory=dict)
    in_step: InStep | None = None
    start: Start | None = None
    torn: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    bypassed: tuple[str, ...] = ()

    @property
    def torn_note(self) -> str:
        """`torn` as a reason why an answer is partial."""
        return f"{self.label}: counts of {', '.join(self.torn)} contradict one another each time they are read"


@dataclass
class Connector:
    """A process's own data on its instance's part in transfers: `kind` (the class), `role` as the engine calls it, and
    `engine_id` and `address` (HOST:PORT), by which other instances know it. '' for each that is missing."""

    kind: str
    role: str = ""
    engine_id: str = ""
    address: str = ""


@dataclass
class InStep:
    """A process's own numbers of ranks that go in step, one dummy step for each step of another.

    * `rank` of `size`; None for a process that only counts with them (a coordinator, a front end)
    * `wave`, `step` of that wave: how far it is
    * `runs`: it takes part in a wave now
    * `hosts`: {rank: the address of its machine}, as far as known"""

    rank: int | None
    size: int
    wave: int = 0
    step: int | None = None
    runs: bool = False
    hosts: dict[int, str] = field(default_factory=dict)

    def words(self) -> str:
        """As evidence."""
        step = f"step {self.step} of " if self.step is not None and self.runs else ""
        return f"{'runs, at ' if self.runs else 'rests, at '}{step}wave {self.wave}"


@dataclass
class Start:
    """Ranks whose start a process waits for: how many there are to be, and those that are not there. `here`: ranks to be started
    on this machine; `elsewhere`: on another one; `starting`: those that have reported and are not ready."""

    size: int
    here: list[int] = field(default_factory=list)
    elsewhere: list[int] = field(default_factory=list)
    starting: list[int] = field(default_factory=list)
