"""Chains of waits on facts made up here."""

from types import SimpleNamespace

import pytest
from harness.facts import SLEEP, add, node, process, python

from gdbext.observe.system_calls import Call, Source
from gdbext.requests.model import Place, Tracked
from gdbext.stacks.async_waits import LoopState, TaskState
from gdbext.stacks.threads import Frame
from gdbext.stacks.waits import Edge
from gdbext.verdict.chains import MAX_CHAINS, chains_of
from gdbext.verdict.facts import Facts
from gdbext.verdict.gate import slow
from gdbext.verdict.judge import judge_group as judge
from gdbext.verdict.walk import chain_of, outlook

NAP = {"native": SLEEP, "call": Call("nanosleep", seconds=3600.0)}


def by_lock(waiter, owner):
    return Edge(waiter, "the Lock x", "Lock", owner, address=1)


def test_a_chain_ends_where_nothing_is_waited_for_or_it_meets_itself():
    one = process("a", python("main"), edge=by_lock(node("a"), ("a", 7)))
    add(one, 7, "middle", by_lock(("a", 7), ("a", 8)))
    add(one, 8, "last", **NAP)
    found = chain_of(Facts([one]), node("a"))
    assert [n for n, _ in found.through] == [("a", 7)] and (found.end.node, found.end.state) == (("a", 8), "sleeps")
    ring = process("a", python("main"), edge=by_lock(node("a"), ("a", 7)))
    add(ring, 7, "middle", by_lock(("a", 7), node("a")))
    found = chain_of(Facts([ring]), node("a"))
    assert (found.end.node, found.end.state) == (node("a"), "ring")


def test_of_several_that_could_end_a_wait_each_end_is_reported():
    def waits(*candidates):
        edge = Edge(node("a"), "the Event e", "Event", candidates=list(candidates), address=1)
        return add(add(process("a", python("main"), edge=edge), 7, "one", **NAP), 8, "two", by_lock(("a", 8), ("a", 7)))

    found = chain_of(Facts([waits(("a", 7), ("a", 8))]), node("a"))
    assert (found.end.node, found.end.state) == (("a", 7), "sleeps")
    both = add(waits(("a", 7), ("a", 9)), 9, "three", frames=python("work"), moved=True, advanced=True, load=0.9)
    found = chain_of(Facts([both]), node("a"))
    assert found.end.state == "several" and {(e.node, e.state) for e in found.end.any_of} == {
        (("a", 7), "sleeps"),
        (("a", 9), "moves"),
    }


def test_who_stands_behind_a_task_and_a_pipe_of_another_process():
    read = Call("read", [Source("pipe", "pipe:[5]", 5)])
    one = process("a", python("_run_once"), call=Call("epoll"))
    task = TaskState(("a", "task t"), "t", "waiting", 1, edge=Edge(("a", "task t"), "the asyncio.Event e", "asyncio.Event"))
    task.edge.candidates = [("a", 7)]
    one.tasks, one.loops = [task], [LoopState(1, node("a")[1], main=task.node)]
    add(one, 7, "reader", call=read)
    one.pid, one.peers = 1, {5: [(1, False), (2, True)]}
    two = process("b", python("main"), **NAP)
    two.pid = 2
    found = chain_of(Facts([one, two]), node("a"))
    assert [n for n, _ in found.through] == [("a", "task t"), ("a", 7)] and found.end.node == node("b")
    found = chain_of(Facts([one]), node("a"))
    assert (found.end.pid, found.end.state) == (2, "unknown")


@pytest.mark.parametrize("turned", [True, False, None])
def test_a_task_does_not_wake_while_a_callback_keeps_its_loop(turned):
    one = process("a", python("callback", "_run_once"), load=0.9, wanted=0.9)
    naps = TaskState(("a", "task t"), "t", "waiting", 1, kind="sleep", text="sleep(2)", seconds=2.0)
    one.tasks, one.loops = [naps], [LoopState(1, node("a")[1], turned=turned)]
    found = chain_of(Facts([one]), naps.node)
    stands = turned is not True
    assert (found.end.node, found.end.state) == ((node("a"), "runs") if stands else (naps.node, "sleeps"))
    assert ("for a short time only" in slow(Facts([one]), naps.node)) is not stands
    one.moved_tasks = {("a", "task u")}  # of a loop that is not read
    assert (chain_of(Facts([one]), naps.node).end.state == "sleeps") is (turned is not False)
    one.moved_tasks, one.threads[0].call = set(), Call("epoll")  # the loop sleeps until its next timer
    assert chain_of(Facts([one]), naps.node).end.state == "sleeps"


