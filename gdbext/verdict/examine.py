"""Samples processes and judges them, for llm-hang, llm-watch and llm-report."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any, Iterable, Sequence

from .. import log
from ..access.base import Target
from ..access.proctable import ProcTable
from ..cpython.runtime import open_runtime
from ..engines import endpoints, nccl_ras, shm_files
from ..engines.group import engines_of
from ..engines.listeners import who_listens
from ..engines.processes import ProcessRef, ranks_of
from ..engines.sightings import Look
from ..errors import GdbextError
from ..observe.clocks import ancestors, askers
from ..observe.window import PRESSED
from ..requests import collect, instances, join
from ..requests.model import BEHIND, NEVER_FITS
from ..stacks.snapshots import ProcessSnapshot
from . import sampling, untraced
from .chains import chains_of
from .closed import depends_on
from .facts import Facts, ProcessState, Verdict
from .judge import judge
from .kinds import QUIET
from .nodes import peers_of
from .walk import Chain

if TYPE_CHECKING:
    from ..engines.targets import Targets
    from .exchange import Machine

LONGER = 3.0  # times the first window, on a machine short of CPUs
MAX_OTHERS, ROUNDS = 12, 4  # processes that are sampled without being asked for; how often those at the ends are looked for
TWICE = 2.0  # times as long, for a verdict that holds only if it is found twice
AGAIN = {"kernel": 4.0, "gil": 3.0, "loop-blocked": 3.0, "uninterruptible": 3.0}  # times as long, for what may only be slow


class Examination:
    """What an examination found.

    * `seen`: `[ProcessState]`
    * `verdicts` on them, the gravest first
    * `chains` of everything that waits
    * `requests`: `[Tracked]` of all engines, None where there is no engine
    * `progress`: the counters of the engines' processes, at both readings
    * `untraced`: what is known of processes that may not be traced
    * `sides`: the engine instances

    `looks`: the last one at each process of the engines."""

    def __init__(
        self,
        seen: list[ProcessState],
        custodies: Sequence[tuple[set[Any], list[Any], list[Any]]] = (),
        looks: Iterable[Look] = (),
    ) -> None:
        self.seen = seen
        by_pid = {look.pid: look for look in looks}
        for f in seen:
            f.requests = next((requests for who, requests, _ in reversed(custodies) if {f.pid, f.name} & who), None)
            look = by_pid.get(f.pid)
            if look is not None:
                f.broken, f.in_step, f.start = look.broken, look.in_step, look.start
        self.requests = [r for _, requests, _ in custodies for r in requests] if custodies else None
        self.progress = [c for _, _, counted in custodies for c in counted]
        self.verdicts: list[Verdict] = judge(seen)
        self.chains: list[Chain] = chains_of(Facts(seen), self.requests or ())
        self.untraced: list[dict[str, Any]] = []
        self.sides: list[instances.Side] = []


def judge_machines(machines: Sequence[Machine]) -> Examination:
    """The `Examination` of the facts of several machines together. It reads no process."""
    sides = [side for machine in machines for side in machine.sides]
    instances.relate(sides)
    seen = [f for machine in machines for f in machine.processes]
    custodies: list[tuple[set[Any], list[Any], list[Any]]] = []
    for side in sides:
        if any(look.parts for look in side.looks):
            custodies.append(({look.pid for look in side.looks}, list(side.requests), []))
    return Examination(seen, custodies, [look for side in sides for look in side.looks])


def examine(
    found: Sequence[Any], targets: Targets, seconds: float, words: Sequence[str] = (), alone: bool = False
) -> Examination:
    """Samples the processes that `resolve_processes` returned for `seconds`, and judges them. `alone`: other machines are asked
    too, so something that the instances here lack may be there.

    A kernel, a disk, or a call of a second or two that keeps the GIL or an event loop, may only be slow. Such a process is
    sampled on, for `AGAIN` times as long. The verdict stands only if everything that was seen then still says the same. A
    process is sampled again from the start where the verdict is unknown because its threads wait for a CPU."""
    look = _Look(found, targets, seconds, words, alone)
    first = look.examination()
    asked = len(found)
    for _ in range(ROUNDS):
        room = asked + MAX_OTHERS - len(found)
        more = [] if first.verdicts[0].kind in QUIET else _others(found, targets, first)[:room]
        if not more:
            break
        found = [*found, *more]
        look = _Look(found, targets, seconds, words, alone)
        _add_pauses(look.sampling.seen, [s.snapshot for s in first.seen])
        first = look.examination()
    first.untraced = _untraced([s for s in first.seen if untraced.is_refused(s)])
    said, again = {v.kind for v in first.verdicts}, any(v.again for v in first.verdicts)
    if "unknown" in said and any(s.window.pressed > PRESSED for s in first.seen):
        look = _Look(found, targets, seconds * LONGER, words, alone)
        _add_pauses(look.sampling.seen, [s.snapshot for s in first.seen])
        last = look.examination()
    elif (said & set(AGAIN) or again) and look.sampling.live:
        look.go_on(max([AGAIN.get(kind, 0.0) for kind in said] + [TWICE] * again))
        last = look.examination()
        if again or {v.kind for v in last.verdicts} != said:  # the first wait has ended: the process is in another one now
            look.copy_again()
            last = look.examination()
    else:
        return first
    last.untraced = first.untraced
    return last


def _others(found: Sequence[Any], targets: Targets, first: Examination) -> list[ProcessRef]:
    """The Python processes at the ends of chains, or on which everything else depends, that were not asked for: children, and
    processes that have the other end of a pipe or a socket. To an engine's, those of it that may have its open requests. The
    process that asks, and its ancestors, are left out."""
    ranks = ranks_of(found)
    if ranks or any(one.pid is None for one in found):
        owes = first.requests and first.verdicts[0].kind == "unknown"
        kin = [r for one in ranks for r in one.kin if owes and r not in ranks and not r.zombie]
        return [ProcessRef.of_rank(r) for r in sorted(dict.fromkeys(kin), key=lambda r: r.role == "worker")][:MAX_OTHERS]
    table = ProcTable()
    known = {one.pid for one in found} | askers(table) | ancestors(table, os.getpid())
    unseen = [
        *(pid for chain in first.chains for pid in chain.unseen),
        *sorted(depends_on(Facts(first.seen)) | _holders_not_seen(Facts(first.seen))),
    ]
    pids = dict.fromkeys(pid for pid in unseen if pid not in known and pid in table.processes)
    return [one for one in map(ProcessRef, list(pids)[: 2 * MAX_OTHERS]) if _runs_python(targets, one)]


def _holders_not_seen(facts: Facts) -> set[int]:
    """Processes that have the other end of a pipe for which a main thread waits, and were not sampled, where another that has it
    was."""
    pids = {p.pid for p in facts}
    found: set[int] = set()
    for f in facts:
        call = f.main.call if f.main is not None else None
        if call is not None and {source.kind for source in call.sources} == {"pipe"}:
            held = set(peers_of(f, call)) - f.ancestors
            found |= held - pids if held & pids else set()
    return found


def _runs_python(targets: Targets, one: ProcessRef) -> bool:
    try:
        open_runtime(targets.of(one))
    except GdbextError as e:
        log.passed_over(e)
        return False
    return True


def _add_pauses(seen: Sequence[ProcessState], earlier: Sequence[ProcessSnapshot | None]) -> None:
    """Adds to each process's pauses those of an earlier copy."""
    for s, copy in zip(seen, earlier):
        if copy is not None and s.snapshot is not None and s.snapshot is not copy:
            s.snapshot.pauses = copy.pauses + s.snapshot.pauses


