"""STAND-INS of vLLM's AsyncLLM in an API server, named as vLLM 0.32 names them.

requests_vllm_front.py turns|blocked|ended      its event loop turns; a callback keeps it; its task output_handler has ended.
"""

import asyncio
import sys
import threading
import time
import types

vllm = types.ModuleType("vllm")
vllm.__version__ = "0.32.0"
sys.modules["vllm"] = vllm


class RequestState:
    external_req_id, is_prefilling, stats, queue = "a", True, None, None


class OutputProcessor:
    def __init__(self):
        self.request_states = {"a-0a1b2c3d": RequestState()}


class DPLBAsyncMPClient:
    def __init__(self):
        self.reqs_in_flight = {"a-0a1b2c3d": (1).to_bytes(2, "little")}


class AsyncLLM:
    def __init__(self):
        self.output_processor, self.engine_core, self.output_handler = OutputProcessor(), DPLBAsyncMPClient(), None


async def output_handler():
    await asyncio.Event().wait()


def wait_in_loop():
    print("{}", flush=True)
    time.sleep(600)


async def serve(engine_client, state):
    engine_client.output_handler = asyncio.create_task(output_handler())
    await asyncio.sleep(0)
    if state == "ended":
        engine_client.output_handler.cancel()
        await asyncio.sleep(0)
    if state == "blocked":
        asyncio.get_running_loop().call_soon(wait_in_loop)
    else:  # once the loop waits
        threading.Timer(0.3, print, ("{}",), {"flush": True}).start()
    await asyncio.Event().wait()


asyncio.run(serve(AsyncLLM(), sys.argv[1]))
