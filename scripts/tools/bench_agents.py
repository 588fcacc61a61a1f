"""scripts/bench --mcp-kills N: N clients of `python -m gdbext mcp` are killed at random moments while their server looks at a
process, some at once; afterwards no look may run, and no thread of the processes may be traced or stopped.

The server is the SDK's own; the clients are forks of one process that has loaded it, and speak the protocol's lines themselves:
so a round costs what a look costs, not what loading the SDK costs."""

from __future__ import annotations

import concurrent.futures
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from .environments import environment
from .say import say

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
AT_ONCE = 4  # clients
MOMENTS = 1.5  # of the time that a call takes alone: within it clients are killed
CLIENTS = """
import json, os, sys
sys.path.insert(0, sys.argv[1])
import mcp.server.stdio, mcp_types
from gdbext.agents import server

def client(pid):
    (asks, said), (answers, given) = os.pipe(), os.pipe()
    served = os.fork()
    if not served:
        os.dup2(asks, 0); os.dup2(given, 1)
        os.close(said); os.close(answers)
        server.serve()
        os._exit(0)
    os.close(asks); os.close(given)
    print(os.getpid(), served, flush=True)
    to, answers = os.fdopen(said, "w"), os.fdopen(answers)
    def tell(**message):
        to.write(json.dumps({"jsonrpc": "2.0", **message}) + "\\n"); to.flush()
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "killed", "version": "1"}}
    tell(id=0, method="initialize", params=about)
    answers.readline()
    tell(method="notifications/initialized")
    for number in range(1, 1 << 30):
        tell(id=number, method="tools/call", params={"name": "stacks", "arguments": {"what": str(pid)}})
        said = json.loads(answers.readline())
        print("answered", int("result" in said and not said["result"].get("isError")), flush=True)

for line in sys.stdin:
    one = os.fork()
    if not one:
        client(int(line))
        os._exit(0)
    os.waitpid(one, 0)
    print("ended", flush=True)
"""


def main(count: int, seed: int = 1) -> int:
    """Kills `count` clients and prints what was left. -> exit status."""
    from harness.heartbeats import heartbeats

    bad: list[str] = []
    took: list[float] = []
    with tempfile.TemporaryDirectory() as folder, heartbeats(folder, AT_ONCE) as subjects:
        each = [count // AT_ONCE + (number < count % AT_ONCE) for number in range(AT_ONCE)]
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            parts = zip(subjects, each, range(seed, seed + AT_ONCE))
            for part in [pool.submit(_kills, one, number, random.Random(own), bad, took) for one, number, own in parts]:
                part.result()
    left = f"{len(bad)} left something{': ' * bool(bad)}{'; '.join(bad[:20])}"
    say(f"{len(took)} clients killed: {left}; until all was quiet {statistics.median(took):.2f} s, at most {max(took):.2f} s")
    return bool(bad)


def _kills(one, count, drawn, bad, took):
    """Kills `count` clients that look at the process `one`, one after the other."""
    line = [environment("vllm"), "-c", CLIENTS, ROOT]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as clients:
        try:
            usual = _alone(clients, one.pid)
            say(f"a call takes {usual:.2f} s; clients are killed within {MOMENTS * usual:.2f} s of their first line")
            for _ in range(count):
                took.append(_killed(clients, one, drawn.random() * MOMENTS * usual, bad))
                if len(took) % 50 == 0:
                    say(f"{len(took)} clients killed: {len(bad)} left something; at most {max(took):.2f} s until all was quiet")
        finally:
            clients.kill()


def _started(clients, pid):
    """-> (pid of a client that has begun, pid of its server)"""
    clients.stdin.write(f"{pid}\n")
    client, served = clients.stdout.readline().split()
    return int(client), int(served)


def _end(clients, client):
    os.kill(client, signal.SIGKILL)
    while clients.stdout.readline() != "ended\n":
        pass


def _alone(clients, pid):
    """Seconds that a call takes."""
    client, _ = _started(clients, pid)
    begin = time.monotonic()
    assert clients.stdout.readline() == "answered 1\n", "the first call failed"
    _end(clients, client)
    return time.monotonic() - begin


def _killed(clients, one, moment, bad):
    """Kills one client at a moment; notes what it left. -> seconds until the server, its looks and the traces had ended."""
    from harness.heartbeats import within

    from gdbext.access import ptrace

    client, served = _started(clients, one.pid)
    time.sleep(moment)
    _end(clients, client)
    begin = time.monotonic()

    def quiet():
        states = [ptrace.status(one.pid, tid) for tid in ptrace.tids(one.pid)]
        free = bool(states) and all(s and not s["tracer"] and s["state"] not in "tT" for s in states)
        return free and not os.path.exists(f"/proc/{served}") and not _looks(served)

    if not within(quiet, 60) or not one.runs():
        bad.append(f"server {served}: looks {_looks(served)}, process {one.pid}")
    return time.monotonic() - begin


def _looks(server):
    """Pids of a server's looks that still run."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue
        if any(b"gdbext.agents.look" in word for word in words) and str(server).encode() in words:
            found.append(int(name))
    return found


if __name__ == "__main__":
    sys.path[:0] = [os.path.join(ROOT, "tests"), ROOT]
    sys.exit(main(int(sys.argv[1])))
