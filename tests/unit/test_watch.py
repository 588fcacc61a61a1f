"""The watch on looks that are made up: drawn histories whose truth is known, the ring's bytes, boxes on disk."""

import json
import os
import random
import time
from types import SimpleNamespace

import pytest

from gdbext.bundle import format
from gdbext.commands import llm_watch
from gdbext.engines.processes import ProcessRef
from gdbext.errors import GdbextError, NotFoundError
from gdbext.watch import box, ends, found, model
from gdbext.watch import ring as ring_of_threads
from gdbext.watch.progress import RECOVERED, STALLED, Requests, Standing, countable
from gdbext.watch.ring import Ring

AFTER = 20.0
FAST = (0.02, 0.4)  # seconds of a step
SLOW = (4.0, 14.0)  # of a prefill


class History:
    """An engine as the watch sees it once a second. What it does: steps, prefills, pauses without work, stalls that last or
    heal. `stalls`: [(begin, end)] of the times in which work was owed and nothing moved, by construction."""

    def __init__(self, seed, seconds=1500.0):
        self.draw, self.stalls, self.looks = random.Random(seed), [], []
        at, self._next, self.count = 0.0, 0.0, 0
        while at < seconds:
            at = self._phase(at)

    def _until(self, begin, end, owed, moves):
        """Adds the looks of a phase. `moves(at)`: how often it moved by then."""
        while self._next < end:
            self.looks.append((self._next, owed, moves(max(begin, self._next))))
            self._next += 1.0 + self.draw.uniform(-0.05, 0.1)
        return end

    def _phase(self, at):
        kind = self.draw.choices(("steps", "prefills", "idle", "stall"), (5, 2, 2, 1))[0]
        count = self.count
        if kind == "idle":
            return self._until(at, at + self.draw.uniform(1.0, 90.0), False, lambda now: count)
        if kind == "stall":
            end = at + self.draw.uniform(1.5 * AFTER, 12 * AFTER)
            self.stalls.append((at, end))
            self._until(at, end, True, lambda now: count)
            self.count += 50
            return self._until(end, end + 10.0, True, lambda now: count + 1 + int((now - end) / 0.3))
        low, high = FAST if kind == "steps" else SLOW
        times, end = [], at
        while end < at + self.draw.uniform(5.0, 120.0):
            end += self.draw.uniform(low, high)
            times.append(end)
        self.count += len(times)
        return self._until(at, end, True, lambda now: count + sum(t <= now for t in times))


def judged(history, poll=1.0):
    """-> ([(when, pause)] of the alarms, [when] of the recoveries). An examination says the truth."""
    standing, alarms, healed = Standing(AFTER), [], []
    before, count = history.looks[0][0], history.looks[0][2]
    for at, owed, moves in history.looks[1:]:
        said = standing.look(countable(at - before, poll), owed, moves != count)
        before, count = at, moves
        if said == STALLED:
            alarms.append((at, standing.pause))
            standing.judged(not any(begin <= at < end for begin, end in history.stalls))
        elif said == RECOVERED:
            healed.append(at)
    return alarms, healed


def outcome(seed):
    """-> (stalls that were told, stalls, alarms in health, the latest alarm's seconds after its limit)"""
    history = History(seed)
    alarms, healed = judged(history)
    told = [[at for at, _ in alarms if begin <= at < end] for begin, end in history.stalls]
    false = [at for at, _ in alarms if not any(begin <= at < end for begin, end in history.stalls)]
    assert all(len(found) <= 1 for found in told), "a stall is told once"
    assert len(healed) >= sum(map(bool, told)) - 1, "each recovery is told, but of a stall that the history ends with"
    late = max((found[0] - begin for found, (begin, _) in zip(told, history.stalls) if found), default=0.0)
    return sum(map(bool, told)), len(told), len(false), late


@pytest.mark.parametrize("seed", range(20))
def test_drawn_histories_are_told_once_and_health_never(seed):
    told, stalls, false, late = outcome(seed)
    assert (told, false) == (stalls, 0)
    assert late <= max(AFTER, 2 * (SLOW[1] + 2.0)) + 2.0  # the limit adapts to the longest prefill, at most twice as long


