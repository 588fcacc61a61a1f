"""Samples processes and judges them, for llm-hang, llm-watch and llm-report."""

from __future__ import annotations

import contextlib
import os
import time
from typing import TYPE_CHECKING, Any, Container, Iterable, Sequence

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
from ..observe.log_reader import Logs
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
from .states import UNKNOWN
from .walk import Chain

if TYPE_CHECKING:
    from ..engines.targets import Targets
    from .exchange import Machine

LONGER = 3.0  # times the first window, on a machine short of CPUs
MAX_OTHERS, ROUNDS = 12, 4  # processes that are sampled without being asked for; how often those at the ends are looked for
STANDS = 8.0  # seconds without a token, after which it counts which rank differs from the others
TWICE = 2.0  # times as long, for a verdict that holds only if it is found twice
AGAIN = {"kernel": 4.0, "gil": 3.0, "loop-blocked": 3.0, "uninterruptible": 3.0}  # times as long, for what may only be slow


class Examination:
    """What an examination found.

    * `seen`: `[ProcessState]`
    * `verdicts` on them, the gravest first
    * `facts`: the same as a graph; `chains` of everything that waits in it
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
        self.facts = Facts(seen)
        culprits = [node for v in self.verdicts for node in v.culprits]
        self.chains: list[Chain] = chains_of(self.facts, self.requests or (), culprits)
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
    found: Sequence[Any],
    targets: Targets,
    seconds: float,
    words: Sequence[str] = (),
    alone: bool = False,
    once: bool = False,
    kept: str = "",
    lasted: float = 0.0,
) -> Examination:
    """Samples the processes that `resolve_processes` returned for `seconds`, and judges them. `alone`: other machines are asked
    too, so something that the instances here lack may be there. `once`: one look at these processes alone. `kept`: as of
    `Sampling`. `lasted`: seconds for which it was seen before that nothing moves: so much less is waited for what may be slow.

    A kernel, a disk, or a call of a second or two that keeps the GIL or an event loop, may only be slow. Such a process is
    sampled on, for `AGAIN` times as long. The verdict stands only if everything that was seen then still says the same. A
    process is sampled again from the start where the verdict is unknown because its threads wait for a CPU."""
    look = _Look(found, targets, seconds, words, alone, kept, lasted=lasted)
    first = look.examination()
    if once:
        first.untraced = _untraced([s for s in first.seen if untraced.is_refused(s)], ask=False)
        return first
    asked, native = len(found), set()
    for _ in range(ROUNDS):
        python, others = _more(found, targets, first)
        room = asked + MAX_OTHERS - len(found)
        native |= {one.pid for one in others[:room]}
        if not (python or others)[:room]:
            break
        found = [*found, *(python or others)[:room]]
        look = _Look(found, targets, seconds, words, alone, kept, lasted=lasted)
        look.native = native
        _add_pauses(look.sampling.seen, [s.snapshot for s in first.seen])
        first = look.examination()
    first.untraced = _untraced([s for s in first.seen if untraced.is_refused(s)])
    if _stands(first):
        look.go_on(STANDS / max(seconds, 0.1))
        last = look.examination()
        last.untraced = first.untraced
        return last
    said, again = {v.kind for v in first.verdicts}, any(v.again for v in first.verdicts)
    if "unknown" in said and not again and any(s.window.pressed > PRESSED for s in first.seen):
        look = _Look(found, targets, seconds * LONGER, words, alone, kept, lasted=lasted)
        look.native = native
        _add_pauses(look.sampling.seen, [s.snapshot for s in first.seen])
        last = look.examination()
    elif (said & set(AGAIN) or again) and look.sampling.live:
        longer = max(v.longer for v in first.verdicts) / max(seconds, 0.1)
        look.go_on(max([AGAIN.get(kind, 0.0) for kind in said] + [TWICE] * again + [longer]))
        last = look.examination()
        if again or {v.kind for v in last.verdicts} != said:  # the first wait has ended: the process is in another one now
            look.copy_again()
            last = look.examination()
    else:
        return first
    last.untraced = first.untraced
    return last


def _stands(first: Examination) -> bool:
    """Whether an engine that may not be read says by its own port that requests run and no token comes, or reads no request."""
    told = {one["pid"] for one in first.untraced if one["http"] is not None and one["http"]["moved"] is False}
    families = {s.family for s in first.seen if s.pid in told and s.family is not None}
    unread = {one["pid"] for one in first.untraced if one["http"] is not None and one["http"]["unread"]}
    for s in first.seen:
        s.stands = s.family in families
        servers = [other for other in first.seen if other.family == s.family and other.role in endpoints.SERVERS]
        s.deaf = s.pid in unread and servers == [s]
    return bool(families or any(s.deaf for s in first.seen)) and first.verdicts[0].kind == "unknown"


def _more(found: Sequence[Any], targets: Targets, first: Examination) -> tuple[list[ProcessRef], list[ProcessRef]]:
    """-> (the Python processes to be read too, or else the other programs)"""
    if first.verdicts[0].kind in QUIET and not any(v.unread for v in first.verdicts):
        return [], []
    others = _others(found, targets, first)
    if others or first.verdicts[0].kind != "unknown":
        return others, []
    native = _native_ends(found, first)
    return ([], native) if native else (_children(found, targets, first), [])


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
        *sorted(depends_on(first.facts) | _holders_not_seen(first.facts)),
    ]
    pids = dict.fromkeys(pid for pid in unseen if pid not in known and pid in table.processes)
    return [one for one in map(ProcessRef, list(pids)[: 2 * MAX_OTHERS]) if _runs_python(targets, one)]


def _native_ends(found: Sequence[Any], first: Examination) -> list[ProcessRef]:
    """The other programs at the ends of chains that did not run meanwhile and were not asked for: descendants, and those that
    have a lock on a file."""
    if ranks_of(found) or any(one.pid is None for one in found):
        return []
    table = ProcTable()
    own = {pid for f in first.facts for pid in f.children} | {pid for e in first.facts.edges if e.outside for pid in e.unread}
    ends = [end for chain in first.chains for end in (chain.end, *chain.end.any_of) if end.state == UNKNOWN]
    known = {one.pid for one in found} | askers(table)
    pids = dict.fromkeys(end.pid for end in ends if end.pid in own - known and end.pid in table.processes)
    return list(map(ProcessRef, pids))


def _children(found: Sequence[Any], targets: Targets, first: Examination) -> list[ProcessRef]:
    """The Pythons among the descendants of the processes, none of which was asked for, whether a chain ends at them or not: what
    a process polls in shared memory, or a signal or message that it awaits, is its own children's to give."""
    if ranks_of(found) or any(one.pid is None for one in found):
        return []
    table = ProcTable()
    known = {one.pid for one in found} | askers(table)
    pids = dict.fromkeys(pid for f in first.facts for pid in f.children if pid not in known and pid in table.processes)
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


