"""STAND-INS of vLLM's front end and engine core in one process, named as vLLM 0.32 names them: requests at every place of
their way.

requests_vllm.py COUNT [work|ended]      COUNT requests wait in the scheduler. Says where it has put which, then waits; with
"work" it makes a step, and gives r0 a token, every 20 ms, and its input thread does not spin; with "ended" its input thread has.
"""

import collections
import json
import queue
import sys
import threading
import time
import types

vllm = types.ModuleType("vllm")
vllm.__version__ = "0.32.0"
sys.modules["vllm"] = vllm


class Status:
    def __init__(self, name):
        self._name_ = name


WAITING, RUNNING, REMOTE, GRAMMAR = (
    Status(n) for n in ("WAITING", "RUNNING", "WAITING_FOR_REMOTE_KVS", "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR")
)


class Request:
    def __init__(self, request_id, status=WAITING, prompt=32, computed=0, output=0):
        self.request_id, self.external_req_id, self.status = request_id + "-0a1b2c3d", request_id, status
        self.num_prompt_tokens, self.num_computed_tokens, self.num_preemptions = prompt, computed, 0
        self._output_token_ids, self.arrival_time = [7] * output, time.time() - 2
        for n in range(40):  # as many attributes as a real one has: Python keeps them in a dict of the object's own
            setattr(self, f"other_{n}", None)


class RequestStateStats:
    def __init__(self, tokens):
        self.num_generation_tokens, self.arrival_time = tokens, time.time() - 5


class RequestOutputCollector:
    def __init__(self, output):
        self.output = output


class RequestState:
    def __init__(self, request_id):
        self.external_req_id, self.is_prefilling = request_id, request_id != "r0"
        self.stats = RequestStateStats(9 if request_id == "r0" else 0)
        self.queue = RequestOutputCollector(object() if request_id == "r0" else None)


class OutputProcessor:
    def __init__(self, names):
        self.request_states = {name + "-0a1b2c3d": RequestState(name) for name in names}


class NeverDelivers:
    def __init__(self, names):
        self.loading = set(names)


state = types.ModuleType("vllm.distributed.kv_transfer.kv_transfer_state")
state._KV_CONNECTOR_AGENT = NeverDelivers(["remote-0a1b2c3d"])
sys.modules[state.__name__] = state


class FullAttentionSpec:
    pass


class Manager:
    block_size, kv_cache_spec = 32, FullAttentionSpec()


class Scheduler:
    def __init__(self, running, waiting):
        self.running, self.waiting = running, collections.deque(waiting)
        self.requests = {r.request_id: r for r in [*running, *waiting]}
        self.current_step, self.connector = 5, NeverDelivers([])
        self.kv_cache_manager = types.SimpleNamespace(
            coordinator=types.SimpleNamespace(
                single_type_managers=(Manager(),), block_pool=types.SimpleNamespace(num_gpu_blocks=101, blocks=[])
            )
        )


class EngineCoreProc:
    def __init__(self, scheduler):
        self.scheduler, self.input_queue, self.output_queue = scheduler, queue.Queue(), queue.Queue()

    def run_busy_loop(self, processor):
        print(json.dumps(SAID), flush=True)
        while "work" in sys.argv:
            time.sleep(0.02)
            self.scheduler.current_step += 1
            self.scheduler.running[0]._output_token_ids.append(7)
        threading.Event().wait()


def process_input_sockets(self):
    req = Request("in-hands")
    preprocess_add_request(req)


def _create_grammar(request):
    threading.Event().wait()


def preprocess_add_request(request):
    while request and "ended" not in sys.argv:
        if "work" in sys.argv:
            time.sleep(0.02)


count = int(sys.argv[1])
waiting = [Request(f"w{i}", prompt=i % 3000) for i in range(count)]
core = EngineCoreProc(Scheduler([Request("r0", RUNNING, computed=40, output=9)], [Request("remote", REMOTE), *waiting]))
core.input_queue.put(("ADD", (Request("queued-in"), 0)))
SAID = {"waiting": count}
core.scheduler.waiting.append(Request("too-large", prompt=3201))
compiled = [Request("g0", GRAMMAR), Request("g1", GRAMMAR)]
for one in compiled:
    core.scheduler.requests[one.request_id] = one
    core.scheduler.waiting.append(one)
threading.Thread(target=_create_grammar, args=(compiled[0],), daemon=True).start()
threading.Thread(target=process_input_sockets, args=(core,), daemon=True).start()
core.run_busy_loop(OutputProcessor(["r0", "remote", "lost", "in-hands", "queued-in", "w0", "w1"]))
