"""The watch that goes on: through searches, examinations and listeners that fail, deaths between two looks, full disks."""

import contextlib
import os
import signal
import subprocess
import time
from types import SimpleNamespace

import pytest

from gdbext.access import room
from gdbext.access.procfs import resident_bytes
from gdbext.bundle import format
from gdbext.commands import llm_watch
from gdbext.engines.group import Engine
from gdbext.engines.processes import ProcessRef
from gdbext.errors import GdbextError, NotFoundError
from gdbext.requests.meter import Reading
from gdbext.watch import box, ends, engine, follow, found, loop, model, rank
from gdbext.watch.model import EngineLook, Look

SECRET = "my-secret-prompt-text"


class Hands:
    """A watch of made-up examinations: `said` gives the next verdict or raises; `boxes`: why each was written."""

    def __init__(self, refs=(), resolve=None, said=None, hear=()):
        self.boxes, self.said = [], said or (lambda: verdict("unknown"))
        hands = loop.Hands(lambda found, lasted: self.said(), lambda found: "", self.keep, list(hear))
        self.watch = loop.Watch(refs, resolve, hands, loop.Settings(after=30.0, poll=0.05))

    def keep(self, why, found, watch):
        self.boxes.append(why)
        return {"box": "x", "box_bytes": 1, "snapshots": []}

    def told(self, *kinds):
        return [event.data for event in self.watch.events if event.kind in kinds]


def verdict(kind, sentence="", culprits=(), ids=()):
    return found.Verdict({"verdict": kind, "sentence": sentence or kind, "culprits": list(culprits)}, ids=ids)


def alarm(name="vllm", why="12 open requests of vllm have not moved for 60.31 s", of=None):
    return loop.Alarm(why, engine.Standing(30.0), [name], of)


def failing(error):
    def fail(*_, **__):
        raise error

    return fail


@pytest.fixture
def child():
    with subprocess.Popen(["sleep", "1000"]) as one:
        yield one
        one.kill()


# ---- processes that come and go ----------------------------------------------------------------------------------------
def test_of_two_deaths_that_one_look_sees_the_first_is_known():
    with subprocess.Popen(["sleep", "1000"]) as one, subprocess.Popen(["sleep", "1000"]) as other:
        followed = Hands([ProcessRef(one.pid, "TP0"), ProcessRef(other.pid, "TP1")]).watch.followed
        if followed.ranks[one.pid].life.file < 0:
            one.kill()
            other.kill()
            pytest.skip("no descriptors of processes here")
        for dead in (other, one):  # and nobody looks meanwhile
            dead.kill()
            os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
        followed.wait(30.0)
        assert 0.0 < followed.ranks[other.pid].dying < followed.ranks[one.pid].dying


def test_deaths_of_the_engine_before_are_not_those_of_this_one(monkeypatch):
    monkeypatch.setattr(follow, "engine_of", lambda ref: "vllm")
    followed, firsts = Hands([]).watch.followed, []
    for _ in range(2):  # it dies, is started anew, and dies again within seconds
        with subprocess.Popen(["sleep", "1000"]) as one, subprocess.Popen(["sleep", "1000"]) as other:
            followed.take([ProcessRef(one.pid, "TP0"), ProcessRef(other.pid, "TP1")])
            for dead in (other, one):
                dead.kill()
                dead.wait()
                followed.note_ends()
                rank_of = followed.ranks[dead.pid]
                rank_of.dying = rank_of.dying or time.monotonic()
            firsts += [followed.ended(followed.ranks[dead.pid], time.time()).first for dead in (other, one)]
    assert firsts == [True, False, True, False]


def test_of_those_that_end_during_an_examination_the_first_is_blamed():
    with subprocess.Popen(["sleep", "1000"]) as one, subprocess.Popen(["sleep", "1000"]) as other:
        refs = [ProcessRef(one.pid, "TP0"), ProcessRef(other.pid, "TP1")]
        of = Hands(refs)
        if of.watch.followed.ranks[one.pid].life.file < 0:
            one.kill()
            other.kill()
            pytest.skip("no descriptors of processes here")
        stands = alarm("")

        def said():
            for dead in (other, one):
                dead.kill()
                os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
            return verdict("crashed", "two have died", [{"pid": one.pid}, {"pid": other.pid}])

        of.said = said
        of.watch._examine(stands.why, [stands])
        (told,) = of.told(model.VERDICT)
        assert [c["pid"] for c in told["culprits"]] == [other.pid] and told["sentence"].startswith("TP1 was ended by SIGKILL")
        assert [one["pid"] for one in of.told(model.DIED)] == [other.pid, one.pid]


