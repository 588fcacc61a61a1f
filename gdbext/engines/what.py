"""The processes that `WHAT` in a command names: by an index, a label, a pid or all, or a file, whose path must have a slash. So a
file in the current folder cannot take the place of a process by its name."""

from __future__ import annotations

import os
import re
from typing import Callable, Sequence

from .. import log
from ..access.procfs import read_proc, status_field
from ..access.proctable import ProcTable
from ..bundle import paths
from ..errors import GdbextError, NotFoundError
from .processes import ProcessRef
from .rank import Rank, label_parts
from .registry import SPECS

RAY = "ray::"  # with which the titles of Ray's workers begin


def _describe(rank: Rank) -> str:
    return f"{rank.index}: {rank.label} ({rank.engine}, pid {rank.pid}{rank.whose()})"


def _thread_group(number: int) -> int | None:
    """The pid of the process that `number` (a pid or tid) belongs to; None when there is none. /proc shows threads by number
    too."""
    try:
        return int(status_field(read_proc(number, "status"), b"Tgid"))
    except (GdbextError, ValueError) as e:
        log.passed_over(e)
        return None


def resolve(what: str, ranks: Sequence[Rank]) -> list[ProcessRef]:
    """The processes, or the core file, that `WHAT` names: at least one `ProcessRef`; a pid that is in no list has no `rank`.
    `GdbextError` lists the candidates of an ambiguous name.

    `WHAT` is one of these:

    * `all`
    * a pid, or an index of `ranks`; a number that is both is the index
    * a label without regard to case (`TP0`, `DP1.TP3`, `sglang:scheduler`), or parts of one (`EP3`)
    * a title
    * an engine (`vllm`): all of its processes
    * an instance by its role, port or engine id (`decode`, `:8100`), which may precede a label (`decode:TP0`)
    * an actor or task of Ray by its title (`ray::Trainer`): all processes that have it, whatever they run now
    * the path of a file, which has a slash; of a bundle all processes in it, with `/LABEL` after it one
    """
    what = what.strip()
    if not what:
        raise GdbextError("name a process: an index or label of llm-ranks, a pid, a core file (./FILE), or all")
    if is_path(what):
        path = os.path.expanduser(what)
        file, word = paths.split(path)
        if paths.is_bundle(file):
            return _inside(file, word)
        if not os.path.exists(path):
            raise NotFoundError(f"{what}: there is no such file")
        return [ProcessRef(core=path)]
    try:
        return _processes(what, ranks)
    except NotFoundError as e:
        if os.path.isfile(what):
            raise NotFoundError(f"{e}; is the file of that name meant? ./{what}") from None
        raise


def _inside(file: str, word: str) -> list[ProcessRef]:
    """The processes in a bundle that a word names, all with ''; the bundle itself, for its verdict, where it has no memory, and
    where it is damaged: beside others it costs its own part of the answer."""
    from ..bundle.format import open_bundle  # only here: archives load much

    try:
        bundle = open_bundle(file)
    except GdbextError as e:
        if word:
            raise
        log.passed_over(e)
        return [ProcessRef(label=os.path.basename(file), core=file)]
    found = [ProcessRef(label=one.own_label, core=bundle.path_of(one)) for one in bundle.named(word) if one.file]
    return found or [ProcessRef(core=file)]


def is_path(what: str) -> bool:
    """Whether a WHAT is the path of a file."""
    return "/" in what


