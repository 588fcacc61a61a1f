"""A real SGLang server with one request that is lost and one that is a zombie; its own code otherwise. scripts/tools/engines.py
starts it.

    faulty_sglang.py --model FOLDER --ready FILE --port N [--tp N]

A request whose id begins with "lost" is dropped by the scheduler as it comes in (sglang#33858); "zombie"'s state is taken from
the tokenizer manager while the scheduler decodes it (sglang#36333). "healthy" requests run beside them. Writes FILE once all are
in flight.
"""

import json
import os
import sys
import threading
import time


def put_in():
    """Patches the scheduler's class: also in the scheduler's own process, which imports this file (multiprocessing's spawn)."""
    from sglang.srt.managers.scheduler import Scheduler

    original = Scheduler.handle_generate_request

    def faulty(self, request, *rest, **more):
        if str(request.rid).startswith("lost"):
            return None
        return original(self, request, *rest, **more)

    Scheduler.handle_generate_request = faulty


put_in()


def requests(port, ready):
    from serve_sglang import ask

    def keep_asking(name, tokens, once=False):
        turn = 0
        while True:
            body = {
                "rid": name if once else f"{name}-{turn}",
                "input_ids": [5 + i % 64 for i in range(32)],
                "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True, "temperature": 0},
            }
            try:
                ask(port, "POST", "/generate", body, timeout=600)
            except (OSError, ValueError):
                pass
            if once:
                return
            turn += 1

    while True:
        try:
            if ask(port, "GET", "/health", timeout=30)[0] == 200:
                break
        except OSError:
            pass
        time.sleep(0.3)
    for words in (("healthy-0", 100), ("healthy-1", 130), ("lost", 8, True), ("zombie", 8000, True)):
        threading.Thread(target=keep_asking, args=words, daemon=True).start()
    from sglang.srt.entrypoints import http_server

    states = http_server._global_state.tokenizer_manager.rid_to_state
    while "lost" not in states or "zombie" not in states or not states["zombie"].output_ids:  # until it is decoded
        time.sleep(0.05)
    del states["zombie"]
    with open(ready + ".new", "w") as f:
        json.dump({"pid": os.getpid(), "port": port}, f)
    os.replace(ready + ".new", ready)


def lengthen(model, tokens):
    """Lets the model have so many positions: a request can then be decoded for minutes."""
    path = os.path.join(model, "config.json")
    with open(path) as f:
        config = json.load(f)
    with open(path, "w") as f:
        json.dump({**config, "max_position_embeddings": tokens}, f)


if __name__ == "__main__":
    import argparse

    from serve_sglang import SERVER
    from sglang.launch_server import run_server
    from sglang.srt.server_args import prepare_server_args

    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--ready", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tp", default="1")
    options = parser.parse_args()
    lengthen(options.model, 8192)
    words = [
        "--model-path",
        options.model,
        *SERVER,
        "--port",
        str(options.port),
        "--context-length",
        "8192",
        "--max-total-tokens",
        "16384",
        "--tp-size",
        options.tp,
    ]
    threading.Thread(target=requests, args=(options.port, options.ready), daemon=True).start()
    sys.argv = ["sglang.launch_server", *words]
    run_server(prepare_server_args(words))