def test_time_of_an_examination_counts_and_of_a_stopped_watch_does_not(monkeypatch):
    of, passed, clock = Hands([]), [], [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(loop, "countable", lambda seconds, poll: passed.append(seconds) or min(seconds, 3.0))
    of.watch._last = clock[0]
    of.said = lambda: clock.__setitem__(0, clock[0] + 20.0) or verdict("stopped")
    clock[0] += 1.0
    of.watch._examine("it stands", [alarm("")])
    clock[0] += 1.0
    of.watch.take()
    clock[0] += 50.0
    of.watch.take()
    assert passed == [2.0, 50.0] and of.watch._busy == 0.0


def test_what_was_killed_between_two_looks_has_died_and_is_shown(child):
    of = Hands([ProcessRef(child.pid, "TP0")], list, lambda: verdict("crashed"))
    of.watch.take()
    child.kill()
    while rank.state_of(child.pid) not in rank.GONE:
        time.sleep(0.01)
    of.watch.followed.take([])  # what a search says that does not find it
    look = of.watch.take()
    (died,) = of.told(model.DIED)
    assert (died["label"], died["signal"]) == ("TP0", "SIGKILL") and not of.told(model.LEFT) and len(of.boxes) == 1
    assert [(one.label, one.state) for one in look.ranks] == [("TP0", "")]
    with subprocess.Popen(["sleep", "1000"]) as other:
        of.watch.followed.take([ProcessRef(other.pid, "TP0"), ProcessRef(child.pid, "TP0")])
        assert [one.state != "" for one in of.watch.take().ranks] == [True]
        other.kill()


def ended(pid, dying, signal="", status=None, parent=0, oom=False):
    """A process of the engine `vllm` that has ended."""
    of = SimpleNamespace(pid=pid, label=f"P{pid}", dying=dying, came=1.0, parent=parent, ring=SimpleNamespace(last=list), role="")
    of.ref, end = ProcessRef(pid, of.label), ends.End(True, signal, status, oom)
    return SimpleNamespace(pid=pid, dying=dying, dead=follow.Dead(of, end, 0.0, False, "vllm"))


@pytest.mark.parametrize(
    "children, died",
    [
        ([{"dying": 5.2, "status": 1}, {"dying": 5.0, "status": 1}, {"dying": 9.0, "signal": "SIGKILL"}], []),
        ([{"dying": 5.2, "signal": "SIGSEGV"}, {"dying": 5.2, "signal": "SIGKILL", "oom": True}], [2, 3]),
        ([{"dying": 4.9, "status": 1}], []),  # its parent has closed its files, and is not gone yet
        ([{"dying": 4.6, "status": 1}], [2]),  # before its parent was told
        ([{"dying": 5.2, "status": 1, "parent": 99}], [2]),  # somebody ended a worker, and the engine did not stand it
    ],
)
def test_who_ends_because_its_parent_was_told_to_is_no_crash(monkeypatch, children, died):
    of = Hands([], said=lambda: verdict("crashed"))
    gone = [ended(1, 5.0, signal="SIGTERM")]
    gone += [ended(number, **{"parent": 1, **how}) for number, how in enumerate(children, 2)]
    monkeypatch.setattr(of.watch.followed, "ended", lambda one, at: one.dead)
    monkeypatch.setattr(time, "monotonic", lambda: 10.0)
    of.watch._deaths(gone, 10.0, 10.0)
    assert [one["pid"] for one in of.told(model.DIED)] == died and bool(of.boxes) is bool(died)


def test_what_is_alive_and_meant_no_longer_is_let_go(child):
    of = Hands([ProcessRef(child.pid, "TP0")], list)
    of.watch.followed.take([])
    assert [one["why"] for one in of.told(model.LEFT)] == ["is meant no longer"]


def test_another_process_with_the_same_pid_is_another_one(child, monkeypatch):
    one = rank.Rank(ProcessRef(child.pid, "TP0"), rank.Shared(), 30.0, 1 << 16)
    assert not one.over and one.look(1.0, 1.0, False) is not None
    monkeypatch.setattr(rank, "start_of", lambda pid: 1)
    assert one.over and one.look(2.0, 2.0, False) is None and one.end is not None and one.end.orderly is False
    one.close()


def test_a_death_in_a_search_hides_nobody(child):
    failures, more = [NotFoundError("process 7 has ended")], []

    def resolve(word):
        if failures:
            raise failures.pop()
        return [ProcessRef(child.pid, "TP0"), *more]

    session = SimpleNamespace(ranks=[], in_gdb=False, targets=SimpleNamespace(attached=lambda one: None))
    session.resolve, session.resolve_each, session.selected_pid = resolve, lambda words: resolve(words[0]), lambda: None
    found, again = llm_watch._first(session, "vllm", must=False)
    assert found == [] and [one.pid for one in again()] == [child.pid]
    failures += [NotFoundError("process 8 has ended")]
    more += [ProcessRef(os.getpid(), "TP1")]
    assert [one.pid for one in again()] == [child.pid, os.getpid()]
    more.clear()
    again()
    failures += [NotFoundError("no vllm")] * 2
    assert [one.pid for one in again()] == [child.pid]
    child.kill()
    child.wait()
    failures += [NotFoundError("no vllm")] * 2
    assert again() == []


@pytest.mark.parametrize(
    "error, words", [(GdbextError("TP0 is ambiguous"), "TP0 is ambiguous"), (IndexError(SECRET), "IndexError")]
)
def test_a_search_that_fails_is_told_once_and_lets_go_of_nobody(child, error, words):
    of = Hands([ProcessRef(child.pid, "TP0")], failing(error))
    for _ in range(3):
        of.watch.followed.search(time.monotonic() + 1000.0)
    assert [one["why"].endswith(": " + words) for one in of.told(model.LOST)] == [True]
    assert list(of.watch.followed.ranks) == [child.pid] and SECRET not in str(of.watch.events)


def test_an_engine_that_cannot_be_made_costs_no_other(monkeypatch):
    bad = ["bad"]

    def made(found, *_):
        if found.instance in bad:
            raise OSError(SECRET)
        return SimpleNamespace(engine=found, name=found.instance, labels=[], take_over=lambda *_: None)

    found = [SimpleNamespace(instance=name, spec=1, ranks=[], labels=list) for name in ("bad", "good")]
    monkeypatch.setattr(follow, "engines_of", lambda *_: found)
    monkeypatch.setattr(follow, "EngineWatch", made)
    of = Hands([])
    of.watch.followed._regroup()
    for _ in range(2):
        of.watch.followed.take([])  # which tries again
    assert [one.name for one in of.watch.followed.engines] == ["good"]
    assert [one["label"] for one in of.told(model.LOST)] == ["bad"]
    bad.clear()
    of.watch.followed.take([])
    assert [one.name for one in of.watch.followed.engines] == ["bad", "good"]


@pytest.mark.parametrize("owed", [True, False])
def test_whether_work_was_owed_is_asked_at_the_death(child, monkeypatch, owed):
    of = Hands([])
    one = rank.Rank(ProcessRef(child.pid, "TP0"), of.watch.followed.shared, 30.0, 1 << 16)
    monkeypatch.setattr(of.watch.followed, "ended", lambda found, at: follow.Dead(found, ends.End(), at, True, "vllm"))
    of.watch.look = Look(1, 0.0, 0.0, engines=[EngineLook("vllm", owed=owed)])
    of.watch._deaths([one], 10.0, 10.0)
    of.watch.look = Look(2, 1.0, 1.0)  # its engine is gone meanwhile
    of.watch._deaths([], 10.0 + loop.GRACE, 14.0)
    assert [len(of.told(model.DIED)), len(of.told(model.LEFT))] == [owed, not owed]
    one.close()


def test_memory_that_ran_out_long_before_is_not_why_it_ended(tmp_path, monkeypatch):
    life, events = ends.Life(os.getpid()), tmp_path / "memory.events"
    life._folders, code = [str(tmp_path)], [signal.SIGKILL.value]
    monkeypatch.setattr(life, "_code", lambda: code[0])
    events.write_text("oom 1\noom_kill 1\n")
    assert life.end().oom
    code[0] = 0
    assert life.end().orderly and not life.end().oom
    code[0] = signal.SIGKILL.value
    for step in (1, 2):
        life.look(time.monotonic() + step * 2 * ends.OOM_SPAN)
    assert not life.end().oom
    events.write_text("oom 2\noom_kill 2\n")
    life.look(time.monotonic() + 6 * ends.OOM_SPAN)  # it takes a while to end
    assert life.end().oom
    life.close()


def test_what_was_read_of_a_process_that_has_ended_is_let_go():
    followed = Hands([]).watch.followed
    with subprocess.Popen(["sleep", "1000"]) as one, subprocess.Popen(["sleep", "1000"]) as other:
        seen = [followed.targets.of(ProcessRef(child.pid)) for child in (one, other)]
        for target in seen:
            target.read(target.mappings()[0].start, 64)
            target.lasting["x"] = target
        one.kill()
        os.waitid(os.P_PID, one.pid, os.WEXITED | os.WNOWAIT)
        followed.targets.rest()
        assert [bool(target._pages) for target in seen] == [False, False]
        assert [bool(target.lasting) for target in seen] == [False, True]
        assert followed.targets.running() == seen[1:] == [followed.targets.of(ProcessRef(other.pid))]
        other.kill()


def test_memory_of_an_examination_goes_back_to_the_system():
    before = resident_bytes(os.getpid())
    kept = [bytes(4000) for _ in range(20_000)]  # 80 MB in small pieces
    kept = kept[::1000]
    freed = resident_bytes(os.getpid())
    room.give_back()
    assert len(kept) == 20 and resident_bytes(os.getpid()) - before < max(freed - before, 40 << 20) / 2


# ---- what stands -------------------------------------------------------------------------------------------------------
def test_an_engine_started_anew_keeps_the_patience_alone():
    def made(standing=None):
        one = engine.EngineWatch(Engine([], failing(OSError())), 10.0, 1 << 16)
        one.standing.stood, one.verdict, one.tokens = (9.0, "stopped", 5) if standing else (0.0, "", 0)
        return one

    before = made(True)
    before.standing.patience.moved(1.0, 8.0)
    anew, grown = made(), made()
    anew.take_over(before, False)
    grown.take_over(before, True)
    assert (anew.standing.stood, anew.verdict, anew.tokens, anew.standing.patience.limit) == (0.0, "", 5, 16.0)
    assert anew.requests.patience is anew.standing.patience and grown.standing is before.standing and grown.verdict == "stopped"


def test_a_reading_that_nobody_foresaw_is_told_once():
    one = engine.EngineWatch(Engine([], failing(OSError())), 10.0, 1 << 16)
    one._core.meter = one._all.meter = SimpleNamespace(read=failing(MemoryError(SECRET)))
    said = []
    for second in range(1, 60):
        one.look(16.0 * second, 0.0, 1.0, [])
        said.append(one.complaint(16.0 * second))
    assert [text for text in said if text] == ["MemoryError"]


def test_a_request_that_stands_while_empty_steps_are_made_is_seen_in_time():
    one, now = engine.EngineWatch(Engine([], failing(OSError())), 60.0, 1 << 16), [0.0]
    marks = lambda: {"stands": 0, "served": now[0]}  # noqa: E731
    reading = lambda owed: Reading("vllm", [], running=len(owed), moved=True, owed=owed)  # noqa: E731
    one._core.meter, one._all.meter = (SimpleNamespace(read=lambda: reading(marks())) for _ in range(2))
    ranks, alarms = [SimpleNamespace(stepped=True, ran=True, schedules=True, pid=1, steps=None)], []
    for _ in range(90):
        now[0] += 1.0
        one._core.cost, one._all.cost = 0.008, 0.03  # 10 s at the usual pace, 75 s at that of all processes
        said, of_requests, _ = one.look(now[0], now[0], 1.0, ranks)
        alarms += [(now[0], who is one.scheduled, who.standing()) for what, who in of_requests if what == "stalled"]
        assert said == ""
    assert 60.0 <= alarms[0][0] <= 62.0 and alarms[0][1:] == (True, ["stands"])


def test_ranks_of_one_replica_are_compared_and_no_others(monkeypatch):
    one = engine.EngineWatch(Engine([], failing(OSError())), 10.0, 1 << 16)
    one._replicas = [{1, 2}, {3, 4}]
    ranks = [SimpleNamespace(pid=pid, steps=steps) for pid, steps in ((1, 100), (2, 98), (3, 7), (4, 7), (5, 1))]
    assert one.lag(ranks) == {1: 0, 2: 2, 3: 0, 4: 0}


@pytest.mark.parametrize("said", [lambda n: verdict("unknown", f"unknown: 12 of {n} threads for {n}.5 s"), None])
def test_the_same_stall_is_written_once_whatever_its_numbers(said):
    of, numbers = Hands([]), iter(range(100))
    of.said = (lambda: said(next(numbers))) if said else failing(IndexError(SECRET))
    stands = alarm()
    of.watch.followed.engines = [SimpleNamespace(standing=stands.standing, requests=None, scheduled=None)]
    for n in range(5):
        stands.why = f"12 open requests of vllm have not moved for {n}.31 s"
        of.watch._examine(stands.why, [stands])
    assert len(of.boxes) == len(of.told(model.STALLED)) == 1 and SECRET not in str(of.watch.events)
    of.said = lambda: verdict("stopped", "TP1 is stopped", [{"pid": 7}])
    of.watch._examine("again", [stands])
    of.said = (lambda: said(next(numbers))) if said else failing(IndexError(SECRET))
    stands.why = "again"
    of.watch._examine("again", [stands])
    assert of.boxes[1:2] == ["again"] and len(of.boxes) == (2 if said else 3)  # without a verdict it is known by why it looked


def test_an_engine_hangs_also_when_one_process_was_told_first():
    of, hung = (
        Hands([], said=lambda: verdict("stopped", "TP1 is stopped", [{"pid": 7}])),
        SimpleNamespace(verdict="", name="vllm", engine=SimpleNamespace(ranks=[])),
    )
    lone, whole = alarm("TP1"), alarm(of=hung)
    hung.standing, hung.requests, hung.scheduled = whole.standing, lone.standing, None
    of.watch.followed.engines = [hung]
    of.watch._examine(lone.why, [lone])
    assert hung.verdict == ""
    of.watch._examine(whole.why, [whole])
    assert hung.verdict == "stopped" and len(of.boxes) == 1


def parted(*parts):
    """A verdict whose parts are (kind, pids, pids that are blamed), the gravest first."""
    made = [(frozenset(pids), verdict(kind, culprits=[{"pid": pid} for pid in blamed])) for kind, pids, blamed in parts]
    for _, one in made:
        one.quiet = one.kind == "busy"
    return found.Verdict(made[0][1].data, parts=made)


def test_what_is_wrong_with_another_engine_is_not_told_of_this_one():
    """Two engines under one watch: the graver stall hides neither the other one nor that the other is well."""
    of, engines = Hands([]), []
    for name, pid in (("a", 1), ("b", 2)):
        own = engine.Standing(30.0), engine.Standing(30.0)
        ranks = SimpleNamespace(ranks=[SimpleNamespace(pid=pid)])
        engines.append(SimpleNamespace(verdict="", name=name, engine=ranks, standing=own[0], requests=own[1], scheduled=None))
    first, second = (loop.Alarm("", one.standing, [one.name], one) for one in engines)
    of.watch.followed.engines = engines
    of.said = lambda: parted(("stopped", [1], [1]), ("busy", [2], []))
    of.watch._examine("", [first, second])
    assert (engines[0].verdict, engines[1].verdict, first.standing.told, second.standing.told) == ("stopped", "", True, False)
    of.said = lambda: parted(("stopped", [1], [1]), ("stuck-requests", [2], []))
    of.watch._examine("", [second])
    said = [(one["engine"], one["verdict"]) for one in of.told(model.VERDICT)]
    assert said == [("a", "stopped"), ("b", "stuck-requests")] and len(of.boxes) == 2 == len(of.told(model.STALLED))


def test_a_death_in_another_engine_meanwhile_is_examined_by_itself(monkeypatch):
    """What was found of the engine that was looked at is not told of the one in which a process died."""
    of, asked = Hands([]), []
    refs = [ProcessRef(1, "a"), ProcessRef(2, "b")]
    dead = [follow.Dead(SimpleNamespace(ref=refs[1], label="b", pid=2), ends.End(True, "SIGKILL"), 0.0, True, "b")]
    monkeypatch.setattr(of.watch, "_ended_meanwhile", lambda: [dead.pop()] if dead else [])
    monkeypatch.setattr(of.watch, "_concerned", lambda names: refs[:1] if "vllm" in names else refs[1:])
    of.watch.hands.judge = lambda found, lasted: (
        asked.append(found) or parted(("stopped", [1], [1]) if len(asked) == 1 else ("crashed", [2], [2]))
    )
    hung = SimpleNamespace(verdict="", name="vllm", engine=SimpleNamespace(ranks=[SimpleNamespace(pid=1)]))
    hung.standing, hung.requests, hung.scheduled = engine.Standing(30.0), None, None
    of.watch._examine("it stands", [loop.Alarm("", hung.standing, ["vllm"], hung)])
    said = [(one["verdict"], [c["pid"] for c in one["culprits"]]) for one in of.told(model.VERDICT)]
    assert said == [("stopped", [1]), ("crashed", [2])] and of.boxes == ["it stands", "b was ended by SIGKILL"]


def test_who_fails_to_listen_is_told_once_and_the_others_hear():
    heard = []
    of = Hands([], hear=[failing(MemoryError(SECRET)), heard.append])
    for _ in range(3):
        of.watch.tell(model.STALLED, why="")
    assert [event.kind for event in heard].count(model.STALLED) == 3
    (lost,) = of.told(model.LOST)
    assert lost["why"].endswith("fails: MemoryError") and SECRET not in str(of.watch.events)


def test_events_name_no_request():
    ids = ["chatcmpl-0a1b2c3d", "7", "chatcmpl-0a1b2c3d-1"]
    text = "stuck: request chatcmpl-0a1b2c3d-1 is behind chatcmpl-0a1b2c3d at TP7 (7 threads); request 7 is lost"
    want = "stuck: request #3 is behind request #1 at TP7 (7 threads); request #2 is lost"
    assert loop.without_ids(text, ids) == want
    of = Hands([], said=lambda: verdict("stuck-requests", text, ids=ids))
    of.watch._examine("", [alarm()])
    assert of.told(model.VERDICT)[0]["sentence"] == want


def test_time_without_a_cpu_never_falls(monkeypatch):
    denied, of = {"a": 5.0, "b": 70.0}, Hands([])
    monkeypatch.setattr(loop.cgroups, "folders", lambda pid, what: [pid])
    monkeypatch.setattr(loop.cgroups, "seconds_throttled", denied.get)
    said = []
    for at, here in enumerate(("ab", "ab", "a", "", "b")):
        of.watch.followed.ranks = dict.fromkeys(here)
        denied["b"] += 10.0
        said.append(of.watch._throttle(100.0 * at))
    of.watch.followed.ranks = {}
    assert said == [0.0, 10.0, 10.0, 10.0, 40.0]


# ---- its end, and its boxes --------------------------------------------------------------------------------------------
def test_only_the_first_signal_ends_the_watch():
    before, said = signal.getsignal(signal.SIGTERM), []
    with llm_watch._told_to_end(False):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5.0)
        except KeyboardInterrupt as e:
            said.append(str(e))
            with contextlib.suppress(KeyboardInterrupt):
                for number in (signal.SIGTERM, signal.SIGHUP):
                    os.kill(os.getpid(), number)
                time.sleep(0.05)
                said.append("written")
    assert said == ["SIGTERM", "written"] and signal.getsignal(signal.SIGTERM) == before


