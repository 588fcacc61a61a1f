"""Who must act for a request that stands: a long step, an answer lost on its way, a loop that does not turn, a task that ended, a
transfer, a grammar; each by construction, with its decoys. No process is looked at."""

import re

from harness.facts import sample

from gdbext.answers.requests import requests_lines, rows_of
from gdbext.engines.sightings import FRONTEND, INPUT, OUTPUT, QUEUE, RUNNING, WORKER, Keeper, Look, Sighting
from gdbext.kvcache.model import Cache, Request
from gdbext.observe.stack_keys import FrameKey
from gdbext.render.text import PLAIN
from gdbext.requests import collect
from gdbext.requests.join import join
from gdbext.requests.model import BEHIND, LOST, MOVING, PARKED, QUEUED

MAIN, READER = 101, 102


def awaited(name, tokens=0, **more):
    return Sighting(name, FRONTEND, "awaited", progress=(tokens,), **more)


def runs(name, tokens=0, **more):
    return Sighting(name, RUNNING, "RUNNING", progress=(32 + tokens, tokens), request=Request(name), **more)


def waits(name, **more):
    return Sighting(name, QUEUE, "WAITING", progress=(0, 0), request=Request(name), **more)


def front(*sightings, handler=None, label="frontend", pid=1):
    keepers = {} if handler is None else {OUTPUT: handler}
    return Look(label, pid, "frontend", ("frontend",), list(sightings), keepers)


def core(*sightings, main=None, alive=True, label="EngineCore", pid=2, replica=None):
    main = main or Keeper("main", MAIN)
    keepers = {QUEUE: main, RUNNING: main, INPUT: Keeper("process_input_sockets", READER if alive else None)}
    return Look(label, pid, "engine-core", ("scheduler",), list(sightings), keepers, replica=replica)


def worker(main, rings=("psm_1",), pid=3, transfers=()):
    return Look("TP0", pid, "worker", ("worker",), [], {WORKER: main}, rings=rings, transfers=dict(transfers))


def at_work(turn, where="forward (model.py:7)"):
    """A thread in a function whose variables differ from turn to turn."""
    return Keeper("main", MAIN, where, sample=sample((FrameKey(1, 10, b"same", ()), FrameKey(2, 20, b"%d" % turn, ()))))


def test_a_step_that_takes_long_accuses_nobody():
    before, now = ([front(awaited("a")), core(runs("a")), worker(at_work(turn))] for turn in (1, 2))
    (found,) = join(now, before)
    assert found.verdict == "" and found.holder is None and "in forward" in found.evidence[0]
    (found,) = join(now, now)  # the very same variables: it goes round in one place
    assert found.verdict == BEHIND


def test_an_answer_that_was_lost_between_a_worker_and_its_core():
    waiting, resting = (
        Keeper("main", MAIN, "acquire_read (shm_broadcast.py:9)", ring="psm_1"),
        Keeper("main", 7, "", ring="psm_0"),
    )
    look = [front(awaited("a"), awaited("b")), core(runs("a"), waits("b"), main=waiting), worker(resting)]
    found = {t.request_id: t for t in join(look, look)}
    assert found["a"].verdict == LOST and found["b"].verdict == BEHIND
    assert found["a"].holder.data() == {"label": "TP0", "pid": 3, "tid": 7, "thread": "main"}
    assert "acquire_read" in found["a"].evidence[0] and "lost" in found["a"].evidence[0]
    for other in (Keeper("main", 7, "forward (model.py:7)"), Keeper("main", 7, "acquire_read (shm_broadcast.py:9)")):
        look = [front(awaited("a")), core(runs("a"), main=waiting), worker(other)]  # it works; there is a message to read
        assert join(look, look)[0].verdict == BEHIND
    look = [front(awaited("a")), core(runs("a"), main=waiting), worker(resting, rings=("psm_2",))]  # another's answer is awaited
    assert join(look, look)[0].verdict == BEHIND


def test_a_front_end_that_takes_no_answers_in():
    ended = [front(awaited("a"), handler=Keeper("output_handler", None)), core()]
    (found,) = join(ended, ended)
    assert found.verdict == LOST and found.holder.data() == {"label": "frontend", "pid": 1, "thread": "output_handler"}
    stuck = Keeper("output_handler", 1, "wait_in_loop (middleware.py:4)", sample=sample((FrameKey(1, 10, b"", ()),)))
    look = [front(awaited("a"), handler=stuck), core()]
    (found,) = join(look, look)
    assert found.verdict == BEHIND and found.holder.tid == 1 and "wait_in_loop" in found.evidence[0]
    goes = [front(awaited("a"), handler=Keeper("output_handler", 1, "encode (x.py:4)", sample=at_work(n).sample)) for n in (1, 2)]
    assert join([goes[1], core()], [goes[0], core()])[0].verdict == ""
    assert join([front(awaited("a"), handler=Keeper("output_handler", 1)), core()], look)[0].verdict == LOST  # the loop turns


