"""transfers_sglang.py SCENARIO: a STAND-IN of a scheduler of a SGLang 0.5.23 prefill or decode server, with requests in the
queues of disaggregation.

SCENARIO, JSON: {"mode": "prefill", "decode" or "null", "port": of the bootstrap server, "requests": [{"id", "room", "queue":
"bootstrap", "inflight", "prealloc", "transfer" or "waiting", "status": as the manager has it, "host", "port", "prefetch": the
function of the thread that is at its prefetch, "queued" or "over"}], "policy": of prefetches, "ended": whether their threads have
ended}."""

import collections
import json
import queue
import sys
import threading
import time
import types

for name in ("sglang", "sglang.version"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["sglang.version"].__version__ = "0.5.23"
SCENARIO = json.loads(sys.argv[1])


class Req:
    def __init__(self, one):
        self.rid, self.origin_input_ids, self.output_ids, self.finished_reason = one["id"], [5] * 32, [], None
        self.retraction_count = 0
        self.kv = types.SimpleNamespace(req_pool_idx=1, kv_committed_len=32)
        self.bootstrap_room, self.bootstrap_host, self.bootstrap_port = one.get("room"), one.get("host"), one.get("port")


class DecodeRequest:
    def __init__(self, one):
        self.req, self.kv_receiver = Req(one), None


class Queue:
    def __init__(self, *queues):
        mine = [one for one in SCENARIO["requests"] if one["queue"] in queues]
        kind = DecodeRequest if SCENARIO["mode"] == "decode" else Req
        self.queue = [kind(one) for one in mine]
        status = {one["room"]: one["status"] for one in SCENARIO["requests"] if one.get("status") is not None}
        self.kv_manager = types.SimpleNamespace(request_status=status)


Entry = collections.namedtuple("_OngoingPrefetch", "anchor_node_id prefetch_key host_indices operation")
Handle = collections.namedtuple("CacheRequestHandle", "rid attempt_id")
IN_STORAGE = 0


class UnifiedRadixCache:
    def __init__(self):
        self.prefetch_stop_policy, self.ongoing_prefetch = SCENARIO["policy"], {}
        for one in (one for one in SCENARIO["requests"] if "prefetch" in one):
            operation = types.SimpleNamespace(request_id=one["id"], _terminated_flag=one["prefetch"] == "over")
            self.ongoing_prefetch[Handle(one["id"], 0)] = Entry(1, None, None, operation)
            if one["prefetch"].endswith("_func"):
                threading.Thread(target=globals()[one["prefetch"]], args=(operation,), daemon=True).start()
        for function in () if SCENARIO.get("ended") else (prefetch_sync_thread_func,):
            threading.Thread(target=function, args=(None,), daemon=True).start()


def in_storage():
    global IN_STORAGE
    IN_STORAGE += 1
    time.sleep(3600)


def prefetch_thread_func(operation):
    in_storage()


def prefetch_io_aux_func(operation):
    in_storage()


def prefetch_sync_thread_func(ack):
    queue.Queue().get()


class Scheduler:
    def __init__(self):
        self.forward_ct, self.max_total_num_tokens, self._engine_paused = 7, 4096, False
        self.running_batch = types.SimpleNamespace(reqs=[])
        self.last_batch = self.cur_batch = self.chunked_req = None
        self.waiting_queue = []
        self.server_args = types.SimpleNamespace(
            disaggregation_mode=SCENARIO["mode"],
            disaggregation_transfer_backend="mooncake",
            host="0.0.0.0",
            disaggregation_bootstrap_port=SCENARIO["port"],
        )
        if SCENARIO["mode"] == "null":
            self.waiting_queue = [Req(one) for one in SCENARIO["requests"]]
            self.tree_cache = UnifiedRadixCache()
        elif SCENARIO["mode"] == "prefill":
            self.waiting_queue = [Req(one) for one in SCENARIO["requests"] if one["queue"] == "waiting"]
            self.disagg_prefill_bootstrap_queue = Queue("bootstrap")
            self.disagg_prefill_inflight_queue = [Req(one) for one in SCENARIO["requests"] if one["queue"] == "inflight"]
        elif SCENARIO["mode"] == "decode":
            self.disagg_decode_prealloc_queue = Queue("prealloc")
            self.disagg_decode_transfer_queue = Queue("transfer")

    def event_loop_normal(self):
        while IN_STORAGE < sum(one.get("prefetch", "").endswith("_func") for one in SCENARIO["requests"]):
            time.sleep(0.01)
        print("{}", flush=True)
        time.sleep(3600)


def run_scheduler_process():
    scheduler = Scheduler()
    scheduler.event_loop_normal()


run_scheduler_process()
