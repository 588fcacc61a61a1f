"""A vLLM release's own Scheduler that makes steps as fast as Python can, in one process with what its model runner V2 keeps, as
on a GPU with one rank: three requests come and go, one ("long") grows, one ("still") runs no more and keeps its blocks.

  vllm_v2_steps.py FOLDER VERSION FAULT [TOKENS]

FAULT: none, or what is wrong all the time: table, rows, prompt (of the worker's row of "long"); double (its first block is one
of "still"'s), short ("still" has computed more than it has blocks for), counter (the free counter is 3 too high). TOKENS: that
"long" may have; then another one takes its place, or where something is wrong with it, it is over.

Says {"pid"}, and {"steps", "seconds"} once a second."""

import json
import os
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import older_engine
import vllm_release
import vllm_v2_worker
from vllm_release import request_of, step
from vllm_v2_worker import device

MAX_LEN = int(sys.argv[4]) if sys.argv[4:5] and sys.argv[4].isdigit() else 1 << 15


def config(kind, plain=vllm_release.config_of):
    made = vllm_v2_worker._with_v2(plain(kind))
    for one in (made.scheduler_config, made.model_config):
        one.max_model_len = MAX_LEN
    return made


class Steps:
    def __init__(self, scheduler, runner, fault):
        self.scheduler, self.runner, self.fault, self.number = scheduler, runner, fault, 0
        self.long = ""
        self.manager = scheduler.kv_cache_manager.coordinator.single_type_managers[0]
        vllm_v2_worker.feed(runner, scheduler)

    def add(self, name, tokens):
        self.scheduler.add_request(request_of(name, [1 + ord(name[0])] * tokens))

    def begin(self):
        self.add("still", 40)
        for _ in range(30):
            step(self.scheduler)
        self.scheduler.running.remove(self.scheduler.requests["still"])
        self.renew()
        if self.fault != "none":
            self.plant()

    def renew(self):
        """A new request that lives long, once the old one has nearly all the tokens that a request may have."""
        self.number += 1
        self.long = f"long-{self.number}"
        self.add(self.long, 64)
        for _ in range(40):
            step(self.scheduler)

    def plant(self):
        tables, states = self.runner.block_tables, self.runner.req_states
        row, still = states.req_id_to_index[self.long], self.scheduler.requests["still"]
        if self.fault == "table":
            device(tables.block_tables[0])[row, 0] += 7
        elif self.fault == "rows":
            states.index_to_req_id[row] = "still"
        elif self.fault == "prompt":
            states.prompt_len.np[row] += 1
        elif self.fault == "double":
            self.manager.req_to_blocks[self.long][0] = self.manager.req_to_blocks["still"][0]
        elif self.fault == "short":
            still.num_computed_tokens += 500
        elif self.fault == "counter":
            self.scheduler.kv_cache_manager.block_pool.free_block_queue.num_free_blocks += 3

    def turn(self):
        """One step, and what comes and goes with it."""
        from vllm.v1.request import RequestStatus

        scheduler = self.scheduler
        for request in list(scheduler.running):
            if request.request_id[0] == "r" and request.num_output_tokens > 200 + 16 * (int(request.request_id[2:]) % 9):
                scheduler.finish_requests(request.request_id, RequestStatus.FINISHED_STOPPED)
        while len(scheduler.running) + len(scheduler.waiting) < 4:
            self.number += 1
            self.add(f"r-{self.number}", 10 + self.number % 50)
        step(scheduler)
        if self.fault in ("none", "counter") and scheduler.requests[self.long].num_tokens > MAX_LEN - 100:
            scheduler.finish_requests(self.long, RequestStatus.FINISHED_STOPPED)
            self.renew()
        elif scheduler.requests[self.long].num_tokens > MAX_LEN - 100:
            raise SystemExit("it has no room for more tokens")


def run(steps):
    began, count = time.monotonic(), 0
    print(json.dumps({"pid": os.getpid()}), flush=True)
    while True:
        steps.turn()
        count += 1
        if time.monotonic() - began > 1:
            print(json.dumps({"steps": count, "seconds": time.monotonic() - began}), flush=True)
            began, count = time.monotonic(), 0


def main():
    folder, version, fault = sys.argv[1:4]
    vllm_release.BLOCKS = MAX_LEN // vllm_release.BLOCK + 128
    vllm_release.config_of = config
    older_engine.KNOWN["vllm.envs"].VLLM_USE_V2_MODEL_RUNNER = True
    older_engine.use(folder, version, real=vllm_v2_worker.REAL)
    vllm_v2_worker.stand_in()
    from vllm.v1.core import kv_cache_utils

    kv_cache_utils.init_none_hash(older_engine.sha256_bytes)
    scheduler = vllm_release.scheduler_of(version, "full")
    runner = vllm_v2_worker.GPUModelRunner([vllm_release.BLOCK], MAX_LEN)
    steps = Steps(scheduler, runner, fault)
    steps.begin()
    run(steps)


if __name__ == "__main__":
    main()
