"""The engine's profiler by HTTP: the server is found by its listening socket, and what it answers is told."""

import http.server
import os
import threading
import types

import pytest

from gdbext.engines import profiler
from gdbext.errors import GdbextError


class Handler(http.server.BaseHTTPRequestHandler):
    asked, status = [], 200

    def do_POST(self):
        self.asked.append(self.path)
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    Handler.asked, Handler.status = [], 200
    one = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=one.serve_forever)
    thread.start()
    yield one.server_address[1]
    one.shutdown()
    thread.join()
    one.server_close()


def rank(engine="vllm", role="frontend"):
    return types.SimpleNamespace(pid=os.getpid(), ppid=1, engine=engine, role=role, label="TP0")


def test_the_server_of_a_rank_is_asked_to_start_and_to_stop(server, monkeypatch):
    assert server in profiler.listening(os.getpid())
    monkeypatch.setattr(profiler, "servers", lambda ranks: [(os.getpid(), server)])
    assert profiler.switch([rank()], "start")[0] == server and profiler.switch([rank("sglang")], "stop")[0] == server
    assert Handler.asked == ["/start_profile", "/stop_profile"]


@pytest.mark.parametrize("status, word", [(404, "answers without it"), (500, "answered 500")])
def test_a_server_that_cannot_says_what_to_do(server, monkeypatch, status, word):
    Handler.status = status
    monkeypatch.setattr(profiler, "servers", lambda ranks: [(os.getpid(), server)])
    with pytest.raises(GdbextError, match=word) as caught:
        profiler.switch([rank()], "start")
    assert "--profiler-config" in str(caught.value) and "\n" not in str(caught.value)


def test_no_server_and_no_known_engine():
    with pytest.raises(GdbextError, match="llm-stacks"):
        profiler.switch([rank("lmdeploy")], "start")
    assert profiler.ask(1, "/start_profile") is None
    assert profiler.listening(2**22 + 1) == []
