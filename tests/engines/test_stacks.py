"""On real engines with two ranks: every thread's Python stack is what the process says of itself; live in gdb, through /proc and
on a core of it; ranks are the engine's own; tensors and requests can be read."""

import json
import os

import pytest
from harness.gdb_run import run_gdb

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime

ENGINE_TITLES = {
    "vllm": ["VLLM::EngineCore", "VLLM::Worker_TP0", "VLLM::Worker_TP1"],
    "sglang": ["sglang::scheduler_TP0", "sglang::scheduler_TP1"],
}


def told(frames):
    """Without the frames of the handler that did the telling."""
    return [f for f in frames if not f[1].endswith("sitecustomize.py")]


def check(engine_name, seen, truth):
    assert truth, "the process told nothing"
    for tid, frames in truth.items():
        assert told(seen.get(tid, [])) == told(frames), f"{engine_name} thread {tid}"
    assert set(seen) == set(truth)


def from_proc(pid):
    rt = open_runtime(ProcTarget(pid))
    return {th.tid: [[f.function, f.file, f.line] for f in rt.frames(th)] for th in rt.threads()}


def from_json(answer):
    return {
        th["tid"]: [[f["function"], f["file"], f["line"]] for f in th["frames"] if f["kind"] == "python"]
        for th in answer["threads"]
        if any(f["kind"] == "python" for f in th["frames"])
    }


def pids_of(engine, name):
    titles = {title: pid for pid, title in engine.titles().items()}
    missing = [t for t in ENGINE_TITLES[name] if t not in titles]
    assert not missing, f"no process is called {missing}: {titles}"
    return [titles[t] for t in ENGINE_TITLES[name]]


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_every_python_stack_is_what_the_process_says_of_itself(name, running, truth, gdb_path, tmp_path):
    engine = running.get(name)
    for number, pid in enumerate(pids_of(engine, name)):
        core = str(tmp_path / f"core.{pid}")
        with truth(pid) as threads:
            check(name, from_proc(pid), threads)
            commands = [
                f"llm-attach {pid}",
                "pybt -all -json",
                "llm-bt -all -json",
                f"gcore {core}" if number == 0 else "echo",
                "llm-detach",
            ]
            said = run_gdb(gdb_path, commands)
            check(name, from_json(said.json(1)), threads)
            check(name, from_json(said.json(2)), threads)
            native = [f for th in said.json(2)["threads"] for f in th["frames"] if f["kind"] == "native"]
            assert native and all(f["library"] for f in native), said.outputs[2]
        if number == 0:
            said = run_gdb(
                gdb_path, ["pybt -all -json", "llm-bt -all -json"], arguments=["-c", core], before=["set auto-solib-add off"]
            )
            check(name, from_json(said.json(0)), threads)
            check(name, from_json(said.json(1)), threads)
            os.remove(core)


def test_the_rank_table_is_the_engines_own(vllm, gdb_path):
    said = run_gdb(gdb_path, ["llm-ranks -verify -json"]).json()
    mine = {r["pid"]: r for r in said["ranks"]}
    titles = vllm.titles()
    for pid, title in titles.items():
        if title.startswith("VLLM::Worker_TP"):
            rank = int(title[-1])
            assert mine[pid]["ranks"]["tp"] == rank and mine[pid]["ranks"]["world"] == rank and mine[pid]["label"] == f"TP{rank}"
            assert mine[pid]["rank_source"] == "memory"
        if title == "VLLM::EngineCore":
            assert mine[pid]["role"] == "engine-core" and mine[pid]["label"] == "EngineCore"
    assert not any("resource_tracker" in r["title"] for r in mine.values())


def test_requests_and_kv_tensors_of_a_running_engine(vllm, truth, gdb_path):
    titles = {title: pid for pid, title in vllm.titles().items()}
    core, worker = titles["VLLM::EngineCore"], titles["VLLM::Worker_TP0"]
    with truth(worker):
        level = _level(gdb_path, worker, "worker_busy_loop")
        said = run_gdb(
            gdb_path,
            [
                f"llm-attach {worker}",
                f"pyframe {level}",
                "pytensor -json self.worker.worker.model_runner.kv_caches[0]",
                "pyprint -json vllm.distributed.parallel_state:_TP.rank_in_group",
                "pyprint -json len(self.worker.worker.model_runner.kv_caches)",
                "pytensor -repr self.worker.worker.model_runner.kv_caches[0]",
                "llm-detach",
            ],
        )
        tensor = said.json(2)
        assert (
            tensor["dtype"].endswith("float32")
            and tensor["device"] == "cpu"
            and len(tensor["shape"]) == 4
            and tensor["storage_bytes"] > 1 << 20
        )
        assert said.json(3)["repr"] == "0" and int(said.json(4)["repr"]) == 4
        assert said.outputs[5].startswith("tensor("), said.outputs[5]
    with truth(core):
        level = _level(gdb_path, core, "run_busy_loop")
        said = run_gdb(
            gdb_path,
            [
                f"llm-attach {core}",
                f"pyframe {level}",
                "pyprint -json self.scheduler.requests",
                "pyprint -json len(self.scheduler.requests)",
                "pyprint -json any(len(r.request_id) > 0 for r in self.scheduler.running)",
                "pyprint self.nothing",
                "llm-detach",
            ],
        )
        assert said.json(2)["type"] == "dict" and int(said.json(3)["repr"]) >= 1
        assert "no attribute nothing" in said.outputs[5] and "Traceback" not in said.text


def _level(gdb, pid, function):
    threads = run_gdb(gdb, [f"pybt -json -on {pid}"]).json()["threads"]
    return next(f["level"] for f in threads[0]["frames"] if f["function"].split(".")[-1] == function)


def test_outside_gdb_too(vllm, root):
    import subprocess
    import sys

    titles = {title: pid for pid, title in vllm.titles().items()}
    line = [sys.executable, "-m", "gdbext", "llm-ranks", "--json"]
    done = subprocess.run(line, cwd=root, stdout=subprocess.PIPE, check=False)
    assert titles["VLLM::Worker_TP1"] in {r["pid"] for r in json.loads(done.stdout)["ranks"]}
