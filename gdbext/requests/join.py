"""The looks at one engine's processes, joined by request: where each request is, whether it moves, which process must act.

Pure. Two looks distinguish movement from standstill; after one look only a request that is stuck by itself is judged. The rule is
to say nothing rather than something wrong. So `lost` and `zombie` need every process that could have the request to have been
read, both times.
"""

from __future__ import annotations

from typing import Sequence

from ..engines import sightings
from ..engines.sightings import Keeper, Look, Sighting
from ..kvcache import waiting
from ..observe.window import ThreadSample, ThreadWindow, denied
from . import fronts, model, offloads, owing, thrash
from .model import Counter, Place, Tracked

SCHEDULER, FRONT = "scheduler", "frontend"


def join(looks: Sequence[Look], earlier: Sequence[Look] | None = None, between: Sequence[Sequence[Look]] = ()) -> list[Tracked]:
    """The requests of one engine, in the order of its schedulers' queues. `earlier`: the first of several looks at the same
    processes; `between`: those after it and before the last."""
    now = _gathered(looks)
    before = [(_gathered(one), _read(one) ^ _read(looks)) for one in (earlier, *between)] if earlier is not None else []
    context = _Context(looks, earlier, between)
    found = []
    for request_id, hops in now.items():
        if len(hops) > 1:
            hops.sort(key=lambda hop: sightings.STAGES.index(hop[1].stage))
        tracked = Tracked(request_id, hops)
        tracked.external_id = next((s.external_id for _, s in hops if s.external_id), "")
        tracked.age = max((s.age for _, s in hops if s.age is not None), default=None)
        if before:
            tracked.moved = not all(_alike(_but(hops, unread), _but(one.get(request_id, []), unread)) for one, unread in before)
        found.append(tracked)
    found = [t for t in fronts.taken(found, earlier) if not all(s.ended for _, s in t.hops) or _is_kept(t, context)]
    for tracked in found:
        (_keep if _is_kept(tracked, context) else _judge)(tracked, context)
    if earlier is not None:
        thrash.mark(found, _gathered(earlier))
    _note_standing(context)
    _behind(found)
    _behind_parked(found, context)
    return found


def marks(looks: Sequence[Look]) -> dict[str, list[tuple[object, ...]]]:
    """{request id: values that change when a process works on it} of the open requests."""
    return {name: _marks(hops) for name, hops in _gathered(looks).items() if not all(s.ended for _, s in hops)}


def progress(looks: Sequence[Look], earlier: Sequence[Look]) -> list[Counter]:
    """The counters of the processes, at both looks."""
    known = {look.pid: look for look in earlier}
    return [
        Counter(look.label, look.pid, what, known[look.pid].counters[what], value)
        for look in looks
        if look.pid in known
        for what, value in look.counters.items()
        if what in known[look.pid].counters
    ]


