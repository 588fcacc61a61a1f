"""The requests of an engine by process, with the KV caches in which its schedulers hold them."""

from __future__ import annotations

from typing import Callable, List, Sequence, Set, Tuple

from .. import log
from ..access.base import Target
from ..access.retry import retry_reading
from ..engines.group import Engine
from ..engines.kv_view import NativeView, View
from ..engines.rank import Rank
from ..errors import ContradictionError, GdbextError, NotFoundError
from ..kvcache.model import Cache, Request
from .collect import Custody, collect_all, collect_files

Caches = List[Tuple[Set[int], Cache]]  # (the processes that schedule for one, the cache)
Copied = Callable[[Rank], Target]
READ = 2.0  # seconds for the blocks of one running scheduler


def of_engines(
    engines: Sequence[Engine],
    between: float,
    show_content: bool,
    wanted: str = "",
    alone: bool = False,
    copied: Copied | None = None,
) -> list[tuple[Custody, Caches]]:
    """The requests of some engines by process, and their caches, which are read after the looks. Errors are in `partial`.
    `wanted`, `alone`: as for `collect_all`. `copied`: gives a copy of one moment of a process whose numbers contradict one
    another while it runs."""
    every = collect_all(engines, between, wanted=wanted, alone=alone)
    return [_with_caches(held.of, held, show_content, copied) for held in every if held.of is not None]


def _with_caches(engine: Engine, held: Custody, show_content: bool, copied: Copied | None) -> tuple[Custody, Caches]:
    schedule = {look.pid for look in held.looks if "scheduler" in look.parts}
    caches: Caches = []
    for ranks in [*engine.replicas(), *([rank] for rank in engine.with_role("frontend"))]:
        caches += _cache_of(engine, [rank for rank in ranks if rank.pid in schedule], held, show_content, copied)
    return held, caches


def of_files(targets: Sequence[Target], view_of: Callable[[Target], View | NativeView]) -> list[tuple[Custody, Caches]]:
    """As `of_engines`, for cores, or a process without siblings. `view_of`: gives the view of one's cache."""
    try:
        every = collect_files(targets)
    except NotFoundError as e:  # an engine in C++: only its cache can be read
        if len(targets) > 1:
            raise
        log.passed_over(e)
        view = view_of(targets[0])
        cache = view.cache()
        return [(Custody(cache.engine, [], [], [], view.partial), [(set(), cache)])]
    return [(held, _caches_of_files(held, targets, view_of)) for held in every]


def _caches_of_files(held: Custody, targets: Sequence[Target], view_of: Callable[[Target], View | NativeView]) -> Caches:
    """The caches of the files that have a scheduler; of a lone file whatever its view finds."""
    found: Caches = []
    looks = {look.pid: look for look in held.looks}
    for target in targets:
        look = looks.get(target.pid or 0)
        if look is None or len(targets) > 1 and "scheduler" not in look.parts:
            continue
        try:
            view = view_of(target)
            found.append((set(), view.cache(_seen(held, look.pid))))
        except GdbextError as e:
            held.partial.append(f"blocks not read: {e}")
        else:
            held.partial += [p for p in view.partial if p not in held.partial]
    return found


def _cache_of(engine: Engine, ranks: list[Rank], held: Custody, show_content: bool, copied: Copied | None) -> Caches:
    """The cache that several processes schedule for together, from the first process that allows it. If none does, the reasons go
    to `partial`."""
    why = []
    for rank in ranks:
        target, torn = engine.target(rank), [look.torn_note for look in held.looks if look.pid == rank.pid and look.torn]
        seen = None if torn else _seen(held, rank.pid)

        def read(target: Target = target, seen: list[Request] | None = seen) -> Cache:
            return View(target, engine, None, show_content).cache(seen)

        try:
            try:
                cache = retry_reading(target, read, READ)
            except ContradictionError as e:
                if copied is None:
                    raise
                log.note("a copy of one moment is read: %s", e)
                cache = View(copied(rank), engine, None, show_content).cache()
        except GdbextError as e:
            why.append(f"{rank.label}: blocks not read: {e}")
        else:
            held.partial = [note for note in held.partial if note not in torn]
            return [({one.pid for one in ranks}, cache)]
    held.partial += why
    return []


def _seen(held: Custody, pid: int) -> list[Request] | None:
    """The requests of a process's scheduler, as its look read them; None where it has none."""
    looks = [look for look in held.looks if look.pid == pid and "scheduler" in look.parts]
    return [s.request for look in looks for s in look.sightings if s.request is not None] if looks else None
