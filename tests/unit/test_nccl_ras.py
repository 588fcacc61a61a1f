"""A FAKE of NCCL's RAS server, which speaks its client protocol (src/ras/client_support.cc, 2.24 to 2.30): no GPU is needed."""

import json
import os
import socket
import threading

import pytest

from gdbext.engines import nccl_ras


def rank(number, counts, error=0):
    status = {"init_state": 0, "async_error": error, "finalize_called": False, "destroy_flag": False, "abort_flag": False}
    place = {"rank": number, "host": "node0", "pid": 100 + number, "cuda_dev": number, "nvml_dev": number}
    return {**place, "status": status, "collective_counts": counts}


def status(ranks, missing=()):
    one = {"hash": "0x1f", "secondary_hash": "0x2:0x3", "size": len(ranks) + len(missing), "ranks_count": len(ranks)}
    one.update(missing_ranks_count=len(missing), ranks=ranks, missing_ranks=list(missing))
    head = {"nccl_version": "2.30.7", "cuda_runtime_version": 12080, "cuda_driver_version": 12080, "communicators_count": 1}
    return {**head, "communicators": [one], "ras": {"collection_time_sec": 0.1, "timeouts_count": 0}}


TEXT = """NCCL version 2.27.3 compiled with CUDA 12.9
Job summary
===========

Errors
======

INCOMPLETE
  Missing communicator data from 1 job process

Warnings
========

#0-0 (00000000000001f) MISMATCH
  Communicator ranks have different AllReduce operation counts
  1 ranks have launched up to operation 12
"""


@pytest.fixture
def served():
    """-> function: what STATUS answers (a str: a server before 2.28, without JSON) -> port"""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def start(answer):
            def serve():
                client, _ = listening.accept()
                with client, client.makefile("rwb", buffering=0) as lines:
                    for line in lines:
                        word = line.strip().upper()
                        if word.startswith(b"CLIENT PROTOCOL "):
                            lines.write(b"SERVER PROTOCOL 2\n" if answer is not None else b"220 mail\n")
                        elif word.startswith(b"TIMEOUT "):
                            lines.write(b"OK\n")
                        elif word.startswith(b"SET FORMAT "):
                            lines.write(b"OK\n" if isinstance(answer, dict) else b"ERROR: Unknown command\n")
                        elif word == b"STATUS":
                            lines.write((json.dumps(answer) if isinstance(answer, dict) else answer).encode())
                            return

            threading.Thread(target=serve, daemon=True).start()
            return listening.getsockname()[1]

        yield start


def test_the_rank_that_lags_behind_is_named(served):
    ranks = [rank(0, {"AllReduce": 12, "Send": 3}), rank(1, {"AllReduce": 11, "Send": 3}), rank(2, {"AllReduce": 12, "Send": 3})]
    found = nccl_ras.ask(os.getpid(), port=served(status(ranks)))
    assert (found["nccl"], found["communicators"], found["error"]) == ("2.30.7", 1, None)
    said = "communicator 0x1f of 3 ranks: AllReduce was launched 12 times by 2 of its ranks, by rank 1 (pid 101 on node0) 11"
    assert found["said"] == [said]
    assert nccl_ras.lines(found)[1:] == ["    " + said]


def test_ranks_that_do_not_answer_and_errors_are_named(served):
    gone = [{"rank": 2, "host": "node1", "pid": 7, "status": {"unresponsive": True, "considered_dead": False}}]
    gone += [{"rank": 3, "host": "node1", "pid": 8, "status": {"unresponsive": True, "considered_dead": True}}]
    found = nccl_ras.ask(os.getpid(), port=served(status([rank(0, {}), rank(1, {}, error=6)], gone)))
    assert [line.partition(": ")[2] for line in found["said"]] == [
        "rank 2 (pid 7 on node1) does not answer",
        "rank 3 (pid 8 on node1) is considered dead",
        "rank 1 (pid 101 on node0) reports error 6 (ncclResult_t)",
    ]


def test_a_job_in_which_nothing_stands_out(served):
    found = nccl_ras.ask(os.getpid(), port=served(status([rank(0, {"AllReduce": 5}), rank(1, {"AllReduce": 5})])))
    assert found["said"] == [] and "no rank stands out" in nccl_ras.lines(found)[1]


def test_before_json_the_errors_and_warnings_are_taken(served):
    found = nccl_ras.ask(os.getpid(), port=served(TEXT))
    assert found["nccl"] == "2.27.3" and found["said"][0] == "INCOMPLETE" and "MISMATCH" in found["said"][2]
    assert len(found["said"]) == 5


def test_another_server_on_that_port_is_told(served):
    found = nccl_ras.ask(os.getpid(), port=served(None))
    assert found["error"] == "no RAS of NCCL: it said '220 mail'" and found["said"] == []
    assert nccl_ras.lines(found) == [f"  NCCL's RAS on port {found['port']}: {found['error']}"]


@pytest.mark.parametrize("answer", [{"nccl_version": "2.30"}, {"nccl_version": "2", "communicators": [{"hash": 1}]}, {"a": []}])
def test_an_answer_of_another_form_is_told(served, answer):
    assert nccl_ras.ask(os.getpid(), port=served(answer))["error"]


def test_a_server_that_says_nothing_is_given_up(monkeypatch):
    monkeypatch.setattr(nccl_ras, "SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert nccl_ras.ask(os.getpid(), port=silent.getsockname()[1])["error"] == "no answer in 0.1 s"


def test_nobody_is_asked_where_no_process_of_that_user_listens(tmp_path, monkeypatch):
    (tmp_path / "5").mkdir()
    monkeypatch.setattr(nccl_ras, "_asked", lambda row: pytest.fail("it was asked"))
    assert nccl_ras.ask(5, str(tmp_path)) is None
