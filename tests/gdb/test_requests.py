"""Readers of requests on STAND-INS (named so) in a live process: every place of a request's way is read, ten thousand at once."""

import os
import signal
import subprocess
import sys
import time

import pytest
from harness.answers import answer
from harness.looks import Role
from harness.subjects import running

from gdbext.access.ptrace import Stopped, stopped_by
from gdbext.cpython.runtime import open_runtime
from gdbext.engines.registry import SPECS
from gdbext.engines.vllm import kv_scheduler
from gdbext.engines.vllm.kv_requests import requests_of
from gdbext.requests import collect


def test_every_place_of_a_vllm_request_is_read():
    with running(sys.executable, "requests_vllm.py", "10000") as (target, said):
        look = SPECS["vllm"].requests.look(open_runtime(target), Role("EngineCore", target.pid, "engine-core"))
    assert look.notes == [] and set(look.parts) == {"frontend", "scheduler"} and look.counters == {"scheduler steps": 5}
    seen = {(s.request_id.rpartition("-")[0], s.stage): s for s in look.sightings}
    assert {stage for _, stage in seen} == {"frontend", "running", "queue", "input"}
    assert sum(stage == "queue" for _, stage in seen) == said["waiting"] + 4
    assert seen["r0", "running"].progress == (40, 9, 0) and seen["r0", "frontend"].external_id == "r0"
    front = [seen[name, "frontend"] for name in ("r0", "remote")]
    assert [(s.progress, s.state) for s in front] == [((9, False), "answered, not read yet"), ((0, True), "awaited")]
    assert all(5 <= s.age < 3000 for s in front)
    assert seen["remote", "queue"].parked and seen["too-large", "queue"].never_fits and not seen["w2999", "queue"].never_fits
    assert seen["queued-in", "input"].state == "input queue" and seen["in-hands", "input"].tid == look.keepers["input"].tid
    assert "preprocess_add_request" in look.keepers["input"].stands and look.keepers["output"].tid is None
    assert look.transfers == {"remote-0a1b2c3d": "NeverDelivers.loading"}
    assert seen["remote", "queue"].waits_for.endswith("(NeverDelivers)")
    compiled = seen["g0", "queue"].keeper
    assert compiled.tid not in (None, look.keepers["input"].tid) and "wait (threading.py" in compiled.stands
    assert seen["g1", "queue"].keeper is None and seen["g1", "queue"].after == ("g0-0a1b2c3d",)
    for i in (0, 1, 2999, 3000, 9999):
        assert seen[f"w{i}", "queue"].request.prompt_tokens == i % 3000


class One:
    """An engine of one process."""

    name, spec, instance = "vllm", SPECS["vllm"], "vllm"

    def __init__(self, target):
        self._target = target

    def alive(self):
        return [Role("EngineCore", self._target.pid, "engine-core")]

    def target(self, rank):
        return self._target


def test_who_has_stopped_an_engine_is_said():
    with running(sys.executable, "requests_vllm.py", "3") as (target, _):
        with Stopped(target.pid):
            traced = collect.collect(One(target), 0.1)
        os.kill(target.pid, signal.SIGSTOP)
        while not stopped_by([target.pid]):
            time.sleep(0.01)
        stopped = collect.collect(One(target), 0.1)
        os.kill(target.pid, signal.SIGCONT)
    for held, who in ((traced, f"process {os.getpid()} ("), (stopped, "a signal")):
        assert any(f"EngineCore (pid {target.pid}) is stopped by {who}" in line for line in held.partial), held.partial
        (one,) = [r for r in held.requests if r.request_id.startswith("r0")]
        assert one.verdict == "behind" and one.holder.pid == target.pid and who in one.evidence[0], one


def test_a_request_that_never_fits_is_the_verdict_of_a_core(gdb_path, tmp_path):
    """One look is enough for it, and for nothing that only time tells from what is well."""
    core = tmp_path / "core"
    with running(sys.executable, "requests_vllm.py", "3") as (target, _):
        words = ["-iex", "set auto-load off", "-p", str(target.pid), "-ex", f"gcore {core}"]
        subprocess.run([gdb_path, "-nx", "-q", "-batch", *words], capture_output=True, check=True)
    said = answer(f"llm-hang {core} -json")
    named = {r["request_id"].rpartition("-")[0]: r["verdict"] for r in said["requests"]}
    assert said["verdict"] == "stuck-requests" and said["requests_open"] > 8 and said["pauses"] == []
    assert named["too-large"] == "never-fits" and set(named.values()) <= {"never-fits", "behind"}, named