def test_who_has_stopped_a_process_on_the_way_is_said():
    stands = [front(awaited("a", replica=0), awaited("b")), core(runs("a"), replica=0), core(runs("b"), pid=4, replica=1)]
    stopped = [stands[0], core(runs("a"), replica=0), stands[2]]
    stopped[1].stopped = "process 17 (gdb), which traces it"
    for before, now in ((stopped, stopped), (None, stopped)):
        found = {t.request_id: t for t in join(now, before)}
        assert found["a"].verdict == BEHIND and found["a"].holder.data() == {"label": "EngineCore", "pid": 2}
        assert found["a"].evidence == ["EngineCore is stopped by process 17 (gdb), which traces it"]
        assert found["b"].holder is None or found["b"].holder.pid == 4
    assert "stopped" not in join(stopped, stands)[0].evidence[0]  # only now, perhaps for a moment


def test_each_scheduler_is_judged_by_its_own_steps():
    before, now = (
        [
            front(awaited("a", n), awaited("b"), awaited("c", replica=1)),
            core(runs("a", n), label="EngineCore.DP0", replica=0),
            core(runs("b"), alive=False, label="EngineCore.DP1", pid=4, replica=1),
        ]
        for n in (1, 2)
    )
    found = {t.request_id: t for t in join(now, before)}
    assert [found[n].verdict for n in "abc"] == [MOVING, BEHIND, LOST]
    assert found["b"].holder.label == found["c"].holder.label == "EngineCore.DP1"


def test_who_delivers_what_a_parked_request_waits_for():
    compiling = waits("g", parked=True, waits_for="grammar: it is being compiled", keeper=Keeper("_create_grammar", 9, "compile"))
    behind = waits("h", parked=True, waits_for="grammar: it waits for a thread that compiles", after=("g",))
    remote = waits("r", parked=True, waits_for="transfer: KV blocks from another process (NeverDelivers)")
    look = [core(compiling, behind, remote, waits("q")), worker(at_work(1), transfers={"r": "NeverDelivers.loading"})]
    found = {t.request_id: t for t in join(look, None)}  # one look tells
    assert {found[n].verdict for n in "ghr"} == {PARKED} and found["q"].verdict == QUEUED
    assert found["g"].holder.tid == 9 and "in compile" in found["g"].evidence[1]
    assert found["h"].holder is None and found["h"].behind == ["g"]
    assert found["r"].holder.label == "TP0" and "TP0 has it in NeverDelivers.loading" in found["r"].evidence


class Running:
    """What `collect` asks of an engine."""

    name = "vllm"


def test_a_request_that_seems_to_stand_is_given_the_time_once_more(monkeypatch):
    stands, moved = [front(awaited("a")), core(runs("a"))], [front(awaited("a", 1)), core(runs("a", 1))]
    ended = [front(awaited("a")), core(alive=False)]
    for first, looks, verdict, slept in (
        (stands, [stands, moved], MOVING, [2.0]),
        (stands, [stands, stands, moved], MOVING, [2.0, 2.0 * collect.LONGER]),  # a step that took its time
        (stands, [stands, stands, stands], BEHIND, [2.0, 2.0 * collect.LONGER]),
        (stands, [moved], MOVING, []),
        (ended, [ended, ended], LOST, [2.0]),
    ):
        taken, pauses = iter(looks), []
        monkeypatch.setattr(collect, "looks_at", lambda engine, taken=taken: (next(taken), []))
        last, requests, _ = collect.compared(Running(), first, 2.0, pauses.append)
        assert [r.verdict for r in requests] == [verdict] and pauses == slept and last is looks[-1]


def test_the_time_that_has_gone_by_already_counts(monkeypatch):
    stands = [front(awaited("a")), core(runs("a"))]
    monkeypatch.setattr(collect, "looks_at", lambda engine: (stands, []))
    for since, slept in ((None, [2.0, 6.0]), (1.0, [2.0, 6.0]), (3.5, [1.0, 5.5]), (30.0, [1.0, 1.0])):
        pauses = []
        _, requests, _ = collect.compared(Running(), stands, 2.0, pauses.append, since)
        assert pauses == slept and requests[0].verdict == BEHIND