def test_the_threads_that_can_reach_the_other_end_stand_behind_a_file():
    call = Call("recv", [Source("unix", "a Unix socket", 5, [6])])
    one = add(process("a", python("main"), call=call), 7, "giver", **NAP)
    one.pid, one.peers = 1, {6: [(1, True)]}
    assert chain_of(Facts([one]), node("a")).end.state == "unknown"
    one.at_ends = {("talks", 6): [node("a"), ("a", 7)]}
    found = chain_of(Facts([one]), node("a"))
    assert (found.end.node, found.end.state) == (("a", 7), "sleeps")
    assert outlook(Facts([one]), node("a")).kind == "unknown", "that it can reach it proves nothing"
    two = add(process("b", python("main"), **NAP), 8, "handler", by_lock(("b", 8), ("b", 9)))
    two.pid, one.peers, one.at_ends, two.at_ends = 2, {6: [(2, True)]}, {}, {("talks", 6): [("b", 8)]}
    found = chain_of(Facts([one, two]), node("a"))
    assert [n for n, _ in found.through] == [("b", 8)] and found.end.node == ("b", 9)


def test_unread_workers_of_a_pool_are_named_a_stopped_one_may_have_work():
    edge = Edge(node("a"), "a Future (RUNNING), work of a pool of 2 processes", "Job", pids=[2, 3])
    one = process("a", python("main"), edge=edge)
    found = chain_of(Facts([one]), node("a"))
    assert found.unseen == [2, 3] and found.end.state == "unknown"
    takes = python("get", "_process_worker", file="concurrent/futures/process.py")
    workers = [process(name, takes, call=Call("read")) for name in ("b", "c")]
    for pid, worker in enumerate(workers, 2):
        worker.pid = pid
    assert chain_of(Facts([one, *workers]), node("a")).end.state == "ended"
    workers[1].state = "T"
    found = chain_of(Facts([one, *workers]), node("a"))
    assert (found.end.node, found.end.state) == (node("c"), "stopped")


def test_waits_of_a_kind_are_one_chain_and_there_is_a_bound():
    many = process("a", python("main"), edge=by_lock(node("a"), ("a", 7)))
    add(many, 7, "owner", **NAP)
    for i in range(20):
        add(many, 100 + i, f"w-{i}", Edge(("a", 100 + i), f"the Lock 0x{i:x}", "Lock", ("a", 7), address=i))
    found = chains_of(Facts([many]))
    assert [(c.waiter, c.count) for c in found] == [(node("a"), 1), (("a", 100), 20)]
    for i in range(200):
        add(many, 1000 + i, "q", Edge(("a", 1000 + i), f"the Queue {'q' * i}", "Queue"))
    assert len(chains_of(Facts([many]))) == MAX_CHAINS


def test_roles_come_first_and_requests_end_where_their_holder_stands():
    core = process("core", python("main"), role="engine-core", **NAP)
    lone = process("a", python("main"), role="", edge=by_lock(node("a"), ("a", 7)))
    add(lone, 7, "owner", **NAP)
    waits = Tracked("r-1", [], verdict="parked", at=Place("core", 1), holder=Place("core", 1), waits_for="blocks")
    moves = SimpleNamespace(verdict="moving")
    found = chains_of(Facts([lone, core]), [waits, moves])
    assert [(c.waiter, c.request) for c in found] == [(node("core"), ""), (node("a"), ""), (("core", None), "r-1")]
    assert (found[-1].waits_for, found[-1].end.node, found[-1].end.state) == ("blocks", node("core"), "sleeps")


