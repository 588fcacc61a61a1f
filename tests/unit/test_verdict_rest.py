"""Who sleeps, and who rests, on facts made up here: a sleep ends by itself, and an engine that owes nothing is idle."""

from types import SimpleNamespace
from unittest.mock import Mock

import pytest
from harness.facts import EPOLL, SLEEP, add, node, process, python

from gdbext.engines.processes import ProcessRef
from gdbext.observe.system_calls import Call, Source
from gdbext.stacks.waits import Edge
from gdbext.verdict import examine
from gdbext.verdict.judge import judge_group as judge


@pytest.mark.parametrize("kind", ["Queue", "Lock"])
@pytest.mark.parametrize("for_good", [True, False])
def test_a_thread_that_goes_on_after_a_sleep_keeps_a_lock_meanwhile(for_good, kind):
    """A feed that comes once in an hour stands in its sleep as one that never gives."""
    main = process("a", python("main"), edge=Edge(node("a"), "x", kind, ("a", 7)))
    said = judge([add(main, 7, "sleeps", native=SLEEP, call=Call("nanosleep", seconds=3600), for_good=for_good)])
    known = "lock-held" if kind == "Lock" else "starved" if for_good else "unknown"
    assert (said.kind, said.culprits) == (known, [("a", 7)] if known != "unknown" else [])


def test_a_main_thread_that_keeps_its_process_alive_starves_nobody():
    """Another thread of the process, or a handler of a signal, may do its work meanwhile."""

    def said(*others, signals=()):
        parent = process("p", python("main"), role="", call=Call("wait", peers=[7]))
        child = process("c", python("serve"), SLEEP, role="", call=Call("nanosleep", seconds=86400), for_good=True)
        parent.pid, child.pid, child.signals, parent.children = 6, 7, signals, {7: 0.0}
        for tid, one in enumerate(others, 900):
            add(child, tid, "worker", **one)
        return judge([parent, child]).kind

    accepts = {"call": Call("accept", [Source("listener", "port 8000")])}
    assert said() == "starved" == said({"idle": True})
    assert said(accepts) == "unknown" == said(signals=["SIGUSR1"])


def test_an_end_that_a_process_which_may_not_be_read_may_have_is_no_proof():
    def said(hidden):
        reads = Call("read", [Source("pipe", "pipe:[7]", 7)])
        alone = process("p", python("main"), ("read",), role="", call=reads)
        alone.pid, alone.peers, alone.hidden = 6, {7: [(6, True), (6, False)]}, hidden
        return judge([alone])

    assert said([]).kind == "starved" and "nothing can end" in said([]).evidence[-1]
    assert said([8]).kind == "unknown"


def test_an_engine_rests_with_its_detokenizer_and_its_helpers():
    def engine(requests):
        reads = Call("read", [Source("pipe", "pipe:[7]", 7)])
        tracker = process(
            "77", python("main", file="/usr/lib/python3.12/multiprocessing/resource_tracker.py"), role="", call=reads
        )
        found = [
            process(
                "scheduler", python("recv_requests", "event_loop_overlap"), role="scheduler", moved=True, load=0.9, wanted=0.9
            ),
            process(
                "detokenizer", python("recv", "event_loop"), role="detokenizer", call=Call("poll", [Source("event", "eventfd")])
            ),
            process("frontend", python("wait"), EPOLL, role="frontend", call=Call("epoll", [Source("listener", "port 8000")])),
            tracker,
        ]
        for pid, one in enumerate(found, 100):
            one.pid, one.family, one.engine = pid, 1, "" if one is tracker else "sglang"
            one.requests = requests if one.role == "scheduler" else None
        tracker.peers = {7: [(found[0].pid, True)]}
        return found

    assert judge(engine([])).kind == "idle"
    assert judge(engine(None)).kind == "unknown"  # what it owes is not known
    blocked = engine([])
    blocked[2].threads[0].call = Call("recv", [Source("unix", "a Unix socket", 9)])
    assert judge(blocked).kind == "unknown"
    bare = {"paused": False, "sure": False, "holder": None, "request_id": "a", "at": None, "waits_for": "", "age": 1}
    lost = SimpleNamespace(verdict="", evidence=[], **bare)
    assert judge(engine([lost])).kind == "unknown"
    held = SimpleNamespace(**{**vars(lost), "verdict": "parked", "paused": True, "waits_for": "the engine, which is paused"})
    paused = judge(engine([held]))
    assert (paused.kind, paused.culprits) == (
        "idle",
        [],
    ) and "a: parked, waits for the engine, which is paused" in paused.evidence
    assert not any(said in paused.evidence for said in ("no request is open", "nothing is owed"))
    assert judge(engine([held, lost])).kind == "unknown"
    stuck = SimpleNamespace(**{**vars(held), "paused": False})
    assert judge(engine([stuck])).kind == "stuck-requests"