def _processes(what: str, ranks: Sequence[Rank]) -> list[ProcessRef]:
    """As `resolve`, for a WHAT that is no path."""
    whole = [r for r in ranks if not r.zombie and "fork" not in r.marks]
    if what.lower() == "all":
        if not whole:
            raise NotFoundError("all: no engine process is running; see llm-ranks")
        return list(map(ProcessRef.of_rank, whole))
    if re.fullmatch("[0-9]{1,10}", what):
        number = int(what)
        for rank in ranks:
            if rank.index == number:
                return [ProcessRef.of_rank(rank)]
        for rank in ranks:
            if rank.pid == number:
                return [ProcessRef.of_rank(rank)]
        process = _thread_group(number)
        if process == number:
            return [ProcessRef(number)]
        if process:
            raise GdbextError(f"{number} is a thread of process {process}: name that one")
        inside = [r for r in ranks if r.ns_pid == number]
        if inside:
            raise NotFoundError(
                f"there is no process {number} here; in its container that is {'; '.join(map(_describe, inside))}"
            )
        raise NotFoundError(
            f"{number} is no process here (it may have ended)"
            + (
                f", and no index of llm-ranks, which has {'0 alone' if len(ranks) == 1 else f'0 to {len(ranks) - 1}'}"
                if ranks
                else "; llm-ranks lists no engine's process either"
            )
        )
    if what.startswith(RAY):
        return _of_ray(what)
    found = _named(what, ranks)
    if len(found) == 1:
        return [ProcessRef.of_rank(found[0])]
    if found:
        engines = {r.engine for r in found}
        say = "the index or the pid"
        if len(engines) == len(found):
            say = " or ".join(f"{r.engine}:{what}" for r in found)
        elif len({r.label for r in found}) == len(found):
            say = " or ".join(r.label for r in found)
        raise GdbextError(f"{what} is ambiguous: {'; '.join(map(_describe, found))}; say {say}")
    engine = [r for r in whole if r.engine == what.lower()] or _of_instance(what, whole)
    if engine:
        return list(map(ProcessRef.of_rank, engine))
    if not ranks:
        raise NotFoundError(f"no engine process is named {what}: llm-ranks lists none")
    raise NotFoundError(f"nothing is named {what}; there are {', '.join(r.label for r in ranks)}")


def _of_ray(what: str) -> list[ProcessRef]:
    """The processes that Ray has given a title: `ray::CLASS` at rest, `ray::CLASS.METHOD` or `ray::CLASS:METHOD` at work."""
    table = ProcTable().processes.values()
    found = [
        one.pid for one in table if one.single and re.split(r"(?<=[^:])[.:](?=[^:])", one.title)[0] == what or one.title == what
    ]
    if not found:
        there = sorted({one.title for one in table if one.single and one.title.startswith(RAY)})
        raise NotFoundError(f"no process has the title {what}" + (f"; Ray's here are {', '.join(there[:16])}" if there else ""))
    return [ProcessRef(pid) for pid in sorted(found)]


def _of_instance(word: str, ranks: Sequence[Rank]) -> list[Rank]:
    """The processes of the instances that a word names: their role, `:PORT`, engine id or name."""
    word = word.lower()
    instances = [r.instance for r in ranks if r.instance is not None]
    meant = {one.number for one in instances if word in (one.name.lower(), *(w.lower() for w in one.words()))}
    return [r for r in ranks if r.family in meant]


def _named(what: str, ranks: Sequence[Rank]) -> list[Rank]:
    """All ranks that a word names, by the strictest reading that names any."""
    engine, colon, rest = what.partition(":")
    if colon and engine.lower() in SPECS and not rest.startswith(":"):
        ranks, what = [r for r in ranks if r.engine == engine.lower()], rest
    instance, colon, rest = what.rpartition(":")
    if colon and rest and _of_instance(instance, ranks) and not any(r.label.lower() == what.lower() for r in ranks):
        ranks, what = _of_instance(instance, ranks), rest
    word = what.lower()
    plain = word.replace("_", ".")
    parts = label_parts(word)
    alive = [r for r in ranks if not r.zombie]
    readings: tuple[Callable[[Rank], bool], ...] = (
        lambda r: r.label.lower() == word,
        lambda r: r.short.lower() == word,
        lambda r: r.process.single and word in (r.process.title.lower(), r.process.title.lower().rpartition("::")[2]),
        lambda r: r.short.lower().replace("_", ".") == plain,
        lambda r: word in (a.lower() for a in r.aliases),
        lambda r: bool(parts) and r.runs_model and "fork" not in r.marks and all(r.ranks.get(g) == n for g, n in parts.items()),
        lambda r: r.role == word,
    )
    for reading in readings:
        for group in (alive, ranks):
            found = [r for r in group if reading(r)]
            if found:
                return found
    return []
