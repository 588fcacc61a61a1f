"""What programs that are well are told, and what they are told no more where one fact of them is otherwise."""

import signal

import pytest
from harness.facts import EPOLL, SLEEP, add, node, process, python

from gdbext.observe.effects import Effect
from gdbext.observe.families import Outsider
from gdbext.observe.system_calls import Call, Source
from gdbext.observe.window import ThreadWindow
from gdbext.stacks.async_waits import LoopState, TaskState
from gdbext.stacks.waits import Edge
from gdbext.verdict.judge import judge_group as judge

CHILD = Call("wait", peers=[11])


def joins(call, others=(), **worker):
    """A main thread that joins one."""
    main = process("a", python("main"), role="", edge=Edge(node("a"), "x", "Thread", ("a", 7)))
    main.pid, main.others = 6, {one.pid: one for one in others}
    return add(main, 7, "works", call=call, frames=python("work"), **worker)


@pytest.mark.parametrize(
    ("does", "kind"),
    [
        ({"ran": 0.5}, "busy"),
        ({"ran": 0.05, "wants": True}, "busy"),
        ({"ran": 0.05}, "unknown"),  # it may only ask now and then
        ({"sleeps": 30.0}, "unknown"),
        ({"ran": 0.5, "stopped": [(12, "cc1")]}, "unknown"),
        ({"ran": 0.5, "stopped": [(11, "cc")]}, "stopped"),
        ({"stopped": [(12, "cc1")]}, "stopped"),
    ],
)
def test_a_program_that_computes_is_progress_of_who_waits_for_its_end(does, kind):
    found = judge([joins(CHILD, [Outsider(11, "cc", **does)])])
    assert found.kind == kind
    assert found.unread == (kind == "busy")  # a process of Python is to be read before this is said


def test_one_that_waits_beside_for_what_may_not_come_is_not_busy():
    one = joins(CHILD, [Outsider(11, "cc", ran=0.5)])
    assert judge([one]).kind == "busy"
    lost = Edge(("a", 8), "x", "Event", named=True)
    assert judge([add(one, 8, "waits", lost)]).kind not in ("busy", "idle")


def test_data_that_comes_is_progress_and_a_wait_for_it_is_none():
    def said(name="read", woke=3, read=300, kind="pipe", **call):
        one = joins(Call(name, [Source(kind, "x", 5)], **call), woke=woke)
        one.read = read
        return judge([one]).kind

    assert said() == "busy" == said("recv", read=0, kind="client")
    assert said("write") != "busy"  # it wrote nothing
    assert "busy" not in (said(woke=0), said(read=0), said(limited=True), said(kind="event"))


def test_one_that_alters_what_it_can_reach_makes_progress():
    """As `python -c`, whose variables are no variables of a frame."""

    def said(states, polls=False):
        seen = ThreadWindow(effects=[Effect(state, ran, 0) for ran, state in enumerate(states)])
        main = process("a", python("main"), role="", load=0.9, alters=seen.alters, futile=seen.futile, polls=polls, state="R")
        return judge([main]).kind

    assert said([1, 2]) == "busy" and said([None, 1, 1, 2]) == "busy"
    assert "busy" not in (said([1, 1]), said([None, None]), said([]), said([1, 2], polls=True))


def reads(source, **loop):
    """A loop for whose descriptor a callback sets the event of its main task."""
    main = process("a", python("main"), EPOLL, role="", call=Call("epoll", [source]))
    waits = Edge(("a", "task"), "e", "asyncio.Event", address=77, named=True)
    main.tasks = [TaskState(("a", "task"), "task", "waiting", 5, edge=waits, kind="asyncio")]
    main.loops = [LoopState(5, main.threads[0].node[1], turned=False, main=("a", "task"), **loop)]
    main.pid = 6
    return main


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        (Source("event", "anon_inode:[timerfd]", comes=True), "idle"),
        (Source("event", "anon_inode:[eventfd]"), "unknown"),
        (Source("pipe", "/run/control", 9), "idle"),  # open for both, by itself
        (Source("pipe", "pipe:[9]", 9), "starved"),  # nobody is left that can write there
        (Source("listener", "connections to port 80", 9), "idle"),
    ],
    ids=lambda one: getattr(one, "text", one),
)
def test_what_a_callback_of_a_loop_sets_comes_from_its_descriptor(source, kind):
    one = reads(source, calls={77: Call("recv", [source])})
    one.peers = {9: [(6, True)]}
    assert judge([one]).kind == kind
    one = reads(source)
    one.peers = {9: [(6, True)]}
    assert judge([one]).kind != "idle"  # nothing leads from it to the event


def test_what_a_handler_of_a_signal_sets_comes_from_outside():
    source = Source("unix", "a Unix socket", 9)
    assert judge([reads(source, signalled={77: signal.SIGUSR1})]).kind == "idle"
    assert judge([reads(source, signalled={78: signal.SIGUSR1})]).kind != "idle"
    for number, rests in ((signal.SIGUSR1, False), (signal.SIGTERM, True)):
        parent = reads(source, signalled={77: number})
        parent.children = {8: 0.0}  # which may owe a signal, but none that asks to end
        assert (judge([parent]).kind == "idle") == rests


