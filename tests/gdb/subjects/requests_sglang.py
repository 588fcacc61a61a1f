"""STAND-INS of SGLang's processes, named as SGLang 0.5.23 names them, with one request "a" on its way.

requests_sglang.py ROLE [FAULT]     ROLE: server, scheduler or detokenizer. Says when it is where it stays.

FAULT of a server: blocked (a callback of its loop comes to no end), deaf (the task that takes answers in has ended), kept (the
request is not handed on, in a callback that comes to no end); of the others: loops (in an endless loop), turns (in a long step
that gets on), paused (the scheduler has it, and is paused).
"""

import asyncio
import os
import sys
import time
import types

for name in ("sglang", "sglang.version", "sglang.srt.entrypoints.http_server"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["sglang.version"].__version__ = "0.5.23"
ROLE, FAULT = sys.argv[1], (sys.argv[2:] or [""])[0]


def say():
    print("{}", flush=True)


def endless():
    order = {"a": 1}
    while order:
        order.get("a")


class ReqState:
    def __init__(self, dispatched):
        self.finished, self.dispatched, self.last_completion_tokens, self.output_ids = False, dispatched, 1, []


class TokenizerManager:
    def __init__(self):
        self.rid_to_state = {"a": ReqState(FAULT != "kept")}
        self.event_loop, self.asyncio_tasks = asyncio.get_running_loop(), set()
        for function in (self.handle_loop, self.sigterm_watchdog):
            self.asyncio_tasks.add(self.event_loop.create_task(print_exception_wrapper(function)))

    async def handle_loop(self):
        if FAULT == "deaf":
            raise asyncio.CancelledError
        await self.event_loop.create_future()

    async def sigterm_watchdog(self):
        await self.event_loop.create_future()


async def print_exception_wrapper(function):
    await function()


async def serve():
    sys.modules["sglang.srt.entrypoints.http_server"]._global_state = types.SimpleNamespace(tokenizer_manager=TokenizerManager())
    await asyncio.sleep(0.01)
    say()
    if FAULT in ("blocked", "kept"):
        endless()
    await asyncio.get_running_loop().create_future()


class SamplingParams:
    """With as many parameters as SGLang 0.5.23 has: N of number p{N}, a text of 30 characters every third."""

    def __init__(self):
        for n in range(36):
            setattr(self, f"p{n:02}", f"{n:030}" if n % 3 == 0 else n)


class Req:
    def __init__(self, rid, prompt=32, output=3):
        self.rid, self.origin_input_ids, self.output_ids, self.finished_reason = rid, [5] * prompt, [7] * output, None
        self.retraction_count = 0
        self.kv = types.SimpleNamespace(req_pool_idx=1, kv_committed_len=prompt + output)
        self.sampling_params = SamplingParams()
        for n in range(40):  # as many attributes as a real one has
            setattr(self, f"other_{n}", None)


class Scheduler:
    def __init__(self):
        self.forward_ct, self.max_total_num_tokens, self._engine_paused = 7, 4096, FAULT == "paused"
        self.running_batch = types.SimpleNamespace(reqs=[Req("a")] if FAULT in ("turns", "paused") else [])
        self.last_batch = self.cur_batch = self.chunked_req = None
        self.waiting_queue = []

    def event_loop_normal(self):
        say()
        if FAULT == "loops":
            self.process_input_requests()
        if FAULT == "turns":
            self.run_batch()
        self.recv_requests()

    def recv_requests(self):
        time.sleep(3600)

    def process_input_requests(self):
        endless()

    def run_batch(self):
        layer = 0
        while True:
            layer += 1
            time.sleep(0.001)


class DetokenizerManager:
    def __init__(self):
        self.decode_status = {}

    def event_loop(self):
        say()
        if FAULT == "loops":
            endless()
        sock_recv(os.pipe()[0])


def sock_recv(descriptor):
    os.read(descriptor, 1)


def run_scheduler_process():
    scheduler = Scheduler()
    scheduler.event_loop_normal()


def run_detokenizer_process():
    manager = DetokenizerManager()
    manager.event_loop()


if __name__ == "__main__":
    if ROLE == "server":
        asyncio.run(serve())
    else:
        {"scheduler": run_scheduler_process, "detokenizer": run_detokenizer_process}[ROLE]()
