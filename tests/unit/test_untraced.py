"""What is told of an engine that may not be traced: its own HTTP end points, and words for what /proc says."""

import contextlib
import http.server
import os
import socket
import threading
from types import SimpleNamespace

import pytest

from gdbext.engines import endpoints, listeners, profiler
from gdbext.engines.registry import ENGINES
from gdbext.errors import GdbextError
from gdbext.observe import outside
from gdbext.observe.outside import Outside, file_locks
from gdbext.observe.system_calls import Source
from gdbext.verdict import untraced
from gdbext.verdict.facts import Facts, ProcessState
from gdbext.verdict.rules import untraced as rules

METRICS = """# HELP vllm:num_requests_running Number of requests.
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0"} 4
vllm:num_requests_running_more 9
vllm:prompt_tokens_total{engine="0"} 12
vllm:generation_tokens_total{engine="0"} 5.0
"""


class Answers(http.server.BaseHTTPRequestHandler):
    """A server that answers as an engine's does."""

    def do_GET(self):
        found = {"/health": (200, ""), "/metrics": (200, METRICS)}.get(self.path, (404, ""))
        self.send_response(found[0])
        self.end_headers()
        self.wfile.write(found[1].encode())

    def log_message(self, *words):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answers) as one:
        thread = threading.Thread(target=one.serve_forever, daemon=True)
        thread.start()
        yield one.server_address[1]
        one.shutdown()
        thread.join()


PATTERN = next(spec.metrics for spec in ENGINES if spec.name == "vllm")


def test_requests_are_counted_by_the_engines_own_metrics(server):
    found = endpoints.ask(os.getpid(), server, PATTERN)
    assert found == {
        "port": server,
        "health": 200,
        "metrics": {"vllm:num_requests_running": 3.0, "vllm:num_requests_waiting": 4.0},
        "tokens": 17.0,
        "moved": None,
        "unread": None,
    }


def made(folder, who, inode, user):
    (folder / str(who) / "net").mkdir(parents=True)
    row = f"   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000  {user}  0 {inode} 1 0 100 0 0 10 0\n"
    (folder / str(who) / "net" / "tcp").write_text("  sl  local_address …\n" + row)
    (folder / str(who) / "status").write_text(f"Name:\tx\nUid:\t{os.getuid()}\t{os.getuid()}\n")


@pytest.mark.parametrize("inode, user, port", [(99, os.getuid(), 8000), (7, os.getuid() + 1, 8000), (7, os.getuid(), 8001)])
def test_nobody_is_asked_but_the_engines_user_in_this_network_namespace(tmp_path, inode, user, port, monkeypatch):
    made(tmp_path, "self", 7, os.getuid())
    made(tmp_path, 5, inode, user)
    monkeypatch.setattr(endpoints, "get", lambda *words: pytest.fail("it was asked"))
    assert endpoints.ask(5, port, PATTERN, str(tmp_path)) is None


def test_a_server_that_does_not_answer_is_told(tmp_path, monkeypatch):
    made(tmp_path, "self", 7, os.getuid())
    made(tmp_path, 5, 7, os.getuid())
    monkeypatch.setattr(endpoints, "get", lambda row, path: ("no answer in 2 s", ""))
    assert endpoints.ask(5, 8000, PATTERN, str(tmp_path)) == {
        "port": 8000,
        "health": "no answer in 2 s",
        "metrics": {},
        "tokens": None,
        "moved": None,
        "unread": None,
    }


@pytest.mark.parametrize("reads, left", [(False, True), (True, False)])
def test_a_request_that_nobody_reads_is_counted_by_the_kernel(reads, left, monkeypatch):
    monkeypatch.setattr(endpoints, "SECONDS", 0.5)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while reads and not over.is_set():
                with contextlib.suppress(OSError):
                    client = listening.accept()[0]
                    client.recv(1 << 16)  # and says nothing
                    held.append(client)

        held = []
        threading.Thread(target=serve, daemon=True).start()
        row = next(row for row in listeners.rows() if row.listens and row.port == listening.getsockname()[1])
        assert bool(endpoints.unread(row)) == left
        over.set()


def engine(deaf, moved, role="api-server"):
    one = ProcessState("API", role, pid=7, deaf=deaf, family="e")
    one.window.seconds, one.outside = 8.0, Outside(7, "python", "S", ran=0.0, moved=moved)
    one.reach = {7: one.outside}
    return Facts([one])


@pytest.mark.parametrize(
    "facts, accused", [(engine(True, False), True), (engine(True, True), False), (engine(False, False), False)]
)
def test_a_server_that_reads_nothing_and_does_not_run_stands(facts, accused):
    said = rules.waits(facts)
    assert (said.kind, said.culprits) == ("loop-blocked", [("API", None)]) if accused else said is None or not said.culprits