def test_a_task_that_is_in_a_call_of_its_own_does_not_wait_for_itself():
    """Its loop runs it and cannot be in its selector, whatever the call is."""
    for name, kind in (("poll", "client"), ("select", "pipe"), ("epoll", "client")):
        one = process("a", python("starts"), call=Call(name, [Source(kind, "the other end", 5)]))
        task = TaskState(("a", "task t"), "t", "running", 1)
        one.tasks, one.loops = [task], [LoopState(1, node("a")[1], main=task.node)]
        found = chain_of(Facts([one]), node("a"))
        assert found.end.state == "unknown" and "itself" not in found.end.why and found.waits_for == "the other end", (
            name,
            found,
        )
        task.state = "waiting"  # the loop is in its selector
        assert chain_of(Facts([one]), node("a")).waits_for == "its task t, in the event loop", name
    one.tasks[0].state = "running"
    two = process("b", python("main"), **NAP)
    one.pid, two.pid, one.threads[0].call.sources[0].peers, one.peers = 1, 2, [6], {6: [(2, True)]}
    assert chain_of(Facts([one, two]), node("a")).end.node == node("b")


def test_who_waits_for_new_clients_does_not_serve_those_that_it_has():
    """As seen on a server with a thread for each connection: the chain ended at its accept(), which had the socket too."""
    asks = Call("recv", [Source("unix", "a Unix socket", 5, peers=[6])])
    accept = Call("recv", [Source("listener", "connections to port 1", 9)])
    for known, thread in ((True, True), (True, False), (False, True), (False, False)):
        one = process("a", python("main"), call=asks)
        one.pid, one.peers = 1, {6: [(2, True)]}
        two = process("b", python("main"), call=accept)
        two.pid, server = 2, ("b", 7)
        if thread:
            add(two, 7, "conn", **NAP)
        both = [node("b"), server] if thread else [node("b")]
        two.at_ends = {("talks", 6): both} if known else {}
        found = chain_of(Facts([one, two]), node("a"))
        assert (found.end.node, found.end.state) == ((server, "sleeps") if thread else (node("b"), "input"))


def a_reader(writers, read, asker=()):
    """A process that reads a pipe whose other end `writers` have, of which those in `read` were read: they take work."""
    main = process("a", python("main"), call=Call("read", [Source("pipe", "pipe:[9]", 9)]))
    main.pid, main.peers, main.asker = 1, {9: [(1, False), *((pid, True) for pid in writers)]}, set(asker)
    others = [process(f"w{pid}", python("take"), call=Call("read", [Source("terminal", "a terminal")])) for pid in read]
    for other, pid in zip(others, read):
        other.pid = pid
    return Facts([main, *others])


def test_of_several_writers_none_that_was_read_stands_for_one_that_was_not():
    """A DataLoader of four workers whose parent was asked alone: the chain went to the first one, which was idle."""
    alone = chain_of(a_reader([2, 3, 4, 5], []), node("a"))
    assert set(alone.unseen) == {2, 3, 4, 5} and alone.end.state == "unknown"  # all of them are read next
    for read in ([2], [2, 3], [5, 4, 3]):
        found = chain_of(a_reader([2, 3, 4, 5], read), node("a"))
        left = {2, 3, 4, 5} - set(read)
        assert found.end.state not in ("input", "sleeps") and found.end.why.startswith("any of 4: "), found
        assert set(found.unseen) == left and f"{len(left)} not read: " in found.end.why, found
    assert "not read" not in chain_of(a_reader([2, 3], [2, 3]), node("a")).end.why


def test_a_chain_does_not_end_at_the_one_who_asks():
    found = chain_of(a_reader([7], [], asker=[7, 8]), node("a"))
    assert "gdbext itself" in found.end.why and not found.unseen and not found.end.pid, found
    found = chain_of(a_reader([2, 7], [2], asker=[7]), node("a"))
    assert found.end.node == node("w2"), found


ASKS = Call("poll", [Source("pipe", "pipe:[9]", 9)], limited=True, seconds=1.0)


def who_asks(call=ASKS, held=(2, 3), **more):
    one = process("a", python("_poll", "get"), call=call, moved=True, advanced=True, asks_anew=True, **more)
    one.pid, one.peers = 1, {9: [(1, False), *((pid, True) for pid in held)]}
    return one


