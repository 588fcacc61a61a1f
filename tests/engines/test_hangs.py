"""llm-hang, llm-stacks and llm-snapshot on real engines with requests in flight: at work, and with one process stopped, dead, or
frozen with its GIL held in C; the culprit is named or nobody, and the engine goes on."""

import contextlib
import os
import signal
import time

import pytest
from harness.answers import answer
from harness.engines import advances, processes
from harness.heartbeats import eventually

from gdbext.access import ptrace
from gdbext.access.procfs import read_proc, state_of


def labelled(said):
    return sorted({c["label"] for c in said["culprits"]})


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        eventually(lambda: ptrace.is_stopped(pid), "the stop")
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def look(pids, point, verdicts, culprit):
    """llm-hang on the engine as it is now: the culprit alone is named, or nobody is. Prints the row of a table."""
    said = answer("llm-hang " + " ".join(map(str, pids.values())) + " -json")
    named = {c["pid"] for c in said["culprits"]}
    print(
        f"| {'vLLM' if 'EngineCore' in pids else 'SGLang'} | {point} | {said['verdict']} | {', '.join(labelled(said))} |",
        *said["evidence"],
        sep="\n    ",
    )
    dead = {pid for pid in pids.values() if not read_proc(pid, "cmdline")}  # others may have died of it, and are named too
    right = said["verdict"] in verdicts and pids[culprit] in named and (named == {pids[culprit]} or named <= dead)
    assert right or said["verdict"] == "unknown" and not named, said
    return said


def test_an_engine_at_work_is_busy_and_one_tree(vllm):
    pids = processes(vllm)
    said = answer("llm-hang all -json")
    assert said["verdict"] == "busy", said
    stacks = answer("llm-stacks all -json")
    assert stacks["ranks_read"] == stacks["ranks_total"] >= 4 and stacks["failed"] == []
    members = {m["label"] for g in stacks["groups"] for m in g["members"]}
    assert {"TP0", "TP1", "EngineCore"} <= members and any(g["idle"] and len(g["members"]) > 5 for g in stacks["groups"])
    assert all(advances(pids[n]) for n in ("Worker_TP0", "Worker_TP1"))


@pytest.mark.drawn(1)
@pytest.mark.parametrize("process", ["Worker_TP1", "EngineCore", "frontend"])
def test_a_process_of_vllm_that_keeps_its_gil(vllm, truth, process):
    pids = processes(vllm)
    with truth(pids[process]):
        time.sleep(1)  # until the others have come to wait
        said = look(pids, f"{process} keeps its GIL in C", ("collective", "gil", "starved"), process)
    if process == "Worker_TP1":
        assert any("'s ring psm_" in e and "TP0" in e for e in said["evidence"]), said
    assert advances(pids["Worker_TP0"])


@pytest.mark.drawn(1)
@pytest.mark.parametrize("process", ["Worker_TP0", "EngineCore"])
def test_a_stopped_process_of_vllm(vllm, process):
    pids = processes(vllm)
    with stopped(pids[process]):
        time.sleep(0.5)
        look(pids, f"{process} stopped", ("stopped",), process)
    assert advances(pids["Worker_TP1"])


@pytest.mark.drawn(1)
@pytest.mark.parametrize("process", ["scheduler_TP0", "scheduler_TP1", "detokenizer", "frontend"])
def test_a_process_of_sglang_that_keeps_its_gil(sglang, truth, process):
    pids = processes(sglang)
    with truth(pids[process]):
        time.sleep(1)
        look(pids, f"{process} keeps its GIL in C", ("collective", "gil", "starved"), process)
    assert advances(pids["scheduler_TP0"])


@pytest.mark.drawn(1)
@pytest.mark.parametrize("process", ["scheduler_TP1", "detokenizer", "frontend"])
def test_a_stopped_process_of_sglang(sglang, process):
    pids = processes(sglang)
    with stopped(pids[process]):
        time.sleep(0.5)
        look(pids, f"{process} stopped", ("stopped",), process)
    assert advances(pids["scheduler_TP1"])


@pytest.mark.drawn(1)
@pytest.mark.parametrize("name,parent,process", [("vllm", "EngineCore", "Worker_TP1"), ("sglang", "frontend", "scheduler_TP1")])
def test_a_dead_worker_whose_parent_does_not_notice(running, truth, name, parent, process):
    """The last that is done to an engine (see conftest.py)."""
    pids = processes(running.get(name))
    with truth(pids[parent]):
        os.kill(pids[process], signal.SIGKILL)
        eventually(lambda: state_of(pids[process]) == "Z", "its end")
        said = look(pids, f"{process} dead, {parent} keeps its GIL", ("crashed",), process)
        assert any("killed by SIGKILL" in e for e in said["evidence"]), said
    running.stop()


def test_snapshots_of_all_ranks_answer_what_the_engine_would(vllm, truth, tmp_path):
    pids = processes(vllm)
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
