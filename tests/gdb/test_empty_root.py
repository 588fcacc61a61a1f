"""gdbext.pyz where there is nothing but a Python: it, in a root of its own, asks about an engine in another mount and pid
namespace, whose files the asking side does not have. The engine is a STAND-IN (subjects/requests_vllm.py) with torch in it."""

import contextlib
import json
import os
import shutil
import subprocess
import sys

import pytest
from harness import own_root
from harness.gdb_run import ROOT
from harness.subjects import SUBJECTS, spawned

PYTHON = shutil.which("python3", path="/usr/bin:/bin")
ENGINE = """
import runpy, setproctitle, sys, torch, types
made = sys.modules["made"] = types.ModuleType("made")
made.weights, made.rows = torch.arange(12.0).reshape(3, 4), list(range(50000))
setproctitle.setproctitle("VLLM::EngineCore")
sys.argv = ["requests_vllm.py", "3", "work"]
runpy.run_path("/app/requests_vllm.py", run_name="__main__")
"""
OWN_ROOT = [sys.executable, os.path.join(ROOT, "tests", "harness", "own_root.py")]


@pytest.fixture(scope="module")
def pod(torch_python, tmp_path_factory):
    """-> (function: words of a command -> what it says, pid of the engine, its pid in its own namespace)"""
    if os.geteuid() != 0:
        pytest.skip("needs root, which makes roots and namespaces")
    if subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True).returncode or not PYTHON:
        pytest.skip("this machine lets nobody make namespaces, or has no python3 in /usr/bin")
    folder = tmp_path_factory.mktemp("pod")
    look, engine = str(folder / "look"), str(folder / "engine")
    python = own_root.copied_python(PYTHON, look)
    os.mkdir(look + "/tmp")
    os.mkdir(engine)
    subprocess.run([sys.executable, os.path.join(ROOT, "scripts", "make-pyz"), look + "/gdbext.pyz"], check=True, stdout=-3)
    (folder / "engine.py").write_text(ENGINE)
    base = subprocess.run([torch_python, "-c", "import sys; print(sys.base_prefix)"], capture_output=True, text=True, check=True)
    paths = [path for path in ("/usr", "/lib", "/lib64", "/bin", "/etc") if os.path.isdir(path)]
    paths += [base.stdout.strip(), os.path.dirname(os.path.dirname(torch_python)) + "=/opt/engine"]
    paths += [f"{folder}/engine.py=/app/engine.py", f"{SUBJECTS}/requests_vllm.py=/app/requests_vllm.py"]
    words = ["unshare", "--pid", "--fork", "--kill-child", *OWN_ROOT, engine, *paths, "--", "/opt/engine/bin/python"]

    def ask(*words):
        command = [*OWN_ROOT, look, "--", python, "-S", "/gdbext.pyz", *words, "--json"]
        done = subprocess.run(command, env={}, capture_output=True, text=True, timeout=300)
        said = json.loads(done.stdout)
        assert done.returncode in (0, 3) or said["error"], done.stdout + done.stderr
        return said

    with spawned([*words, "/app/engine.py"], ready="{", stdin=subprocess.DEVNULL, start_new_session=True) as process:
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as f:
            (pid,) = map(int, f.read().split())
        with contextlib.ExitStack() as after:
            after.callback(os.kill, pid, 9)
            yield ask, pid


def functions(said):
    return {f["function"] for group in said["groups"] for f in group["frames"]}


def test_who_is_there_and_where_it_stands(pod):
    ask, pid = pod
    (rank,) = [r for r in ask("llm-ranks")["ranks"] if r["pid"] == pid]
    assert (rank["label"].partition("#")[0], rank["engine"], rank["ns_pid"]) == ("EngineCore", "vllm", 1)
    said = ask("llm-stacks", str(pid))
    assert any(name.endswith("run_busy_loop") for name in functions(said)) and said["ranks_read"] == 1
    libraries = {f["library"] for group in said["groups"] for f in group["frames"] if f["kind"] == "native"}
    assert any("libc" in (name or "") for name in libraries)
    hang = ask("llm-hang", str(pid))  # who started this core is no engine, and lives: it is no orphan, and its requests are told
    assert (hang["verdict"], {c["pid"] for c in hang["culprits"]}) == ("stuck-requests", {pid})


def test_requests_objects_tensors_and_the_heap(pod):
    ask, pid = pod
    named = {r["request_id"]: r for r in ask("llm-requests", str(pid))["requests"]}
    assert any(name.startswith("r0") for name in named) and any(name.startswith("w2") for name in named)
    on = ("-on", str(pid))
    assert ask("pyprint", *on, "made:rows[49999]")["repr"] == "49999"
    tensor = ask("pytensor", *on, "made:weights")
    assert (tensor["shape"], tensor["dtype"]) == ([3, 4], "torch.float32")
    found = ask("pytensors", *on)
    assert [t["shape"] for t in found["tensors"] if "weights" in (t["owner"] or "")][:1] == [[3, 4]]
    heap = ask("pyheap", *on)
    assert "pyheap needs numpy" in heap.get("error", "") or any(c["length"] == 50000 for c in heap["containers"])


def test_what_is_written_lies_in_the_asking_root_and_is_read_there(pod):
    ask, pid = pod
    said = ask("llm-record", "-for", "1", "-o", "/tmp/a.record", str(pid))
    assert said["samples"] and any("run_busy_loop" in f["function"] for f in said["functions"])
    assert ask("llm-record", "-read", "/tmp/a.record")["processes"][0]["pid"] == pid
    (row,) = ask("llm-top", "-once", str(pid))["ranks"]
    assert row["pid"] == pid and row["function"].endswith("run_busy_loop")
    assert ask("llm-snapshot", str(pid), "-o", "/tmp/a.core")["snapshots"][0]["pid"] == pid
    assert any(name.endswith("run_busy_loop") for name in functions(ask("llm-stacks", "/tmp/a.core")))
