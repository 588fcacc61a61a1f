"""A real vLLM (AsyncLLM) whose engine core has one fault put in from outside: its own code otherwise.

    faulty_vllm.py --model FOLDER --ready FILE FAULT

FAULT: input-dies (an assertion ends the thread that takes requests in), input-loops (that thread never comes out of a request),
small-pool (the start does not check that the KV cache has room for the longest request). The first two come with the request
"poison", the last with "too-large"; "healthy-0-N" and "healthy-1-N" (small-pool: only the former) are asked before it, one after
the other, "after-0" behind it. Writes FILE once all have been sent.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import sys

from tiny_vllm import TINY

BLOCKS = 6  # of 32 tokens, one of which nobody gets: the longest request may have 256


def put_in(fault):
    """Patches the engine core's class: in the core's own process too, which imports this file (multiprocessing's spawn)."""
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.engine import core

    original = core.EngineCore.preprocess_add_request

    def faulty(self, request):
        if request.request_id.startswith("poison"):
            if fault == "input-loops":
                touch_for_ever()
            raise KeyboardInterrupt("an assertion of vllm#26139")  # no Exception: the thread's own handler does not catch it
        return original(self, request)

    def touch_for_ever():
        order = {"a": 1}
        while order:  # vllm#43941: an eviction that removes nothing
            order.get("a")

    if fault == "small-pool":
        kv_cache_utils._check_enough_kv_cache_memory = lambda *numbers: None
    else:
        core.EngineCore.preprocess_add_request = faulty


async def serve(options):
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    small = options.fault == "small-pool"
    llm = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=options.model,
            block_size=32,
            num_gpu_blocks_override=BLOCKS if small else None,
            **TINY,
        )
    )

    async def ask(name, prompt=16, tokens=160):
        how = SamplingParams(max_tokens=tokens, ignore_eos=True, detokenize=False, temperature=0.5)
        async for _ in llm.generate({"prompt_token_ids": [5 + i % 64 for i in range(prompt)]}, how, name):
            pass

    async def keep_asking(number):
        for turn in itertools.count():
            await ask(f"healthy-{number}-{turn}", tokens=40)

    asked = [asyncio.create_task(keep_asking(number)) for number in range(1 if small else 2)]
    await asyncio.sleep(3)
    asked.append(asyncio.create_task(ask("too-large", prompt=220, tokens=8) if small else ask("poison")))
    await asyncio.sleep(1)
    asked.append(asyncio.create_task(ask("after-0")))
    await asyncio.sleep(1)
    with open(options.ready + ".new", "w") as f:
        json.dump({"pid": os.getpid()}, f)
    os.replace(options.ready + ".new", options.ready)
    await asyncio.gather(*asked)


def arguments():
    """The command line: also that of the engine core's process, which multiprocessing gives the same."""
    parser = argparse.ArgumentParser()
    parser.add_argument("fault", choices=("input-dies", "input-loops", "small-pool"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--ready", required=True)
    parser.add_argument("--tp")
    parser.add_argument("--replicas")
    return parser.parse_args()


options = arguments()
put_in(options.fault)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    asyncio.run(serve(options))