class _Context:
    """The facts that hold for all requests: the kinds of processes that were read whole, and the schedulers that make steps
    (`steps`: pids). `history`: all looks in order, the last one too."""

    def __init__(self, looks: Sequence[Look], earlier: Sequence[Look] | None, between: Sequence[Sequence[Look]] = ()) -> None:
        self.history = [*([earlier] if earlier is not None else []), *between, looks]
        both = [one for each in self.history for one in each]
        self.looks, self.earlier, self.two = looks, list(earlier or ()), earlier is not None
        self.steps = {pid for one in self.history[:-1] for pid in _steps(looks, one)}
        self.whole = {
            part: any(part in look.parts for look in looks) and not any(look.notes for look in both if _may_be(look, part))
            for part in (FRONT, SCHEDULER)
        }
        self.seen_before: dict[str, list[str]] = {s.request_id: [] for look in earlier or () for s in look.sightings}
        for look in earlier or ():
            for s in look.sightings:
                self.seen_before[s.request_id].append(s.stage)
        self.seen_between = {(s.request_id, s.stage) for each in between for look in each for s in look.sightings}
        self.schedulers = [look for look in looks if SCHEDULER in look.parts]
        self.stand_still = any(look.stopped for look in looks)
        self._gone_on: dict[tuple[int, str], bool] = {}
        self._debtors: dict[int, Look | None] = {}

    def keepers(self, look: Look, stage: str) -> list[Keeper]:
        """The threads that serve a stage of a process, at all looks."""
        all_of_it = [one for each in self.history for one in each if one.pid == look.pid]
        return [one.keepers[stage] for one in all_of_it if stage in one.keepers]

    def ended(self, look: Look, stage: str) -> bool:
        """Whether no thread of a process serves a stage, at both looks."""
        return all(one.tid is None for one in self.keepers(look, stage))

    def at_work(self, look: Look, stage: str) -> bool:
        """Whether the thread that serves a stage was not at rest at both looks and made no progress in between."""
        both = self.keepers(look, stage)
        return all(one.stands for one in both) and not self.goes_on(look, stage)

    def stood(self, look: Look, stage: str) -> bool:
        """As `at_work`, and the thread did not run at all in between: a thread that goes round may look the same at two moments.
        A thread that waits for the other end of its ring does not count."""
        found = self.keepers(look, stage)
        marks = {one.sample.clock.mark if one.sample is not None and one.sample.clock else None for one in found}
        return None not in marks and len(marks) == 1 and not any(one.ring for one in found) and self.at_work(look, stage)

    def goes_on(self, look: Look, stage: str) -> bool:
        """Whether the thread that serves a stage made progress between the looks, by its variables or by its turns; or hardly had
        a CPU."""
        key = look.pid, stage
        if key not in self._gone_on:
            both = self.keepers(look, stage)
            self._gone_on[key] = len(both) > 1 and (
                _made_progress([one.sample for one in both]) or len({one.turns for one in both}) > 1
            )
        return self._gone_on[key]

    def drained(self, look: Look, stage: str) -> bool:
        """Whether everything sent to the thread that serves a stage before the first look has been taken in by the second. Front
        ends are looked at before schedulers. So a front end that rested at its first look may not have had the answer yet."""
        both = self.keepers(look, stage)
        turns = [one.turns for one in both if one.turns is not None]
        if len(turns) > 1 and turns[-1] > turns[0] + 1:
            return True
        return any(one.rests for one in (both[1:] if stage == sightings.OUTPUT else both))

    def passed_on(self, front: Look) -> bool:
        """Whether a front end had, at a later look, tokens that were made after the first. Then everything made before has
        arrived. Answers come in the order in which they were made, where there is one scheduler, or several ranks of one with the
        same requests."""
        made = [
            {s.request_id: s.request.output_tokens or 0 for s in one.sightings if s.request is not None} for one in self.earlier
        ]
        made = [known for known, one in zip(made, self.earlier) if SCHEDULER in one.parts]
        later = [one for each in self.history[1:] for one in each if one.pid == front.pid]  # by the last one it may have ended
        return bool(made) and any(
            s.tokens is not None and all(s.tokens > known.get(s.request_id, s.tokens) for known in made)
            for one in later
            for s in one.sightings
        )

    def debtor(self, look: Look) -> Look | None:
        """The worker for whose answer a scheduler waits at both looks, while the worker waits for the next step."""
        if look.pid not in self._debtors:
            found = [_debtor(one, each) for each in self.history for one in each if one.pid == look.pid]
            same = len({one.pid if one is not None else 0 for one in found}) == 1
            self._debtors[look.pid] = found[-1] if same else None
        return self._debtors[look.pid]

    def never_fits(self, request_id: str, pid: int) -> bool:
        """Whether it does not fit at any look: at one alone its count of tokens may be torn."""
        looks = (one.sightings for looks in self.history for one in looks if one.pid == pid and one.parts)
        return all(any(s.never_fits for s in seen if s.request_id == request_id) for seen in looks)

    def stopped(self, tracked: Tracked) -> Look | None:
        """The first process on a request's way that was stopped at all looks. Of replicas in step, all are on it."""
        if not self.stand_still:
            return None
        inside = tracked.sighting(*reversed(sightings.IN_SCHEDULER))
        own = next((look.replica for look, one in tracked.hops if one.stage in sightings.IN_SCHEDULER), None)
        in_step = any(look.in_step is not None and look.in_step.rank is not None for look in self.looks)
        for look in sorted(self.looks, key=lambda one: (one.role == "coordinator", one.replica != own)):
            mine = in_step or look.role != "coordinator" and (None in (own, look.replica) or own == look.replica)
            if (not mine or FRONT in look.parts) and look.pid not in {one.pid for one, _ in tracked.hops}:
                continue
            if inside is not None and owing.comes_later(look, inside[1]) or owing.is_bypassed(look, self.looks):
                continue
            if all(one.stopped for each in self.history for one in each if one.pid == look.pid):
                return look
        return None

    def taking_in(self, sighting: Sighting) -> list[Look]:
        """The processes whose threads take requests in; only the one that a front end gave the request to, where it is known."""
        found = [one for one in self.looks if sightings.INPUT in one.keepers]
        return [one for one in found if sighting.replica is not None and one.replica == sighting.replica] or found

    def was_at(self, request_id: str, *stages: str) -> bool:
        """Whether the first look saw it at one of the stages too; True where there was one look only."""
        return not self.two or any(stage in stages for stage in self.seen_before.get(request_id, ()))

    def was_not_at(self, request_id: str, *stages: str) -> bool:
        """Whether the first look saw it, and no look before the last saw it at one of the stages."""
        known = self.seen_before.get(request_id)
        if not self.two or known is None:
            return not self.two
        return not any(stage in stages for stage in known) and not any(
            (request_id, stage) in self.seen_between for stage in stages
        )


