"""Who makes containers longer: the writes to their lengths, as the kernel's samples with the stack of their moment, or, where it
gives none, the lines that threads are in while a length rises. Nothing is stopped."""

from __future__ import annotations

import collections
import re
import struct
import time
from typing import Callable, Mapping, NamedTuple

from .. import log
from ..access.base import Target
from ..access.page_faults import Fault, Writes
from ..access.procfs import task_ids
from ..errors import GdbextError
from .grow_watch import GrowWatch
from .grown import Place, Row, Spans

HEAP, WRITES = "Python heap", "writes"
MOST = 3  # containers at a time: a debug register each, in every thread
ENOUGH = 24  # writes to each
WORDS = range(16, 80, 8)  # where a container's length is
PAUSE = 0.1  # seconds, at most, between two writes that are sampled
SPOTS = 20  # times as long as a look takes until the next one
MINOR = 0.1  # of the writes to one container: a line with less is not named
LEAST = 2  # looks that agree, where there are no samples
TAKES = re.compile("pop|del|remove|clear|discard")  # native functions that make a container shorter
CANNOT = "lengths beyond the first three containers, and memory that hangs on one without making it longer"
SHARE = 0.05  # of a CPU: it lasts seconds, not minutes
AT_WORK = 8  # threads that are looked at


class Grown(NamedTuple):
    """A container that got longer: where its length is, what holds it, and by how many bytes all that it holds."""

    word: int
    owner: str
    bytes: int


def length_at(target: Target, address: int, length: int) -> int:
    """Where the length of the container at `address` is; 0 where that is not seen."""
    data = target.read(address, WORDS.stop)
    return next((address + at for at in WORDS if struct.unpack_from("<q", data, at)[0] == length), 0)


class Writers:
    """Over `seconds`, who makes them longer. `watch`: of the process, and done."""

    def __init__(self, watch: GrowWatch, containers: list[Grown], seconds: float, samples: bool) -> None:
        self._watch, self.containers = watch, containers[:MOST]
        self._seconds, self._until = seconds, time.monotonic() + seconds
        self.votes: dict[int, collections.Counter[tuple[int, Place]]] = {
            one.word: collections.Counter() for one in self.containers
        }
        self.why_not, self.source = "not asked for", WRITES
        if samples:
            try:
                self._sample(Writes(watch.pid, task_ids(watch.pid), list(self.votes)))
                return
            except GdbextError as e:
                self.why_not = str(e)
        self.source = "looks"
        self._look()

    def _length(self, word: int) -> int:
        return int(struct.unpack("<q", self._watch.target.read_now(word, 8))[0])

    def _sample(self, writes: Writes) -> None:
        rising: dict[tuple[int, int, Place], int] = collections.Counter()
        seen: collections.Counter[int] = collections.Counter()
        told = False
        try:
            while time.monotonic() < self._until and any(seen[word] < ENOUGH for word in self.votes):
                began = time.thread_time()
                before: dict[int, int | None] = {word: self._length(word) for word in self.votes}
                writes.wait(min(0.1, max(0.0, self._until - time.monotonic())))
                more = {word: self._length(word) - (length or 0) for word, length in before.items()}
                hits = writes.take()  # one alone has come: no other was before the length was read
                frames = self._watch.frames({hit.tid for hit in hits})
                single = collections.Counter(hit.address for hit in hits)
                for hit in hits:
                    place = self._watch.of_fault(hit, 1, frames.get(hit.tid)).place
                    seen[hit.address] += 1
                    self.votes[hit.address][hit.tid, place] += 1
                    change = more[hit.address] if single[hit.address] == 1 else 0
                    last, before[hit.address] = before[hit.address], _written(hit, before[hit.address])
                    change = change or (before[hit.address] or 0) - (last or 0) if before[hit.address] is not None else change
                    rising[hit.address, hit.tid, place] += (change > 0) - (change < 0)
                if not told and hits:  # the first ones take long: libraries are read for them
                    told, self._until = True, time.monotonic() + self._seconds
                pause = min(SPOTS * (time.thread_time() - began), PAUSE, self._until - time.monotonic())
                time.sleep(max(0.0, pause))
        except GdbextError as e:
            log.passed_over(e)  # it has ended, or one of the containers has
        finally:
            writes.close()
        for word, votes in self.votes.items():  # who takes out what others put in
            puts = {one for one, count in votes.items() if 3 * rising[(word, one[0], one[1])] >= count}
            if not puts and len(votes) > 1:
                votes.clear()  # one of them may take out what others put in
            for one in [one for one in votes if (puts and one not in puts) or TAKES.search(one[1].native)]:
                del votes[one]

    def _look(self) -> None:
        follower = self._watch.follower or self._watch.follow()
        if follower is None:
            return
        follower.share = SHARE
        spans = {word: Spans() for word in self.votes}
        words = collections.deque(self.votes)

        def look(_: object, tid: int) -> None:
            words.rotate()
            for span in follower.follow(tid, self._counted(words[0])):
                spans[words[0]].add(self._watch.now(), span)

        try:
            hot = follower.tids()[:AT_WORK]
            while time.monotonic() < self._until:
                follower.spots(hot, self._until, look)
        finally:
            follower.end()
        for word, own in spans.items():
            looks: collections.Counter[tuple[int, Place]] = collections.Counter((tid, place) for _, tid, place, _ in own.told())
            self.votes[word] = collections.Counter({one: count for one, count in looks.items() if count >= LEAST})

    def _counted(self, word: int) -> Callable[[int], float]:
        return lambda _: self._length(word)

    def rows(self, span: float) -> list[Row]:
        """The rows of what made them longer; one without a place where that was not seen. `span`: seconds of the growth."""
        rows = []
        for one in self.containers:
            places = _by_place(self.votes[one.word])
            whole = sum(sum(tids.values()) for tids in places.values())
            named = {place: tids for place, tids in places.items() if sum(tids.values()) >= MINOR * whole}
            for place, tids in (named or {Place(): collections.Counter()}).items():
                count = sum(tids.values())
                part = int(one.bytes * count / max(1, sum(sum(t.values()) for t in named.values()))) if named else one.bytes
                source = self.source if named else "differences"
                best = [tid for tid, _ in tids.most_common(4)]
                rows.append(Row(HEAP, place, best, part, int(60 * part / span), 0.0, None, source, count, one.owner))
        for row in rows:
            row.names = [self._watch.name(tid) for tid in row.tids]
        return rows


def _written(hit: Fault, before: int | None) -> int | None:
    """The length that was written where it was `before`, as a register still has it; None where that cannot be told."""
    found = {before + step for step in (1, -1) if before is not None and before + step in hit.registers.values()}
    return found.pop() if len(found) == 1 else None


def _by_place(votes: Mapping[tuple[int, Place], int]) -> dict[Place, collections.Counter[int]]:
    found: dict[Place, collections.Counter[int]] = {}
    for (tid, place), count in votes.items():
        if place.line or place.library:
            line = place._replace(library="", native="") if place.line else place
            found.setdefault(line, collections.Counter())[tid] += count
    return found
