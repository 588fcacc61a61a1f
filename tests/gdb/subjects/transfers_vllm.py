"""transfers_vllm.py SCENARIO: a STAND-IN of a vLLM 0.32 engine core and its worker in one process, with requests whose KV is on
its way between instances, and a main thread that goes round as one with such requests does.

SCENARIO, JSON: {"engine": id, "port", "role", "connector": "nixl", "mooncake", "multi" or "offloading", "requests": [{"id",
"status", "params", "stage": what the worker has of it, "lease": seconds or null, "job", "stores", "keys": of offloading,
"put_off": seconds}], "stands": whether the main thread stands, "workers": how many report a job}."""

import asyncio  # noqa: F401  (as the engine's process has)
import collections
import enum
import json
import sys
import threading
import time
import types

for name in ("vllm", "vllm.version", "vllm.v1", "vllm.distributed", "vllm.distributed.kv_transfer"):
    sys.modules[name] = types.ModuleType(name)
SCENARIO = json.loads(sys.argv[1])


class RequestStatus(enum.IntEnum):
    WAITING, WAITING_FOR_REMOTE_KVS, RUNNING, FINISHED_LENGTH_CAPPED, FINISHED_ABORTED = 1, 2, 3, 4, 5


class Request:
    def __init__(self, one):
        self.request_id, self.status = one["id"], RequestStatus[one["status"]]
        self.num_prompt_tokens, self.num_computed_tokens, self.num_preemptions = one.get("tokens", 64), 64, 0
        self._output_token_ids, self.arrival_time, self.priority = [], time.time() - 20, 0
        self.spec_token_ids, self.num_output_placeholders = [], 0
        self.kv_transfer_params = one.get("params")


class ConnectorScheduler:
    def __init__(self):
        self.engine_id, self.side_channel_host, self.side_channel_port = SCENARIO["engine"], "127.0.0.1", SCENARIO["port"]
        self._reqs_need_send = {}


class ConnectorWorker:
    def __init__(self):
        self._recving_metadata, self._recving_transfers, self._reqs_to_send = {}, {}, {}
        for one in SCENARIO["requests"]:
            if one.get("lease") is not None:
                self._reqs_to_send[one["id"]] = time.perf_counter() + one["lease"]
            if one.get("stage") in ("handshake", "transfer"):
                self._recving_metadata[one["id"]] = types.SimpleNamespace()
            if one.get("stage") == "transfer":
                self._recving_transfers[one["id"]] = [7]


class NixlConnector:
    def __init__(self):
        self.connector_scheduler, self.connector_worker = ConnectorScheduler(), ConnectorWorker()


class MooncakeConnector(NixlConnector):
    pass


class MultiConnector:
    def __init__(self):
        self._connectors = [types.SimpleNamespace(), NixlConnector()]


class TransferJobStatus:
    __slots__ = ("req_id", "pending_count", "keys", "is_store")

    def __init__(self, one):
        self.req_id, self.pending_count, self.is_store = one["id"], one.get("pending", 1), bool(one.get("stores"))
        self.keys = {key.encode() for key in one["keys"]}


class RequestOffloadState:
    __slots__ = ("transfer_jobs", "deferred_lookup_start_time", "group_states")

    def __init__(self, one):
        self.transfer_jobs = {one["job"]} if "job" in one else set()
        self.deferred_lookup_start_time = time.monotonic() - one["put_off"] if "put_off" in one else None
        self.group_states = (types.SimpleNamespace(offload_keys=[key.encode() for key in one.get("keys", ())]),)


class OffloadingConnectorScheduler:
    def __init__(self):
        made = SCENARIO["requests"]
        self.config = types.SimpleNamespace(num_workers=SCENARIO.get("workers", 1))
        self._jobs = {one["job"]: TransferJobStatus(one) for one in made if "job" in one}
        self._req_status = {one["id"]: RequestOffloadState(one) for one in made}


class OffloadingConnectorWorker:
    def __init__(self):
        self._load_jobs = {one["job"]: one["id"] for one in SCENARIO["requests"] if one.get("stage") == "load"}


class OffloadingConnector:
    def __init__(self):
        self.connector_scheduler, self.connector_worker = OffloadingConnectorScheduler(), OffloadingConnectorWorker()


class FullAttentionSpec:
    pass


class Manager:
    block_size, kv_cache_spec = 32, FullAttentionSpec()


class Scheduler:
    def __init__(self):
        made = [Request(one) for one in SCENARIO["requests"]]
        self.requests = {r.request_id: r for r in made}
        self.running = [r for r in made if r.status == RequestStatus.RUNNING]
        self.waiting = collections.deque(r for r in made if r.status.name.startswith("WAITING"))
        self.current_step = 5
        kinds = (NixlConnector, MooncakeConnector, MultiConnector, OffloadingConnector)
        self.connector = next(kind for kind in kinds if kind.__name__.lower().startswith(SCENARIO["connector"]))()
        self.finished_recving_kv_req_ids = {one["id"] for one in SCENARIO["requests"] if one.get("stage") == "completion"}
        self.vllm_config = types.SimpleNamespace(kv_transfer_config=types.SimpleNamespace(kv_role=SCENARIO["role"]))
        free = types.SimpleNamespace(num_free_blocks=SCENARIO.get("free", 50))
        pool = types.SimpleNamespace(num_gpu_blocks=101, blocks=[], free_block_queue=free)
        self.kv_cache_manager = types.SimpleNamespace(
            coordinator=types.SimpleNamespace(single_type_managers=(Manager(),), block_pool=pool)
        )


class EngineCoreProc:
    def __init__(self):
        self.scheduler = Scheduler()

    def run_busy_loop(self):
        state = types.ModuleType("vllm.distributed.kv_transfer.kv_transfer_state")
        state._KV_CONNECTOR_AGENT = self.scheduler.connector
        sys.modules[state.__name__] = state
        if SCENARIO.get("stands"):
            held = threading.Lock()
            held.acquire()
            threading.Thread(target=tell_when_it_stands, args=(threading.get_native_id(),), daemon=True).start()
            self.stand(held)
        print("{}", flush=True)
        rounds = 0
        while True:  # empty steps that ask the connector
            rounds += 1
            self._process_engine_step(rounds)

    def _process_engine_step(self, number):
        self.scheduler.current_step += SCENARIO["connector"] == "offloading"
        time.sleep(0.001 * (number % 3))

    def stand(self, lock):
        lock.acquire()


def tell_when_it_stands(tid):
    """Writes the line of a subject that is ready once a thread has not run for a while: who waits for the GIL wakes often."""

    def switches():
        with open(f"/proc/self/task/{tid}/status") as f:
            return [line for line in f if line.startswith("voluntary_ctxt_switches")]

    before = None
    while before != switches() or "stand" not in {frame.f_code.co_name for frame in sys._current_frames().values()}:
        before = switches()
        time.sleep(0.1)
    print("{}", flush=True)


EngineCoreProc().run_busy_loop()
