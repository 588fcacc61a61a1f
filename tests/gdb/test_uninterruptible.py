"""Processes with a thread that nothing can stop (state D), or whose main thread has ended: read all the same, and nobody
waits."""

import json
import os
import signal
import subprocess
import sys

import pytest
from harness.answers import answer
from harness.heartbeats import eventually
from harness.subjects import SUBJECTS, spawned

from gdbext.access import procfs, ptrace
from gdbext.access.collect import collect
from gdbext.access.proc import ProcTarget
from gdbext.access.proctable import ProcTable
from gdbext.access.snapshot import CoreFileTarget
from gdbext.control import attach_checks
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError
from gdbext.observe.clocks import ended_children
from gdbext.stacks.threads import ProcessView
from gdbext.timeline import store

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
READER = "gdbext.stacks.prefetch"
SOURCE = """
#define _GNU_SOURCE
#include <time.h>
#include <unistd.h>
__attribute__((noinline)) int slow_vfork(int n) {
    volatile int room[20] = {n};
    if (!vfork()) {  /* until it ends, the thread that made it is in uninterruptible sleep */
        struct timespec long_time = {600, 0};
        nanosleep(&long_time, 0);
        _exit(0);
    }
    return room[0];
}
"""
VFORKS = """
import ctypes, sys, threading, time
lib = ctypes.CDLL(sys.argv[1])
def stuck():
    lib.slow_vfork(1)
def wait():
    print("up", flush=True)
    time.sleep(1000)
threading.Thread(target=stuck, daemon=True).start()
wait()
"""


@pytest.fixture(scope="module")
def forker(tmp_path_factory):
    """-> (pid, tid of the thread in state D)"""
    library = str(tmp_path_factory.mktemp("vfork") / "lib.so")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=SOURCE.encode(), check=True)
    with spawned([sys.executable, "-c", VFORKS, library], ready="up") as process:
        eventually(lambda: ptrace.uninterruptible(process.pid), "a thread in state D")
        (tid,) = ptrace.uninterruptible(process.pid)
        yield process.pid, tid
        with open(f"/proc/{process.pid}/task/{tid}/children") as f:
            for child in f.read().split():
                os.kill(int(child), signal.SIGKILL)


