"""Cycles and chains of a wait-for graph, and the exception table that tells what is on a value stack."""

import os
import random
import sys
from types import SimpleNamespace

import pytest

from gdbext.cpython.event_loops import EventLoop
from gdbext.cpython.locks import handler_depth
from gdbext.errors import GdbextError
from gdbext.observe import system_calls
from gdbext.stacks import async_waits, ipc_locks
from gdbext.stacks.threads import Frame, ThreadView
from gdbext.stacks.waits import Edge, cycles, root, sentence, tell_apart
from gdbext.verdict.facts import ThreadState


def edges(*pairs):
    return [Edge(a, f"lock {a}{b}", "Lock", b, address=i + 1) for i, (a, b) in enumerate(pairs)]


@pytest.mark.parametrize(
    "pairs,expected",
    [
        ((), []),
        (("ab", "bc"), []),
        (("ab", "ba"), ["ab"]),
        (("aa",), ["a"]),
        (("ab", "bc", "ca", "da"), ["abc"]),
        (("ab", "ba", "cd", "dc"), ["ab", "cd"]),
        (("ab", "bc", "cb"), ["bc"]),
        (("ab", "ac", "ca"), ["ac"]),
        (("ab", "ac", "ba", "ca"), ["ab", "ac"]),
    ],
)
def test_every_cycle_once(pairs, expected):
    assert sorted("".join(e.waiter for e in c) for c in cycles(edges(*pairs))) == expected


def test_descriptors_are_read_once_and_no_other_files_are_asked_about(tmp_path, monkeypatch):
    """However many locks are waited for: a file of a server that is gone is not asked about for its neighbours' sake."""
    paths = [str(tmp_path / name) for name in ("one", "two", "three", "other")]
    files = [open(path, "w") for path in paths]
    ways, asked = [], []
    real_ways, real_status = ipc_locks.all_descriptors, ipc_locks.file_status
    monkeypatch.setattr(ipc_locks, "all_descriptors", lambda: ways.append(1) or real_ways())
    monkeypatch.setattr(ipc_locks, "file_status", lambda path: asked.append(path) or real_status(path))
    found = ipc_locks.file_holders(paths[:3])
    led = {os.readlink(path) for path in asked if path.startswith("/proc/")}
    assert len(ways) == 1 and led == set(paths[:3]) and all(os.getpid() in opened for _, opened in found.values())
    for one in files:
        one.close()


