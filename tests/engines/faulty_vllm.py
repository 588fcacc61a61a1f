"""A real vLLM (AsyncLLM) whose engine core has one fault put in from outside: its own code otherwise.

    faulty_vllm.py --model FOLDER --ready FILE [--blocks N] FAULT

FAULT: input-dies (an assertion ends the thread that takes requests in), input-loops (that thread never comes out of a request),
none. The fault comes with the request whose id begins with "poison"; "healthy-0" and "healthy-1" are asked before it, over and
over, "after-0" behind it. A prompt larger than the pool: --blocks and the request "too-large". Writes FILE once poison or
too-large has been sent.
"""

import argparse
import asyncio
import itertools
import json
import os
import signal
import sys


def put_in(fault):
    """Patches the engine core's class: in the core's own process too, which imports this file (multiprocessing's spawn)."""
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

    if fault.startswith("input"):
        core.EngineCore.preprocess_add_request = faulty


async def serve(options):
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    llm = AsyncLLM.from_engine_args(
        AsyncEngineArgs(
            model=options.model,
            load_format="dummy",
            skip_tokenizer_init=True,
            max_model_len=256,
            enforce_eager=True,
            dtype="float32",
            block_size=32,
            num_gpu_blocks_override=options.blocks,
        )
    )

    async def ask(name, prompt=16, tokens=160):
        how = SamplingParams(max_tokens=tokens, ignore_eos=True, detokenize=False, temperature=0.5)
        async for _ in llm.generate({"prompt_token_ids": [5 + i % 64 for i in range(prompt)]}, how, name):
            pass

    async def keep_asking(number):
        for turn in itertools.count():
            await ask(f"healthy-{number}-{turn}", tokens=40)

    asked = [asyncio.create_task(keep_asking(number)) for number in range(1 if options.blocks else 2)]
    await asyncio.sleep(3)
    if options.blocks:
        asked.append(asyncio.create_task(ask("too-large", prompt=220, tokens=8)))
    elif options.fault != "none":
        asked.append(asyncio.create_task(ask("poison")))
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
    parser.add_argument("fault", choices=("none", "input-dies", "input-loops"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--ready", required=True)
    parser.add_argument("--tp")
    parser.add_argument("--replicas")
    parser.add_argument("--blocks", type=int)
    return parser.parse_args()


options = arguments()
put_in(options.fault)

if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    asyncio.run(serve(options))
