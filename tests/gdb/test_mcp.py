"""`python -m gdbext mcp` with the SDK's own client, and that nothing stays traced, stopped or running whoever is killed.

GDBEXT_TEST_KILLS says how many rounds the kills take (default 3)."""

import contextlib
import glob
import json
import os
import random
import re
import signal
import subprocess
import sys
import time

import pytest
from harness.gdb_run import ROOT
from harness.hangs import fault
from harness.heartbeats import ROUNDS, eventually, heartbeats
from harness.mcp_calls import client, has_sdk
from harness.subjects import spawned

from gdbext.access import ptrace

ROWS = "import time\nrows = list(range(99999))\nprint('{}', flush=True)\ntime.sleep(600)\n"
# The calls alone, without the SDK: how it is killed is the point.
CALLS = """
import asyncio, sys
sys.path.insert(0, sys.argv[1])
from gdbext.agents.server import Looks

async def main():
    looks = Looks()
    print("begin", flush=True)
    while True:
        await asyncio.gather(*(looks.call("stacks", {"what": pid}) for pid in sys.argv[2:]))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def sdk_python(torch_python):
    """An interpreter that has the SDK."""
    if not has_sdk(torch_python):
        pytest.skip("no environment with the package mcp")
    return torch_python


def server_of(process):
    """The pid of the server that a client has started."""
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as f:
        (server,) = map(int, f.read().split())
    return server


def looks_of(server):
    """Pids of a server's looks that still run."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        with contextlib.suppress(OSError), open(path, "rb") as f:
            words = f.read().split(b"\0")
            if any(b"gdbext.agents.look" in word for word in words) and str(server).encode() in words:
                found.append(int(path.split("/")[2]))
    return found


def untouched(pid):
    """Whether no thread is traced or stopped."""
    states = [ptrace.status(pid, tid) for tid in ptrace.tids(pid)]
    return bool(states) and all(s and not s["tracer"] and s["state"] not in "tT" for s in states)


def test_an_agent_finds_a_deadlock_and_reads_its_objects(sdk_python):
    with client(sdk_python) as (tools, call, _), spawned([sys.executable, "-c", ROWS], ready="{") as one:
        assert {"ranks", "why", "stacks", "requests", "request", "object", "tensor", "kv", "heap"} < {t["name"] for t in tools}
        assert all(t["annotations"]["readOnlyHint"] and not t["annotations"]["destructiveHint"] for t in tools)
        with fault("abba_locks") as (pid, culprits):
            text, failed = call("why", what=str(pid))
            assert not failed and text.startswith("lock-cycle") and all(str(tid) in text for tid in culprits)
            verdict = json.loads(call("why", what=str(pid), json=True)[0])
            assert verdict["schema"] == "llm-hang/1" and verdict["verdict"] == "lock-cycle"
            assert all(str(tid) in call("locks", what=str(pid))[0] for tid in culprits)
            text, failed = call("record", what=str(pid), **{"for": 0.5})
            assert not failed and "samples a second" in text
            assert call("record", what=str(pid), **{"for": 500}) == ("record: for is at most 50 seconds here", True)
            assert "resident" in call("memory", what=str(pid))[0]
        assert all(t["title"] and t["outputSchema"] for t in tools)
        assert not call("guide")[1] and "why all" in call("guide", topic="hang")[0]
        known = call("list")[0]
        assert {"gdbext://report", "gdbext://guide", "hang", "memory"} <= set(known)
        assert "why all" in call("resource", name="gdbext://guide")[0] and "why all" in call("prompt", name="hang")[0]
        assert call("resource", name="gdbext://report")[0].startswith("== why\n")
        assert call("prompt", name="nope")[0].startswith("error: there is no prompt 'nope'; there are hang")
        text, failed = call("object", on=str(one.pid), expr="len(rows)")
        assert not failed and text.startswith("99999\n")
        assert call("object", on=str(one.pid), expr="rows -show-content")[1]
        assert call("object", on="0", expr="rows")[1]
        assert call("nothing") == ("there is no tool 'nothing'; there are " + ", ".join(t["name"] for t in tools), True)
        text, failed = call("object", on=str(one.pid), expr="rows", full=True)
        pages = 1
        while "cursor" in text:
            assert len(text.encode()) <= 8192 and not failed
            pages += 1
            text, failed = call("object", cursor=re.search(r'"cursor": "(\d+:\d+)"', text)[1])
        assert pages > 10 and "99998]" in text
        assert untouched(one.pid)


def test_a_call_that_takes_too_long_is_ended_and_said(sdk_python, tmp_path):
    with heartbeats(tmp_path, 1) as (one,), client(sdk_python, limit=0.2) as (_, call, process):
        text, failed = call("stacks", what=str(one.pid), samples=100)
        assert failed and text == "stacks: no answer in 0.2 s; it was ended, and nothing is left stopped"
        assert untouched(one.pid) and one.runs() and not looks_of(server_of(process))


@pytest.mark.parametrize("who", ["client", "server"])
def test_the_end_of_the_client_or_of_the_server_ends_the_look(sdk_python, tmp_path, who):
    with heartbeats(tmp_path, 1) as (one,), client(sdk_python) as (_, _, process):
        process.stdin.write(json.dumps(["stacks", {"what": str(one.pid), "samples": 1000, "interval": 0.01}]) + "\n")
        process.stdin.flush()
        server = server_of(process)
        eventually(lambda: looks_of(server), "the look to begin")
        time.sleep(random.random() / 2)
        os.kill(process.pid if who == "client" else server, signal.SIGKILL)
        eventually(lambda: not looks_of(server), "the look to end")
        eventually(lambda: untouched(one.pid), "the process to run on")
        assert one.runs()


def test_servers_killed_at_random_moments_leave_nothing_traced(tmp_path):
    with heartbeats(tmp_path, 2) as subjects:
        pids = [str(one.pid) for one in subjects]
        for _ in range(ROUNDS * 4):
            words = [sys.executable, "-c", CALLS, ROOT, *pids]
            server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            try:
                assert server.stdout.readline() == "begin\n"
                time.sleep(random.random())
            finally:
                server.kill()
                server.wait()
                server.stdout.close()
            eventually(lambda pid=server.pid: not looks_of(pid), "the looks to end")
            for one in subjects:
                eventually(lambda pid=one.pid: untouched(pid), "the process to run on")
                assert one.runs()


def test_without_the_sdk_one_line_says_what_is_missing():
    code = "import sys; sys.modules['mcp_types'] = None; sys.path[0] = sys.argv[1]; import gdbext.__main__ as m; m.main(['mcp'])"
    said = subprocess.run([sys.executable, "-c", code, ROOT], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert said.stdout == "" and said.stderr.startswith("gdbext: mcp needs the package mcp, 2 or newer")
    assert len(said.stderr.splitlines()) == 1
