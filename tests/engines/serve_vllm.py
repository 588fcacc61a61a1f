"""A real vLLM with random weights that is never without requests. Started by scripts/tools/engines.py in vLLM's environment.

    serve_vllm.py --model FOLDER --ready FILE [--tp N] [--replicas N] [--requests N] [--rest] [--blocks N] [--prompt N]

Writes FILE, one JSON object, once requests are in flight; with --rest, once they are done: then nothing more is asked.
FILE.tokens holds two 64-bit numbers, the tokens and requests answered so far; FILE.finished the ids of the latter. Ends on
SIGTERM. With --replicas, so many engines (data parallel) have --requests each, and --blocks says how many blocks of 32 tokens
each has. --prompt: prompts and answers of all lengths up to N tokens, instead of 32 and 160 or more."""

import argparse
import asyncio
import itertools
import json
import os
import random
import signal
import sys

from tally import Tally
from tiny_vllm import TINY


def ready(options):
    with open(options.ready + ".new", "w") as f:
        json.dump({"pid": os.getpid(), "tp": options.tp}, f)
    os.replace(options.ready + ".new", options.ready)


async def replicas(options):
    """Never returns: each request that ends is followed by the next on the same engine."""
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    llm = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=options.model,
            block_size=32,
            tensor_parallel_size=options.tp,
            data_parallel_size=options.replicas,
            num_gpu_blocks_override=options.blocks,
            **TINY,
        )
    )
    answered = set()

    async def keep_asking(rank, number):
        for turn in itertools.count():
            prompt = [5 + (number + i) % 64 for i in range(32)]
            length = SamplingParams(max_tokens=160 + 16 * number, ignore_eos=True, detokenize=False)
            async for _ in llm.generate(
                {"prompt_token_ids": prompt}, length, f"request-{rank}-{number}-{turn}", data_parallel_rank=rank
            ):
                answered.add(rank)
                if len(answered) == options.replicas and not os.path.exists(options.ready):
                    ready(options)

    await asyncio.gather(*(keep_asking(rank, number) for rank in range(options.replicas) for number in range(options.requests)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--ready", required=True)
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--requests", type=int, default=4)
    parser.add_argument("--rest", action="store_true")
    parser.add_argument("--replicas", type=int, default=1)
    parser.add_argument("--blocks", type=int, help="size of the KV cache")
    parser.add_argument("--prompt", type=int)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))

    if options.replicas > 1:
        asyncio.run(replicas(options))
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=options.model,
        tensor_parallel_size=options.tp,
        num_gpu_blocks_override=options.blocks,
        **{**TINY, "max_model_len": max(TINY["max_model_len"], 2 * (options.prompt or 0))},
    )
    engine = llm.llm_engine
    names, tally, drawn = itertools.count(), Tally(options.ready), random.Random(1)

    def add():
        number = next(names)
        # lengths differ, so that requests end one by one and others are always in flight
        prompt, length = 32, 160 + 16 * (number % 4)
        if options.prompt:
            prompt, length = drawn.randint(1, options.prompt), drawn.randint(1, options.prompt)
        engine.add_request(
            f"request-{number}",
            {"prompt_token_ids": [5 + (number + i) % 64 for i in range(prompt)]},
            SamplingParams(max_tokens=length, ignore_eos=True, detokenize=False),
        )

    for _ in range(options.requests):
        add()
    if options.rest:
        while engine.has_unfinished_requests():
            engine.step()
        ready(options)
        while True:
            signal.pause()
    for step in itertools.count(1):
        for output in engine.step():
            tally.tokens(1)
            if output.finished:
                tally.finished(output.request_id)
                add()
        if step == 5:
            ready(options)


if __name__ == "__main__":
    main()
