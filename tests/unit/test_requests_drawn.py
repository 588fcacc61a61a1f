"""Engines drawn at random whose truth is known by construction: of one that is well no request is called stuck, however long its
steps are and whatever the looks at its processes miss of each other; of one with a fault whoever must act is named, or nobody."""

import collections
import os
import random

import pytest
from harness.facts import sample

from gdbext.engines.sightings import FRONTEND, INPUT, OUTPUT, QUEUE, RUNNING, WORKER, Keeper, Look, Sighting
from gdbext.kvcache.model import Request
from gdbext.observe.stack_keys import FrameKey
from gdbext.requests import collect
from gdbext.requests.model import BEHIND, LOST, STUCK

TICK = 0.02
WIRE = 0.05  # seconds at most from one process to another
STEPS = (0.02, 0.02, 0.1, 0.5, 1.5, 4.0)  # of a scheduler, in seconds
FAULTS = {  # fault -> (verdict of the requests that it hits, label and thread of who must act)
    "input-dies": (LOST, "EngineCore.DP0", "process_input_sockets"),
    "input-loops": (BEHIND, "EngineCore.DP0", "process_input_sockets"),
    "lost-answer": (LOST, "DP0", "main"),
    "handler-ends": (LOST, "APIServer0", "output_handler"),
    "loop-blocked": (BEHIND, "APIServer0", "output_handler"),
}


class Asked:
    """A request on its way. `at`: when it comes to the next place."""

    def __init__(self, name, front, replica, now, rng):
        self.name, self.front, self.replica, self.place, self.since = name, front, replica, "wire in", now
        self.at, self.left, self.computed, self.tokens, self.told = now + rng.random() * WIRE, rng.choice((1, 3, 60)), 0, 0, 0


class Drawn:
    """A machine with one engine: time passes as its processes are looked at."""

    def __init__(self, seed, fault=""):
        rng = self.rng = random.Random(seed)
        self.fault, self.broken, self.now, self.number = fault, False, 0.0, 0
        self.fronts, self.replicas = rng.randint(1, 2), rng.randint(1, 2)
        self.asked, self.slots, self.share = [], rng.randint(1, 4), 1.0 if fault else rng.choice((1.0, 0.02))
        self.ends, self.steps = [0.0] * self.replicas, [0] * self.replicas  # when each scheduler's step ends, how many it made
        self.busy = [(0.0, 0)] * self.fronts  # until when a callback keeps the event loop of each front end, which one
        self.rate = rng.choice((0.0, 1.0, 20.0))
        self.asked += [self.ask() for _ in range(rng.randint(1, 8))]

    def ask(self):
        self.number += 1
        return Asked(f"r{self.number}", self.rng.randrange(self.fronts), self.rng.randrange(self.replicas), self.now, self.rng)

    def hit(self, fault, request=None):
        return self.broken and self.fault == fault and (request is None or request.replica == 0 and request.front == 0)

    # ---- time passes -------------------------------------------------------------------------------------------------------
    def until(self, when):
        while self.now < when:
            self.now = min(when, self.now + TICK)
            if self.rng.random() < TICK * self.rate and len(self.asked) < 40:
                self.asked.append(self.ask())
            for i, (end, which) in enumerate(self.busy):
                if self.now > end and self.rng.random() < 0.2:
                    self.busy[i] = (self.now + self.rng.choice((0.001, 0.01, 0.3)), which + 1)
            for i in range(self.replicas):
                if self.now >= self.ends[i]:
                    self.step(i)
            for one in list(self.asked):
                self.travel(one)

    def travel(self, one):
        if self.now < one.at:
            return
        stuck_in = (self.hit("input-dies") or self.hit("input-loops")) and one.replica == 0
        stuck_out = (self.hit("handler-ends") or self.hit("loop-blocked")) and one.front == 0
        if one.place == "wire in" and not stuck_in:
            one.place = INPUT
        elif one.place == OUTPUT:
            one.place, one.at = "wire out", self.now + self.rng.random() * WIRE
        elif one.place == "wire out" and not stuck_out:
            self.asked.remove(one)

    def step(self, number):
        """A step ends, and the next begins."""
        mine = [one for one in self.asked if one.replica == number]
        running = [one for one in mine if one.place == RUNNING]
        if running and number == 0 and self.hit("lost-answer"):
            return
        for one in running:
            one.computed, one.tokens, one.left = one.computed + 1, one.tokens + 1, one.left - 1
            if one.left <= 0:
                one.place, one.at = OUTPUT, self.now + self.rng.random() * WIRE
        if running and self.rng.random() < 0.1:
            running[-1].place, running[-1].computed = QUEUE if running[-1].place == RUNNING else running[-1].place, 0  # preempted
        for one in mine:
            if one.place == INPUT:
                one.place = QUEUE
        for one in [one for one in mine if one.place == QUEUE][: self.slots]:
            if sum(o.place == RUNNING for o in mine) < self.slots:
                one.place = RUNNING
        self.steps[number] += 1
        self.ends[number] = self.now + self.rng.choice(STEPS)

    # ---- looks -------------------------------------------------------------------------------------------------------------
    def looks(self, engine=None):
        found = []
        for read in [*([self.front] * self.fronts), *([self.core] * self.replicas), *([self.worker] * self.replicas)]:
            self.until(self.now + self.rng.random() * 0.2)  # a look at one process takes its time
            found.append(read(sum(one.role == read.__name__ for one in found)))
        return found, []

    def thread(self, name, tid, stands, code, words, kind="thread"):
        """One that does not rest, in a call of `code` with variables of `words`."""
        key = (FrameKey(code, 1, words, ()),)
        return Keeper(name, tid, stands, sample=sample(key, True, self.now * self.share), kind=kind)

    def front(self, i):
        until, which = self.busy[i]
        keeper = Keeper("output_handler", 10 + i, kind="task")
        if self.hit("loop-blocked") and i == 0:
            keeper = self.thread("output_handler", 10, "wait_in_loop", "wait_in_loop", b"", "task")
        elif self.now < until:
            keeper = self.thread("output_handler", 10 + i, "callback", f"callback {which % 3}", b"%d" % which, "task")
        ended = Keeper("output_handler", None, kind="task") if self.hit("handler-ends") and i == 0 else keeper
        for one in self.asked:
            if one.place != "wire out" and not ((self.hit("handler-ends") or self.hit("loop-blocked")) and i == 0):
                one.told = one.tokens
        mine = [Sighting(o.name, FRONTEND, "awaited", progress=(o.told,), replica=o.replica) for o in self.asked if o.front == i]
        return Look(f"APIServer{i}", 10 + i, "front", ("frontend",), mine, {FRONTEND: keeper, OUTPUT: ended})

    def steps_on(self, i):
        return any(o.replica == i and o.place == RUNNING for o in self.asked)

    def core(self, i):
        waits = Keeper("main", 20 + i, "acquire_read", ring=f"answers {i}")
        main = waits if self.steps_on(i) else Keeper("main", 20 + i)
        reader = Keeper("process_input_sockets", 30 + i)
        if i == 0 and self.hit("input-dies"):
            reader = Keeper("process_input_sockets", None)
        elif i == 0 and self.hit("input-loops"):
            reader = self.thread("process_input_sockets", 30, "touch_for_ever", "preprocess", b"x")
        elif self.rng.random() < 0.3:
            reader = self.thread("process_input_sockets", 30 + i, "decode", "decode", b"%d" % self.rng.randrange(9))
        mine = [o for o in self.asked if o.replica == i and o.place in (INPUT, QUEUE, RUNNING, OUTPUT)]
        seen = [Sighting(o.name, o.place, o.place, progress=(o.computed, o.tokens), request=Request(o.name)) for o in mine]
        keepers = {QUEUE: main, RUNNING: main, INPUT: reader}
        return Look(f"EngineCore.DP{i}", 20 + i, "core", ("scheduler",), seen, keepers, replica=i)

    def worker(self, i):
        lost = i == 0 and self.hit("lost-answer")
        main = Keeper("main", 40 + i, "acquire_read", ring=f"steps {i}")
        if self.steps_on(i) and not lost:  # a step in which no variable changes
            main = self.thread("main", 40 + i, "forward", "execute_model", b"%d" % self.steps[i])
        return Look(f"DP{i}", 40 + i, "worker", ("worker",), [], {WORKER: main}, rings=(f"answers {i}",), replica=i)


