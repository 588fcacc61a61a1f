"""transfers_sglang.py SCENARIO: a STAND-IN of a scheduler of a SGLang 0.5.23 prefill or decode server, with requests in the
queues of disaggregation.

SCENARIO, JSON: {"mode": "prefill" or "decode", "port": of the bootstrap server, "requests": [{"id", "room", "queue": "bootstrap",
"inflight", "prealloc" or "transfer", "status": as the manager has it, "host", "port"}]}."""

import json
import sys
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
        self.bootstrap_room, self.bootstrap_host, self.bootstrap_port = one["room"], one.get("host"), one.get("port")


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
        if SCENARIO["mode"] == "prefill":
            self.disagg_prefill_bootstrap_queue = Queue("bootstrap")
            self.disagg_prefill_inflight_queue = [Req(one) for one in SCENARIO["requests"] if one["queue"] == "inflight"]
        else:
            self.disagg_decode_prealloc_queue = Queue("prealloc")
            self.disagg_decode_transfer_queue = Queue("transfer")

    def event_loop_normal(self):
        print("{}", flush=True)
        time.sleep(3600)


def run_scheduler_process():
    scheduler = Scheduler()
    scheduler.event_loop_normal()


run_scheduler_process()
