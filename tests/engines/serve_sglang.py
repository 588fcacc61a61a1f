"""A real SGLang server with random weights that is never without requests. Started by scripts/lib/engines.py in its environment.

    serve_sglang.py --model FOLDER --ready FILE --port N [--tp N] [--requests N]

Writes FILE, one JSON object with the server's pid, once requests are in flight. Ends on SIGTERM, and when the server ends.
"""

import argparse
import http.client
import json
import os
import subprocess
import sys
import threading
import time

SERVER = """--load-format dummy --skip-tokenizer-init --device cpu --attention-backend torch_native --sampling-backend pytorch
    --disable-overlap-schedule --disable-cuda-graph --dtype float32 --max-total-tokens 4096 --max-running-requests 16
    --context-length 512 --host 127.0.0.1 --skip-server-warmup""".split()


def ask(port, method, path, body=None, timeout=120):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def keep_asking(port, number):
    """One request after the other, in a thread of its own; a failed one is tried again after a pause."""
    while True:
        body = {"rid": f"request-{number}-{time.monotonic_ns()}", "input_ids": [5 + (number + i) % 64 for i in range(32)],
                "sampling_params": {"max_new_tokens": 300 + 32 * number, "ignore_eos": True, "temperature": 0}}
        try:
            status, _ = ask(port, "POST", "/generate", body, timeout=600)
        except (OSError, http.client.HTTPException):
            status = None
        if status != 200:
            time.sleep(0.5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--ready", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--requests", type=int, default=4)
    options = parser.parse_args()
    server = subprocess.Popen([sys.executable, "-m", "sglang.launch_server", "--model-path", options.model, *SERVER,
                               "--port", str(options.port), "--tp-size", str(options.tp)])
    while True:
        if server.poll() is not None:
            sys.exit(f"the server ended with status {server.returncode}")
        try:
            if ask(options.port, "GET", "/health", timeout=30)[0] == 200:
                break
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.3)
    for number in range(options.requests):
        threading.Thread(target=keep_asking, args=(options.port, number), daemon=True).start()
    time.sleep(2)  # until they are in the scheduler
    with open(options.ready + ".new", "w") as f:
        json.dump({"pid": server.pid, "tp": options.tp, "port": options.port}, f)
    os.replace(options.ready + ".new", options.ready)
    sys.exit(f"the server ended with status {server.wait()}")


if __name__ == "__main__":
    main()