def _may_be(look: Look, part: str) -> bool:
    """Whether a process that could not be read whole may be of this kind."""
    front = look.role in ("frontend", "api-server")
    return part in look.parts or (front if part == FRONT else not front)


def _gathered(looks: Sequence[Look]) -> dict[str, list[tuple[Look, Sighting]]]:
    """{request id: hops}, those of the schedulers first and in their order."""
    found: dict[str, list[tuple[Look, Sighting]]] = {}
    for look in sorted(looks, key=lambda look: SCHEDULER not in look.parts):
        for sighting in look.sightings:
            found.setdefault(sighting.request_id, []).append((look, sighting))
    return found


def _marks(hops: Sequence[tuple[Look, Sighting]]) -> list[tuple[object, ...]]:
    """The values of a request that change when a process works on it."""
    return sorted((look.pid, s.stage, s.state, s.progress) for look, s in hops)


def _read(looks: Sequence[Look]) -> set[int]:
    """The processes that could be read."""
    return {look.pid for look in looks if look.parts}


def _but(hops: Sequence[tuple[Look, Sighting]], unread: set[int]) -> Sequence[tuple[Look, Sighting]]:
    """The hops without those in processes that one of two looks could not read: an unread hop does not count as moved."""
    return [hop for hop in hops if hop[0].pid not in unread] if unread else hops


def _alike(hops: Sequence[tuple[Look, Sighting]], others: Sequence[tuple[Look, Sighting]]) -> bool:
    """Whether no process worked on a request between two looks."""
    if len(hops) != len(others):
        return False
    for (look, s), (other, t) in zip(hops, others):
        if s.progress != t.progress or s.stage != t.stage or s.state != t.state or look.pid != other.pid:
            return _marks(hops) == _marks(others)  # in another order perhaps
    return True


