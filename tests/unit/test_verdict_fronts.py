"""What is not served, on facts made up here: exchanges before the engine, connections that wait to be accepted, unread bytes,
ends of pipes that a process merely inherited. Nothing of that is idle."""

import copy
from types import SimpleNamespace

import pytest
from harness.facts import EPOLL, add, node, process, python

from gdbext.engines import exchanges
from gdbext.engines.sightings import HTTP, Exchange, Look, Sighting
from gdbext.observe.system_calls import Call, Source
from gdbext.requests.join import join
from gdbext.requests.model import MOVING
from gdbext.stacks.async_waits import LoopState, TaskState
from gdbext.stacks.threads import Frame
from gdbext.stacks.waits import Edge
from gdbext.verdict.chains import chain_of_request
from gdbext.verdict.facts import Facts
from gdbext.verdict.judge import judge_group as judge

UVICORN, POOL = "/x/uvicorn/protocols/http/h11_impl.py", "/x/concurrent/futures/thread.py"
LISTENER = Source("listener", "connections to port 8000", 5, unread=1, tcp=True)


def listens(**more):
    return process("s", python("accept"), ("accept",), role="", call=Call("accept", [Source("listener", "port", 5)]), **more)


# ---- exchanges -----------------------------------------------------------------------------------------------------------
def stack(*places):
    return [Frame("python", function, file, 1) for function, file in places]


@pytest.mark.parametrize(
    ("frames", "name"),
    [
        (stack(("handler", "/x/app.py"), ("RequestResponseCycle.run_asgi", UVICORN)), "uvicorn"),
        (stack(("handler", "/x/app.py"), ("run_asgi", "/x/mine.py")), ""),
        (stack(("RequestHandler.start", "/x/aiohttp/web_protocol.py")), ""),  # kept alive: no request
        (stack(("h", "/x/app.py"), ("RequestHandler._handle_request", "/x/aiohttp/web_protocol.py")), "aiohttp"),
        (stack(("do_GET", "/x/app.py"), ("BaseHTTPRequestHandler.handle_one_request", "/lib/http/server.py")), "http.server"),
        (stack(("SocketIO.readinto", "/lib/socket.py"), ("handle_one_request", "/lib/http/server.py")), ""),
        (stack(("handler", "/x/app.py"), ("_handle", "/x/hypercorn/asyncio/task_group.py")), "hypercorn"),
        (stack(("app", "/x/app.py"), ("_future_watcher_wrapper.<locals>.future_watcher", "/x/granian/_futures.py")), "granian"),
    ],
)
def test_a_request_begins_where_the_server_library_serves_it(frames, name):
    found = exchanges.served(frames)
    assert (found[0].name if found else "") == name


def test_who_waits_for_its_client_owes_nothing():
    inner = ("Event.wait", "/lib/asyncio/locks.py"), ("RequestResponseCycle.receive", UVICORN)
    assert exchanges.waits_for_client(stack(*inner, ("body", "/x/starlette/requests.py"), ("run_asgi", UVICORN)))
    assert not exchanges.waits_for_client(stack(inner[0], ("handler", "/x/app.py"), ("run_asgi", UVICORN)))


def front(pool=True, **sighting):
    exchange = Exchange("uvicorn", "POST /v1/completions", "127.0.0.1:4711", "Task-20", 7, "tokenize (base.py:3)")
    exchange.pool = [(900, "encode (slow.py:15)")] if pool else []
    one = Sighting("http:127.0.0.1:4711", HTTP, "POST /v1/completions in the front end", exchange=exchange, **sighting)
    return Look("s", 1, "frontend", ("frontend",), [one])


def test_an_exchange_is_a_request_and_accuses_nothing():
    (one,) = join([front(progress=(1,))], [front(progress=(1,))])
    assert (one.verdict, one.holder, one.at.tid) == ("", None, 900)
    assert "Task-20" in one.evidence[0] and "encode (slow.py:15)" in one.evidence[1]
    assert join([front(progress=(2,))], [front(progress=(1,))])[0].verdict == MOVING
    assert not join([front()], [Look("s", 1, "frontend", ("frontend",))])  # it has just come


