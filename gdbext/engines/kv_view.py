"""An engine's KV cache as read from one process and its siblings: the scheduler's `Cache`, and a `Worker` per shard."""

from __future__ import annotations

import functools
import math
import time
from dataclasses import replace
from typing import Any, Callable, List, Sequence, TypeVar

from .. import log
from ..access.base import Target
from ..access.retry import LASTING_TRIES, SECONDS, agreeing, retry_reading
from ..cpython.objects import Object
from ..cpython.runtime import Runtime, open_runtime
from ..errors import GdbextError, NotFoundError
from ..kvcache import invariants
from ..kvcache.invariants import Report
from ..kvcache.model import Cache, Request, TokenHashes, Worker
from ..kvcache.model import Values as BlockValues
from ..kvcache.suspects import CHECKS, Suspects
from ..torch import arrays, stats
from ..torch.tensor import Tensor
from . import absences, registry
from .absences import Absences
from .batches import uncollected
from .objects import frames_are_whole
from .spec import EngineSpec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..kvcache.addresses import Layer, Part
    from .group import Engine
T = TypeVar("T")
Values = Callable[[Cache, List[Worker], List[str]], BlockValues]

MOST_CHECKS, CHECKING = 16, 2.0  # beyond CHECKS, a running process is read again up to so often, for so many seconds


def has_engine(rt: Runtime) -> bool:
    """Whether the process has loaded an engine whose KV cache is read from Python objects."""
    return any(rt.has_module(spec.packages) for spec in registry.with_kv())


def spec_of(rt: Runtime) -> EngineSpec:
    """The engine whose KV cache this process may have; `NotFoundError` lists the known engines."""
    known = registry.with_kv()
    found = registry.loaded_in(rt, known)
    if found:
        return found[0]
    raise NotFoundError(
        f"{rt.target.describe()} has loaded none of {', '.join(s.name for s in known)}: no KV cache of theirs is in it "
        f"(llm-ranks names the processes that schedule). Read are {registry.kv_releases()}"
    )


def scheduler_of(rt: Runtime) -> Object | None:
    """The scheduler that a frame of the process holds, None where it has none or runs no engine."""
    reader: Any = spec_of(rt).kv if has_engine(rt) else None
    found: Object | None = reader.find_scheduler(rt) if reader is not None else None
    return found


def _sought_in_frames(rt: Runtime, find: Callable[[], T]) -> T:
    """The result of `find()`, which searches frames. Where the process runs on and nothing is found, the search is repeated,
    until all its threads could be read often enough to prove that it is not there."""
    whole = 0

    def read() -> T:
        nonlocal whole
        try:
            return find()
        except NotFoundError as e:
            whole += frames_are_whole(rt)
            e.final = e.final or whole >= LASTING_TRIES
            raise

    return retry_reading(rt.target, read, lasting=SECONDS)


