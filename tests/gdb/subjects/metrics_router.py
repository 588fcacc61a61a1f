"""metrics_router.py HOW: a STAND-IN of a router with `/metrics`. HOW: "well", "hostile" (lines that are none, names and values
without end), "slow" (a byte every 0.2 s, for ever), "refuses".
Prints {port, samples}: what it says of itself, by name and worker."""

import http.server
import json
import sys
import time

HOW = sys.argv[1]
SAMPLES = [
    ("vllm_router_active_workers", "", 2),
    ("vllm_router_requests_total", "http://127.0.0.1:31001", 40),
    ("vllm_router_requests_total", "http://127.0.0.1:31002", 2),
    ("vllm_router_running_requests", "http://127.0.0.1:31001", 7),
    ("vllm_router_worker_health", "http://127.0.0.1:31001", 1),
    ("vllm_router_worker_health", "http://10.9.8.7:8100", 0),
]
OTHERS = [
    "# HELP vllm_router_requests_total x",
    'vllm_router_request_duration_seconds_bucket{le="0.1"} 5',
    "process_open_fds 9",
    "vllm_router_errors_total NaN",
    "",
]
HOSTILE = [
    "\x1b[31mrequests_total 5",
    'requests_total{worker="\x1b[2J:31001"} 5',
    "requests_total " + "9" * 500,
    "requests_total -",
    "requests" * 4000 + " 1",
    *(f"requests_{number}_total 1" for number in range(5000)),
    *(f'worker_load{{worker="h{number}:8000"}} 1' for number in range(5000)),
]


def text():
    lines = [f'{name}{{worker="{worker}",route="/v1"}} {n}' if worker else f"{name} {n}" for name, worker, n in SAMPLES]
    return "\n".join([*lines, *OTHERS, *(HOSTILE if HOW == "hostile" else ())]) + "\n"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if HOW == "refuses":
            self.send_error(403)
            return
        self.send_response(200 if self.path == "/metrics" else 404)
        self.end_headers()
        while HOW == "slow":
            self.wfile.write(b"#")
            time.sleep(0.2)
        self.wfile.write(text().encode())

    def log_message(self, *args):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(json.dumps({"port": server.server_port, "samples": SAMPLES}), flush=True)
server.serve_forever()
