"""What is told of an engine that may not be traced: its own HTTP end points, and words for what /proc says."""

import contextlib
import http.server
import os
import socket
import threading

import pytest

from gdbext.engines import endpoints, listeners, profiler
from gdbext.engines.registry import ENGINES
from gdbext.errors import GdbextError
from gdbext.verdict import untraced

METRICS = """# HELP vllm:num_requests_running Number of requests.
vllm:num_requests_running{engine="0",model_name="m"} 2.0
vllm:num_requests_running{engine="1",model_name="m"} 1.0
vllm:num_requests_waiting{engine="0"} 4
vllm:num_requests_running_more 9
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
    assert endpoints.ask(5, 8000, PATTERN, str(tmp_path)) == {"port": 8000, "health": "no answer in 2 s", "metrics": {}}


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