def test_a_pause_that_ended_by_itself_makes_it_patient_for_a_while():
    one = Standing(10.0)
    for _ in range(9):
        assert one.look(1.0, True, False) == ""
    one.look(1.0, True, True)
    assert 17.0 < one.patience.limit <= 20.0
    for _ in range(4000):
        one.look(1.0, True, True)
    assert one.patience.limit == 10.0


def test_a_stall_that_was_told_of_one_of_its_processes_teaches_no_patience():
    one = Standing(10.0)
    for second in range(9):
        one.look(1.0, True, False)
        one.known = one.known or second == 3
    one.look(1.0, True, True)
    assert one.patience.limit == 10.0 and not one.known


def test_what_is_not_owed_or_not_seen_is_no_stall():
    idle, unseen, alone, starved = (Standing(10.0) for _ in range(4))
    for _ in range(100):
        assert idle.look(1.0, False, False) == "" == unseen.look(1.0, None, False)
        assert starved.look(1.0, True, False, held=1.0) == ""
    assert alone.look(countable(86400.0, 1.0), True, False) == ""
    assert idle.look(1.0, True, False) == "" == unseen.look(1.0, True, False) and unseen.stood == 1.0
    assert [unseen.look(1.0, True, False) for _ in range(9)] == [""] * 8 + [STALLED]


def test_an_engine_found_well_is_examined_more_and_more_seldom():
    one, alarms = Standing(10.0), []
    for second in range(1, 601):
        if one.look(1.0, True, False) == STALLED:
            alarms.append(second)
            one.judged(True)
    assert alarms == [10, 30, 70, 150, 310, 470]
    one.judged(False, again=True)  # unknown: told, and looked at again
    assert one.told and [second for second in range(1, 400) if one.look(1.0, True, False) == STALLED][0] == 160


def test_of_requests_one_that_stands_is_told_once_and_so_is_its_end():
    engine = Standing(10.0)
    found, said = Requests(engine.patience), []
    for second in range(40):
        engine.look(1.0, True, True)
        marks = {"served": second, "lost": 0, **({"late": 0} if second >= 15 else {})}
        what = found.look(1.0, marks if second < 35 else {"served": second})
        if what == STALLED:
            said.append((second, sorted(found.standing())))
            found.judged(False)
        elif what:
            said.append((second, what))
    assert said == [(10, ["lost"]), (25, ["late", "lost"]), (35, RECOVERED)]


# ---- the ring --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("seed", range(5))
def test_a_ring_keeps_to_its_bytes_and_forgets_the_oldest(seed):
    draw, limit = random.Random(seed), ring_of_threads.LEAST
    ring, now = Ring(limit), {}
    for at in range(1500):
        for tid in draw.sample(range(1, 40), 5):
            state = draw.choice(("running", "lock"))
            frames = [f"f{draw.randrange(30)} (file.py:{draw.randrange(99)})" for _ in range(draw.randrange(1, 80))]
            now[tid] = (state, frames)
            ring.thread(float(at), tid, f"t{tid}", state, frames)
        if draw.random() < 0.2 and now:
            tid = draw.choice(list(now))
            ring.gone(float(at), [tid])
            del now[tid]
        ring.row(float(at), 1.0, None, 5)
        assert ring.bytes <= limit
    said = ring.data()
    kept = {tid: (state, said["stacks"][place]) for tid, state, place in said["now"]}
    assert kept.keys() == now.keys() and all(state == now[tid][0] for tid, (state, _) in kept.items())
    assert all(len(stack) >= min(4, len(now[tid][1])) and now[tid][1][-len(stack) :] == stack for tid, (_, stack) in kept.items())
    assert 0 < len(said["changes"]) and said["changes"][0][0] >= said["begins"] - 1 and said["bytes"] <= limit
    assert len(json.dumps(said)) < 3 * limit
    used = {place for *_, place in said["changes"]} | {place for *_, place in said["now"]}
    assert used == set(range(len(said["stacks"]))) and len(ring.stacks._used) == len(used)


def test_what_does_not_change_takes_no_room():
    ring = Ring(1 << 16)
    for at in range(1000):
        ring.thread(float(at), 1, "main", "lock", ["a (x.py:1)"])
        ring.row(at / 100, 1)
    assert len(ring.changes) == 1 and len(ring.numbers) == 10