def looked_at(monkeypatch, seed, fault=""):
    """-> (the engine, its requests as they are told)"""
    drawn = Drawn(seed, fault)
    drawn.until(2.0)
    if fault:
        drawn.broken = True
        drawn.until(6.0)
        for _ in range(3):  # to those that the fault hits
            drawn.asked.append(Asked(f"late {drawn.number}", 0, 0, drawn.now, drawn.rng))
            drawn.number += 1
        drawn.until(20.0)
    monkeypatch.setattr(collect, "looks_at", drawn.looks)
    first, _ = drawn.looks()
    _, requests, _ = collect.compared(None, first, 1.0, lambda seconds: drawn.until(drawn.now + seconds))
    return drawn, requests


def test_no_request_of_an_engine_that_is_well_is_called_stuck(monkeypatch):
    said = collections.Counter()
    for seed in range(int(os.environ.get("GDBEXT_TEST_DRAWN", "40"))):
        drawn, requests = looked_at(monkeypatch, seed)
        said.update(r.verdict for r in requests)
        stuck = [(r.request_id, r.verdict, r.evidence) for r in requests if r.verdict in STUCK]
        assert not stuck, (seed, stuck)
    assert all(said[verdict] > 20 for verdict in ("moving", "", "queued")), said


@pytest.mark.parametrize("fault", FAULTS)
def test_whoever_must_act_is_named_or_nobody(monkeypatch, fault):
    verdict, label, thread = FAULTS[fault]
    named = 0
    for seed in range(100, 108):
        drawn, requests = looked_at(monkeypatch, seed, fault)
        stuck = [r for r in requests if r.verdict in STUCK]
        for r in stuck:
            (asked,) = [one for one in drawn.asked if one.name == r.request_id]
            assert r.holder is not None and (r.holder.label, r.holder.thread) == (label, thread), (seed, r.verdict, r.evidence)
            assert asked.replica == 0 or asked.front == 0, (seed, r.request_id)
        named += any(r.verdict == verdict for r in stuck)
    assert named >= 5  # not where all of those that it hits still wait for their turn