class View:
    """The cache as seen from one process.

    `engine`: its siblings, None where only this process counts (a core). `root`: a scheduler, manager or pool to read instead of
    the one that is found. `content`: also the requests' tokens. `cores`: where it is a core, those of its engine's processes.
    `partial`: what is missing, filled during the read."""

    def __init__(
        self,
        target: Target,
        engine: Engine | None = None,
        root: Object | None = None,
        content: bool = False,
        cores: Sequence[Target] = (),
    ) -> None:
        self.target, self._engine, self._root, self._content, self.cores = target, engine, root, content, cores
        self.partial: list[str] = []
        self.missed: list[tuple[str, str]] = []  # [(label, why)] of the shards that could not be read
        self.rt = open_runtime(target)
        rank = engine.of_pid(target.pid) if engine is not None and target.pid is not None else None
        own = engine.spec if engine is not None and rank is not None else None
        self.spec = own if own in registry.with_kv() else spec_of(self.rt)
        self.reader: Any = self.spec.kv

    def _siblings(self, role: str) -> list[tuple[str, Target]]:
        """`[(label, Target)]` of this engine's other processes that schedule, or that hold the model's parts ("shards")."""
        if self.cores:
            return [(core.label or str(core.pid), core) for core in self.cores]
        engine, pid = self._engine, self.target.pid
        rank = engine.of_pid(pid) if engine is not None and pid is not None else None
        if engine is None or rank is None:
            return []
        ranks = engine.schedulers_for(rank) if role == "scheduler" else engine.shards_for(rank)
        return [(r.label, self.target if r.pid == pid else engine.target(r)) for r in ranks]

    def cache(self, requests: list[Request] | None = None, as_read: bool = False) -> Cache:
        """The scheduler's `Cache`, of this process or of the sibling that has it. `requests`: those of this process, which were
        read just now. Where the engine's reader can do so, it then reads only their blocks and fills them in; not for a view of
        another root, or with tokens.

        `ContradictionError` where the process runs on and its numbers contradict one another each time; not with `as_read`, for
        who compares several readings, or wants only what does not change."""
        if self._root is not None or self._content:
            requests = None
        root = self._root or self._scheduler(self.rt)
        if root is not None:
            return self._read(self.rt, root, requests, as_read)
        for _, target in self._siblings("scheduler"):
            if target is self.target:
                continue
            rt = open_runtime(target)
            root = self._scheduler(rt)
            if root is not None:
                self.unstopped(target)
                return self._read(rt, root, None, as_read)
        missing: Cache = self.reader.read(self.rt, None, self._content)  # it notes what is missing
        return missing

    def _scheduler(self, rt: Runtime) -> Object | None:
        """The scheduler of a process or None."""

        def find() -> Object:
            root: Object | None = self.reader.find_scheduler(rt)
            if root is None:
                raise NotFoundError(f"{rt.target.describe()} has no scheduler in it: name the process that schedules (llm-ranks)")
            return root

        try:
            return _sought_in_frames(rt, find)
        except NotFoundError as e:
            log.passed_over(e)
            return None

    def _read(self, rt: Runtime, root: Object, requests: list[Request] | None, as_read: bool) -> Cache:
        """The cache of a scheduler, which stays where it is. Where it is read again, its requests are too."""
        given = [requests] if requests is not None and hasattr(self.reader, "fill") else []

        def read() -> Cache:
            with uncollected(), absences.watching(rt, self.spec) as absent:
                found: Cache = self.reader.fill(rt, root, given[0]) if given else self.reader.read(rt, root, self._content)
            self._judge(rt, found, absent)
            return found

        def again() -> Cache:
            found = retry_reading(rt.target, read, lasting=SECONDS)
            given.clear()
            return found

        return again() if as_read else agreeing(rt.target, again, invariants.contradictions)

    def _judge(self, rt: Runtime, cache: Cache, absent: Absences) -> None:
        """Notes what the engine's objects did not have, and that no rule that rests on it is judged."""
        cache.notes += absent.notes()
        cache.unjudged.update(absent.unjudged())
        if absent.is_new and not absent.found:
            cache.notes.append(f"{cache.engine} {cache.version} is newer than any that was tried: {registry.kv_releases()}")
        hash_tokens = cache.token_hashes
        if hash_tokens is None:
            return

        def hashes() -> TokenHashes:
            with absences.watching(rt, self.spec) as more:
                found = hash_tokens()
            cache.notes += [note for note in more.notes() if note not in cache.notes]
            cache.unjudged.update(more.unjudged())
            return found

        cache.token_hashes = hashes

    def workers(self, num_blocks: int | None = None) -> list[Worker]:
        """A `Worker` per shard that can be read; the others are named in `partial`."""
        found: list[Worker] = []
        self.missed = []
        shards = self._siblings("shards")
        for label, target in shards or [(self.target.label or "this process", self.target)]:
            try:
                rt = open_runtime(target)
                with absences.watching(rt, self.spec) as absent:
                    read = functools.partial(self.reader.read_worker, rt, label, num_blocks)
                    found.append(_sought_in_frames(rt, absences.forgetting(rt, read)))
                found[-1].notes += absent.notes()
                self.unstopped(target)
            except NotFoundError as e:
                if self.cores:
                    log.passed_over(e)  # the core of a process without a part of the model
                else:
                    self.missed.append((label, str(e)))
            except GdbextError as e:
                self.missed.append((label, str(e)))
        if not found and not self.target.is_live:
            self.partial.append(
                "the workers' memory is not in this core: addresses need their cores too (-on './A.core ./B.core')"
            )
        else:
            self.partial += [f"{label}: {why}" for label, why in self.missed]
        return found

    def unstopped(self, target: Target) -> None:
        """Notes in `partial` that a process is read while it runs."""
        if not target.is_stopped and "unstopped" not in self.partial:
            self.partial.append("unstopped")


