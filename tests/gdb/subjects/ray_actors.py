"""A Ray cluster of two raylets on this machine, with actors in known states. Prints the cluster's address, then a line of
{name: {pid, does, end}}: `does` is "rests", "works" or "hangs"; `end`: the pid of the process where its wait ends, and what that
one does. Stays until its input closes."""

import asyncio
import json
import os
import sys
import threading
import time

import ray
from ray.cluster_utils import Cluster

cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 80 << 20})
cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
cluster.wait_for_nodes(240)
print(cluster.address, flush=True)
ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")


class Methods:
    def pid(self):
        return os.getpid()

    def works(self, begun):
        ray.get(begun.add.remote())
        n = 0
        while True:
            n = (n + sum(i * n for i in range(20000))) % 1009
            time.sleep(0.01)

    def locks(self, begun):
        ray.get(begun.add.remote())
        lock = threading.Lock()
        with lock:
            lock.acquire()

    def asks(self, begun, other, method):
        ref = getattr(other, method).remote(begun)
        ray.get(begun.add.remote())
        return ray.get(ref)


class Tasks:
    async def pid(self):
        return os.getpid()

    async def works(self, begun):
        await begun.add.remote()
        while True:
            self.n = sum(range(20000))
            await asyncio.sleep(0.01)

    async def asks(self, begun, other, method):
        ref = getattr(other, method).remote(begun)
        await begun.add.remote()
        return await ref


@ray.remote(num_cpus=0)
class Begun:
    def __init__(self):
        self.count = 0

    def add(self):
        self.count += 1

    def get(self):
        return self.count


plain, tasks = ray.remote(num_cpus=0)(Methods), ray.remote(num_cpus=0)(Tasks)
kinds = {
    **{name: plain for name in ("rests", "works", "asks one at work", "waits for its own lock", "asks one that waits")},
    **{name: tasks for name in ("tasks at rest", "tasks at work", "a task asks")},
    **{name: plain.options(max_concurrency=3) for name in ("threads at rest", "threads at work")},
}
actors = {name: kind.remote() for name, kind in kinds.items()}
begun = Begun.remote()
pids = dict(zip(actors, ray.get([actor.pid.remote() for actor in actors.values()])))
kept = [
    actors["asks one at work"].asks.remote(begun, actors["works"], "works"),
    actors["asks one that waits"].asks.remote(begun, actors["waits for its own lock"], "locks"),
    actors["a task asks"].asks.remote(begun, actors["tasks at work"], "works"),
    actors["threads at work"].works.remote(begun),
    actors["threads at work"].works.remote(begun),
]
while ray.get(begun.get.remote()) < 8:
    time.sleep(0.05)
truth = {name: {"pid": pid, "does": "rests"} for name, pid in pids.items()}
for name in ("works", "tasks at work", "threads at work"):
    truth[name]["does"] = "works"
truth["waits for its own lock"]["does"] = "hangs"
for name, other in (
    ("asks one at work", "works"),
    ("a task asks", "tasks at work"),
    ("asks one that waits", "waits for its own lock"),
):
    truth[name].update(does=truth[other]["does"], end=pids[other])
print(json.dumps(truth), flush=True)
sys.stdin.read()
cluster.shutdown()