# ---- the box ---------------------------------------------------------------------------------------------------------------
def failing(error):
    """A function that raises it."""

    def fails(*_):
        raise error

    return fails


class Made:
    """What a box needs of a watch."""

    def __init__(self):
        self.told, self.followed = [], SimpleNamespace(refs=list)

    def tell(self, kind, **data):
        self.told.append((kind, data))

    def history(self):
        ring = Ring(1 << 16)
        ring.thread(1.0, 7, "main", "lock", ["```\nevil (x.py:1)"])
        rank = {"label": "TP|0", "pid": 7, "role": "worker", "engine": "vllm", "ended": 2.0, "how": "was ended by SIGKILL"}
        event = {"kind": model.DIED, "time": 2.0, "label": "TP0", "why": "```\x1b[2J"}
        return {
            "began": 0.0, "now": 3.0, "ranks": [{**rank, "signal": "SIGKILL", "first": True, **ring.data()}],
            "engines": [], "events": [event],
        }  # fmt: skip


def test_a_box_is_whole_and_its_page_cannot_be_broken_out_of(tmp_path):
    data = {"sentence": "it died", "pauses": [], "failed": [], "verdict": "crashed", "culprits": []}
    verdict = found.Verdict(data, "<html></html>", ["crashed: ```"], members={format.VERDICT: b"{}"})
    with open(tmp_path / "core", "wb+") as memory:
        memory.write(os.urandom(50_000))
        memory.flush()
        verdict.memory["memory/7.core"] = memory
        verdict.processes.append({"pid": 7, "file": "memory/7.core", "bytes": 50_000})
        made = box.Boxes(str(tmp_path / "a")).keep_one("TP0 was ended by SIGKILL", verdict, Made())
        over = box.Boxes(str(tmp_path / "c"), most=100).keep_one("again", verdict, Made())
        small = box.Boxes(str(tmp_path / "b"), most=20_000).keep_one("again", verdict, Made())
    whole = format.Bundle(made["box"])
    assert whole.kind == "box" and whole.processes[0].file == "memory/7.core" and len(made["snapshots"]) == 1
    assert whole.processes[0].told["signal"] == "SIGKILL" and whole.json(box.RING)["ranks"][0]["stacks"]
    assert open(made["file"]).read() == "<html></html>" and os.stat(made["file"]).st_mode & 0o077 == 0
    page = whole.read(format.PAGE).decode()
    assert "\x1b" not in page and "TP\\|0" in page and all(line == "```" for line in page.splitlines() if "```" in line)
    assert over["box_bytes"] > 100 and "more than -max-bytes" in over["partial"][-1] and len(over["partial"]) == 2
    assert small["snapshots"] == [] and "would have more" in small["partial"][0] and small["box_bytes"] <= 20_000


def test_boxes_are_bounded_in_number_and_rate(tmp_path):
    now, watch = [0.0], Made()
    boxes = box.Boxes(str(tmp_path), keep=2, clock=lambda: now[0])
    made = [boxes.keep_one("again", None, watch) for _ in range(6)]
    assert [one is not None for one in made] == [True] * box.BURST + [False] * 2
    assert [kind for kind, _ in watch.told] == [model.NO_BOX] * 2 and len(list(tmp_path.iterdir())) == 2
    now[0] = box.SPAN
    (tmp_path / "x").write_text("another's")
    for number in range(3):  # names that somebody made at the predictable time
        stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(time.time() + number))
        if not (tmp_path / f"{stamp}.gdbext").exists():
            (tmp_path / f"{stamp}.gdbext").symlink_to(tmp_path / "x")
    assert boxes.keep_one("later", None, watch) and format.Bundle(boxes.newest)
    assert (tmp_path / "x").read_text() == "another's"


def test_boxes_that_others_ask_for_are_counted_apart(tmp_path):
    now, watch = [0.0], Made()
    boxes = box.Boxes(str(tmp_path), clock=lambda: now[0])
    for _ in range(box.BURST):
        assert boxes.keep_one("asked", None, watch, True)
    assert boxes.refusal(asked=True) and not boxes.keep_one("asked", None, watch, True)
    assert not boxes.refusal() and boxes.keep_one("crashed", None, watch)


