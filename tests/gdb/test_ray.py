"""Ray on this machine: the nodes of a cluster are one tree and one verdict; actors at rest, at work, and those that wait for
another's result."""

import json
import os
import signal
import subprocess

import pytest
from harness.pools import pools
from harness.subjects import SUBJECTS
from tools.environments import existing

KEPT = ("busy", "idle", "unknown")  # verdicts that accuse nobody
LOOKS = 6  # on a full machine one look may not be enough


@pytest.fixture(scope="module")
def ray_python():
    found = existing("ray")
    if not found:
        pytest.skip("no environment with ray: run scripts/test gdb, which makes one")
    return found


@pytest.fixture(scope="module")
def cluster(ray_python):
    """-> (its address, what each actor does)"""
    line = [ray_python, "-u", os.path.join(SUBJECTS, "ray_actors.py")]
    child = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        address = child.stdout.readline().strip()
        assert address, "the cluster did not start"
        yield address, json.loads(child.stdout.readline())
    finally:
        child.stdin.close()
        child.wait(120)


def asked(python, root, *words, **env):
    done = subprocess.run(
        [python, "-m", "gdbext", *words, "--json"],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        timeout=280,
        env={**os.environ, **env},
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, done.stderr[-2000:]
    return json.loads(lines[-1])


def test_two_nodes_one_tree(ray_python, cluster, root):
    address, _ = cluster
    with pools("a") as (one,):
        said = asked(ray_python, root, "llm-stacks", "-ray", str(one["pid"]), RAY_ADDRESS=address)
        assert said.get("ranks_read") == 2 and said["failed"] == [], said
        main = next(
            g
            for g in said["groups"]
            if [f["function"].rpartition(".")[2] for f in g["frames"] if f["kind"] == "python"] == one["stack"]
        )
        assert len(main["members"]) == 2 and all(m["pid"] == one["pid"] for m in main["members"])
        assert len({m["node"] for m in main["members"]}) == 2, main  # of one machine: told apart by their addresses or ids
        said = asked(ray_python, root, "llm-hang", f"{one['pid']}@ray:", "-wait", "0.5", RAY_ADDRESS=address)
        assert said.get("ranks_read") == 2 and len(said["nodes"]) == 2, said
        assert all(node["node"].startswith("ray:") for node in said["nodes"]), said["nodes"]


def test_an_actor_is_at_rest_or_at_work_as_it_says(ray_python, cluster, root):
    truths = cluster[1]
    right = {"rests": "idle", "works": "busy", "hangs": "lock-cycle"}
    for _ in range(LOOKS):
        said = asked(ray_python, root, "llm-hang", *(str(t["pid"]) for t in truths.values()), "-wait", "0.8")
        judged = {int(pid): v for v in said["verdicts"] for pid in v["group"]}
        found = {name: judged[truth["pid"]]["verdict"] for name, truth in truths.items()}
        assert all(found[name] in (right[t["does"]], "unknown") for name, t in truths.items()), (found, said["verdicts"])
        accused = {c["pid"] for v in said["verdicts"] if v["verdict"] not in KEPT for c in v["culprits"]}
        assert accused <= {truths["waits for its own lock"]["pid"]}, said["verdicts"]
        if "unknown" not in found.values():
            break
    assert {found[name] for name, t in truths.items() if t["does"] != "works"} == {"idle", "lock-cycle"}, (
        found,
        said["verdicts"],
    )
    full = os.getloadavg()[0] > 2 * (os.cpu_count() or 1)  # who works gets no processor there: unknown
    assert full or "busy" in found.values(), (found, said["verdicts"])
    for truth in truths.values():
        waits = [c for c in said["chains"] if c["waiter"]["pid"] == truth["pid"] and "of Ray from the actor" in c["waits_for"]]
        ends = {p["pid"] for c in waits for p in [*(link["place"] for link in c["through"]), c["end"]["place"]] if p}
        assert truth.get("end") in (ends or {None}), (truth, said["chains"])


def test_who_asks_a_stopped_actor_is_its_victim(ray_python, cluster, root):
    asks, other = (cluster[1][name]["pid"] for name in ("asks one at work", "works"))
    os.kill(other, signal.SIGSTOP)
    try:
        said = asked(ray_python, root, "llm-hang", str(asks), "-wait", "0.5")
    finally:
        os.kill(other, signal.SIGCONT)
    assert said["verdict"] == "stopped" and [c["pid"] for c in said["culprits"]] == [other], said["verdicts"]
    waits = [c for c in said["chains"] if c["waiter"]["pid"] == asks and "the actor in process" in c["waits_for"]]
    assert [(c["end"]["state"], c["end"]["place"]["pid"]) for c in waits] == [("stopped", other)], said["chains"]


def test_an_agent_that_waits_for_its_raylets_end_is_not_accused(cluster, root):
    said = subprocess.run(["ps", "-wweo", "pid,args"], stdout=subprocess.PIPE, text=True, check=True).stdout
    agent = next(line.split()[0] for line in said.splitlines() if "ray::DashboardAgent" in line)
    assert {v["verdict"] for v in asked("python3", root, "llm-hang", agent, "-wait", "0.5")["verdicts"]} <= {"idle", "unknown"}
