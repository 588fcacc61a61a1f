"""A real SGLang server with random weights that is never without requests. Started by scripts/tools/engines.py in its
environment.

    serve_sglang.py --model FOLDER --ready FILE --port N [--tp N] [--requests N] [--tokens N] [--context N] [--workers N]
        [--prompt N] [--text] [--faults FOLDER] [--events]

--text: with a tokenizer, a word for each token, so that the detokenizer has its part; --workers: tokenizer workers, in processes
of their own; --prompt: prompts and answers of all lengths up to N tokens; --faults: see subject/sglang_faults.py; --events: KV
events, which nobody listens to, of a prefix tree in Python, whose nodes then have the hashes of their pages.

Writes FILE, one JSON object with the server's pid, once requests are in flight. FILE.tokens holds two 64-bit numbers, the tokens
and requests answered so far; FILE.finished the ids of the latter. While FILE.rest is there, no new request is sent. Ends on
SIGTERM, and when the server ends."""

import argparse
import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time

from tally import Tally

SERVER = """--load-format dummy --device cpu --attention-backend torch_native --sampling-backend pytorch
    --disable-cuda-graph --max-running-requests 16
    --host 127.0.0.1 --skip-server-warmup""".split()


def ask(port, method, path, body=None, timeout=120):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        connection.request(method, path, body and json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def stream(port, body, tally, timeout=600):
    """One request, its tokens counted as they come; whether it was answered to its end."""
    connection, seen = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout), 0
    try:
        connection.request("POST", "/generate", json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        for line in answer:
            if line.startswith(b"data: {"):
                now = json.loads(line[6:])["meta_info"]["completion_tokens"]
                tally.tokens(now - seen)
                seen = now
        return seen == body["sampling_params"]["max_new_tokens"]
    finally:
        connection.close()


def keep_asking(port, number, tally, longest, rest):
    """One request after the other, in a thread of its own; a failed one is tried again after a pause. `longest`: prompts and
    answers of all lengths up to that, where there is one; `rest`: a file that makes it pause."""
    drawn = random.Random(number)
    while True:
        while os.path.exists(rest):
            time.sleep(0.2)
        prompt, length = 32, 300 + 32 * number
        if longest:
            prompt, length = drawn.randint(1, longest), drawn.randint(1, longest)
        body = {
            "rid": f"request-{number}-{time.monotonic_ns()}",
            "input_ids": [5 + (number + i) % 64 for i in range(prompt)],
            "sampling_params": {"max_new_tokens": length, "ignore_eos": True, "temperature": 0},
        }
        try:
            whole = stream(port, body, tally)
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            whole = False
        if whole:
            tally.finished(body["rid"])
        else:
            time.sleep(0.5)


def give_words(model):
    """A tokenizer for the model in a folder: each token is a word."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    with open(os.path.join(model, "config.json")) as f:
        size = json.load(f)["vocab_size"]
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(size)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="w0", bos_token="w1", eos_token="w2").save_pretrained(model)


def has_positions(model, number):
    """Lets the model have so many positions: a request can then be decoded for minutes."""
    path = os.path.join(model, "config.json")
    with open(path) as f:
        config = json.load(f)
    if config["max_position_embeddings"] < number:
        with open(path, "w") as f:
            json.dump({**config, "max_position_embeddings": number}, f)


def dtype_of(model):
    with open(os.path.join(model, "config.json")) as f:
        config = json.load(f)
    return config.get("torch_dtype") or config["dtype"]  # as transformers 5 writes it


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--overlap", action="store_true", help="results are processed a step later, as on GPUs")
    parser.add_argument("--ready", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--requests", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=4096, help="size of the KV cache")
    parser.add_argument("--context", type=int, default=512, help="positions of the model")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--prompt", type=int)
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--faults")
    parser.add_argument("--events", action="store_true")
    return parser.parse_args()


def main():
    options = arguments()
    # uvicorn kills a tokenizer worker that does not answer in so many seconds, also while it starts on a busy machine
    os.environ["SGLANG_UVICORN_WORKER_HEALTHCHECK_TIMEOUT"] = "600"
    if options.faults:
        os.environ["GDBEXT_FAULTS"] = options.faults
    has_positions(options.model, options.context)
    if options.events:
        os.environ["SGLANG_UNIFIED_RADIX_TREE_CORE_BACKEND"] = "python"
    if options.text:
        give_words(options.model)
    server = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "sglang.launch_server",
            "--model-path",
            options.model,
            *SERVER,
            *([] if options.overlap else ["--disable-overlap-schedule"]),
            "--dtype",
            dtype_of(options.model),
            *([] if options.text else ["--skip-tokenizer-init"]),
            *(["--kv-events-config", '{"publisher": "zmq", "endpoint": "inproc://kv-events"}'] if options.events else []),
            "--context-length",
            str(options.context),
            "--tokenizer-worker-num",
            str(options.workers),
            "--port",
            str(options.port),
            "--max-total-tokens",
            str(options.tokens),
            "--tp-size",
            str(options.tp),
        ]
    )
    while True:
        if server.poll() is not None:
            sys.exit(f"the server ended with status {server.returncode}")
        try:
            if ask(options.port, "GET", "/health", timeout=30)[0] == 200:
                break
        except (OSError, http.client.HTTPException):
            pass
        time.sleep(0.3)
    tally = Tally(options.ready)
    for number in range(options.requests):
        args = (options.port, number, tally, options.prompt, options.ready + ".rest")
        threading.Thread(target=keep_asking, args=args, daemon=True).start()
    time.sleep(2)  # until they are in the scheduler
    with open(options.ready + ".new", "w") as f:
        json.dump({"pid": server.pid, "tp": options.tp, "port": options.port}, f)
    os.replace(options.ready + ".new", options.ready)
    sys.exit(f"the server ended with status {server.wait()}")


if __name__ == "__main__":
    main()