def test_a_process_without_python_rests_if_it_listens_and_nothing_runs():
    """As Ray's gcs_server, whose main thread watches timers only: other threads of it watch the listener."""
    timers = Call("epoll", [Source("event", "anon_inode:[eventfd]"), Source("event", "anon_inode:[timerfd]")])

    def said(listens, **other):
        one = process("g", (), EPOLL, role="", call=timers, python=False)
        one.listens = listens
        return judge([add(one, 7, "rpc", frames=(), python=False, **other)]).kind

    assert said(True) == "idle" and said(False) == "unknown"
    assert said(True, load=0.9, wanted=0.9) == "unknown"
    mutex = Edge(("g", 7), "a mutex", "mutex", ("g", 8))
    assert said(True, edge=mutex) != "idle"
    python_one = process("p", python("main"), EPOLL, role="", call=timers)
    python_one.listens = True
    assert judge([python_one]).kind == "unknown"


def test_a_worker_of_ray_rests_where_it_takes_its_next_task():
    timers = Call("epoll", [Source("event", "anon_inode:[eventfd]")])
    takes = python("Worker.main_loop", file="/x/ray/_private/worker.py")
    method = [*python("work", file="/x/mine.py"), *python("actor_method_executor", file="/x/ray/_private/function_manager.py")]

    def said(frames=takes, call=timers, **other):
        one = process("w", frames, EPOLL, role="", call=call)
        return judge([add(one, 7, "method", frames=method, **other)] if other else [one])

    assert said().kind == "idle"
    assert said(call=Call("futex", shared=True)).kind == "unknown"  # it waits for an argument of the next one
    assert said(moved=True, advanced=True, load=0.5).culprits == [("w", 7)]
    assert said(moved=True, advanced=True, load=0.5).kind == "busy"
    assert said(call=timers, load=0.0, state="S").kind == "unknown"  # a method waits for what is not known


WORKS = {"moved": True, "advanced": True, "load": 0.2, "wanted": 0.2}
PARKS = {
    "sleeps for good": {"call": Call("nanosleep", seconds=3600), "for_good": True, "native": SLEEP},
    "waits for a signal": {"call": Call("pause")},
    "joins it": {"edge": Edge(node("a"), "the end of thread worker", "Thread", ("a", 7))},
}


def parked(how, *others):
    main = process("a", python("main"), role="", **PARKS[how])
    for tid, one in enumerate(others, 7):
        add(main, tid, "worker", **one)
    return judge([main]).kind


@pytest.mark.parametrize("how", PARKS)
def test_a_parked_program_is_what_its_threads_do(how):
    waits = {"edge": Edge(("a", 8), "the Event e", "Event", named=True)}
    assert parked(how, WORKS) == "busy"
    assert parked(how, WORKS, waits) == "unknown" == parked(how, {"call": Call("nanosleep", seconds=100)})
    assert parked(how, {**WORKS, "polls": True}) == "unknown"


def test_who_serves_while_the_main_thread_is_parked_rests():
    accepts = {"call": Call("accept", [Source("listener", "port 8000")])}
    works = {"call": Call("read", [Source("pipe", "pipe:[7]", 7)])}
    assert parked("sleeps for good", accepts) == "idle"
    assert parked("sleeps for good") == "unknown" == parked("sleeps for good", accepts, works)


def test_one_whose_result_is_awaited_may_work_in_vain():
    main = process("a", python("main"), role="", edge=Edge(node("a"), "the Event e", "Event", ("a", 7)))
    assert judge([add(main, 7, "worker", **WORKS)]).kind == "unknown"


def test_the_rest_of_an_engine_is_looked_at_where_it_may_have_requests():
    """Asked by its server's pid alone: the core may be stopped, or paused by its user."""
    roles = enumerate(("frontend", "worker", "engine-core", "gone"), 1)
    ranks = [Mock(pid=pid, role=role, label=role, zombie=role == "gone") for pid, role in roles]
    for rank in ranks:
        rank.kin = ranks

    def added(kind, requests=("a",), pid=1):
        first = SimpleNamespace(requests=list(requests), verdicts=[SimpleNamespace(kind=kind)])
        return [one.pid for one in examine._others([ProcessRef.of_rank(ranks[pid - 1])], None, first)]

    assert added("unknown") == [3, 2] and added("unknown", pid=3) == [1, 2]
    assert added("unknown", ()) == added("lock-held") == []


@pytest.mark.parametrize("owed", [None, [], ["r"]])
def test_a_driver_that_waits_for_an_event_of_its_own_owes_no_request(owed):
    """Its engine is known to owe nothing, or requests are open, or no engine is known."""
    main = process("a", python("main"), role="frontend" if owed is not None else "", edge=Edge(node("a"), "the Event e", "Event"))
    main.requests = (
        None
        if owed is None
        else [SimpleNamespace(request_id=r, verdict="queued", exchange=None, evidence=[], at=None, paused=False) for r in owed]
    )
    add(main, 7, "worker", call=Call("read", [Source("pipe", "pipe:[7]", 7)]), python=False)
    assert (judge([main]).kind == "idle") is (owed == [])
