"""The watch itself: one look after the other; what stands too long is examined, what has died is told, and the box is written."""

from __future__ import annotations

import collections
import math
import os
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Iterable, Iterator, Sequence

from .. import log
from ..access import cgroups, room
from ..access.procfs import resident_bytes
from ..engines.processes import ProcessRef
from ..observe.loop import rounds
from ..render.text import seconds
from . import model
from .engine import EngineWatch
from .follow import AFTERMATH, GRACE, SETTLE, Dead, Followed, Resolve, engine_of, pids_of, serves_alone
from .found import Verdict, without_ids, without_numbers
from .model import Event, Look, OnEvent, OnLook, RankLook
from .progress import RECOVERED, STALLED, Requests, Standing, countable
from .rank import Rank

BYTES = 1 << 20  # of history for each process and each engine
EVENTS, LOOKED = 200, 50  # that are kept
LEAVING = 10.0  # seconds that a process on its way out is waited for
DEAD_SHOWN, MOST_DEAD = 600.0, 64  # for so many seconds, so many at most, what died is among the numbers of a look
GONE_FOR_GOOD = 60.0  # seconds: longer than an examination waits for anything
CRASHES = {"SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGTRAP", "SIGSYS"}
THROTTLE = 10.0  # seconds between two readings of the cgroups' counters


@dataclass
class Settings:
    """`after`, `poll`: seconds; `counter`: an expression, or None; `once`: it ends at the first box; `bytes`: of history."""

    after: float = 60.0
    poll: float = 1.0
    counter: str | None = None
    once: bool = False
    bytes: int = BYTES


@dataclass
class Hands:
    """What the watch cannot do itself. `judge(processes, lasted)`: llm-hang's examination of what was seen not to move for
    `lasted` seconds; `glance(processes)`: the verdict of a look that stops nothing, "" unless that is harmless;
    `keep(why, verdict, watch)`: writes a box, -> its data, or None where none may be written now (an event says why)."""

    judge: Callable[[Sequence[ProcessRef], float], Verdict]
    glance: Callable[[Sequence[ProcessRef]], str]
    keep: Callable[[str, Verdict | None, Watch], dict[str, Any] | None]
    on_event: list[OnEvent] = field(default_factory=list)
    on_look: list[OnLook] = field(default_factory=list)