def _untraced(refused: Sequence[ProcessState], ask: bool = True) -> list[dict[str, Any]]:
    """The data on processes that may not be traced. The data on a ring, and on the job's NCCL, is given once, with the first
    process that has it. Without `ask` nothing is waited for: no port, and no ring that is to move."""
    if not ask:
        return [{**untraced.data(s), "http": None, "rings": [], "ras": None, "log": None} for s in refused]
    rings, ras = shm_files.of_processes([s.pid for s in refused]), None
    told = []
    for s in refused:
        own = ras is None and nccl_ras.ask(s.pid) or None
        ras = ras or own
        told.append({**untraced.data(s), "http": endpoints.of_rank(s.rank), "rings": rings[s.pid], "ras": own})
    with contextlib.closing(Logs()) as logs:
        for s, one in zip(refused, told):
            one["log"] = untraced.log_of(s.pid, logs)
    return told


class _Look:
    """The samples of all processes for `seconds`, with their copies. The requests of each engine are read at the first sample and
    at the last one. `native`: the pids of other programs, which were not asked for."""

    native: Container[Any] = ()

    def __init__(
        self,
        found: Sequence[Any],
        targets: Targets,
        seconds: float,
        words: Sequence[str],
        alone: bool,
        kept: str,
        *,
        lasted: float,
    ) -> None:
        self.seconds, self.alone, self.lasted = seconds, alone, lasted
        with sampling.Sampling(found, targets, words, kept) as self.sampling:
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
        left = self.seconds * times - (time.monotonic() - self.sampling.began) - self.lasted
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
            since = time.monotonic() - began + self.lasted
            between = self.seconds / 2 if self.lasted > self.seconds else self.seconds
            last, requests, _ = collect.compared(engine, first, between, since=since, last=now)
            sides.append(instances.Side(engine.instance, last, requests, first))
            if any(look.parts for look in last):
                custodies.append(({rank.pid for rank in engine.alive()}, requests, join.progress(last, first)))
        instances.hear(sides, who_listens)
        if not self.alone:
            instances.relate(sides)
        for s in self.sampling.seen:
            if s.pid in self.native:
                s.uncalled, s.partial = True, []
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
