"""A real vLLM with random weights that is never without requests. Started by scripts/lib/engines.py in vLLM's environment.

    serve_vllm.py --model FOLDER --ready FILE [--tp N] [--requests N] [--rest] [--blocks N]

Writes FILE, one JSON object, once requests are in flight; with --rest, once they are done: then nothing more is asked. FILE.tokens holds two
64-bit numbers, the tokens and requests answered so far; FILE.finished the ids of the latter. Ends on SIGTERM.
"""

import argparse
import itertools
import json
import os
import signal
import sys

from tally import Tally


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--ready", required=True)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--requests", type=int, default=4)
    parser.add_argument("--rest", action="store_true")
    parser.add_argument("--blocks", type=int, help="size of the KV cache")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))

    from vllm import LLM, SamplingParams

    llm = LLM(model=options.model, load_format="dummy", skip_tokenizer_init=True, max_model_len=256, enforce_eager=True,
              dtype="float32", tensor_parallel_size=options.tp, num_gpu_blocks_override=options.blocks)
    engine = llm.llm_engine
    names, tally = itertools.count(), Tally(options.ready)

    def add():
        number = next(names)
        # lengths differ, so that requests end one by one and others are always in flight
        engine.add_request(f"request-{number}", {"prompt_token_ids": [5 + (number + i) % 64 for i in range(32)]},
                           SamplingParams(max_tokens=160 + 16 * (number % 4), ignore_eos=True, detokenize=False))

    def ready():
        with open(options.ready + ".new", "w") as f:
            json.dump({"pid": os.getpid(), "tp": options.tp}, f)
        os.replace(options.ready + ".new", options.ready)

    for _ in range(options.requests):
        add()
    if options.rest:
        while engine.has_unfinished_requests():
            engine.step()
        ready()
        while True:
            signal.pause()
    for step in itertools.count(1):
        for output in engine.step():
            tally.tokens(1)
            if output.finished:
                tally.finished(output.request_id)
                add()
        if step == 5:
            ready()


if __name__ == "__main__":
    main()
