"""A running engine, its requests and its KV cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator, Sequence

from ..access.base import Target
from ..answers import kv as shapes
from ..answers import requests as rows
from ..engines import group as groups
from ..engines import kv_deep, kv_view
from ..engines.kv_view import View
from ..errors import GdbextError, NotFoundError
from ..kvcache import picture
from ..kvcache.invariants.findings import Violation
from ..kvcache.model import Cache as Read
from ..kvcache.model import Request as Numbers
from ..render import html
from ..requests.caches import of_engines, of_files

if TYPE_CHECKING:
    from .processes import Process
    from .values import Object
    from .verdicts import Verdict

CELLS = 32  # blocks of a line of a picture
NUMBERS = ("request_id", "status", "verdict", "tokens", "computed_tokens", "output_tokens", "blocks", "waits_for")


class Request:
    """A request of an engine, with its counts in tokens; None for what is not known.

    * `request_id`, `status` (the engine's word), `queue` (`"running"`, `"waiting"` ...), `age` in seconds
    * `prompt_tokens`, `computed_tokens`, `output_tokens`, `tokens`, `preemptions`
    * `blocks`: the ids of its blocks, in the order of its table (of its first group)
    * `blocked_by`, `waits_for`: what it waits for, in words
    * `verdict`: `"moving"`, `"queued"`, `"lost"` ...; `moved`: both only of two looks (`Engine.requests_over`)
    * `hops`: the processes that know it, `[{label, pid, stage, state}]`
    * `data`: all fields of a row of `llm-requests -json`"""

    def __init__(self, data: dict[str, Any], numbers: Numbers | None, process: Process | None) -> None:
        self.data, self._numbers, self._process = data, numbers, process
        self.request_id: str = data["request_id"]
        self.status: str = data["status"]
        self.queue: str = data["queue"]
        self.age: float | None = data["age"]
        self.prompt_tokens: int | None = data["prompt_tokens"]
        self.computed_tokens: int | None = data["computed_tokens"]
        self.output_tokens: int | None = data["output_tokens"]
        self.tokens: int | None = data["tokens"]
        self.preemptions: int | None = data["preemptions"]
        self.blocked_by: str = data["blocked_by"] or ""
        self.waits_for: str = data["waits_for"] or self.blocked_by
        self.verdict: str = data["verdict"] or ""
        self.moved: bool | None = data["moved"]
        self.hops: list[dict[str, Any]] = data["hops"]
        tables = numbers.blocks if numbers is not None else {}
        self.blocks: list[int] = list(tables[min(tables)]) if tables else []

    @property
    def object(self) -> Object | None:
        """The scheduler's own object of it; None where it is not known."""
        if self._process is None or self._numbers is None or not self._numbers.address:
            return None
        return self._process.object_at(self._numbers.address)

    def __repr__(self) -> str:
        return f"<Request {self.request_id} {self.verdict or self.status}>"

    def _repr_html_(self) -> str:
        """Its fields, for a notebook."""
        return html.table(("", ""), [(k, v) for k, v in self.data.items() if v not in (None, "", [])])


class Block:
    """A block of a KV cache, `id` of its pool.

    * `ref_cnt`, `free`, `hash`: None where the engine does not keep it; `cached`: the prefix cache names it; `reserved`: it is
      never handed out
    * `owners`: `[{request_id, index, group}]`, the requests that have it and the place in their tables
    * `data`: all fields of `llm-kv block -json`"""

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data
        self.id: int = data["id"]
        self.ref_cnt: int | None = data["ref_cnt"]
        self.free: bool | None = data["free"]
        self.cached: bool = data["cached"]
        self.reserved: bool = data["reserved"]
        self.hash: str | None = data["hash"]
        self.owners: list[dict[str, Any]] = data["owners"]

    def __repr__(self) -> str:
        owners = ", ".join(one["request_id"] for one in self.owners)
        return f"<Block {self.id} {owners or ('free' if self.free else 'not free')}>"


class Check:
    """The result of checking a cache's invariants. `ok`: True where all that was compared holds, None where nothing could be
    compared; `violations`: broken rules, each with `rule`, `detail`, `block`, `request_id`; `data`: all fields of
    `llm-kv check -json`."""

    def __init__(self, data: dict[str, Any], violations: Sequence[Violation]) -> None:
        self.data, self.violations = data, list(violations)
        self.ok: bool | None = data["ok"]

    def __bool__(self) -> bool:
        return self.ok is True

    def __repr__(self) -> str:
        return f"<Check ok={self.ok}, {len(self.violations)} violations>"


class Cache:
    """The KV cache of an engine.

    * `num_blocks`, `block_size` (in tokens), `free`, `used` (a request's, or pinned), `cached` (the prefix cache names it, free
      or not), `reserved`: in blocks
    * `data`: all fields of `llm-kv -json`"""

    def __init__(self, view: View, read: Read) -> None:
        self._view, self._read = view, read
        self.data = shapes.cache_data(read, [])
        self.num_blocks: int = self.data["num_blocks"]
        self.block_size: int = self.data["block_size"]
        self.free: int = self.data["free"]
        self.used: int = self.data["used"]
        self.cached: int = self.data["cached"] or 0
        self.reserved: int = self.data["reserved"]

    def block(self, number: int, group: int | None = None) -> Block:
        """One block; `group`: of this KV cache group's pool. `NotFoundError` outside the pool."""
        found = self._read.group(group) if group is not None else next(iter(self._read.groups), None)
        if found is None:
            raise NotFoundError(f"no group {group}; there are {', '.join(str(g.id) for g in self._read.groups)}")
        return Block(shapes.block_data(self._read, found, number, []))

    @property
    def blocks(self) -> Iterator[Block]:
        """The blocks of the first pool, in order."""
        return map(self.block, range(self._read.pools[0].count))

    @property
    def cells(self) -> str:
        """A character for each block of the first pool: `.` free, `o` free and cached, a letter for each request (the largest
        first), `*` of several requests, `+` of none, `0` reserved, `!` free and owned."""
        return picture.states(self._read, 0)

    @property
    def legend(self) -> dict[str, str]:
        """{letter of `cells`: id of the request}"""
        return {letter: name for name, letter in picture.letters_of(self._read, 0).items()}

    def check(self, ranks: bool = False, deep: bool = False) -> Check:
        """Checks every invariant of the engine's release. `ranks`: also the workers' tables against the scheduler's, of a process
        that runs (`live=True`); `deep`: also the values in the blocks, which needs numpy."""
        report, cache, _, _ = kv_view.check(self._view, lambda: self._view, ranks, kv_deep.read if deep else None)
        return Check(shapes.check_data(report, cache, ranks), report.violations)

    def __repr__(self) -> str:
        return f"<Cache {self.num_blocks} blocks of {self.block_size} tokens: {self.free} free, {self.used} used>"

    def _repr_html_(self) -> str:
        """A cell for each block, for a notebook."""
        cells, colours = self.cells, {**picture.COLOURS, **dict(zip(picture.LETTERS, _colours()))}
        lines = []
        for start in range(0, len(cells), CELLS):
            row = "".join(
                f'<td title="block {start + i}" style="background:{colours.get(c, "#a0a0a0")};width:1em">{html.text(c)}</td>'
                for i, c in enumerate(cells[start : start + CELLS])
            )
            lines.append(f"<tr>{row}</tr>")
        names = "; ".join(f"{letter} {name}" for letter, name in self.legend.items())
        return f"<div>{html.text(repr(self))}</div><table>{''.join(lines)}</table><div>{html.text(names)}</div>"


def _colours() -> Iterator[str]:
    return (f"hsl({n * 137 % 360},60%,75%)" for n in range(len(picture.LETTERS)))


class Engine:
    """An engine, as far as `processes` of it were opened: those of one moment, or, with `live=True`, all that run.

    `name`: "vllm", "sglang" ...; `instance`: its name here, which no other has."""

    def __init__(self, processes: Sequence[Process], name: str, running: groups.Engine | None, show_content: bool) -> None:
        self.processes, self.name, self._running, self._show = list(processes), name, running, show_content
        rank = self.processes[0].ref.rank
        self.instance = rank.instance.name if rank is not None and rank.instance is not None else name
        self.partial: list[str] = []  # why the last answer is not everything

    def _view(self, target: Target, engine: groups.Engine | None = None) -> View:
        cores = [] if engine is not None or len(self.processes) < 2 else [p.target for p in self.processes]
        return View(target, engine, None, self._show, cores)

    @property
    def requests(self) -> list[Request]:
        """Its requests: running ones, then waiting ones, then those that no scheduler has. One look: what moves is not known."""
        return self._requests(0.0)

    def requests_over(self, seconds: float = 1.0) -> list[Request]:
        """As `requests`, by two looks, so that `verdict` and `moved` are known; of processes that run (`live=True`)."""
        if self._running is None:
            raise GdbextError("one moment does not show what moves: open it with live=True")
        return self._requests(seconds)

    def _requests(self, seconds: float) -> list[Request]:
        if self._running is not None:
            every = of_engines([self._running], seconds, self._show)
        else:
            every = of_files([p.target for p in self.processes], self._view)
        found = []
        self.partial = []
        for held, caches in every:
            self.partial += held.partial
            numbers = {r.request_id: (r, pids) for pids, cache in caches for r in cache.requests}
            for data in rows.rows_of(held, caches)[0]:
                known, pids = numbers.get(data["request_id"], (None, set()))
                found.append(Request(data, known, self._scheduling(pids)))
        return found

    def _scheduling(self, pids: set[int]) -> Process | None:
        """The process whose memory has the objects of a cache that these schedule for."""
        among = [p for p in self.processes if p.pid in pids] or self.processes
        return among[0] if len(among) == 1 else next((p for p in among if p.has_scheduler), None)

    @property
    def kv(self) -> Cache:
        """Its KV cache. `NotFoundError` where none of `processes` schedules."""
        targets = [p.target for p in self.processes if p.has_scheduler] or [self.processes[0].target]
        view = self._view(targets[0], self._running)
        read = view.cache()
        if not read.pools:
            raise NotFoundError(f"{self.processes[0]!r} does not schedule: open the process that does, or all: gdbext.ranks()")
        self.partial = list(view.partial)
        return Cache(view, read)

    def hang(self, wait: float = 1.0) -> Verdict:
        """Why it hangs, or that it does not: `Process.hang` for all of its `processes` together."""
        return self.processes[0].opened.judged([p.ref for p in self.processes], wait)

    def __repr__(self) -> str:
        return f"<Engine {self.instance}: {', '.join(p.name for p in self.processes)}>"

    def _repr_html_(self) -> str:
        """Its requests, for a notebook."""
        found = [[getattr(r, name) if name != "blocks" else len(r.blocks) for name in NUMBERS] for r in self.requests]
        return f"<div>{html.text(repr(self))}</div>" + html.table(NUMBERS, found)
