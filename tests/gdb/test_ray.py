"""llm-stacks -ray on a Ray cluster of two nodes on this machine: one merged tree."""

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


def stacks(python, root, *words, **env):
    done = subprocess.run(
        [python, "-m", "gdbext", "stacks", "-ray", *words, "--json"],
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
            said = stacks(ray_python, root, str(one["pid"]), RAY_ADDRESS=address)
            assert said.get("ranks_read") == 2 and said["failed"] == [], said
            main = next(
                g
                for g in said["groups"]
                if [f["function"].rpartition(".")[2] for f in g["frames"] if f["kind"] == "python"] == one["stack"]
            )
            assert len(main["members"]) == 2 and all(m["pid"] == one["pid"] for m in main["members"])
    finally:
        cluster.stdin.close()
        cluster.wait(60)
