"""llm-kv check -ranks where the scheduler is on another machine than its worker: two pid namespaces, which a stand-in of ssh
enters. The two are at work while they are read."""

import json
import os
import shutil
import socket
import subprocess
import sys

import pytest
from harness.gdb_run import ROOT
from harness.jobs import below
from harness.releases import release
from harness.schemas import held
from harness.subjects import SUBJECTS, spawned

VERSION = "0.26.0"
MACHINE = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "--"]
SSH = """#!/bin/sh
# a stand-in: it enters the namespaces of a process in place of a machine
while [ "$1" != "--" ]; do shift; done
[ "$2" = dead ] && { echo "connect to host dead: No route" >&2; exit 255; }
exec nsenter -t $(cat %s/"$2") -p -m -- sh -c "$3"
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    if os.geteuid() or not all(map(shutil.which, ("unshare", "nsenter"))):
        pytest.skip("needs root, unshare and nsenter")
    if subprocess.run([*MACHINE, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody make pid namespaces")
    folder = tmp_path_factory.mktemp("bin")
    (folder / "ssh").write_text(SSH % folder)
    (folder / "ssh").chmod(0o755)
    os.symlink(sys.executable, str(folder / "python3"))
    return folder


@pytest.fixture(scope="module")
def worker(place, torch_python):
    """The worker's process; its scheduler is on machine "head", it on "tail"."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    env = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    words = [release("vllm", VERSION), VERSION, place / "way", str(port)]
    script = [torch_python, os.path.join(SUBJECTS, "kv_two_machines.py")]
    more = {"env": env, "start_new_session": True}
    with spawned([*MACHINE, *script, "worker", *words], ready='{"listens"', **more) as tail:
        with spawned([*MACHINE, *script, "core", *words], ready='{"pid"', **more) as head:
            assert json.loads(tail.stdout.readline())["pid"]
            for name, one in (("head", head), ("tail", tail)):
                (place / name).write_text(str(below(one.pid)))
            yield tail


def asked(place, *words):
    """-> (the answer as JSON, the exit status); asked again where that is what the tool says."""
    env = {**os.environ, "PATH": f"{place}:{os.environ['PATH']}", "XDG_CACHE_HOME": str(place / "cache")}
    for _ in range(3):
        line = [sys.executable, "-m", "gdbext", "llm-kv", "check", *words]
        done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300)
        if "ask again" not in done.stdout:
            break
    return (held(json.loads(done.stdout)) if "--json" in words else done.stdout), done.returncode


def test_a_worker_elsewhere_is_compared_with_its_scheduler_at_work(place, worker):
    said, status = asked(place, "-ranks", "ssh:head", "ssh:tail", "--json")
    assert said["schema"] == "llm-kv/1" and said["ok"] is True, said
    assert not said["violations"] and not said["changed"] and said["ranks"] == ["TP0"]
    assert [one for one in said["not_compared"] if one["label"] != "pool"] == []
    (rank,) = [one for one in said["compared"] if one["label"] == "TP0"]
    assert rank["node"] == "tail" and rank["rows"] >= 1 and rank["counts"] >= 1
    assert [(n["node"], n["state"], n["ok"]) for n in said["nodes"]] == [("ssh:head", "read", True), ("ssh:tail", "read", True)]
    assert "ssh:head: unstopped" in said["partial"] and status == (3 if said["partial"][1:] else 0)


def test_values_of_a_worker_without_its_scheduler_are_named_as_unread(place, worker):
    pytest.importorskip("numpy")
    said, status = asked(place, "-ranks", "-deep", "ssh:head", "ssh:tail", "--json")
    left = [(one["label"], one["node"], one["why"]) for one in said["not_compared"] if one["what"] == "blocks' values"]
    assert left == [("TP0", "tail", "which are computed is known to its scheduler alone, on another machine")], said
    assert said["ok"] is None and said["ranks"] == ["TP0"] and status == 3  # as where no value of a worker here can be read


@pytest.mark.parametrize("fault, rule", [("table", "worker-table"), ("rows", "worker-rows"), ("prompt", "worker-length")])
@pytest.mark.drawn(1)
def test_what_is_wrong_at_the_worker_is_found_there(place, worker, fault, rule):
    harm(worker, fault)
    try:
        said, _ = asked(place, "-ranks", "ssh:head", "ssh:tail", "--json")
        text, _ = asked(place, "-ranks", "ssh:head", "ssh:tail")
    finally:
        harm(worker, "nothing")
    assert said["ok"] is False
    assert [(v["rule"], v["request_id"], v["rank"], v["node"]) for v in said["violations"]] == [(rule, "still", "TP0", "tail")]
    assert f"  {rule}: TP0: " in text and "ssh:tail  vllm" in text, text


def harm(worker, how):
    worker.stdin.write(how + "\n")
    worker.stdin.flush()
    assert json.loads(worker.stdout.readline()) == {"harmed": how}


def test_nodes_not_asked_or_silent_are_named_and_not_judged(place, worker):
    harm(worker, "table")
    try:
        head, status = asked(place, "-ranks", "ssh:head", "ssh:dead", "--json")
        tail, alone = asked(place, "-ranks", "ssh:tail", "--json")
    finally:
        harm(worker, "nothing")
    assert head["ok"] is None and head["ranks"] == [] and not head["violations"] and status == 3
    left = [(one["label"], one["node"]) for one in head["not_compared"] if one["label"] != "pool"]  # whose counter may move
    assert left == [("rank 0 of 1", "head")], head
    assert [f["label"] for f in head["failed"]] == ["ssh:dead"]
    assert tail["ok"] is None and not tail["violations"] and alone == 3
    assert [(one["label"], one["node"]) for one in tail["not_compared"]] == [("TP0", "tail")]
    assert "its scheduler is not among the processes that were read" in tail["not_compared"][0]["why"]