def test_a_last_box_that_fails_is_told_and_nothing_else():
    of = Hands([])
    llm_watch._keep_end(SimpleNamespace(keep_end=failing(ValueError(SECRET))), of.watch, "SIGTERM")
    assert of.told(model.NO_BOX) == [{"why": "ValueError"}]


def test_a_disk_that_fills_up_costs_the_report_or_the_memory_not_the_box(tmp_path, monkeypatch):
    of, write = Hands([]), format.write
    found = verdict("stopped")
    found.page = "<html></html>"
    monkeypatch.setattr(box.files, "Draft", failing(OSError(28, "No space left on device")))
    made = box.Boxes(str(tmp_path)).keep_one("why", found, of.watch)
    assert format.Bundle(made["box"]).kind == "box" and made["file"] == made["box"] and "No space" in made["partial"][0]

    def small(path, manifest, members, *more):
        if "memory/7.core" in members:
            raise GdbextError("-o: No space left on device")
        return write(path, manifest, members, *more)

    monkeypatch.setattr(box.bundles, "write", small)
    found.memory["memory/7.core"], found.page = None, ""
    made = box.Boxes(str(tmp_path)).keep_one("why", found, of.watch)
    assert format.Bundle(made["box"]).kind == "box" and "No space" in made["partial"][0]


def test_boxes_stay_bounded_when_the_watch_is_started_again(tmp_path):
    of = Hands([])
    (tmp_path / "20200101-000000.gdbext").write_text("somebody's")
    (tmp_path / "20200102-000000.html").write_text("somebody's")
    last = ""
    for number in range(5):
        boxes = box.Boxes(str(tmp_path), keep=2)
        last = boxes.keep_one(str(number), None, of.watch)["box"]
        boxes.keep_end("SIGTERM", of.watch)
    files = sorted(tmp_path.glob("*.gdbext"))
    assert str(files[0]).endswith("20200101-000000.gdbext") and len(files) == 1 + 2 + 1 and os.path.exists(last)
    assert (tmp_path / "20200102-000000.html").exists()
