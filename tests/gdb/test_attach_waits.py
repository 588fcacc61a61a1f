"""Attaching where something does not come round: threads in uninterruptible sleep, a guard that was killed, a program behind the
loader."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from harness.gdb_run import INIT
from harness.heartbeats import eventually, heartbeats
from harness.subjects import SUBJECTS, spawned

from gdbext.access import ptrace


@pytest.fixture
def sleeper(tmp_path):
    """-> function of seconds: a process whose main thread is in D for so long."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc")
    program = tmp_path / "vforks"
    subprocess.run(["gcc", "-o", program, os.path.join(SUBJECTS, "vforks.c")], check=True)

    @contextlib.contextmanager
    def run(seconds):
        with spawned([program, str(seconds)], ready="ready") as one:
            try:
                eventually(lambda: ptrace.status(one.pid)["state"] == "D", "the main thread to be in D")
                yield one
            finally:
                for child in children(one.pid):
                    os.kill(child, signal.SIGKILL)

    return run


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            return list(map(int, f.read().split()))
    except OSError:
        return []


def test_a_thread_in_uninterruptible_sleep_is_named_and_not_waited_for(gdb, sleeper):
    with sleeper(120) as one:
        begin = time.monotonic()
        run = gdb([f"llm-attach {one.pid}", "info inferiors"])
        assert time.monotonic() - begin < 20
        assert f"thread {one.pid} (vforks" in run.outputs[0] and "-force" in run.outputs[0] and "\n" not in run.outputs[0]
        assert "process" not in run.outputs[1]
        assert ptrace.status(one.pid)["state"] == "D" and not ptrace.tracers(one.pid)


def test_ctrl_c_leads_out_of_a_forced_attach_and_the_process_runs_on(gdb_path, sleeper):
    with sleeper(120) as one:
        gdb = subprocess.Popen(
            [gdb_path, "-nx", "-q", "-batch", "-ex", f"source {INIT}", "-ex", f"llm-attach -force {one.pid}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        eventually(lambda: ptrace.tracers(one.pid) == {gdb.pid}, "gdb to be at it")
        for _ in range(2):
            time.sleep(1.5)
            gdb.send_signal(signal.SIGINT)
        _, errors = gdb.communicate(timeout=60)
        assert gdb.returncode == -signal.SIGKILL and "Ctrl-C again ends gdb" in errors
        for child in children(one.pid):
            os.kill(child, signal.SIGKILL)
        assert one.stdout.readline() == "through\n"  # it goes on as if nothing had been
        eventually(lambda: not ptrace.tracers(one.pid), "the guard to let go")


def test_a_guard_that_was_killed_strands_nobody(gdb, tmp_path):
    with heartbeats(tmp_path, 2) as (a, b):
        kill = "from gdbext.control.attached_processes import _State; import os; os.kill(_State.guard.pid, 9)"
        run = gdb(
            [
                f"llm-attach {a.pid}",
                f"llm-attach {b.pid}",
                f"python {kill}",
                "shell sleep 0.5",
                "llm-detach -json",
                "show auto-solib-add",
            ]
        )
        answer = run.json(4)
        assert {d["pid"] for d in answer["detached"]} == {a.pid, b.pid}
        assert "on" in run.outputs[5]
        assert a.runs() and b.runs()


def test_a_program_that_the_loader_started_is_attached(gdb, tmp_path):
    loader = next((p for p in ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1") if os.path.exists(p)), None)
    if loader is None:
        pytest.skip("no loader of glibc here")
    code = "import time\nprint('ready', flush=True)\ntime.sleep(600)"
    with spawned([loader, os.path.realpath(sys.executable), "-c", code], ready="ready") as one:
        run = gdb([f"llm-attach -json {one.pid}", "pybt", "llm-detach -json"])
        assert run.status == 0, run.text
        assert run.json(0)["attached"][0]["pid"] == one.pid and "<module>" in run.outputs[1] and run.json(2)["detached"]
        assert one.poll() is None


def test_cuda_gdb_attaches_and_lets_go(cuda_gdb, tmp_path):
    """Debian's cuda-gdb 11.8 gives a None that is not Python's own where gdb's functions have nothing to return."""
    with heartbeats(tmp_path, 1) as (one,):
        run = cuda_gdb([f"llm-attach -json {one.pid}", "pybt", "llm-detach -json"])
        answer = run.json(0)
        assert answer["attached"][0]["pid"] == one.pid and run.json(2)["detached"][0]["pid"] == one.pid
        assert "beat" in run.outputs[1]
        assert one.runs()
