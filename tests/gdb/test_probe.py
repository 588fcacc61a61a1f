"""gdbext probe: one line and an exit status, for machines; it stops nothing."""

import json
import subprocess
import sys

import pytest
from harness.gdb_run import ROOT
from harness.subjects import spawned

HELD = """
import threading, time
lock, has = threading.Lock(), threading.Event()
def hold():
    with lock:
        has.set()
        threading.Event().wait()
threading.Thread(target=hold).start()
has.wait()
print("ready", flush=True)
lock.acquire()
"""
WELL = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print("ready", flush=True)
while True:
    server.accept()
"""
# Comes and goes: each look finds it at another lock, so that no hang is seen twice.
CHANGES = """
import threading, time
def hold(lock, has):
    with lock:
        has.set()
        while time.monotonic() < until:
            threading.Event().wait(300)
until = time.monotonic() + 900
while True:
    lock, has = threading.Lock(), threading.Event()
    threading.Thread(target=hold, args=(lock, has), daemon=True).start()
    has.wait()
    print("ready", flush=True)
    lock.acquire(timeout=0.9)
"""


def probed(*words):
    command = [sys.executable, "-m", "gdbext", "probe", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout, done.stderr


def stops(pid):
    """How often it was stopped: what a tracer has done to it shows in the switches that it did not want."""
    with open(f"/proc/{pid}/status") as f:
        return next(line.split()[1] for line in f if line.startswith("TracerPid"))


def test_a_hang_is_2_also_if_seen_twice_and_the_line_says_who():
    with spawned([sys.executable, "-c", HELD], ready="ready") as child:
        status, said, _ = probed(child.pid, "--json")
        told = json.loads(said)
        assert (status, told["state"], told["verdict"], told["looks"]) == (2, "hung", "lock-held", 1)
        assert told["culprits"][0]["pid"] == child.pid and "in hold" in told["why"] and stops(child.pid) == "0"
        status, said, _ = probed(child.pid, "-liveness")
        assert status == 2 and said.startswith("hung: lock-held") and said.count("\n") == 1


def test_what_is_well_is_0():
    with spawned([sys.executable, "-c", WELL], ready="ready") as child:
        for words in ([child.pid], [child.pid, "-liveness"]):
            status, said, _ = probed(*words)
            assert (status, said.count("\n")) == (0, 1) and said.startswith("well: "), said


def test_a_wait_that_ends_between_two_looks_kills_nobody():
    with spawned([sys.executable, "-c", CHANGES], ready="ready") as child:
        assert probed(child.pid, "-liveness")[0] == 0


@pytest.mark.parametrize(
    ("words", "plain"),
    [(["999999999"], 4), (["./no-such-file"], 4), (["-bogus"], 1), (["-wait", "0"], 1), (["all", "-wait", "x"], 1)],
)
def test_only_a_hang_fails_a_liveness_probe(words, plain):
    assert probed(*words)[0] == plain
    status, said, error = probed(*words, "-liveness")
    assert status == 0 and (said or error).strip()
