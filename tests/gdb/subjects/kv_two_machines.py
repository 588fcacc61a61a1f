"""An engine over two machines: a vLLM release's own Scheduler on one, on the other what its model runner V2 keeps, in the process
of a worker that is told of each step.

  kv_two_machines.py core|worker FOLDER VERSION SOCKET STORE

STORE: the port at which the ranks of the job meet. The worker listens at SOCKET; each says {"pid"} once both are at work. A line
on the worker's standard input says what becomes wrong there: table, rows, prompt, or nothing; it answers with that line."""

import json
import os
import sys
import threading
import time
from multiprocessing.connection import Client, Listener

import torch.distributed as dist

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import older_engine
import vllm_release
import vllm_v2_steps
import vllm_v2_worker
from older_engine import Config
from titled import set_title
from vllm_v2_steps import Steps, config
from vllm_v2_worker import device

MAX_LEN = vllm_v2_steps.MAX_LEN = 1 << 12
PACE = 0.003  # seconds of a step, so that it leaves others a processor


class Far:
    """The model runner of the other machine, as the scheduler's process reaches it."""

    def __init__(self, way):
        self.way = way

    def sampled(self, *numbers):
        self._tell("sampled", numbers)

    def take(self, plan):
        self._tell("take", (plan,))

    def _tell(self, what, more):
        self.way.send((what, more))
        self.way.recv()


def core(way, version, port):
    vllm_release.config_of = lambda kind: at_port(config(kind), port)
    scheduler = vllm_release.scheduler_of(version, "full")
    steps = Steps(scheduler, Far(way), "none")
    steps.begin()
    set_title("VLLM::EngineCore")
    print(json.dumps({"pid": os.getpid()}), flush=True)
    while True:
        steps.turn()
        time.sleep(PACE)


def at_port(made, port):
    """The configuration of an engine over two machines."""
    about = {"nnodes": 2, "master_addr": "127.0.0.1", "master_port": port, "world_size": 1}
    made.parallel_config = Config(**{**vars(made.parallel_config), **about})
    return made


def worker(way, port):
    runner = vllm_v2_worker.GPUModelRunner([vllm_release.BLOCK], MAX_LEN)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=1)
    threading.Thread(target=harm, args=(runner,), daemon=True).start()
    set_title("VLLM::Worker_TP0")
    said = False
    while True:
        what, more = way.recv()
        getattr(runner, what)(*more)
        way.send(None)
        if not said and len(runner.req_states.req_id_to_index) > 3:
            print(json.dumps({"pid": os.getpid()}), flush=True)
            said = True


def harm(runner):
    """Harms the row of "still", which no step writes to, and mends it again with the next line."""
    tables, states = runner.block_tables, runner.req_states
    before = None
    for line in sys.stdin:
        row = states.req_id_to_index["still"]
        if before is not None:
            device(tables.block_tables[0])[row, 1], states.index_to_req_id[row], states.prompt_len.np[row] = before
            states.prompt_len.gpu[row] = before[2]
        before = int(device(tables.block_tables[0])[row, 1]), "still", int(states.prompt_len.np[row])
        if line.strip() == "table":
            device(tables.block_tables[0])[row, 1] += 7
        elif line.strip() == "rows":
            states.index_to_req_id[row] = "another"
        elif line.strip() == "prompt":
            states.prompt_len.np[row] = states.prompt_len.gpu[row] = before[2] + 1  # both, as by a step that was told so
        print(json.dumps({"harmed": line.strip()}), flush=True)


def main():
    role, folder, version, address, port = sys.argv[1:]
    vllm_release.BLOCKS = MAX_LEN // vllm_release.BLOCK + 128
    older_engine.KNOWN["vllm.envs"].VLLM_USE_V2_MODEL_RUNNER = True
    older_engine.use(folder, version, real=vllm_v2_worker.REAL)
    vllm_v2_worker.stand_in()
    from vllm.v1.core import kv_cache_utils

    kv_cache_utils.init_none_hash(older_engine.sha256_bytes)
    if role == "worker":
        listener = Listener(address)
        print(json.dumps({"listens": address}), flush=True)
        with listener.accept() as way:
            worker(way, int(port))
    else:
        with Client(address) as way:
            core(way, version, int(port))


if __name__ == "__main__":
    main()