def test_there_is_a_third_look_where_two_do_not_tell(monkeypatch):
    goes = [[front(awaited("a")), core(runs("a")), worker(at_work(n))] for n in range(3)]
    taken, pauses = iter(goes[1:]), []
    monkeypatch.setattr(collect, "looks_at", lambda engine: (next(taken), []))
    _, requests, _ = collect.compared(Running(), goes[0], 2.0, pauses.append)
    assert requests[0].verdict == "" and pauses == [2.0]


def test_what_was_seen_between_the_first_and_the_last_look_counts():
    same, other = [front(awaited("a")), core(runs("a"))], [front(awaited("a")), core(waits("a"))]
    (found,) = join(same, same, [other])
    assert found.moved and found.verdict == MOVING
    goes = [front(awaited("a"), handler=Keeper("output_handler", 1, "encode (x.py:4)", sample=at_work(2).sample)), core()]
    rest = [front(awaited("a"), handler=Keeper("output_handler", 1, "encode (x.py:4)", sample=at_work(1).sample)), core()]
    assert join(rest, rest)[0].verdict == BEHIND and join(rest, rest, [goes])[0].verdict == ""
    lost, seen = [front(awaited("a")), core()], [front(awaited("a")), core(runs("a"))]
    assert join(lost, lost)[0].verdict == LOST and join(lost, lost, [seen])[0].verdict != LOST


def busy(callee, ran=None, runs=True):
    """An event loop's thread in the middle of a callback."""
    return Keeper("output_handler", 1, f"{callee} (x.py:4)", sample=sample((FrameKey(callee, 10, b"", ()),), runs, ran))


def test_a_loop_that_runs_callbacks_or_lacks_a_cpu_accuses_nothing():
    for keepers, verdict in (
        ([busy("encode"), busy("decode")], ""),
        ([busy("encode", 5.0), busy("encode", 5.01)], ""),  # it wants a processor, and had none for long
        ([busy("encode", 5.0), busy("encode", 6.0)], BEHIND),
        ([busy("encode", 5.0, False), busy("encode", 5.0, False)], BEHIND),  # it sleeps
    ):
        before, now = ([front(awaited("a"), handler=one), core()] for one in keepers)
        assert join(now, before)[0].verdict == verdict


def test_a_request_that_ended_since_the_samples_is_not_running():
    before, now = ([front(awaited("a", n)), core(runs("a", n), runs("b", n))] for n in (1, 2))
    held = collect.Custody("vllm", now, join(now, before), [], [])
    cache = Cache("vllm", "0.32", pools=[], groups=[], requests=[Request("b", queue="running")])
    assert [r["request_id"] for r in rows_of(held, [({2}, cache)])[0]] == ["b"]
    assert [r["request_id"] for r in rows_of(held, [({9}, cache)])[0]] == ["b", "a"]  # another scheduler's
    stands = collect.Custody("vllm", now, join(now, now), [], [])  # it does not move: it has not ended
    assert {r["request_id"] for r in rows_of(stands, [({2}, cache)])[0]} == {"a", "b"}


def test_a_request_that_has_come_since_the_looks_is_new():
    before, now = ([front(awaited("a", n)), core(runs("a", n))] for n in (1, 2))
    held = collect.Custody("vllm", now, join(now, before), [], [])
    running = [Request(name, queue="running") for name in ("a", "b")]
    rows = rows_of(held, [({2}, Cache("vllm", "0.32", pools=[], groups=[], requests=running))])[0]
    assert [(r["request_id"], r["new"], r["verdict"]) for r in rows] == [("a", False, "moving"), ("b", True, None)]
    text = "\n".join(requests_lines(rows, {"running": 2}, PLAIN))
    assert re.search(r"a +moving ", text) and re.search(r"b +new ", text) and "came after" in text
    assert "came after" not in "\n".join(requests_lines(rows[:1], {"running": 1}, PLAIN))


def test_a_request_that_stood_in_a_long_step_is_unknown_with_the_reason():
    row = {"request_id": "a", "queue": "running", "status": "RUNNING", "preemptions": 0, "age": 1.0, "blocked_by": None}
    rows = [
        {**row, "verdict": None, "moved": moved, "holder": None, "evidence": ["no step has ended"]} for moved in (False, None)
    ]
    unmoved, unseen = ("\n".join(requests_lines([r], {"running": 1}, PLAIN)) for r in rows)
    assert re.search(r"a +unknown ", unmoved) and "unknown: no step has ended; -between S looks for longer" in unmoved
    assert "unknown" not in unseen