def test_who_asks_over_and_over_for_what_a_child_has_to_give_waits_for_it():
    """As a DataLoader does, every 5 s: its main thread was said to move, and had no chain."""
    found = chain_of(Facts([who_asks()]), node("a"))
    assert found.waits_for.startswith("pipe:[9]") and set(found.unseen) == {2, 3} and found.end.state == "unknown"
    stuck = process("w2", python("stuck"), **NAP)
    stuck.pid = 2
    found = chains_of(Facts([who_asks(), stuck]))[0]
    assert (found.waiter, found.end.state) == (node("a"), "several") and "1 not read: 3" in found.end.why
    assert outlook(Facts([who_asks(), stuck]), node("a")).kind == "moves", "a chain names no culprit"
    served = Call("poll", [Source("listener", "connections to port 1", 9)], limited=True, seconds=1.0)
    loop = who_asks()
    loop.loops = [LoopState(1, node("a")[1])]
    gets = who_asks()
    gets.threads[0].asks_anew = False
    for well in (who_asks(held=()), loop, gets):
        assert chain_of(Facts([well]), node("a")).end.state == "moves"
    assert chain_of(Facts([who_asks(served)]), node("a")).end.state == "input"


def test_no_reader_is_a_culprit_where_an_unread_process_may_give():
    reads = Call("read", [Source("pipe", "pipe:[9]", 9)])
    for many, kind in (((2,), "sleeps"), ((2, 3), "answer")):
        main = process("a", python("main"), call=reads)
        main.pid, main.peers = 1, {9: [(1, False), *((pid, True) for pid in many)]}
        stuck = process("w2", python("stuck"), native=SLEEP, call=NAP["call"], for_good=True)
        stuck.pid, stuck.at_ends = 2, {("writes", 9): [node("w2")]}
        found = outlook(Facts([main, stuck]), node("a"))
        assert found.kind == kind, (many, found)


def test_a_chain_through_many_that_each_could_end_the_next_is_bounded():
    """300 threads that wait for items of each other went as deep as Python's own stack."""
    many = process("a", python("main"))
    for i in range(300):
        candidates = [("a", (13 * i + k) % 300) for k in range(40)]
        add(many, i, "w", Edge(("a", i), f"the Queue {i % 7}", "Queue", candidates=candidates, address=i % 7 + 1))
    facts = Facts([many])
    assert chain_of(facts, ("a", 1)).end.state == "several" and outlook(facts, ("a", 1)).kind == "unknown"


@pytest.mark.parametrize("how", [{}, {"shared": True}, {"limited": True}])
def test_threads_that_all_wait_in_private_futexes_are_stuck_for_good(how):
    frames = [
        *[Frame("native", name, "libgomp.so.1") for name in ("futex_wait", "gomp_team_barrier_wait_end")],
        *python("sum_up"),
    ]
    one = process("a", frames, call=Call("futex", futex=64, **how), role="")
    add(one, 7, "worker", frames=[Frame("native", "futex_wait", "libgomp.so.1")], python=False, call=Call("futex", futex=128))
    found = chain_of(Facts([one]), node("a"))
    assert "futex_wait <- gomp_team_barrier_wait_end (libgomp.so.1)" in found.waits_for and "sum_up" in found.waits_for
    assert (found.end.state == "nobody", judge([one]).kind == "starved") == ((not how,) * 2), found.end
    one.threads[1].call = Call("epoll", [Source("event", "anon_inode:[eventfd]")])  # it may be woken from outside
    assert chain_of(Facts([one]), node("a")).end.state == "unknown" and judge([one]).kind == "unknown"


def test_a_fork_that_lacks_the_threads_of_its_parent_says_so():
    parent = add(process("p", python("main"), call=Call("wait", peers=[2]), role=""), 7, "helper", call=Call("futex"))
    child = process("c", python("main"), call=Call("futex"), role="")
    parent.pid, child.pid, child.ancestors, parent.program, child.program = 1, 2, {1}, "x.py", "x.py"
    said = judge([parent, child])
    assert said.kind == "starved" and "c seems to be a fork of p, whose other threads were not copied" in said.evidence[-1]
    child.program = "y.py"
    assert "fork" not in judge([parent, child]).evidence[-1]