def server(requests, culprit=None):
    """A front end at rest in its loop, a task of which waits for the one thread of a pool."""
    f = process("s", python("run"), EPOLL, role="frontend", call=Call("epoll", [Source("listener", "port 8000", 5)]))
    f.pid, f.family, f.engine, f.requests = 1, 1, "vllm", requests
    f.loops = [LoopState(1, f.main.node[1])]
    task = TaskState(("s", "task Task-20"), "Task-20", "waiting", 1, stack(("tokenize", "/x/base.py"), ("run_asgi", UVICORN)))
    task.address, task.kind, task.text = 7, "executor", "a thread or process pool"
    task.edge = Edge(task.node, task.text, "Future", ("s", 900))
    f.tasks = [task]
    return add(f, 900, "pool", frames=stack(("encode", "/x/slow.py"), ("_worker", POOL)), **(culprit or {}))


def test_an_engine_is_not_idle_while_an_exchange_is_open():
    requests = join([front(progress=(1,))], [front(progress=(1,))])
    pipe = {"call": Call("read", [Source("pipe", "pipe:[9]", 9)])}
    at_rest = server([])
    at_rest.tasks = []
    assert judge([at_rest]).kind == "idle"
    assert judge([server([], pipe)]).kind == "unknown"  # its look missed it, its task is there
    said = judge([server(requests, pipe)])
    assert said.kind == "unknown" and any("encode (slow.py:15)" in line for line in said.evidence), said.evidence
    kept_back = SimpleNamespace(verdict="parked", paused=True, request_id="a", waits_for="the engine, which is paused")
    assert judge([server([kept_back], pipe)]).kind == "idle"  # that exchange is the request's
    two = server([kept_back], pipe)
    two.tasks.append(copy.copy(two.tasks[0]))
    assert judge([two]).kind == "unknown"  # and the other one is nobody's
    chain = chain_of_request(Facts([server(requests, pipe)]), requests[0])
    assert chain.waiter == ("s", "task Task-20") and ("s", 900) in chain.nodes


def test_a_server_with_a_task_that_asks_for_its_end_rests():
    """As SGLang's sigterm_watchdog beside uvicorn's main_loop."""
    f = server([])
    main = TaskState(("s", "task Task-1"), "Task-1", "waiting", 1, stack(("main_loop", UVICORN)))
    main.kind, main.text = "sleep", "sleep(0.1)"
    asks = TaskState(("s", "task Task-6"), "Task-6", "waiting", 1, stack(("watchdog", "/x/base.py")))
    asks.edge = Edge(asks.node, "a change of self.end", "Flag")
    asks.edge.polls = True
    f.tasks, f.threads = [main, asks], f.threads[:1]
    main.loop = asks.loop = f.loops[0].address
    f.loops[0].main = main.node
    assert judge([f]).kind == "idle"
    f.requests = None  # whose requests are not known
    assert judge([f]).kind == "unknown"


def test_a_stuck_thread_of_a_pool_keeps_exchanges_one_at_work_does_not():
    requests = join([front(progress=(1,))], [front(progress=(1,))])
    asleep = judge([server(requests, {"call": Call("nanosleep", seconds=3600)})])
    assert (asleep.kind, asleep.culprits) == ("stuck-requests", [("s", 900)])
    assert judge([server(requests, {"call": Call("nanosleep", seconds=5)})]).kind == "unknown"
    assert judge([server(requests, {"moved": True, "advanced": True, "load": 0.9, "wanted": 0.9})]).kind == "unknown"


def test_who_has_no_descriptor_for_a_connection_is_neither_idle_nor_busy():
    """uvloop takes each that comes and closes it at once; asyncio accepts in vain, over and over."""
    f = server([])
    f.tasks, f.threads = [], f.threads[:1]
    f.short, f.listens = ["30 of 25 descriptors are open: it can open no more (RLIMIT_NOFILE)"], True
    said = judge([f])
    assert said.kind == "unknown" and f"s: {f.short[0]}" in said.evidence
    f.short = ["24 of 25 descriptors are open: it can open 1 more (RLIMIT_NOFILE)"]
    assert judge([f]).kind == "idle"
    spins = process("p", python("accept"), role="", moved=True, advanced=True, load=0.5, wanted=0.5)
    assert judge([spins]).kind == "busy"
    spins.short, spins.listens = ["7 of 7 descriptors are open: it can open no more (RLIMIT_NOFILE)"], True
    assert judge([spins]).kind == "unknown"


# ---- connections ---------------------------------------------------------------------------------------------------------
def test_one_connection_that_waits_or_unread_bytes_are_not_idle():
    assert judge([listens()]).kind == "idle"
    waits = listens()
    waits.waiting = [LISTENER]
    said = judge([waits])
    assert said.kind == "unknown" and "s: 1 connection to port 8000 waits to be accepted" in said.evidence
    unread = listens()
    unread.waiting = [Source("served", "a client's connection to port 8000", 6, unread=80, tcp=True)]
    assert judge([unread]).kind == "unknown"


