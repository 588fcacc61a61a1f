"""llm-hang, llm-stacks and llm-snapshot on a real engine with requests in flight: at work, with a frozen worker, with a frozen core,
with a stopped worker; and the engine goes on each time."""

import json
import os
import signal
import time

from gdbext.commands import table
from gdbext.commands.session import Session
from gdbext.target.proc import read_proc


def answer(line):
    name, _, rest = line.partition(" ")
    command = table.load(name)
    return json.loads(command().answer(Session(), command.parse(rest)).json(name))


def pids_of(engine):
    return {title.rpartition("::")[2]: pid for pid, title in engine.titles().items()}


def labelled(said):
    return sorted({c["label"] for c in said["culprits"]})


def advances(pid, seconds=60):
    """Whether the main thread of a worker or core goes on: its Python stack or clock changes."""
    def run():
        return int(read_proc(pid, f"task/{pid}/schedstat").split()[0])

    before, end = run(), time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(0.1)
        if run() - before > 2e7:
            return True
    return False


def test_an_engine_at_work_is_busy_and_one_tree(vllm):
    pids = pids_of(vllm)
    said = answer("llm-hang all -json")
    assert said["verdict"] == "busy", said
    stacks = answer("llm-stacks all -json")
    assert stacks["ranks_read"] == stacks["ranks_total"] >= 4 and stacks["failed"] == []
    members = {m["label"] for g in stacks["groups"] for m in g["members"]}
    assert {"TP0", "TP1", "EngineCore"} <= members and any(g["idle"] and len(g["members"]) > 5 for g in stacks["groups"])
    assert all(advances(pids[n]) for n in ("Worker_TP0", "Worker_TP1"))


def test_a_frozen_worker_is_the_culprit(vllm, truth):
    pids = pids_of(vllm)
    with truth(pids["Worker_TP1"]):
        time.sleep(1)
        said = answer("llm-hang all -json")
    assert said["verdict"] in ("collective", "gil", "starved") and labelled(said) == ["TP1"], said
    assert advances(pids["Worker_TP0"])


def test_a_frozen_core_is_the_culprit(vllm, truth):
    pids = pids_of(vllm)
    with truth(pids["EngineCore"]):
        time.sleep(1)
        said = answer("llm-hang all -json")
    assert said["verdict"] in ("gil", "starved", "unknown") and labelled(said) in (["EngineCore"], []), said
    assert advances(pids["Worker_TP0"])


def test_a_stopped_worker(vllm):
    pids = pids_of(vllm)
    os.kill(pids["Worker_TP0"], signal.SIGSTOP)
    try:
        time.sleep(0.5)
        said = answer("llm-hang all -json")
    finally:
        os.kill(pids["Worker_TP0"], signal.SIGCONT)
    assert said["verdict"] == "stopped" and labelled(said) == ["TP0"], said
    assert advances(pids["Worker_TP1"])


def test_snapshots_of_all_ranks_answer_what_the_engine_would(vllm, truth, tmp_path):
    pids = pids_of(vllm)
    with truth(pids["EngineCore"]):
        said = answer(f"llm-snapshot all -o {tmp_path} -json")
        live = answer(f"llm-kv -on {pids['EngineCore']} -json")
        shot = next(s for s in said["snapshots"] if s["pid"] == pids["EngineCore"])
        dead = answer(f"llm-kv -on {shot['file']} -json")
        for one in (live, dead):
            one.pop("partial"), one.pop("layout", None)
        assert live["requests"] == dead["requests"] and live["free"] == dead["free"] and live["num_blocks"] == dead["num_blocks"]
        check = answer(f"llm-kv check -on {shot['file']} -json")
        assert check["violations"] == []
    assert len(said["snapshots"]) >= 4 and said["failed"] == [] and os.stat(shot["file"]).st_mode & 0o077 == 0
    print({p["pid"]: round(p["seconds"], 3) for p in said["pauses"]}, {s["label"]: s["bytes"] >> 20 for s in said["snapshots"]})
    report = tmp_path / "report.html"
    assert answer(f"llm-report {report} all -json")["verdict"] in ("busy", "unknown")
    assert "vllm" in report.read_text() and "KV cache" in report.read_text()
    assert advances(pids["Worker_TP0"])