def block_values(layer: Layer, part: Part, block: int) -> Tensor:
    """The elements of one block of a `Part` as a `Tensor`: a view of the part's own, [kernel blocks, …]."""
    dims = [(layer.ratio, part.dims["block"][1]), *(d for name, d in part.dims.items() if name != "block")]
    offset = part.address(block=block * layer.ratio) - part.tensor.storage_data
    whole: Tensor = part.tensor
    return replace(
        whole,
        shape=tuple(n for n, _ in dims),
        stride=tuple(step // part.item for _, step in dims),
        storage_offset=offset // part.item,
        numel=math.prod(n for n, _ in dims),
    )


def block_stats(layer: Layer, block: int) -> dict[str, Any]:
    """{part: statistics} of a block's elements in one layer; {"why": …} where they cannot be read. Needs numpy."""
    try:
        return {part.name: stats.statistics(arrays.of_tensor(block_values(layer, part, block)))[0] for part in layer.parts}
    except GdbextError as e:
        return {"why": str(e)}


def check(
    view: Any, view_again: Callable[[], Any], ranks: bool, values: Values | None = None
) -> tuple[Report, Cache, list[Worker], Any]:
    """Checks the invariants of a view's cache. -> (report, cache, workers, the view read last)

    `ranks`: the workers' tables too. `values` (kv_deep.read): the content of the blocks too.

    A process that runs on is read again. A violation that is not seen each time was a change during the read. A violation rests
    on values; if these moved between two readings, it counts as `changed` while it was read, because they may never have been so
    at one moment. A half-done update explains a violation only if the process is in that very place in each reading."""
    report, cache, workers = _checked(view, ranks, values)
    if "unstopped" not in view.partial:
        return report, cache, workers, view
    began, times, suspects = time.monotonic(), 0, Suspects(report)
    while (suspects.now or ranks and not report.ranks and workers) and (
        times < CHECKS or suspects.now and times < MOST_CHECKS and time.monotonic() - began < CHECKING
    ):
        view, times = view_again(), times + 1
        report, cache, workers = _checked(view, ranks, values)
        suspects.look(report, times < CHECKS)
    suspects.judge(report, times)
    return report, cache, workers, view


def _checked(view: Any, ranks: bool, values: Values | None) -> tuple[Report, Cache, list[Worker]]:
    cache = view.cache(as_read=True).of_blocks()
    workers = view.workers(cache.pools[0].size) if ranks or values else []
    found = None if values is None else values(cache, workers, view.partial)
    report = invariants.check(cache, workers if ranks and not view.cores else [], found, "unstopped" in view.partial)
    report.values = found
    if ranks:
        moment = "cores are not of one moment"
        report.not_compared += [invariants.LeftOut(worker.rank, "its tables", moment) for worker in workers if view.cores]
        report.not_compared += [invariants.LeftOut(label, "its memory", why) for label, why in view.missed]
    return report, cache, workers


class NativeView:
    """A C++ engine's cache, read by debug information: `reader`: the `kv` of a spec with `kv_classes`; `found`: `(class, this,
    inner)` of a frame."""

    def __init__(self, target: Target, reader: Any, found: Any) -> None:
        self.target, self.cores = target, ()
        self.partial: list[str] = []
        self.missed = [("workers", "their layers and tables are C++ objects that are not decoded")]
        self._reader, self._found = reader, found

    def cache(self, requests: list[Request] | None = None, as_read: bool = False) -> Cache:
        """The cache that the frame's object leads to, all of it."""
        found: Cache = self._reader.read(self._found)
        return found

    def workers(self, num_blocks: int | None = None) -> list[Worker]:
        """None: its layers are C++ torch tensors (RTP-LLM) or buffers of a type of its own (TensorRT-LLM), and their layout is
        not known from these names."""
        return []

    def unstopped(self, target: Target) -> None:
        """Notes nothing: a C++ engine's cache is read in a stopped process only."""