def behind(client=None, **more):
    reads = Call("recv", [Source("served", "a client's connection to port 8000", 6, [7], tcp=True, far="127.0.0.1:4711")], **more)
    one = process("s", python("readinto"), ("read",), role="", call=reads)
    one.pid, one.waiting, one.waited = 1, [LISTENER], {5}
    one.peers = {5: [(1, True)], 7: [(2, True)]}
    return [one, client] if client is not None else [one]


def mute(**more):
    found = process("c", python("main"), role="", **{"call": Call("nanosleep", seconds=10**6), **more})
    found.pid = 2
    return found


def test_connections_wait_behind_one_client_that_says_nothing():
    said = judge(behind(mute()))
    assert (said.kind, said.culprits, said.again) == ("starved", [node("c")], True)
    assert any("127.0.0.1:4711" in line for line in said.evidence)
    assert judge(behind()).culprits == []  # the client was not looked at
    assert judge(behind(mute(moved=True, advanced=True, load=0.5))).kind != "starved"
    assert judge(behind(mute(), limited=True)).kind != "starved"  # it ends by itself
    came = behind(mute())
    came[0].waited = set()
    assert judge(came).kind != "starved"
    elsewhere = behind(mute())
    elsewhere[0].peers[5] = [(1, True), (3, True)]  # another process may accept
    assert judge(elsewhere).kind != "starved"
    add(came[0], 9, "accepts", call=Call("accept", [Source("listener", "connections to port 8000", 5)]))
    came[0].waited = {5}
    assert judge(came).kind != "starved"


def test_a_client_that_a_resting_server_has_not_accepted_is_not_idle():
    def said(text, does="poll"):
        client = process("c", python("read"), ("recv",), role="", call=Call(does, [Source("client", text, 7, [5], tcp=True)]))
        client.pid, client.peers, served = 2, {5: [(1, True)]}, listens()
        served.pid = 1
        return judge([served, client]).kind

    assert said("its connection to port 8000") == "idle"
    assert said("its connection to port 8000, not accepted yet") == "unknown"
    assert said("its connection to port 8000", "recv") == "unknown"  # an answer may be owed


# ---- ends of pipes -------------------------------------------------------------------------------------------------------
def piped(*others):
    """One that reads a pipe, of which `others` have the end for writing."""
    reads = process("r", python("main"), ("read",), role="", call=Call("read", [Source("pipe", "pipe:[9]", 9)]))
    reads.pid, reads.peers = 10, {9: [(one.pid, True) for one in others]}
    return [reads, *others]


def holder(name, pid, uses, **main):
    found = process(name, python("main"), role="", **main)
    found.pid, found.at_ends = pid, {("writes", 9): [node(name)]} if uses else {}
    return found


def rests(name, pid, uses):
    return holder(name, pid, uses, call=Call("accept", [Source("listener", "port", 3)]))


def test_all_that_give_to_a_pipe_must_rest_inheritors_give_nothing():
    stuck = {"call": Call("futex", shared=True)}
    assert judge(piped(rests("a", 1, True))).kind == "idle"
    assert judge(piped(rests("a", 1, True), rests("b", 2, False))).kind == "idle"
    assert judge(piped(rests("a", 1, False), holder("g", 2, True, **stuck))).kind == "unknown"
    assert judge(piped(rests("a", 1, True), holder("g", 2, True, **stuck))).kind == "unknown"
    missing = piped(rests("a", 1, True))
    missing[0].peers[9].append((77, True))  # not looked at
    assert judge(missing).kind == "unknown"


def test_an_heir_that_sleeps_starves_nobody_where_somebody_else_may_give():
    sleeps = {"call": Call("nanosleep", seconds=10**6), "for_good": True}
    assert judge(piped(holder("g", 1, True, **sleeps))).kind == "starved"
    assert judge(piped(holder("h", 1, False, **sleeps))).kind == "starved", "nobody else has that end"
    own = piped(holder("h", 1, False, **sleeps))
    own[0].peers[9].append((10, True))  # the reader itself has it, for those that it starts
    assert judge(own).kind == "unknown"
    named = piped(holder("h", 1, False, **sleeps))
    named[0].main.call.sources[0].text = "/tmp/control"  # whoever sees the file may open it
    assert judge(named).kind == "unknown"