def _steps(looks: Sequence[Look], earlier: Sequence[Look]) -> set[int]:
    """The schedulers that made steps: a request of theirs made progress, came, or left."""
    before = {look.pid: _scheduled(look) for look in earlier if SCHEDULER in look.parts}
    return {look.pid for look in looks if SCHEDULER in look.parts and look.pid in before and before[look.pid] != _scheduled(look)}


def _made_progress(samples: Sequence[ThreadSample | None]) -> bool:
    """Whether a thread made progress from sample to sample, or hardly had a CPU and may be about to."""
    known = [sample for sample in samples if sample is not None]
    return len(known) == len(samples) and denied(known) or ThreadWindow.of(known).got_on


def _debtor(look: Look, looks: Sequence[Look]) -> Look | None:
    keeper = look.keepers.get(sightings.RUNNING)
    worker = next((one for one in looks if keeper is not None and keeper.ring and keeper.ring in one.rings), None)
    return worker if worker is not None and sightings.WORKER in worker.keepers and worker.keepers[sightings.WORKER].ring else None


def _scheduled(look: Look) -> list[tuple[object, ...]]:
    return [(s.request_id, s.stage, s.state, s.progress) for s in look.sightings if s.stage in sightings.IN_SCHEDULER]


def _place(look: Look, stage: str, tid: int | None = None) -> Place:
    keeper = look.keepers.get(stage)
    if keeper is not None and tid in (None, keeper.tid):
        return Place(look.label, look.pid, keeper.tid or None, keeper.name)
    return Place(look.label, look.pid, tid)


def _note_standing(context: _Context) -> None:
    """Notes in each process's last look the stages whose threads were blocked at all looks."""
    for look in context.looks if context.two else ():
        stages = (stage for stage in (sightings.RUNNING, sightings.WORKER) if stage in look.keepers)
        look.stood = {stage: _stands(look, stage) for stage in stages if context.stood(look, stage)}


# ---- one request -----------------------------------------------------------------------------------------------------------
def _judge(tracked: Tracked, context: _Context) -> None:
    """Fills in verdict, place and holder, as far as the request alone shows them."""
    scheduled = tracked.sighting(*reversed(sightings.IN_SCHEDULER))
    inside = scheduled or tracked.sighting(sightings.INPUT)
    last = scheduled or tracked.sighting(
        sightings.DETOKENIZER, sightings.OUTPUT, sightings.INPUT, sightings.FRONTEND, sightings.WORKER
    )
    if last is None:
        return
    look, sighting = last
    tracked.at = _place(look, sighting.stage, sighting.tid)
    tracked.waits_for = next((s.waits_for for _, s in tracked.hops if s.waits_for), "")
    stopped = context.stopped(tracked) if not tracked.moved else None
    if scheduled is not None and sighting.never_fits and context.never_fits(tracked.request_id, look.pid):
        tracked.verdict = model.NEVER_FITS
        tracked.evidence.append(f"{look.label}: {sighting.waits_for}")
    elif tracked.moved and not _abandoned(tracked, context):
        tracked.verdict = model.MOVING
    elif stopped is not None and not sighting.paused:
        tracked.verdict, tracked.holder = model.BEHIND, Place(stopped.label, stopped.pid)
        tracked.evidence.append(f"{stopped.label} is stopped by {stopped.stopped}")
    elif scheduled is not None and _abandoned(tracked, context):
        tracked.verdict, tracked.holder = model.ZOMBIE, tracked.at
        fronts = ", ".join(one.label for one in context.looks if FRONT in one.parts)
        tracked.evidence.append(
            f"{look.label} has it ({sighting.state}), and no process waits for it: {fronts} has no such request"
        )
    elif sighting.parked:
        _parked(tracked, look, sighting, context)
    elif inside is not None or tracked.sighting(sightings.OUTPUT):
        _standing(tracked, look, sighting, context)
    else:
        _outside(tracked, look, sighting, context)