@pytest.mark.parametrize("begin", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: "])
def test_a_server_that_answers_a_drop_at_a_time_is_not_waited_for(begin, monkeypatch):
    """Each drop comes within the socket's own limit."""
    monkeypatch.setattr(endpoints, "SECONDS", 0.5)
    over = threading.Event()

    def drip(listening):
        with listening.accept()[0] as client, contextlib.suppress(OSError):
            client.sendall(begin)
            for _ in range(600):  # ends some day, so that who waits is found out
                client.sendall(b"x")
                if over.wait(0.05):
                    break

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=drip, args=(listening,), daemon=True)
        server.start()
        row = next(row for row in listeners.rows() if row.listens and row.port == listening.getsockname()[1])
        assert endpoints.get(row, "/metrics") == ("no answer in 0.5 s", "")
        over.set()
        server.join()
        server = threading.Thread(target=drip, args=(listening,), daemon=True)
        over.clear()
        server.start()
        if begin.endswith(b"X: "):
            with pytest.raises(GdbextError, match="gave no answer to /stop_profile in 0.5 s"):
                profiler.ask(row, "POST", "/stop_profile", 0.5)
        else:
            assert profiler.ask(row, "POST", "/stop_profile", 0.5) == 200
        over.set()
        server.join()


@pytest.mark.parametrize(
    "words, port",
    [("serve m", 8000), ("serve --port 9", 9), ("--port=77 serve", 77), ("--port", 0), ("--port x", 0), ("--port 70000", 0)],
)
def test_the_port_is_the_command_lines(words, port):
    assert endpoints.port_of(words.split(), 8000) == port


def test_words_for_what_proc_tells():
    thread = {"tid": 7, "name": "main", "state": "S", "cpu": 0.0, "woke": 0, "wchan": "futex_wait"}
    busy = {"tid": 8, "name": "loop", "state": "R", "cpu": 0.98, "woke": 0, "wchan": None}
    late = {"tid": 9, "name": "new", "state": "S", "cpu": None, "woke": None, "wchan": None}
    woke = {**thread, "tid": 10, "woke": 3}
    one = {"label": "EngineCore", "pid": 7, "state": "S", "seconds": 1.0, "threads": [thread, busy, late, woke]}
    assert untraced.lines(one) == [
        "EngineCore may not be traced; this is from /proc, in 1.0 s: 1 of 4 threads ran, 1 woke and slept, 2 did not run",
        "  8 loop: 98 % CPU",
        "  7 main, its main thread: sleeps in futex_wait",
    ]


def ranks(*shares, role="worker", pp=1, stands=True):
    found = []
    for i, share in enumerate(shares):
        one = ProcessState(f"TP{i}", role, pid=100 + i, stands=stands, family="e")
        one.window.seconds = 8.0
        one.outside = Outside(100 + i, "python", "S", ran=8.0 * share, moved=share > 0)
        one.rank = SimpleNamespace(sizes={"pp": pp})
        one.reach = {one.pid: one.outside}
        found.append(one)
    return Facts(found)


@pytest.mark.parametrize(
    "facts, late",
    [
        (ranks(1.0, 1.0, 0.0, 1.0), "TP2"),  # as NCCL waits
        (ranks(0.0, 0.99, 0.01), "TP1"),  # as gloo waits
        (ranks(1.0, 0.0), None),  # two: either may be it
        (ranks(1.0, 0.0, 0.0, 1.0), None),
        (ranks(1.0, 1.0, 0.1, 1.0), None),  # it does something
        (ranks(1.0, 1.0, 0.0, 1.0, pp=4), None),
        (ranks(1.0, 1.0, 0.0, 1.0, stands=False), None),
        (ranks(1.0, 1.0, 0.0, 1.0, role="router"), None),
        (ranks(0.0, 0.0, 0.0), None),
    ],
)
def test_the_rank_that_differs_is_late_where_requests_stand(facts, late):
    said = rules.waits(facts)
    assert (said.culprits if said is not None else []) == ([(late, None)] if late else [])


LOCKS = """1: POSIX  ADVISORY  WRITE 11 fe:00:21 0 EOF
2: FLOCK  ADVISORY  WRITE 12 fe:00:22 0 EOF
2: -> FLOCK  ADVISORY  WRITE 13 fe:00:22 0 EOF
3: OFDLCK ADVISORY  WRITE -1 fe:00:23 0 EOF
3: -> POSIX  ADVISORY  WRITE 14 fe:00:23 0 EOF
4: FLOCK  ADVISORY  READ 15 fe:00:24 0 EOF
4: FLOCK  ADVISORY  READ 16 fe:00:24 0 EOF
4: -> FLOCK  ADVISORY  WRITE 17 fe:00:24 0 EOF
"""


