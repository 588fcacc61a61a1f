"""A process that cannot be stopped: another one traces it and lets it run (strace -f), no process can be started here
(pids.max), or nothing is to be stopped. Each command answers from what can be read, and says in one line why."""

import json
import subprocess
import sys

import pytest
from harness.gdb_run import ROOT
from harness.subjects import spawned

SUBJECT = """
import threading, time
def spinning():
    n = 0
    while True:
        n += 1
def parked():
    time.sleep(600)
def waiting_here():
    print("here", flush=True)
    time.sleep(600)
for target in spinning, parked:
    threading.Thread(target=target, daemon=True).start()
waiting_here()
"""
TRACER = """
import sys, time
from gdbext.access import ptrace
for tid in ptrace.tids(int(sys.argv[1])):
    ptrace.call(ptrace.SEIZE, tid)
print("traces", flush=True)
time.sleep(600)
"""
# As where pids.max is reached: no process and no thread.
ALONE = """
import errno, os, sys, threading, _posixsubprocess, subprocess
def refused(*_, **__):
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
def no_thread(*_, **__):
    raise RuntimeError("can't start new thread")
os.fork = _posixsubprocess.fork_exec = refused
for name in "_fork_exec", "_start_new_thread", "_start_joinable_thread":
    for module in subprocess, threading:
        if hasattr(module, name):
            setattr(module, name, refused if module is subprocess else no_thread)
from gdbext.__main__ import main
sys.exit(main(sys.argv[1:]))
"""
COMMANDS = ["llm-stacks {pid}", "llm-hang {pid} -wait 0.5", "llm-locks {pid}", "pybt -all -still -on {pid}", "pyheap -on {pid}"]
COMMANDS += ["llm-snapshot {pid} -o {folder}/x.core", "llm-record {pid} -native -for 0.5 -o {folder}/x.json"]


@pytest.fixture(scope="module")
def subject():
    with spawned([sys.executable, "-c", SUBJECT], ready="here") as process:
        yield process


@pytest.fixture(scope="module")
def traced(subject):
    with spawned([sys.executable, "-c", TRACER, str(subject.pid)], ready="traces", cwd=ROOT) as tracer:
        yield tracer


def asked(line, python=("-m", "gdbext")):
    done = subprocess.run(
        [sys.executable, *python, *line.split(), "--json"], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert "Traceback" not in done.stderr and done.returncode in (0, 3), done.stderr
    return json.loads(done.stdout)


def looked(said, pid):
    """What an answer has to hold, whatever stands in the way."""
    assert not any(pause["seconds"] for pause in said.get("pauses", ()))
    if said["schema"] == "llm-stacks/1":
        seen = {f["function"] for group in said["groups"] for f in group["frames"] if f["kind"] == "python"}
        assert {"spinning", "parked", "waiting_here"} <= seen
    if said["schema"] == "pybt/1":
        assert {"spinning", "parked", "waiting_here"} <= {f["function"] for one in said["threads"] for f in one["frames"]}
    assert not said.get("failed")


@pytest.mark.parametrize("line", COMMANDS)
def test_another_tracer_lets_it_run(subject, traced, tmp_path, line):
    said = asked(line.format(pid=subject.pid, folder=tmp_path))
    looked(said, subject.pid)
    assert any(f"already traced by process {traced.pid} (" in reason for reason in said["partial"])
    assert traced.poll() is None and subject.poll() is None


@pytest.mark.parametrize("line", [COMMANDS[0], *COMMANDS[4:]])
def test_no_process_can_be_started_here(subject, tmp_path, line):
    said = asked(line.format(pid=subject.pid, folder=tmp_path), ("-c", ALONE))
    looked(said, subject.pid)
    assert any("no process can be started here (Resource temporarily unavailable)" in reason for reason in said["partial"])


@pytest.mark.parametrize("line", [COMMANDS[0], *COMMANDS[5:], "llm-top {pid} -once -interval 0.2"])
def test_nothing_is_to_be_stopped(subject, tmp_path, line):
    said = asked(line.format(pid=subject.pid, folder=tmp_path) + " -unstopped")
    looked(said, subject.pid)


@pytest.mark.parametrize("line", ["llm-stacks ssh:x", "llm-bt", "doctor"])
def test_what_needs_a_process_says_in_one_line_that_there_is_none(line):
    done = subprocess.run([sys.executable, "-c", ALONE, *line.split()], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and len((done.stderr + done.stdout).splitlines()) == 1, done.stderr
    assert "pids.max" in done.stderr + done.stdout