def _is_kept(tracked: Tracked, context: _Context) -> bool:
    """Whether it has ended here (a worker has it until its next step) and its blocks are kept until they have been read."""
    if not all(s.ended for _, s in tracked.hops if s.stage != sightings.WORKER) or tracked.transfer is None:
        return False
    return tracked.transfer.sends or any(tracked.request_id in one.receiving for one in context.looks)


def _keep(tracked: Tracked, context: _Context) -> None:
    hop, transfer = tracked.sighting(sightings.OUTPUT), tracked.transfer
    if hop is None or transfer is None:
        return
    leases = [one.leases[tracked.request_id] for one in context.looks if tracked.request_id in one.leases]
    transfer.until = max(leases) if leases else None
    tracked.verdict, tracked.at, tracked.moved = model.KEPT, _place(hop[0], sightings.OUTPUT), False if context.two else None
    if not transfer.sends:
        transfer.state = next(one.receiving[tracked.request_id] for one in context.looks if tracked.request_id in one.receiving)
        tracked.evidence.append(f"{hop[0].label} has it as {hop[1].state} and keeps its blocks until what is read into them ends")
        return
    until = "" if transfer.until is None else f", for {transfer.until:.0f} s more unless that asks for more time"
    tracked.evidence.append(f"{hop[0].label} has it as {hop[1].state} and keeps its blocks for a reader elsewhere{until}")


def _abandoned(tracked: Tracked, context: _Context) -> bool:
    """Whether a scheduler works on it and no front end knows it, at both looks."""
    scheduled, front = tracked.sighting(*sightings.IN_SCHEDULER), tracked.sighting(sightings.FRONTEND)
    if scheduled is None or scheduled[1].ended or scheduled[1].unowned or front is not None or not context.whole[FRONT]:
        return False
    known = context.was_at(tracked.request_id, *sightings.IN_SCHEDULER)
    return known and context.was_not_at(tracked.request_id, sightings.FRONTEND, sightings.INPUT)


def _parked(tracked: Tracked, look: Look, sighting: Sighting, context: _Context) -> None:
    """Judges a request that waits for something which has not come; the holder is the thread that has to deliver it, if known."""
    tracked.verdict, tracked.behind = model.PARKED, list(sighting.after)
    tracked.evidence.append(f"{look.label} has it as {sighting.state}: it waits for {sighting.waits_for}")
    keeper = sighting.keeper
    if keeper is not None:
        tracked.holder = Place(look.label, look.pid, keeper.tid, keeper.name)
        tracked.evidence.append(f"{look.label}'s thread {keeper.tid} is working on it, in {keeper.stands}")
    if holders := [one for one in context.looks if tracked.request_id in one.transfers]:
        tracked.holder = _place(holders[0], sightings.WORKER)
        tracked.evidence += [f"{one.label} has it in {one.transfers[tracked.request_id]}" for one in holders]
    offloads.judge(tracked, look, context.history)
    if sighting.transfer is None:
        return
    stages = (one.receiving[tracked.request_id] for one in context.looks if tracked.request_id in one.receiving)
    sighting.transfer.state = sighting.transfer.state or next(stages, "")
    served = [(one, sightings.WORKER if sightings.WORKER in one.keepers else sightings.RUNNING) for one in holders]
    if any(context.stood(one, stage) for one, stage in served):
        return
    tracked.holder = None  # a thread that polls for a transfer, as it should, need not act