def test_the_way_through_descriptors_ends_though_each_file_is_waited_for(monkeypatch):
    """A process that has a thousand of them open, each of a file server that does not answer."""
    clock = iter(range(1000))
    monkeypatch.setattr(system_calls.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(system_calls.os, "listdir", lambda path: ["1"] if path == "/proc" else list(map(str, range(1000))))
    monkeypatch.setattr(system_calls.os, "readlink", lambda path: "/mnt/lock")
    seen = []
    with pytest.raises(GdbextError, match="descriptors .* in 10 s"):
        seen.extend(system_calls.all_descriptors())
    assert len(seen) == system_calls.HOLDERS_SECONDS
    assert system_calls.holders_of([7]) == {}  # a pass that was cut short proves nothing


def test_a_long_chain_and_a_long_ring():
    ring = [(i, i + 1) for i in range(5000)]
    assert cycles(edges(*ring)) == []
    assert [len(c) for c in cycles(edges(*ring, (5000, 0)))] == [5001]


def test_against_brute_force():
    rng = random.Random(5)
    for _ in range(300):
        size = rng.randint(1, 7)
        out = {i: rng.randrange(size) for i in range(size) if rng.random() < 0.8}
        inside = set()
        for start in range(size):
            node = start
            for _ in range(size):
                node = out.get(node)
                if node == start:
                    inside.add(start)
        found = cycles(edges(*out.items()))
        assert {e.waiter for c in found for e in c} == inside and sum(len(c) for c in found) == len(inside)


def test_the_end_of_a_chain():
    all_ = edges("ab", "bc") + [Edge("c", "a queue", "Queue")]
    node, way = root(all_, "a")
    assert node == "c" and [e.lock for e in way] == ["lock ab", "lock bc", "a queue"]
    assert root(edges("ab", "ba"), "a")[0] == "a" and root(all_, "z") == ("z", [])


def test_a_cycle_is_a_sentence():
    text = sentence(cycles(edges("ab", "ba"))[0], str)
    assert text == "a waits for lock ab, which b holds; b waits for lock ba, which a holds: none of them can continue."
    assert sentence(cycles(edges("aa"))[0], str) == "a waits for lock aa, which it holds itself."


@pytest.mark.skipif(sys.version_info < (3, 11), reason="no exception table before 3.11")
def test_the_exception_table_is_read_as_python_reads_it():
    import dis

    def function(a, b):
        with a:
            for x in b:
                with x:
                    try:
                        print(x)
                    finally:
                        print(b)
        print(a)

    def truth(code, offset):
        entries = dis._parse_exception_table(code)
        return max((e.depth for e in entries if e.start <= offset < e.end), default=0)

    for code in (function.__code__, dis.dis.__code__, random.Random.sample.__code__):
        for offset in range(0, len(code.co_code), 2):
            assert handler_depth(code.co_exceptiontable, offset) == truth(code, offset)
    assert handler_depth(b"\xff\xff\xff", 0) == 0 and handler_depth(b"", 10) == 0


def test_a_timer_of_memory_that_was_freed_under_the_reader_is_not_late(monkeypatch):
    def loop(*whens):
        found = EventLoop(0x1000, "asyncio.unix_events._UnixSelectorEventLoop", 7)
        found.timers = [SimpleNamespace(when=when, cancelled=False) for when in whens]
        return found

    readings = []
    monkeypatch.setattr(async_waits, "event_loops", lambda rt, max_timers: [readings.pop(0)])
    target = SimpleNamespace(is_stopped=False, budgets={}, drop_pages=lambda: None)
    rt = SimpleNamespace(target=target, has_module=lambda names: "asyncio.tasks" in names)
    for first, second, late in (
        ((0.0, 105.0), (105.0,), (0, 0.0)),
        ((0.0, 98.0), (98.0,), (1, 2.0)),
        ((98.0,), (98.0,), (1, 2.0)),
    ):
        readings[:] = [loop(*first), loop(*second)]
        (state,) = async_waits._loop_states(rt, [], 100.0)
        assert (state.late, state.overdue) == late and not readings


@pytest.mark.parametrize(
    "native, state, idle",
    [
        ("__futex_abstimed_wait_common", "S", True),
        ("__futex_abstimed_wait_common", "R", True),  # a stop has woken it, and it has not had a processor since
        ("memcpy", "R", False),
        ("memcpy", "S", True),
        (None, "R", False),
    ],
)
def test_a_pools_worker_is_idle_by_where_it_stands(native, state, idle):
    thread = ThreadView(SimpleNamespace(tid=7, name="", state=state))
    thread.native = [Frame("native", native, "libc.so.6")] if native else []
    thread.python = [Frame("python", "_worker", "/lib/python3.11/concurrent/futures/thread.py")]
    thread.frames = [*thread.native, *thread.python]
    assert thread.idle is idle


@pytest.mark.parametrize(
    "native, python, idle",
    [
        (
            "__futex_abstimed_wait_common",
            [("Condition.wait", "threading.py"), ("Queue._feed", "multiprocessing/queues.py")],
            True,
        ),
        ("write", [("Connection._send", "multiprocessing/connection.py"), ("Queue._feed", "multiprocessing/queues.py")], False),
        ("__futex_abstimed_wait_common", [("Queue._feed", "multiprocessing/queues.py")], False),  # the lock of the pipe
        (
            "write",
            [("Connection._send", "multiprocessing/connection.py"), ("Pool._handle_tasks", "multiprocessing/pool.py")],
            False,
        ),
        (
            "read",
            [("Connection._recv", "multiprocessing/connection.py"), ("Pool._handle_results", "multiprocessing/pool.py")],
            True,
        ),
        ("write", [], False),
        ("epoll_wait", [], True),
    ],
)
def test_a_helper_that_gives_something_is_not_idle(native, python, idle):
    thread = ThreadView(SimpleNamespace(tid=7, name="", state="S"))
    thread.native = [Frame("native", native, "libc.so.6")]
    thread.python = [Frame("python", function, f"/lib/python3.11/{file}") for function, file in python]
    thread.frames = [*thread.native, *thread.python]
    assert thread.idle is idle


def test_who_takes_a_lock_in_turn_is_in_no_ring():
    """As seen on two processes that wrote to one SQLite database by turns: each "had" it, at the moment at which it was asked."""

    def edge(waiter, owner, path="x.db", **more):
        return Edge((waiter, 1), f"the lock of the SQLite database {path}", "Lock", (owner, 1), polls=True, **more)

    turns, held, two = (
        [edge("a", "b"), edge("b", "a")],
        [edge("a", "c"), edge("b", "c")],
        [edge("a", "b"), edge("b", "a", "y.db")],
    )
    for edges, owners in ((turns, [None, None]), (held, [("c", 1)] * 2), (two, [("b", 1), ("a", 1)])):
        ipc_locks._drop_turns(edges)
        assert [one.owner for one in edges] == owners
    assert len(cycles(two)) == 1 and not cycles(turns)
    for in_one_call in (True, False):  # SQLite asks within one call: a thread that moved was through it
        waiter = ThreadState(("a", 1), moved=True, edge=edge("a", "b", in_one_call=in_one_call))
        assert waiter.held_up is not in_one_call


def test_locks_that_are_called_the_same_say_where_they_lie():
    """Drawn: a few names over a few addresses. Only where two locks have one name does each say where it lies."""
    rng = random.Random(1129)
    for _ in range(200):
        drawn = [(rng.choice("xyz"), rng.choice([0, 0x10, 0x100, 0x1000])) for _ in range(rng.randrange(1, 8))]
        waits = [Edge(("a", n), f"the Lock {name}", "Lock", address=place) for n, (name, place) in enumerate(drawn)]
        tell_apart(waits)
        once = [edge.lock for edge in waits]
        tell_apart(waits)
        assert once == [edge.lock for edge in waits]
        for (name, place), said in zip(drawn, once):
            others = {there for called, there in drawn if called == name} - {place, 0}
            assert said == f"the Lock {name}" + (f" ({place:#x})" if place and others else "")