def _untraced(refused: Sequence[ProcessState]) -> list[dict[str, Any]]:
    """The data on processes that may not be traced. The data on a ring, and on the job's NCCL, is given once, with the first
    process that has it."""
    rings, ras = shm_files.of_processes([s.pid for s in refused]), None
    told = []
    for s in refused:
        own = ras is None and nccl_ras.ask(s.pid) or None
        ras = ras or own
        told.append({**untraced.data(s), "http": endpoints.of_rank(s.rank), "rings": rings[s.pid], "ras": own})
    return told


class _Look:
    """The samples of all processes for `seconds`, with their copies. The requests of each engine are read at the first sample and
    at the last one."""

    def __init__(self, found: Sequence[Any], targets: Targets, seconds: float, words: Sequence[str], alone: bool) -> None:
        self.seconds, self.alone = seconds, alone
        with sampling.Sampling(found, targets, words) as self.sampling:
            self.engines = [engine for engine in engines_of(ranks_of(found), self.sampling.sampled) if engine.spec]
            self.first = [(collect.looks_at(engine)[0], time.monotonic()) for engine in self.engines]
            self.last: list[list[Look]] = []
            # cores do not change: no window for them
            self.sampling.watch(seconds if self.sampling.live or self.engines else 0.0, self._last_looks)
            self.sampling.copy()

    def _last_looks(self) -> None:
        self.last = [collect.looks_at(engine)[0] for engine in self.engines]

    def go_on(self, times: float) -> None:
        """Samples on, until `times` as long as the first window has passed since the beginning. The time for copying counts."""
        left = self.seconds * times - (time.monotonic() - self.sampling.began)
        self.sampling.go_on(max(left, self.seconds), self._last_looks)

    def copy_again(self) -> None:
        """Copies every process once more, in its present state."""
        earlier = [s.snapshot for s in self.sampling.seen]
        self._last_looks()
        self.sampling.copy()
        _add_pauses(self.sampling.seen, earlier)

    def examination(self) -> Examination:
        """The verdicts on everything that was seen until now."""
        custodies: list[tuple[set[Any], list[Any], list[Any]]] = []
        sides = []
        for engine, (first, began), now in zip(self.engines, self.first, self.last):
            since = time.monotonic() - began
            last, requests, _ = collect.compared(engine, first, self.seconds, since=since, last=now)
            sides.append(instances.Side(engine.instance, last, requests, first))
            if any(look.parts for look in last):
                custodies.append(({rank.pid for rank in engine.alive()}, requests, join.progress(last, first)))
        instances.hear(sides, who_listens)
        if not self.alone:
            instances.relate(sides)
        for s in self.sampling.seen:
            requests = _requests_in(s.view.target) if s.view is not None and not s.view.live else []
            if requests:
                custodies.append(({s.name}, requests, []))  # a core: its pid may be that of another machine's
        found = Examination(self.sampling.seen, custodies, [look for side in sides for look in side.looks])
        found.sides = sides
        return found


def _requests_in(core: Target) -> list[Any]:
    """The open requests of a core or snapshot. There is one reading only, so a slow request cannot be told from one that never
    ends: only verdicts that hold without a second reading are kept."""
    try:
        held = collect.collect_one(core)
    except GdbextError as e:
        log.passed_over(e)
        return []  # it is no engine's process, or its heap was not saved
    for tracked in held.requests:
        if tracked.verdict not in (NEVER_FITS, BEHIND):
            tracked.verdict = ""
    return held.requests