def _standing(tracked: Tracked, look: Look, sighting: Sighting, context: _Context) -> None:
    """Judges a request that a process of the engine has and that did not move. Others are served meanwhile, or a step takes long,
    or no request is served."""
    if not context.two:
        tracked.verdict = model.QUEUED if sighting.stage == sightings.QUEUE else ""
        return
    if look.absent and sighting.request is not None and sighting.request.computed_tokens is None:
        tracked.evidence.append(f"how far it is computed is not known: {look.absent[0]}")
        return
    if look.pid in context.steps and sighting.stage in (*sightings.IN_SCHEDULER, sightings.INPUT):
        tracked.verdict = model.QUEUED
        return
    kept = _kept(look, sighting)
    if kept:
        tracked.verdict = model.QUEUED
        tracked.evidence.append(
            f"{look.label} keeps the blocks of {', '.join(kept[:8])}, which have ended, for readers elsewhere"
        )
        return
    in_hands = sighting.stage not in (*sightings.IN_SCHEDULER, sightings.INPUT) or sighting.tid is not None
    stage = sighting.stage if in_hands or sightings.QUEUE not in look.keepers else sightings.QUEUE  # the stage that takes it next
    workers = [one for one in context.looks if None in (look.replica, one.replica) or look.replica == one.replica]
    steps = [(look, stage), *((one, sightings.WORKER) for one in workers)]
    working = [(one, stage) for one, stage in steps if context.goes_on(one, stage)]
    if working:  # a long step, or a loop without an end: two looks do not show which
        one, stage = working[0]
        tracked.evidence.append(f"no step of {look.label} has ended; {one.label} runs on in {_stands(one, stage)}")
        return
    if sighting.tid is not None and context.at_work(look, stage):
        tracked.verdict, tracked.holder = model.BEHIND, tracked.at
        tracked.evidence.append(f"{look.label} has it ({sighting.state}), which is in {_stands(look, stage)}")
        return
    debtor = context.debtor(look)
    if debtor is not None and stage in sightings.IN_SCHEDULER:
        _unanswered(tracked, look, sighting, debtor)
        return
    tracked.verdict, tracked.sure = model.BEHIND, False
    tracked.holder, why = owing.blamed(look.keepers.get(stage), _place(look, stage, sighting.tid), workers)
    tracked.evidence.append(f"{look.label} has it ({sighting.state}) and nothing that it schedules moves: {why}")


def _kept(look: Look, sighting: Sighting) -> list[str]:
    """Ended requests whose blocks a scheduler keeps until others have read them, where the head of its queue waits for blocks and
    no request runs. This scheduler is healthy: the readers must act."""
    if sighting.stage != sightings.QUEUE or any(s.stage == sightings.RUNNING and not s.ended for s in look.sightings):
        return []
    head = next((s for s in look.sightings if s.stage == sightings.QUEUE and not s.ended), sighting)
    if not head.waits_for.startswith(waiting.SHORT):
        return []
    return [s.request_id for s in look.sightings if s.ended and s.request is not None and s.request.transfer]


def _stands(look: Look, stage: str) -> str:
    """Where the thread is that moves a stage's requests on. This look may not have read it."""
    keeper = look.keepers.get(stage)
    return keeper.stands if keeper is not None and keeper.stands else "a place that was not read"


def _unanswered(tracked: Tracked, look: Look, sighting: Sighting, debtor: Look) -> None:
    """Judges a request whose scheduler waits for a worker's answer while the worker waits for the next step."""
    tracked.verdict = model.LOST if sighting.stage == sightings.RUNNING else model.BEHIND
    tracked.holder = _place(debtor, sightings.WORKER)
    tracked.evidence.append(
        f"{look.label} waits for the answer of {debtor.label} in {_stands(look, sightings.RUNNING)}, which waits for "
        "the next step, and nothing is unread in their ring: the answer was lost between them"
    )


