"""What the tests of real engines ask of an engine that runs (engines/conftest.py) and of what its processes say of themselves."""

import json
import os
import time

from gdbext.access.procfs import read_proc


def kv_said(running, pid):
    with open(os.path.join(running.folder, f"{pid}.kv.json")) as f:
        return json.load(f)


def pid_of(engine, title):
    found = [pid for pid, t in engine.titles().items() if t == title]
    assert found, f"no process is called {title}: {engine.titles()}"
    return found[0]


def processes(engine):
    """{what it is called after the engine's name: pid}; the one that a user would have started is the frontend."""
    found = {title.rpartition("::")[2]: pid for pid, title in engine.titles().items() if "::" in title}
    return {**found, "frontend": engine.said["pid"]}


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


def same_requests(answer, said):
    tables = {r["request_id"]: r["tables"] for r in answer["requests"]}
    wanted = {}
    for group, held in enumerate(said["tables"]):
        for request, blocks in held.items():
            wanted.setdefault(request, {})[str(group)] = blocks
    assert tables == wanted
    for r in answer["requests"]:
        status, prompt, computed, output, _ = said["requests"][r["request_id"]]
        assert (r["status"], r["prompt_tokens"], r["computed_tokens"], r["output_tokens"]) == (status, prompt, computed, output)