def test_a_name_that_another_watch_takes_costs_no_snapshot(tmp_path, monkeypatch):
    write, taken = format.write, []

    def slow(path, *more):
        if not taken:
            taken.append(path)
            write(path, *more)
        return write(path, *more)

    monkeypatch.setattr(box.bundles, "write", slow)
    said = found.Verdict({"sentence": "it died", "pauses": [], "failed": [], "verdict": "crashed", "culprits": []})
    with open(tmp_path / "core", "wb+") as memory:
        memory.write(b"7" * 5000)
        memory.flush()
        said.memory["memory/7.core"] = memory
        said.processes.append({"pid": 7, "file": "memory/7.core", "bytes": 5000})
        made = box.Boxes(str(tmp_path / "a")).keep_one("why", said, Made())
    assert made["box"] != taken[0] and len(made["snapshots"]) == 1 and not made["partial"]


@pytest.mark.parametrize("error", [ValueError("torn"), RecursionError(), KeyError("x"), GdbextError("y")])
def test_a_part_that_cannot_be_made_costs_itself_alone(tmp_path, monkeypatch, error):
    """Each part in turn, and all at once."""
    parts = {
        "report": (llm_watch.report, "page"),
        "facts": (llm_watch.exchange, "facts_data"),
        "requests": (llm_watch, "request_data"),
        "sizes of memory": (llm_watch.bundled_memory, "written"),
    }
    given = {
        "page": lambda *_: "<html></html>",
        "facts_data": lambda *_: {},
        "request_data": lambda *_: {},
        "written": lambda _: b"{}",
    }
    seen = SimpleNamespace(seen=[], sides=[], requests=[1])
    for broken in [*([one] for one in parts), list(parts)]:
        for name, (where, what) in parts.items():
            monkeypatch.setattr(where, what, failing(error) if name in broken else given[what])
        said = found.Verdict({"sentence": "it died", "pauses": [], "failed": [], "verdict": "crashed", "culprits": []})
        said.fill = lambda said: llm_watch._Judge._fill(said, seen)
        made = box.Boxes(str(tmp_path / "-".join(broken))).keep_one("why", said, Made())
        assert [one.split(":")[0] for one in made["partial"]] == [f"no {name}" for name in broken]
        members = {"report": box.REPORT, "facts": format.FACTS, "requests": format.REQUESTS, "sizes of memory": format.MEMORY}
        there = format.Bundle(made["box"])
        assert {name for name, file in members.items() if file in there.names} == set(parts) - set(broken)
        assert format.VERDICT in there.names and there.manifest["left_out"] == made["partial"]


def test_how_a_process_ended_is_told_by_the_kernel():
    assert ends.End(True, "SIGTERM").orderly and ends.End(True, "", 0).orderly
    for bad in (ends.End(True, "SIGKILL"), ends.End(True, "", 1), ends.End(), ends.End(True, "SIGTERM", oom=True)):
        assert not bad.orderly
    assert ends.End(True, "SIGKILL", oom=True).words == "was ended by SIGKILL, out of memory"


# ---- WHAT, now and later ---------------------------------------------------------------------------------------------------
class Machine:
    """A session on a machine whose processes come and go: {word: its pids}."""

    def __init__(self):
        self.here, self.ranks, self.in_gdb = {}, [], False
        self.targets = SimpleNamespace(attached=lambda one: None)

    def selected_pid(self):
        return None

    def resolve(self, word):
        return self.resolve_each([word])

    def resolve_each(self, words):
        missing = [word for word in words if word not in self.here]
        if missing:
            raise NotFoundError(f"no process {missing[0]}")
        return [ProcessRef(pid, word) for word in words for pid in self.here[word]]


def test_what_is_meant_is_asked_anew_but_pids_can_only_end():
    machine = Machine()
    found, again = llm_watch._first(machine, "TP0, TP1", must=False)
    assert found == [] == again()
    machine.here = {"TP1": [12], "12": [12]}
    assert [one.pid for one in again()] == [12]
    machine.here = {"TP0": [21, 22], "TP1": [23]}
    assert [one.pid for one in again()] == [21, 22, 23]
    machine.here["12"] = [12]
    assert llm_watch._first(machine, "12", must=False)[1] is None
    for words, must in (("99", False), ("TP7", True), ("./core", False)):
        with pytest.raises(NotFoundError):
            llm_watch._first(machine, words, must)
