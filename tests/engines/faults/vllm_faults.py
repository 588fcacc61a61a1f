"""Faults for an unmodified vLLM, as a plugin of its own kind (entry point "vllm.general_plugins", see serve_http.py), a KV
connector and a middleware. A fault is there while a file of its name lies in the folder GDBEXT_FAULTS.

connector: no transfer of KV blocks ends, for requests with "remote" in their id. grammar: no grammar is compiled. input-loops,
input-dies: the engine core's input thread goes round for ever, ends, in a request with "poison" in its id. lost-answer: a worker
does not send the answer to its engine core. small-pool: the start does not check that the KV cache has room for the longest
request.
block-loop, end-output-handler, ask-service: what a request to an API server with the header X-Fault does there; the last waits
for a service that does not answer. tokenizer: a prompt with "w9 w9" is never tokenized: its thread opens a FIFO for reading.
"""

import asyncio
import os
import time

from starlette.responses import Response
from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata

FOLDER = os.environ.get("GDBEXT_FAULTS", "")


def there(fault):
    return os.access(os.path.join(FOLDER, fault), os.F_OK)


def happened(fault):
    with open(os.path.join(FOLDER, fault + ".pid"), "w") as f:
        f.write(str(os.getpid()))


# ---- plugin ----------------------------------------------------------------------------------------------------------------
def put_in():
    """Called by vLLM in each of its processes."""
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.engine import core
    from vllm.v1.executor import multiproc_executor
    from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend

    if there("small-pool"):
        kv_cache_utils._check_enough_kv_cache_memory = lambda *numbers: None
    if getattr(core.EngineCore.preprocess_add_request, "faulty", False):
        return
    take_in, compile_, answer = (
        core.EngineCore.preprocess_add_request,
        XgrammarBackend.compile_grammar,
        multiproc_executor.WorkerProc.enqueue_output,
    )

    def faulty_take_in(self, request):
        if "poison" in request.request_id and there("input-loops"):
            touch_for_ever()
        if "poison" in request.request_id and there("input-dies"):
            raise KeyboardInterrupt("an assertion of vllm#26139")  # no Exception: the thread's own handler does not catch it
        return take_in(self, request)

    def faulty_compile(self, *what, **more):
        while there("grammar"):
            time.sleep(0.05)
        return compile_(self, *what, **more)

    def faulty_answer(self, output):
        if not there("lost-answer"):
            answer(self, output)

    keep_tokenizer()
    faulty_take_in.faulty = True
    core.EngineCore.preprocess_add_request = faulty_take_in
    XgrammarBackend.compile_grammar = faulty_compile
    multiproc_executor.WorkerProc.enqueue_output = faulty_answer


def keep_tokenizer():
    """The tokenizer's own function, in the renderer's only thread."""
    from transformers import PreTrainedTokenizerFast as Tokenizer

    encode = Tokenizer._encode_plus

    def faulty_encode(self, text, *what, **more):
        if "w9 w9" in str(text) and there("tokenizer"):
            with open(os.path.join(FOLDER, "tokenizer.fifo")):  # until the test opens it for writing
                pass
        return encode(self, text, *what, **more)

    Tokenizer._encode_plus = faulty_encode


def touch_for_ever():
    order, fault = {"a": 1}, os.path.join(FOLDER, "input-loops")
    while order:  # vllm#43941: an eviction that removes nothing
        order.get("a")
        if not os.access(fault, os.F_OK):
            return


# ---- KV connector ----------------------------------------------------------------------------------------------------------
class Names(KVConnectorMetadata):
    def __init__(self, names):
        self.names = names


class NeverDelivers(KVConnectorBase_V1):
    """Says of each prompt of a "remote" request that its KV lies elsewhere, and that it has come once the fault is gone."""

    def __init__(self, vllm_config, role, kv_cache_config):
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        self.asked, self.loading = [], set()

    def get_num_new_matched_tokens(self, request, num_computed_tokens):
        if "remote" not in request.request_id:
            return 0, False
        return request.num_prompt_tokens - num_computed_tokens, True

    def update_state_after_alloc(self, request, blocks, num_external_tokens):
        if num_external_tokens:
            self.asked.append(request.request_id)

    def build_connector_meta(self, scheduler_output):
        asked, self.asked = self.asked, []
        return Names(asked)

    def start_load_kv(self, forward_context, **more):
        self.loading |= set(self._get_connector_metadata().names)

    def wait_for_layer_load(self, layer_name):
        pass

    def save_kv_layer(self, layer_name, kv_layer, attn_metadata, **more):
        pass

    def wait_for_save(self):
        pass

    def get_finished(self, finished_req_ids):
        if there("connector"):
            return None, None
        done, self.loading = self.loading, set()
        return None, done or None


# ---- middleware ------------------------------------------------------------------------------------------------------------
async def middleware(request, call_next):
    """A user's own, which a server is started with."""
    fault = request.headers.get("x-fault")
    if fault:
        happened(fault)
    if fault == "block-loop":
        wait_in_loop()
    if fault == "end-output-handler":
        request.app.state.engine_client.output_handler.cancel()
        for task in asyncio.all_tasks():  # it would end a server that is like this; an AsyncLLM of one's own has none
            if task.get_coro().__name__ == "watchdog_loop":
                task.cancel()
        return Response()
    if fault == "ask-service":
        await ask_service()
    return await call_next(request)


async def ask_service():
    """Of a service that takes the question and does not answer: the test itself, which listens there."""
    reader, writer = await asyncio.open_unix_connection(os.path.join(FOLDER, "service"))
    await reader.read(1)
    writer.close()


def wait_in_loop():
    while there("block-loop"):
        time.sleep(0.05)