class Watch:
    """`found`, `resolve`: as for `Followed`. `looked`: [{"why", "verdict"}] of the examinations; `events`; `boxes`: their data;
    `look`: the last one."""

    def __init__(self, found: Sequence[ProcessRef], resolve: Resolve | None, hands: Hands, settings: Settings) -> None:
        self.settings, self.hands = settings, hands
        self.events: collections.deque[Event] = collections.deque(maxlen=EVENTS)
        self.looked: collections.deque[dict[str, str]] = collections.deque(maxlen=LOOKED)
        self.boxes: list[dict[str, Any]] = []
        self.look: Look | None = None
        self.began, self.stalls, self.told = time.time(), 0, 0
        self._spent = time.process_time()
        self._told: dict[Any, tuple[set[tuple[Any, ...]], float]] = {}  # a standing: signatures of its stall, when it began
        self._pending: list[tuple[float, Dead, bool]] = []  # when it is due, whether work was owed at the death
        self._died_at: dict[tuple[str, str], tuple[float, RankLook]] = {}  # of an engine and label
        self._deaf: set[Any] = set()  # listeners that failed
        self._aftermath: dict[str, tuple[float, float]] = {}  # of an engine: until when, and when it began
        self._let_go: dict[
            int, tuple[float, bool]
        ] = {}  # of a process with which nothing is wrong: when it ended, if by a signal
        self._throttled: tuple[float, float | None, dict[str, float]] = (-THROTTLE, None, {})
        self.followed = Followed(found, resolve, self.tell, settings.after, settings.bytes, settings.counter)
        self._last, self._busy = time.monotonic(), 0.0  # seconds that examinations took since then
        self._number = 0

    # ---- events --------------------------------------------------------------------------------------------------
    def tell(self, kind: str, **data: Any) -> None:
        """Something happened."""
        event = Event(kind, data)
        self.events.append(event)
        self.told += 1
        for hear in self.hands.on_event:
            self._hand(hear, event)

    def _hand(self, hear: Callable[[Any], None], what: Any) -> None:
        try:
            hear(what)
        except Exception as e:  # nobody who listens ends the watch
            log.passed_over(e)
            if hear not in self._deaf:
                self._deaf.add(hear)
                name = getattr(hear, "__qualname__", "a listener")
                self.tell(model.LOST, label="", pid=None, why=f"{name} fails: {model.reason(e)}")

    # ---- one look ------------------------------------------------------------------------------------------------
    def rounds(self, limit: float | None) -> Iterator[Look]:
        """Looks until the time is over, nothing is left, or with `once` a box was written."""
        self.tell(model.STARTED, processes=len(self.followed.ranks))
        for _ in rounds(self.settings.poll, seconds=limit, rest=lambda took: self.settings.poll, wait=self.followed.wait):
            yield self.take()
            if self.settings.once and self.boxes or self.followed.over and not self._pending:
                return

    def take(self) -> Look:
        """One look at everything."""
        began, now, at = time.thread_time(), time.monotonic(), time.time()
        passed = countable(now - self._last - self._busy, self.settings.poll) + self._busy
        self._last, self._busy = now, 0.0
        self._number += 1
        followed = self.followed
        followed.search(now)
        followed.bound_stacks()
        found = Look(self._number, at, now)
        blind = {rank.pid for e in followed.engines if e.blind for rank in followed.of_engine(e)}
        seen = {rank.pid for e in followed.engines for rank in followed.of_engine(e)} - blind
        gone = []
        for rank in list(followed.ranks.values()):
            followed.note_ends()
            one = rank.look(now, at, rank.pid not in seen)
            if one is None:
                gone.append(rank)
            else:
                one.engine = engine_of(rank.ref)
                found.ranks.append(one)
                why = rank.complaint(now)
                if why:
                    self.tell(model.LOST, label=rank.label, pid=rank.pid, why=f"its stacks are not read: {why}")
        followed.note_ends()
        self._deaths(gone, now, at)
        self._add_dead(found)
        alarms = [alarm for e in list(followed.engines) for alarm in self._engine(e, now, at, passed, found)]
        alarms += [alarm for rank in list(followed.ranks.values()) for alarm in self._alone(rank, passed, rank.pid not in seen)]
        self._finish(found, began)
        leaving = any(now - rank.dying < LEAVING for rank in followed.ranks.values() if rank.dying)
        if alarms and not leaving:  # else its death says more, and comes at once
            self._stalled(alarms)
        return found

    def _engine(self, engine: EngineWatch, now: float, at: float, passed: float, look: Look) -> Iterator[Alarm]:
        ranks = self.followed.of_engine(engine)
        said, of_requests, numbers = engine.look(now, at, passed, ranks)
        look.engines.append(numbers)
        for rank in ranks:
            rank.steps = engine.steps_of(rank.pid)
        late = engine.lag(ranks)
        blind = engine.complaint(now)
        if blind:
            self.tell(model.LOST, label=engine.name, pid=None, why=f"its requests are not seen: {blind}")
        for one in look.ranks:
            one.lag = late.get(one.pid, one.lag)
        both: list[tuple[str, Standing | Requests]] = [(said, engine.standing), *of_requests]
        for what, standing in both:
            if what == RECOVERED:
                self._recovered(standing, engine.name, engine.verdict)
                engine.verdict = ""
        lost = next((requests for what, requests in of_requests if what == STALLED), None)
        pause = engine.standing.pause
        if said == STALLED:
            why = f"{engine.inside} open requests of {engine.name} have not moved for {seconds(pause)}: it has made no step"
            yield Alarm(why, engine.standing, engine.labels, engine)
        elif lost is not None and not engine.standing.told:
            why = (
                f"{len(lost.standing())} of {engine.open} open requests of {engine.name} have not moved for {seconds(lost.pause)}"
            )
            yield Alarm(why, lost, engine.labels, engine, sure=False)

    def _alone(self, rank: Rank, passed: float, judged: bool) -> Iterator[Alarm]:
        """A process as such: one that is stopped, and the main thread of one whose work is not seen otherwise."""
        stopped = rank.state == "T"  # "t": somebody looks at it with a debugger
        engine = self.followed.engine_with(rank.pid)
        said = rank.stopped.look(passed, stopped, False)
        if said == STALLED:
            yield Alarm(f"{rank.label} is stopped", rank.stopped, [rank.label], engine, pids=[rank.pid])
        elif said == RECOVERED:
            self._recovered(rank.stopped, engine_of(rank.ref), "stopped")
            _moves(engine)
        if not judged or stopped:
            return
        said = rank.standing.look(passed, True, rank.moved, min(rank.held, passed))
        if said == RECOVERED:
            self._recovered(rank.standing, engine_of(rank.ref), "")
            _moves(engine)
        elif said == STALLED and rank.sampler is not None:
            why = f"{rank.label} has been in the same place for {seconds(rank.standing.pause)}"
            yield Alarm(why, rank.standing, [rank.label], engine, False, [rank.pid])

    def _recovered(self, standing: Standing | Requests, engine: str, verdict: str) -> None:
        _, began = self._told.pop(standing, (None, time.monotonic() - standing.pause))
        self.tell(model.RECOVERED, engine=engine, verdict=verdict, seconds=round(time.monotonic() - began, 3))

    def _finish(self, found: Look, began: float) -> None:
        found.throttled = self._throttle(found.clock)
        found.memory, found.stalls, found.boxes = resident_bytes(os.getpid()), self.stalls, len(self.boxes)
        found.box = sum(one.box for one in found.ranks) + sum(e.ring.bytes for e in self.followed.engines)
        found.cost = time.process_time() - self._spent + self.followed.shared.logs.cpu
        found.took = time.thread_time() - began
        self.look = found
        for hear in self.hands.on_look:
            self._hand(hear, found)

    def _throttle(self, now: float) -> float | None:
        """Seconds for which the cgroups of what is followed were denied a CPU."""
        at, total, before = self._throttled
        if now - at < THROTTLE:
            return total
        for folder in {f for pid in self.followed.ranks for f in cgroups.folders(pid, "cpu")[:1]}:
            seen = cgroups.seconds_throttled(folder)
            if seen is not None:
                total = (total or 0.0) + max(0.0, seen - before.get(folder, seen))
                before[folder] = seen
        self._throttled = now, total, before
        return total

    # ---- deaths --------------------------------------------------------------------------------------------------
    def _deaths(self, gone: Sequence[Rank], now: float, at: float) -> None:
        dead = [self.followed.ended(rank, at) for rank in sorted(gone, key=lambda rank: rank.dying)]
        bad = []
        for one in sorted(dead, key=lambda one: not one.end.orderly):
            if one.end.known and one.end.orderly or self._follows(one, now):
                self._left(one)
            elif one.end.known or one.end.oom or not one.engine:
                bad.append(one)
            else:
                owed = self._owed(one.engine) or any(was for _, other, was in self._pending if other.engine == one.engine)
                self._pending.append((now + GRACE, one, owed))  # 3 s later the engine may be there no longer
        for waits in list(self._pending):
            due, one, owed = waits
            if now >= due:
                self._pending.remove(waits)
                alive = any(engine_of(ref) == one.engine for ref in self.followed.refs())
                (bad.append if alive or owed else self._left)(one)
        if bad:
            self._died(bad, now)

    def _owed(self, engine: str) -> bool:
        """Whether an engine had open requests when it was last seen."""
        last = self.look.engines if self.look is not None else []
        return any(one.name == engine and one.owed for one in last)

    def _follows(self, one: Dead, now: float) -> bool:
        """Whether it ended because of an earlier death in its engine (what was started since then did not), or because its parent
        was told to end, or had done its work before."""
        until, began = self._aftermath.get(one.engine or "-", (0.0, 0.0))
        if now < until and one.rank.came <= began:
            return True
        at, told = self._let_go.get(one.rank.parent, (0.0, False))
        own = one.end.oom or one.end.signal in CRASHES
        at -= SETTLE if told and at else 0.0  # its files are closed, which ends others, before it has ended
        return bool(at) and not own and now < at + AFTERMATH and at < one.rank.dying

    def _left(self, one: Dead) -> None:
        now = time.monotonic()
        self._let_go = {pid: ends for pid, ends in self._let_go.items() if now < ends[0] + AFTERMATH}
        self._let_go[one.rank.pid] = one.rank.dying, bool(one.end.signal)
        until, began = self._aftermath.get(one.engine, (0.0, 0.0))
        if now < until and one.rank.came <= began:
            self._aftermath[one.engine] = now + AFTERMATH, began
        self.tell(model.LEFT, label=one.rank.label, pid=one.rank.pid, engine=one.engine, why=one.end.words, signal=one.end.signal)

    def _died(self, bad: Sequence[Dead], now: float) -> None:
        self._tell_of_deaths(bad, now)
        self._examine(_deaths_in_words(bad), [], bad)

    def _tell_of_deaths(self, bad: Sequence[Dead], now: float) -> None:
        for one in bad:
            main = next((stack for tid, _, _, stack in one.rank.ring.last() if tid == one.rank.pid), ())
            self.tell(
                model.DIED,
                label=one.rank.label,
                pid=one.rank.pid,
                engine=one.engine,
                why=one.end.words,
                signal=one.end.signal,
                status=one.end.status,
                oom=one.end.oom,
                first=one.first,
                stack=list(main),
            )
            label = one.rank.label
            gone = RankLook(label, one.rank.pid, one.rank.role, one.engine)
            self._died_at.pop((one.engine, label), None)
            self._died_at[one.engine, label] = now, gone
            if one.engine:
                self._aftermath[one.engine] = now + AFTERMATH, now

    def _add_dead(self, found: Look) -> None:
        """Those that died lately and in whose place there is nobody."""
        here = {(one.engine, one.label) for one in found.ranks}
        recent = [(key, one) for key, one in self._died_at.items() if key not in here and found.clock - one[0] < DEAD_SHOWN]
        self._died_at = dict(recent[-MOST_DEAD:])
        found.ranks += [gone for _, gone in self._died_at.values()]

    def _ended_meanwhile(self) -> list[Dead]:
        """Takes in what has ended while it was examined. -> those that were not told to"""
        bad = []
        self.followed.note_ends()
        gone = [rank for rank in self.followed.ranks.values() if rank.over]
        for rank in sorted(gone, key=lambda rank: rank.dying or math.inf):
            rank.end, rank.dying = rank.life.end(), rank.dying or time.monotonic()
            one = self.followed.ended(rank, time.time())
            if one.end.orderly:
                self._left(one)
            else:
                self._tell_of_deaths([one], time.monotonic())
                bad.append(one)
        return bad

    # ---- stalls --------------------------------------------------------------------------------------------------
    def _stalled(self, alarms: Sequence[Alarm]) -> None:
        first = alarms[0]
        if not any(alarm.sure for alarm in alarms):
            refs = self._concerned(alarm.name for alarm in alarms)
            said = self._tried(lambda: self.hands.glance(refs))
            if said:
                self.looked.append({"why": first.why, "verdict": said})
                for alarm in alarms:
                    alarm.standing.judged(True)
                return
        self._examine(first.why, alarms)

    def _tried(self, look: Callable[[], Any]) -> Any:
        """What a look finds, None where it fails."""
        began = time.monotonic()
        try:
            return look()
        except Exception as e:  # whatever it is: the watch goes on
            log.passed_over(e)
            self.tell(model.LOST, label="", pid=None, why=f"no verdict: {model.reason(e)}")
            return None
        finally:
            self._busy += time.monotonic() - began  # what stands before and after it has stood meanwhile

    def _judged(self, alarms: Sequence[Alarm], dead: Sequence[Dead]) -> tuple[Verdict | None, Sequence[Dead], list[Dead]]:
        """-> (the verdict on all that the alarms and the dead have to do with; the dead, with those of them that ended meanwhile;
        what else ended meanwhile). Of the dead the first alone is blamed, where one was seen to be that."""
        names = {*(alarm.name for alarm in alarms), *(one.engine for one in dead)}
        refs = [*self._concerned(names), *(one.rank.ref for one in dead)]
        found: Verdict | None = self._tried(lambda: self.hands.judge(refs, _lasted(alarms)))
        ended = self._ended_meanwhile()
        lost = [one for one in ended if one.rank.ref in refs]
        dead = [*dead, *lost]
        if lost and (found is None or found.kind == "unknown"):
            refs = [*self._concerned(names), *(one.rank.ref for one in dead)]
            found = self._tried(lambda: self.hands.judge(refs, GONE_FOR_GOOD))
        first = next((one for one in dead if one.first), None)
        if found is not None and first is not None:
            found = found.blaming(first.rank.label, first.rank.pid, _deaths_in_words(dead))
        return found, dead, [one for one in ended if one not in lost]

    def _forget_told(self) -> None:
        """What was told of what is followed no longer."""
        there: set[Any] = {one for rank in self.followed.ranks.values() for one in (rank.standing, rank.stopped)}
        there |= {one for engine in self.followed.engines for one in (engine.standing, engine.requests, engine.scheduled)}
        self._told = {standing: told for standing, told in self._told.items() if standing in there}

    def _examine(self, why: str, alarms: Sequence[Alarm], dead: Sequence[Dead] = ()) -> None:
        """llm-hang, and a box where that finds something that was not told already."""
        began = time.monotonic()
        self._forget_told()
        found, dead, elsewhere = self._judged(alarms, dead)
        if found is not None:
            self.looked.append({"why": why, "verdict": found.kind})
        told, new, ended = [], False, {one.engine for one in dead}
        for alarm in alarms:
            pids = pids_of(alarm.engine) if alarm.engine is not None else set(alarm.pids)
            part = found.of(pids) if found is not None else None  # what is wrong with another engine is not wrong with this one
            quiet = part is not None and part.quiet and alarm.name not in ended
            alarm.standing.judged(quiet, part is None or part.kind == "unknown")
            if not quiet:
                told.append((alarm, part))
        self._tell_of_stalls([alarm for alarm, _ in told if alarm.standing not in self._told])
        for alarm, part in told:
            new = self._tell_of_part(alarm, part, began) or new
        if dead and found is not None:
            part = found.of({one.rank.pid for one in dead})
            if not any(part is one for _, one in told):
                self._verdict(part, dead[0].engine, round(time.monotonic() - began, 3))
        if new or dead:
            self.box(why, found)
        found = part = None
        told.clear()
        room.give_back()
        for one in elsewhere[:1]:  # of an engine that was not looked at
            self._examine(_deaths_in_words([one]), [], [one])

    def _concerned(self, engines: Iterable[str]) -> list[ProcessRef]:
        """The processes that something wrong with these engines may have to do with: all, but the other engines where each of
        these does everything by itself."""
        names, refs = set(engines), self.followed.refs()
        own = [one for one in refs if engine_of(one) in names]
        if "" in names or not own or not all(serves_alone(one) for one in own):
            return refs
        return [one for one in refs if engine_of(one) in names or not engine_of(one)]

    def _tell_of_part(self, alarm: Alarm, part: Verdict | None, began: float) -> bool:
        """Tells what was found of a stall. -> whether that was not told already"""
        signature = part.signature(alarm.name) if part is not None else ("none", without_numbers(alarm.why))
        known = any(signature in told for told, _ in self._told.values())
        if part is not None and alarm.engine is not None:
            alarm.engine.verdict, alarm.engine.standing.known = part.kind, True
        if part is not None and not known:
            self._verdict(part, alarm.name, round(alarm.standing.pause + time.monotonic() - began, 3))
        self._told.setdefault(alarm.standing, (set(), began - alarm.standing.pause))[0].add(signature)
        return not known

    def _tell_of_stalls(self, new: Sequence[Alarm]) -> None:
        for alarm in new:
            self.tell(
                model.STALLED,
                engine=alarm.name,
                labels=list(alarm.labels),
                why=alarm.why,
                seconds=round(alarm.standing.pause, 3),
                limit=alarm.limit,
            )
        self.stalls += bool(new)

    def _verdict(self, found: Verdict, engine: str, passed: float) -> None:
        self.tell(
            model.VERDICT,
            engine=engine,
            verdict=found.kind,
            sentence=without_ids(found.data["sentence"] + found.more, found.ids),
            culprits=[
                {"label": without_ids(str(c.get("label") or ""), found.ids), "pid": c.get("pid"), "tid": c.get("tid")}
                for c in found.data["culprits"]
            ],
            seconds=passed,
        )

    # ---- boxes ---------------------------------------------------------------------------------------------------
    def asked(self, why: str) -> None:
        """Another watch asks for a box of this moment, whatever there is to see here."""
        self.box(why, self._tried(lambda: self.hands.judge(self.followed.refs(), 0.0)))

    def box(self, why: str, verdict: Verdict | None) -> None:
        """Writes one, as far as boxes may be written now."""
        try:
            made = self.hands.keep(why, verdict, self)
        except Exception as e:  # a full disk, a folder that is gone: the watch goes on
            log.passed_over(e)
            self.tell(model.NO_BOX, why=model.reason(e))
            return
        if made is None:
            return
        self.boxes.append({"why": why, "verdict": verdict.kind if verdict is not None else "", "file": made["box"]})
        self.tell(model.BOX, file=made["box"], bytes=made["box_bytes"], why=why, snapshots=len(made["snapshots"]))

    def end(self, why: str) -> None:
        """The watch is over; what is followed is let go."""
        self.tell(model.ENDED, why=why, looks=self._number, events=self.told)
        with log.passing_over(Exception):
            self.followed.close()

    def history(self) -> dict[str, Any]:
        """Everything that is in memory, as JSON."""
        ranks = [(rank, None, "") for rank in self.followed.ranks.values()]
        dead = [(one.rank, one, one.end.words) for one in self.followed.dead]
        return {
            "began": self.began,
            "now": time.time(),
            "numbers": {
                "ranks": ["time", "cpu", "queued", "rss", "steps", "gil", "growing"],
                "engines": [
                    "time", "running", "waiting", "tokens", "steps", "kv_use", "preemptions", "owed", "moved", "stood",
                ],
            },
            "ranks": [
                {
                    "label": rank.label, "pid": rank.pid, "role": rank.role, "engine": engine_of(rank.ref),
                    "ended": one.at if one is not None else None, "how": how,
                    "signal": one.end.signal if one is not None else "", "first": one is not None and one.first,
                    "unread": rank.unread, **rank.ring.data(),
                }
                for rank, one, how in [*ranks, *dead]
            ],
            "engines": [{"name": e.name, "labels": e.labels, **e.ring.data()} for e in self.followed.engines],
            "events": [{"kind": e.kind, "time": e.time, **e.data} for e in self.events],
            "last": self.look.data() if self.look is not None else None,
        }  # fmt: skip


