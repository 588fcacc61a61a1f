"""A process that has loaded an engine (a FAKE module vllm) and whose threads and task drop lists and make others, which get the
memory of those: what stood under a harmless name is a prompt's tokens or text a moment later. One thread stands still.

Prints {"ready": true}."""

import asyncio
import itertools
import json
import sys
import threading
import time
import types

sys.modules["vllm"] = types.ModuleType("vllm")
TOKENS = [990017, 990023, 990029]


def turn(pause):
    frames = [1, 2, 3]
    time.sleep(pause) if pause else None
    frames = None
    prompt_token_ids = list(TOKENS)
    time.sleep(pause) if pause else None
    prompt_token_ids = None
    frames = ["a", "b"]
    frames = None
    prompt = ["the secret-of", "the user"]
    return frames, prompt_token_ids, len(prompt)


def spins():
    while True:
        turn(0)


def works_now_and_then():
    for n in itertools.count():
        turn(0.0005 * (n % 5))


async def waits():
    while True:
        frames = [4, 5, 6]
        await asyncio.sleep(0.001)
        frames = None
        prompt_token_ids = list(TOKENS)
        await asyncio.sleep(0.001)
        prompt_token_ids = None
        assert frames is prompt_token_ids


def stands(ready):
    blocks, kinds, device, request = [3, 5, 7], ["full", "window"], "cpu", object()
    ready.set()
    time.sleep(3600)
    return blocks, kinds, device, request


ready = threading.Event()
for function, arguments in (
    (spins, ()),
    (works_now_and_then, ()),
    (stands, (ready,)),
    (asyncio.run, (waits(),)),
):
    threading.Thread(target=function, args=arguments, daemon=True).start()
ready.wait()
print(json.dumps({"ready": True}), flush=True)
time.sleep(3600)