def _outside(tracked: Tracked, look: Look, sighting: Sighting, context: _Context) -> None:
    """Judges a request that no scheduler has: it waits for an answer on which no process works, or which is on its way."""
    front = tracked.sighting(sightings.FRONTEND)
    on_its_way = [(front[0], sightings.OUTPUT)] if front is not None else []
    on_its_way += [(one, sightings.INPUT) for one in context.taking_in(front[1] if front is not None else sighting)]
    on_its_way += [(one, sightings.DETOKENIZER) for one in context.looks if not owing.is_bypassed(one, context.looks)]
    on_its_way = [(one, stage) for one, stage in on_its_way if stage in one.keepers]
    if front is not None and front[1].undelivered:
        if context.two and not context.goes_on(front[0], sightings.FRONTEND):
            owing.judge_undelivered(tracked, front[0], context.at_work(front[0], sightings.FRONTEND))
        return
    for one, stage in on_its_way:
        keeper = one.keepers[stage]
        takes = "reads requests" if stage == sightings.INPUT else "reads answers"
        if context.ended(one, stage):
            tracked.verdict, tracked.holder = model.LOST, Place(one.label, one.pid, None, keeper.name)
            tracked.evidence.append(f"{one.label}'s {keeper.kind} {keeper.name}, which {takes}, has ended")
            return
        if context.two and context.at_work(one, stage):
            tracked.verdict, tracked.holder = model.BEHIND, Place(one.label, one.pid, keeper.tid or None, keeper.name)
            tracked.evidence.append(f"{one.label}'s {keeper.kind} {keeper.name} reads no more messages: it is in {keeper.stands}")
            return
    within = [stage for stage in sightings.STAGES if stage not in (sightings.FRONTEND, sightings.DETOKENIZER)]
    if not context.two or not context.whole[SCHEDULER] or not context.was_not_at(tracked.request_id, *within):
        return
    told = front is not None and context.passed_on(front[0])
    ways = [(one, stage) for one, stage in on_its_way if not told or stage not in (sightings.OUTPUT, sightings.DETOKENIZER)]
    if all(context.drained(one, stage) for one, stage in ways):
        tracked.verdict = model.LOST
        names = ", ".join(s.label for s in context.schedulers)
        tracked.evidence.append(f"{look.label} waits for its answer, and none of {names} has it")


# ---- requests that wait for others -----------------------------------------------------------------------------------------
def _behind(found: Sequence[Tracked]) -> None:
    """Marks requests in a queue whose head never fits: they wait for it."""
    heads: dict[int, Tracked] = {}
    for tracked in found:
        scheduled = tracked.sighting(sightings.QUEUE)
        if scheduled is None:
            continue
        look = scheduled[0]
        head = heads.get(look.pid)
        if head is None:
            if tracked.verdict == model.NEVER_FITS:
                heads[look.pid] = tracked
            continue
        if tracked.verdict not in (model.QUEUED, model.BEHIND, ""):
            continue
        tracked.verdict, tracked.behind, tracked.holder = model.BEHIND, [head.request_id], None
        tracked.evidence = [f"it waits behind {head.request_id}, which never fits"]


def _behind_parked(found: Sequence[Tracked], context: _Context) -> None:
    """Marks requests in a queue whose head lacks blocks, if all requests that hold blocks are parked: they wait for these."""
    for look in context.schedulers if context.two else ():
        hops = [(t, t.sighting(*sightings.IN_SCHEDULER)) for t in found]
        mine = [(t, hop[1]) for t, hop in hops if hop is not None and hop[0].pid == look.pid and not hop[1].ended]
        holds = [t for t, s in mine if s.holds or s.request is not None and any(s.request.blocks.values())]
        queued = [t for t, s in mine if s.stage == sightings.QUEUE and t not in holds and not s.parked]
        if not queued or not queued[0].waits_for.startswith(waiting.SHORT) or not holds:
            continue
        if any(t.verdict != model.PARKED for t in holds):
            continue
        for tracked in queued:
            if tracked.verdict in (model.QUEUED, model.BEHIND, ""):
                tracked.verdict, tracked.behind, tracked.holder = model.BEHIND, [t.request_id for t in holds], None
                names, tracked.sure = ", ".join(t.request_id for t in holds[:8]), False
                tracked.evidence = [f"the blocks that are lacking are held by {names}, which wait for what has not come"]