@dataclass
class Alarm:
    """Something has stood for too long. `sure`: it is known to owe work; else a look that stops nothing comes first."""

    why: str
    standing: Any
    labels: Sequence[str]
    engine: EngineWatch | None = None
    sure: bool = True
    pids: Sequence[int] = ()

    @property
    def name(self) -> str:
        """Of its engine, or \"\"."""
        return self.engine.name if self.engine is not None else ""

    @property
    def limit(self) -> float:
        """Of what stands, in seconds."""
        return float(self.standing.patience.limit)


def _deaths_in_words(dead: Sequence[Dead]) -> str:
    """What has died first, and how many more."""
    first = next((one for one in dead if one.first), dead[0])
    more = f", {len(dead) - 1} more with it" if len(dead) > 1 else ""
    return f"{first.rank.label} {first.end.words}{more}"


def _lasted(alarms: Sequence[Alarm]) -> float:
    """Seconds for which nothing has moved of all that is alarmed; what has died does so for good."""
    return min((float(alarm.standing.pause) if alarm.sure else 0.0 for alarm in alarms), default=GONE_FOR_GOOD)


def _moves(engine: EngineWatch | None) -> None:
    """A process of it has moved: what was said of it holds no longer, unless the engine itself stands."""
    if engine is not None and not engine.standing.told:
        engine.verdict = ""