def test_cores_of_several_processes_are_one_answer_nothing_is_lost(tmp_path):
    """They are not of one moment: what one process waits for and no other has may have come and gone between them."""
    cores = []
    with running(sys.executable, "requests_vllm.py", "3") as (first, _), running(sys.executable, "requests_vllm.py", "5") as (
        other,
        _,
    ):
        for target in (first, other):
            cores.append(str(tmp_path / f"{target.pid}.core"))
            answer(f"llm-snapshot {target.pid} -heap -o {cores[-1]} -json")
            time.sleep(1.5 * (target is first))
        alone = {
            pid: {r["request_id"] for r in answer(f"llm-requests {core} -json")["requests"]}
            for pid, core in zip((first.pid, other.pid), cores)
        }
    said = answer(f"llm-requests {' '.join(cores)} -json")
    assert {r["request_id"] for r in said["requests"]} == set().union(*alone.values()) and all(alone.values())
    assert {r["verdict"] for r in said["requests"]} <= {"never-fits", "behind", "parked", None}, said["requests"]
    assert any("apart" in reason for reason in said["partial"]) and not any("siblings" in reason for reason in said["partial"])
    one = next(iter(alone[other.pid]))
    hops = answer(f"llm-request {one} -on '{' '.join(cores)}' -json")["hops"]
    assert other.pid in {hop["pid"] for hop in hops}, hops


@pytest.mark.parametrize("state", ["turns", "blocked", "ended"])
def test_the_task_that_takes_answers_in_and_its_loop(state):
    with running(sys.executable, "requests_vllm_front.py", state) as (target, said):
        look = SPECS["vllm"].requests.look(open_runtime(target), Role("APIServer0", target.pid, "api-server"))
    assert look.parts == ("frontend",) and [(s.request_id, s.replica) for s in look.sightings] == [("a-0a1b2c3d", 1)]
    loop, handler = look.keepers["frontend"], look.keepers["output"]
    assert (handler.name, handler.kind, loop.tid) == ("output_handler", "task", target.pid)
    assert handler.tid == (None if state == "ended" else target.pid)
    assert ("wait_in_loop" in handler.stands) == (not loop.rests) == (state == "blocked")


def test_requests_are_listed_where_the_blocks_cannot_be_read():
    with running(sys.executable, "requests_vllm.py", "3") as (target, said):
        found = answer(f"llm-requests -between 0.1 {target.pid} -json")
    assert len(found["requests"]) >= said["waiting"] and {r["blocks"] for r in found["requests"]} == {None}
    assert any(line.startswith("blocks not read: the Manager") for line in found["partial"]), found["partial"]


def test_the_requests_of_one_process_are_read_once(monkeypatch):
    """Its blocks are then read into what its look has; with the tokens, which a look leaves out, the requests are read anew."""
    read = []
    monkeypatch.setattr(kv_scheduler, "requests_of", lambda *args: read.append(args) or requests_of(*args))
    with running(sys.executable, "requests_vllm.py", "3") as (target, _):
        plain = answer(f"llm-requests {target.pid} -between 0 -json")
        assert not read and any(line.startswith("blocks not read: the Manager") for line in plain["partial"]), plain["partial"]
        names = [row["request_id"] for row in plain["requests"]]
        whole = answer(f"llm-requests {target.pid} -between 0 -show-content -json")
    assert read and names == [row["request_id"] for row in whole["requests"]] and len(names) > 5


def test_a_request_that_stands_has_the_chain_that_llm_hang_has(torch_python):
    with running(torch_python, "titled_engine_core.py", "3") as (target, _):
        found = {
            name: answer(f"llm-request -on {target.pid} {name} -between 0.3 -json")
            for name in ("queued-in", "too-large", "in-hands")
        }
        still = answer(f"llm-request -on {target.pid} queued-in -between 0 -json")
        hang = answer(f"llm-hang {target.pid} -json")
    for name, verdict in (("queued-in", "behind"), ("too-large", "never-fits")):
        (chain,) = found[name]["chains"]
        assert found[name]["request"]["verdict"] == verdict and chain["waiter"]["request"].startswith(name), found[name]
    assert found["too-large"]["chains"][0]["end"]["state"] == "nobody", found["too-large"]["chains"]
    assert found["queued-in"]["pauses"] and still["chains"] == still["pauses"] == []
    told = [c for c in hang["chains"] if c["waiter"].get("request", "").startswith("in-hands")]
    chain = found["in-hands"]["chains"]
    assert not chain or not told or chain[0]["end"]["place"]["tid"] == told[0]["end"]["place"]["tid"], (chain, told)


@pytest.mark.parametrize("state", [[], ["ended"]], ids=["spins", "ended"])
def test_llm_hang_and_llm_requests_name_the_same_one_who_must_act(state, torch_python):
    """The input thread of a core spins with a request in hand, or has ended."""
    with running(torch_python, "titled_engine_core.py", "3", *state) as (target, _):
        hang = answer(f"llm-hang {target.pid} -json")
        requests = answer(f"llm-requests -between 0.5 {target.pid} -json")

    def acts(said, name):
        (one,) = [r for r in said["requests"] if r["request_id"].startswith(name + "-")]
        return one["verdict"], {key: one["holder"].get(key) for key in ("pid", "tid")}

    for name in ("in-hands", "queued-in", "r0", "lost"):
        assert acts(hang, name) == acts(requests, name), (name, hang["requests"], requests["requests"])
    assert acts(hang, "in-hands")[0] == ("lost" if state else "behind")
    if not state:
        holder = acts(hang, "in-hands")[1]
        assert holder["tid"] != target.pid and holder["tid"] in [c.get("tid") for c in hang["culprits"]], hang["culprits"]