def test_nobody_waits_for_a_thread_that_cannot_stop(forker):
    """With an hour's patience the stop is over at once, twice: and the thread that is still held is not seized again."""
    pid, tid = forker
    code = (
        "from gdbext.access import ptrace\n"
        f"stopped = ptrace.Stopped({pid}, 3600.0)\n"
        "for _ in range(2):\n"
        "    with stopped:\n"
        f"        print({tid} in stopped.stray, len(stopped.threads), flush=True)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("True 1\nTrue 1\n", "")
    assert ptrace.tracers(pid) == set()


def test_a_snapshot_names_the_thread_and_its_way_into_the_kernel(forker, tmp_path):
    pid, tid = forker
    result = collect(pid, str(tmp_path / "s"), READER)
    assert any(f"thread {tid}" in reason and "state D" in reason for reason in result.partial)
    target = CoreFileTarget(result.file)
    view = ProcessView(target)
    stacks = {th.tid: [f.function for f in th.native] for th in view.threads}
    assert any("nanosleep" in name for name in stacks[pid]) and "slow_vfork" in stacks[tid]
    said = {th["tid"]: [f["function"] for f in th["frames"]] for th in answer(f"pybt -all -on {result.file} -json")["threads"]}
    assert said[pid] == ["wait", "<module>"] and said[tid][0] == "stuck"
    assert ptrace.uninterruptible(pid) == [tid] and ptrace.tracers(pid) == set()


LEADER = """
import ctypes, sys, threading, time
value = {"rank": 7}
def serve(ready):
    here = value
    ready.wait()
    time.sleep(0.2)
    print("up", flush=True)
    while True:
        time.sleep(0.01)
ready = threading.Event()
threading.Thread(target=serve, args=(ready,), name="server").start()
ready.set()
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_whose_main_thread_has_ended_is_read(tmp_path):
    with spawned([sys.executable, "-c", LEADER, "word"], ready="up") as process:
        eventually(lambda: ptrace.status(process.pid)["state"] == "Z", "the main thread's end")
        live = ProcTarget(process.pid)
        assert live.argv()[-1] == "word" and live.environ()["PATH"] == os.environ["PATH"] and live.mappings()
        assert open_runtime(live).module("__main__").item("value").items(10)[0][1].integer() == 7
        result = collect(process.pid, str(tmp_path / "s"), READER)
        threads = ProcessView(CoreFileTarget(result.file)).threads
        assert [[f.function for f in th.python][:1] for th in threads if th.python] == [["serve"]]
        assert len(answer(f"pythreads -on {process.pid} -json")["threads"]) >= 1
        assert answer(f"llm-hang {process.pid} -wait 1 -json")["verdict"] not in ("crashed", "orphaned")
        with pytest.raises(GdbextError, match="main thread of process .* has ended .* while others run"):
            attach_checks.check(process.pid)


ENDS = """
import ctypes, os, sys, threading
def last():
    sys.stdin.read(1)
    os._exit(0)
threading.Thread(target=last).start()
print("up", flush=True)
ctypes.CDLL(None).pthread_exit(None)
"""


def test_a_process_has_ended_with_its_last_thread():
    with spawned([sys.executable, "-c", ENDS], ready="up") as process:
        eventually(lambda: ptrace.status(process.pid)["state"] == "Z", "the main thread's end")
        assert procfs.state_of(process.pid) in ("R", "S", "D") and procfs.state_of(process.pid, process.pid) == "Z"
        assert process.pid not in dict(ended_children(ProcTable(), os.getpid()))
        process.stdin.write("x")
        process.stdin.flush()
        eventually(lambda: procfs.state_of(process.pid) == "Z", "the end of all")
        assert process.pid in dict(ended_children(ProcTable(), os.getpid()))
        with pytest.raises(GdbextError, match="is a zombie"):
            attach_checks.check(process.pid)


@pytest.fixture
def dead_mount(tmp_path):
    """-> {"pid", "tid"} of a process with a thread that reads a file of a server that does not answer any more."""
    if os.geteuid() or not os.path.exists("/dev/fuse"):
        pytest.skip("no permission to mount a file system of our own")
    with spawned([sys.executable, os.path.join(SUBJECTS, "dead_server.py"), tmp_path], ready="{") as server:
        yield json.loads(server.said)
        server.stdin.close()
        server.wait(30)


def test_a_file_server_that_is_gone_holds_nobody_up(dead_mount):
    """Nothing asks about the file that the thread waits for, or not for long."""
    pid, tid = dead_mount["pid"], dead_mount["tid"]
    for command in ("llm-stacks", "llm-locks", "llm-hang -wait 0.2", "llm-bt -all -on", "pyexc -on"):
        words = [sys.executable, "-m", "gdbext", *command.split(), str(pid), "-json"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
        assert "Traceback" not in done.stderr and json.loads(done.stdout), (command, done.stderr)
        if command == "llm-stacks":
            places = {m["tid"]: g for g in json.loads(done.stdout)["groups"] for m in g["members"]}
            assert "read_for_good" in [f["function"] for f in places[tid]["frames"]]
    assert not ptrace.tracers(pid)


def test_a_recording_with_native_frames_has_its_python_frames_too(forker, tmp_path):
    pid, tid = forker
    path = str(tmp_path / "a.record")
    found = answer(f"llm-record -native -rate 20 -for 3 -o {path} {pid}")
    assert found["processes"][0]["native"]["unstopped"] >= 1 and ptrace.status(pid, tid)["tracer"] == 0
    rec = store.read(path)
    named = {th.tid: [f.function for f in rec.tree.stack(th.nodes[-1])] for th in rec.processes[0].threads}
    assert named[tid][-1] == "stuck" and "wait" in named[pid] and named[pid][-1] != "wait"


MAIN_VFORKS = VFORKS.replace("threading.Thread(target=stuck, daemon=True).start()\nwait()", "print('up', flush=True)\nstuck()")


@pytest.mark.parametrize("waits", ["itself", "joins"])
def test_a_hang_of_a_main_thread_in_the_kernel_is_named_with_its_place(tmp_path, waits):
    """The main thread is in D itself, or joins a thread that is."""
    library = str(tmp_path / "lib.so")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=SOURCE.encode(), check=True)
    source = MAIN_VFORKS if waits == "itself" else VFORKS.replace("time.sleep(1000)", "threading.enumerate()[1].join()")
    assert source != VFORKS
    with spawned([sys.executable, "-c", source, library], ready="up") as process:
        eventually(lambda: ptrace.uninterruptible(process.pid), "a thread in state D")
        (tid,) = ptrace.uninterruptible(process.pid)
        found = answer(f"llm-hang {process.pid} -json")
        assert found["verdict"] == "uninterruptible", found
        assert [c["tid"] for c in found["culprits"]] == [tid] and (tid == process.pid) is (waits == "itself")
        told = " ".join(found["evidence"])
        assert "vfork" in told and ("kernel_clone" in told or "_do_fork" in told)