def test_who_waits_for_a_file_lock_and_who_has_it():
    rows = [line.split() for line in LOCKS.splitlines()]
    assert file_locks(rows) == {13: [12], 17: [15, 16]}


def asked(*processes, of=1):
    """Facts of the first `of` of some processes, all of which can be seen, in a window of a second."""
    found = []
    for one in processes[:of]:
        state = ProcessState(f"TP{one.pid}", "worker", pid=one.pid, family="e")
        state.window.seconds, state.outside, state.reach = 1.0, one, {other.pid: other for other in processes}
        found.append(state)
    return Facts(found)


def still(pid, does, *ends, **more):
    return Outside(pid, "python", "S", does=does, ran=0.0, moved=False, ends=list(ends), **more)


@pytest.mark.parametrize(
    "sleeper, own, culprit", [(None, False, []), (None, True, []), (17, True, []), (17, False, [("TP17", None)])]
)
def test_processes_that_inherited_all_ends_are_walked_once(sleeper, own, culprit, monkeypatch):
    """As workers of a loader: each has each other's pipes, so that each may end each wait."""
    walked, say = [], rules._wait
    monkeypatch.setattr(rules, "_wait", lambda *words: walked.append(1) or say(*words))
    pids = range(1, 33)
    all_of_them = [still(pid, "reads", *(other for other in pids if other != pid), own=own) for pid in pids]
    if sleeper is not None:
        all_of_them[sleeper - 1] = still(sleeper, "sleeps")
    said = rules.waits(asked(*all_of_them, of=32))
    assert len(walked) <= 32 * 32 and len(said.evidence) <= 3 * 32
    assert said.culprits == culprit


@pytest.mark.parametrize("does, accused", [("polls", False), ("reads", True), ("sleeps", True), ("waits for a lock", True)])
def test_nobody_is_starved_by_one_short_window(does, accused, monkeypatch):
    """A loop that polls has timers too; a read of its own wakeup pipe, or a lock of its own, may end at any time."""
    monkeypatch.setattr(rules, "other_waits", lambda pid: False)
    said = rules.waits(asked(still(1, "reads", 2), still(2, does, own=does in ("polls", "reads"))))
    assert said.culprits == ([("python (2)", None)] if accused else [])
    if accused:
        assert (said.kind, said.again, said.longer) == ("starved", True, rules.NAP)


def test_a_loop_between_two_waits_owes_nothing_by_its_timers():
    """Its child sleeps, and it watches a timer and that child: neither is why it does nothing."""
    said = rules.waits(asked(still(1, "reads", 2), still(2, "polls", 3, own=True, whole=False), still(3, "sleeps")))
    assert said is None or not said.culprits


SELF = Source("unix", "a Unix socket", 5, peers=[6])
TIMER = Source("event", "anon_inode:[timerfd]", comes=True)


@pytest.mark.parametrize(
    "more, whole, ends, exact",
    [
        ([], True, [], True),
        ([Source("event", "anon_inode:[eventfd]")], True, [], False),
        ([TIMER], False, [], False),
        ([Source("event", "anon_inode:inotify", comes=True)], False, [], False),
        ([Source("child", "the end of process 9", peers=[9])], True, [9], False),
        ([Source("child", "the end of process 8", peers=[8])], True, [], False),  # which has ended
        ([Source("child", "the end of process 9", peers=[9]), TIMER], False, [9], False),
    ],
)
@pytest.mark.parametrize("place", ["ep_poll", "do_poll.constprop.0"])
def test_what_a_loop_watches_beside_sockets_counts(more, whole, ends, exact, place, monkeypatch):
    sources = {4: SELF, **dict(enumerate(more, 10))}
    links = [(fd, one.text if one.text.startswith("anon") else "anon_inode:[pidfd]") for fd, one in sources.items() if fd > 4]
    files = SimpleNamespace(watched=lambda: list(sources.values()), source=sources.__getitem__)
    monkeypatch.setattr(outside, "Files", lambda pid: files)
    monkeypatch.setattr(outside, "descriptors", lambda pid: [(4, "socket:[5]"), *links])
    machine = outside.Machine.__new__(outside.Machine)
    machine.table = SimpleNamespace(processes={8: SimpleNamespace(pid=8, state="Z"), 9: SimpleNamespace(pid=9, state="S")})
    machine.asking, machine._holders = set(), {6: [(7, 3)]}
    one = Outside(7, does="polls", place=place)
    machine._follow(one)
    event = [other for other in more if other.kind == "event" and not other.comes]
    assert (one.own, one.whole, one.ends) == (True, whole, ends)
    assert one.exact is (exact or place.startswith("do_poll") and bool(event))