def test_a_thread_in_one_long_sleep_is_no_work():
    assert judge([joins(Call("nanosleep", seconds=3600), native=SLEEP, for_good=True)]).kind not in ("busy", "idle")


def test_who_waits_to_be_asked_to_end_gives_nothing():
    """A handler's task waits for a future that the main task could reach, which only waits for a signal."""
    one = reads(Source("listener", "connections to port 80", 9), signalled={77: signal.SIGTERM})
    lost = Edge(("a", "serves"), "f", "asyncio.Future", address=88, candidates=[("a", "task")], doubted=True)
    assert judge([one]).kind == "idle"
    one.tasks.append(TaskState(("a", "serves"), "serves", "waiting", 5, edge=lost, kind="future"))
    assert judge([one]).kind not in ("busy", "idle")
    one.moved_tasks = {("a", "serves")}
    assert judge([one]).kind == "busy"


def test_what_a_client_waits_for_is_owed():
    """The main task could set the event of a handler, when the next client comes: until then it is not idle."""
    one = reads(Source("listener", "connections to port 80", 9), calls={77: Call("recv", [Source("listener", "x", 9)])})
    told = Edge(("a", "serves"), "f", "asyncio.Event", address=88, candidates=[("a", "task")])
    one.tasks.append(TaskState(("a", "serves"), "serves", "waiting", 5, edge=told, kind="asyncio"))
    assert judge([one]).kind == "idle"
    one.tasks[-1].answers = True
    assert judge([one]).kind == "unknown"


def test_a_workers_queue_is_empty_and_a_handlers_client_waits():
    def said(served=(), ended=(), how="get"):
        main = process("a", python("serve"), role="", call=Call("accept", [Source("listener", "connections to port 80", 9)]))
        main.pid, main.served = 6, set(served)
        return judge(
            [add(main, 7, "works", Edge(("a", 7), "q", "Queue", address=5, named=True, how=how, ended=list(ended)))]
        ).kind

    assert said() == "idle"
    assert "idle" not in (said(served=[5]), said(ended=["producer"]), said(how="put"))


def test_what_a_signal_or_another_thread_may_have_done_is_no_progress():
    def said(*signals, source="client"):
        main = process("a", python("main"), role="", call=Call("recv", [Source(source, "x", 5)]), woke=3)
        main.signals = signals
        return judge([main]).kind

    assert said() == said("SIGTERM") == "busy"
    assert "busy" not in (said("SIGALRM"), said("SIGPROF", "SIGTERM"))

    def alters(**other):
        main = process("a", python("main"), role="", load=0.9, state="R", alters=True)
        return judge([add(main, 9, "beats", frames=python("beat"), **other)]).kind

    assert alters(idle=True) == "busy" and alters(woke=9) != "busy"


def test_one_that_waits_for_an_answer_is_not_busy_for_what_comes_meanwhile():
    """A reader whose socket brings pings alone, and one that counts for ever, before the item that is awaited."""

    def said(**reader):
        main = process(
            "a", python("main"), role="", edge=Edge(node("a"), "q", "Queue", how="get", candidates=[("a", 7)], named=True)
        )
        return judge([add(main, 7, "reads", frames=python("read"), **reader)]).kind

    assert said(call=Call("recv", [Source("client", "x", 5)]), woke=9) != "busy"
    assert said(load=0.9, state="R", advanced=True, moved=True) != "busy"


NAP = Call("nanosleep", seconds=20.0)


def goes_round(**main):
    one = process("a", python("main"), role="", call=NAP)
    for name, value in {"rounds": True, **main}.items():
        setattr(one.main, name, value)
    return one


def test_between_its_rounds_one_is_idle_and_busy_where_it_did_something():
    assert judge([goes_round()]).kind == "idle"
    assert judge([goes_round(rounds=False)]).kind == "unknown"  # it may wait for a result
    one = goes_round(woke=2)
    one.read = 30
    assert judge([one]).kind == "busy"
    moved = goes_round(woke=2, moved=True, advanced=True)
    assert judge([moved]).kind == "busy"
    lost = Edge(("a", 8), "x", "Event", named=True)
    for one in (goes_round(), goes_round(woke=2, moved=True, advanced=True)):
        assert judge([add(one, 8, "waits", lost)]).kind not in ("busy", "idle")


def test_rounds_beside_a_child_that_was_not_read_are_no_rest():
    one = goes_round()
    one.children = {11: 0.0}
    assert judge([one]).kind == "unknown"


def test_new_memory_is_progress_in_one_call():
    def said(**main):
        one = process("a", python("main"), role="", call=None)
        for name, value in {"load": 0.9, "state": "R", **main}.items():
            setattr(one.main, name, value)
        return judge([one]).kind

    assert said(took=5000) == "busy"
    assert said(took=0) != "busy"
    assert said(took=5000, handles="ValueError") != "busy"


def test_an_event_that_a_handler_sets_is_waited_for_until_the_end():
    one = process("a", python("main"), role="", edge=Edge(node("a"), "x", "Event", address=5, named=True))
    one.signals = ["SIGTERM"]
    assert judge([one]).kind == "unknown"
    one.signalled = {5: signal.SIGTERM}
    assert judge([one]).kind == "idle"
    one.main.edge.ended = ["worker"]
    assert judge([one]).kind != "idle"
