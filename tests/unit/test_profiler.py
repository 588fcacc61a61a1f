"""The engine's profiler by HTTP, on a made-up server in this process (tests/engines asks real ones): found by its listening
socket, and what it answers is result_text."""

import http.server
import json
import os
import socket
import threading
import types

import pytest

from gdbext.commands.llm_profile import LlmProfile, _chosen, result_text
from gdbext.engines import listeners, profiler
from gdbext.engines.registry import SPECS
from gdbext.errors import GdbextError
from gdbext.session.command import UsageError


class FakeServer(http.server.BaseHTTPRequestHandler):
    asked, bodies, status, writes = [], [], 200, None

    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def do_POST(self):
        self.asked.append(self.path)
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        if self.writes:
            with open(self.writes, "w") as f:
                f.write("{}")
        self.send_response(self.status)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    FakeServer.asked, FakeServer.bodies, FakeServer.status, FakeServer.writes = [], [], 200, None
    one = http.server.HTTPServer(("127.0.0.1", 0), FakeServer)
    thread = threading.Thread(target=one.serve_forever)
    thread.start()
    yield one.server_address
    one.shutdown()
    thread.join()
    one.server_close()


def rank(engine="vllm", role="frontend", label="TP0", family=0):
    return types.SimpleNamespace(
        pid=os.getpid(), engine=engine, role=role, label=label, family=family, runs_model=role == "worker"
    )


def row_of(port):
    """The row of this process's own socket."""
    return next(row for row in listeners.rows() if row.listens and row.port == port)


FAMILY = [rank(), rank(role="worker"), rank(role="worker", label="TP1")]


@pytest.fixture
def only(server, monkeypatch):
    """This process listens there alone."""
    monkeypatch.setattr(profiler.listeners, "of_process", lambda pid: [row_of(server[1])])
    return server


def test_all_ranks_of_the_engine_are_started_and_stopped(only, monkeypatch, tmp_path):
    monkeypatch.setattr(profiler, "_folder", lambda profiler, rank: str(tmp_path))
    (done,), failed = profiler.switch(FAMILY[1:2], FAMILY, "start")
    assert [r.label for r in done.ranks] == ["TP0", "TP1"] and done.port == only[1] and failed == [] and done.files == []
    assert result_text(done, "start") == f"profiler started on TP0, TP1 (port {only[1]}); traces land in {tmp_path}"
    FakeServer.writes = str(tmp_path / "rank0.pt.trace.json")
    (done,), _ = profiler.switch(FAMILY[1:2], FAMILY, "stop")
    assert done.files == [FakeServer.writes] and result_text(done, "stop").splitlines()[1] == "  " + FakeServer.writes
    assert FakeServer.asked == ["/start_profile", "/stop_profile"]


def test_options_reach_the_end_point_that_takes_them_or_are_refused(only, tmp_path):
    args = LlmProfile.parse(f"-activities cpu,GPU -steps 3 -o {tmp_path} -stage start TP0")
    family = [rank("sglang"), rank("sglang", "worker")]
    (done,), _ = profiler.switch(family, family, "start", _chosen(args))
    assert done.folder == str(tmp_path)
    assert result_text(done, "start", _chosen(args)).endswith(f"{tmp_path}; it ends by itself after 3 steps of each stage")
    assert FakeServer.bodies == [
        {"activities": ["CPU", "GPU"], "num_steps": 3, "output_dir": str(tmp_path), "profile_by_stage": True}
    ]
    with pytest.raises(GdbextError, match=r"does not take -activities, -o, -stage \(of llm-profile's options: -steps\)"):
        profiler.switch(FAMILY, FAMILY, "start", _chosen(args))
    with pytest.raises(UsageError, match="-stage goes with -steps N"):
        _chosen(LlmProfile.parse("-stage start TP0"))
    profiler.switch(FAMILY, FAMILY, "start", {"steps": 2})
    assert FakeServer.bodies[1] == {"max_iterations": 2}


@pytest.mark.parametrize("status, word", [(404, "answers without it"), (500, "answered 500")])
def test_a_server_that_cannot_says_what_to_do(only, status, word):
    FakeServer.status = status
    with pytest.raises(GdbextError, match=word) as caught:
        profiler.switch(FAMILY, FAMILY, "start")
    assert "--profiler-config" in str(caught.value) and "\n" not in str(caught.value)


def test_one_engine_of_two_is_started_and_the_other_named(only):
    other = [rank("sglang", "scheduler", "scheduler", family=1)]
    done, failed = profiler.switch(FAMILY + other, FAMILY + other, "start")
    assert len(done) == 1 and len(failed) == 1 and failed[0].startswith("sglang: no HTTP server of it was found")


def test_what_speaks_no_http_is_not_asked_a_silent_one_is_reported(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as silent:
        row = row_of(silent.getsockname()[1])
        monkeypatch.setattr(profiler.listeners, "of_process", lambda pid: [row])
        monkeypatch.setattr(profiler, "PROBE", 0.1)
        with pytest.raises(GdbextError, match="no HTTP server"):
            profiler.switch(FAMILY, FAMILY, "start")
        with pytest.raises(GdbextError, match="gave no answer to /stop_profile in 0.1 s"):
            profiler.ask(row, "POST", "/stop_profile", 0.1)
    assert profiler.ask(row, "POST", "/start_profile", 1) is None  # it is closed


def test_an_engine_whose_profiler_is_not_known():
    with pytest.raises(GdbextError, match="llm-stacks"):
        profiler.switch([rank("lmdeploy")], [], "start")


@pytest.mark.parametrize(
    "argv, environ, folder",
    [
        (["vllm", "serve", "--profiler-config", '{"profiler": "torch", "torch_profiler_dir": "/tmp/a b"}'], {}, "/tmp/a b"),
        (["vllm", "serve", "--profiler-config", '{"torch_profiler_dir":"/tmp/x","profiler":"torch"}'], {}, "/tmp/x"),
        (["vllm", "serve", "--profiler-config.torch_profiler_dir", "/tmp/y z", "--port", "1"], {}, "/tmp/y z"),
        (["vllm", "serve", "--profiler-config.torch_profiler_dir=here"], {}, os.path.join(os.getcwd(), "here")),
        (["vllm", "serve"], {"VLLM_TORCH_PROFILER_DIR": "/tmp/z"}, "/tmp/z"),
        (["vllm", "serve"], {}, ""),
    ],
)
def test_where_the_traces_land(argv, environ, folder):
    target = types.SimpleNamespace(argv=lambda: argv, environ=lambda: environ, pid=os.getpid())
    assert profiler.folder_of(SPECS["vllm"].profiler, target) == folder
