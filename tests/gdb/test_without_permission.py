"""What is told of processes that may not be traced: without capabilities, and with what Yama refuses (a stand-in: this kernel has
none). Who keeps others waiting is accused, nobody else is, and the first line says what is missing."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from harness.subjects import SUBJECTS, spawned
from harness.without_permission import DROPPED, ROOT, YAMA, said

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to drop")


class Row:
    """The processes of subjects/kept_waiting.py."""

    def __init__(self, seed):
        words = [sys.executable, os.path.join(SUBJECTS, "kept_waiting.py"), str(seed)]
        self.child = subprocess.Popen(words, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, start_new_session=True)

    def __enter__(self):
        return json.loads(self.child.stdout.readline())

    def __exit__(self, *_):
        os.killpg(self.child.pid, signal.SIGKILL)
        self.child.wait()


def accused(data):
    return sorted({c["pid"] for v in data["verdicts"] if v["verdict"] != "unknown" for c in v["culprits"]})


@pytest.mark.parametrize("mode", [YAMA, DROPPED], ids=["yama", "dropped"])
@pytest.mark.parametrize("seed", range(200, 212))
@pytest.mark.drawn(3)
def test_nobody_but_who_keeps_others_waiting_is_accused(seed, mode):
    with Row(seed) as truth:
        _, data = said(["llm-hang", truth["pids"][0], *truth["workers"]], mode)
    assert set(accused(data)) <= {truth["guilty"]}, (truth, data["verdicts"])
    assert data["no_permission"].startswith("no permission to read") and data["untraced"]


@pytest.mark.parametrize(
    "seed, mode",
    [(14, YAMA), (18, YAMA), (19, YAMA), (8, DROPPED)],
    ids=["lock of its own at the end of TCP", "a file lock that is kept", "slow", "stopped"],
)
def test_who_is_found(seed, mode):
    with Row(seed) as truth:
        _, data = said(["llm-hang", truth["pids"][0]], mode)
    assert accused(data) == ([truth["guilty"]] if truth["guilty"] else []), (truth, data["verdicts"])


NAPS = "import time\nprint('ready', flush=True)\nwhile True: time.sleep(0.2)"
FIRST = "no permission to read process {}, so this is what /proc and their own ports show; to mend it: "


@pytest.mark.parametrize("command, told", [("llm-stacks", "sleeps"), ("llm-top -once", "sleeps"), ("probe", "not known")])
def test_the_first_line_says_what_is_missing(command, told):
    with spawned([sys.executable, "-c", NAPS], ready="ready") as child:
        words = [*DROPPED, sys.executable, "-m", "gdbext", *command.split(), str(child.pid)]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
        first, _, rest = done.stdout.partition("\n")
        assert first.startswith(FIRST.format(child.pid)) and "SYS_PTRACE" in first and told in rest, done
        assert said([*command.split(), child.pid], DROPPED)[1]["no_permission"] == first


SILENT = ["sleep", "lock", "pipe", "computes", "well", "slow", "reads"]


@pytest.mark.parametrize("kind", SILENT)
@pytest.mark.drawn(3)
def test_a_server_whose_loop_stands_is_told_by_its_own_port(kind, tmp_path):
    """Nothing of it may be read: that it alone serves its port and reads no request is all that is known."""
    words = [sys.executable, os.path.join(SUBJECTS, "silent_server.py"), str(tmp_path), kind]
    with spawned(words, ready="{", start_new_session=True) as child:
        truth = json.loads(child.said)
        time.sleep(1.0)
        _, data = said(["llm-hang", truth["pid"]], DROPPED)
        os.killpg(child.pid, signal.SIGKILL)
    assert accused(data) == ([truth["pid"]] if truth["stands"] else []), data["verdicts"]


SERVER = """
import os, socket, threading, time
pid = os.fork()
if not pid:
    server = socket.create_server(("127.0.0.1", 0))
    one = threading.Thread(target=server.accept)
    one.start()
    one.join()
time.sleep(0.5)
print("ready", flush=True)
os.waitpid(pid, 0)
"""
LOOP = """
import asyncio, os, sys, time
r, w = os.pipe()
pid = os.fork()
async def serve():
    await (await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)).serve_forever()
if not pid:
    os.close(r)
    asyncio.run(serve())
os.close(w)
time.sleep(0.5)
print("ready", flush=True)
os.read(r, 1)
"""
JOBS = """
import os, time
r, w = os.pipe()
pid = os.fork()
if not pid:
    os.close(w)
    os.read(r, 1)
time.sleep(0.5)
print("ready", pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("code", [SERVER, LOOP, JOBS], ids=["a thread serves", "asyncio serves", "waits for jobs"])
def test_who_serves_or_has_no_job_is_no_fault(code):
    with spawned([sys.executable, "-c", code], ready="ready", start_new_session=True) as child:
        children = subprocess.run(["pgrep", "-P", str(child.pid)], capture_output=True, text=True).stdout.split()
        _, data = said(["llm-hang", child.pid, *children], YAMA)
        os.killpg(child.pid, signal.SIGKILL)
    assert accused(data) == [], data["verdicts"]
