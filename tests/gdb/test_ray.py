"""The nodes of a Ray cluster of two on this machine: one tree, one verdict."""

import json
import os
import subprocess

import pytest
from harness.pools import pools
from tools.environments import existing

CLUSTER = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 80 << 20})
cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
cluster.wait_for_nodes(240)
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@pytest.fixture(scope="module")
def ray_python():
    found = existing("ray")
    if not found:
        pytest.skip("no environment with ray: run scripts/test gdb, which makes one")
    return found


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


def test_two_nodes_one_tree(ray_python, root):
    cluster = subprocess.Popen(
        [ray_python, "-c", CLUSTER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        address = cluster.stdout.readline().strip()
        assert address, "the cluster did not start"
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
            assert said["schema"] == "llm-hang/1" and said["ranks_read"] == 2 and len(said["nodes"]) == 2, said
            assert all(node["node"].startswith("ray:") for node in said["nodes"]), said["nodes"]
    finally:
        cluster.stdin.close()
        cluster.wait(60)
