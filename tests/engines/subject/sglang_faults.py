"""Faults put into a real SGLang from outside; its own code otherwise. sitecustomize imports this in every process of an engine
whose environment has $GDBEXT_FAULTS, a folder (serve_sglang.py --faults).

A request brings its fault with it: the beginning of its id says which. "lost" is dropped by the scheduler as it comes in
(sglang#33858), of "mute" the scheduler does not send the end to the detokenizer, "zombie" is forgotten by the tokenizer manager
while the scheduler decodes it (sglang#36333), "too-large" is not checked against the size of the pool, "text-loops" keeps the
detokenizer in an endless loop, "step-loops" the scheduler, "server-loops" the event loop of a tokenizer manager, "router-loops"
that of the router of several tokenizer workers; "deaf" ends the task that takes the answers in. A loop ends when the file of the
folder that is called as the id is removed; what was lost, the tokenizer manager would keep for ever: it forgets it when all
requests are aborted.

The file `masks` of the folder gets a line for each step of requests with a grammar: {row of the batch: the tokens that its mask
left}.
"""

import itertools
import json
import os
import sys
import time

FOLDER = os.environ["GDBEXT_FAULTS"]


def loops_for_ever(rid):
    """vllm#43941: an eviction that removes nothing, until a test that has seen enough of it removes the file."""
    order, path = {}, os.path.join(FOLDER, rid)
    while os.path.exists(path):
        any(map(order.get, itertools.repeat("a", 1_000_000)))


def scheduler(module):
    original, check = module.Scheduler.handle_generate_request, module.validate_input_length

    def handle_generate_request(self, request, *rest, **more):
        if request.rid.startswith("lost"):
            return None
        if request.rid.startswith("step-loops"):
            loops_for_ever(request.rid)
        return original(self, request, *rest, **more)

    module.Scheduler.handle_generate_request = handle_generate_request
    module.validate_input_length = lambda request, *rest: None if request.rid.startswith("too-large") else check(request, *rest)


def output_streamer(module):
    original = module.SchedulerOutputStreamer._stream_output_generation

    def _stream_output_generation(self, reqs, *rest, **more):
        if any(r.rid.startswith("zombie") for r in reqs):
            time.sleep(0.01)  # it is still there when it is looked at
        return original(self, [r for r in reqs if not r.rid.startswith("mute") or not r.finished()], *rest, **more)

    module.SchedulerOutputStreamer._stream_output_generation = _stream_output_generation


def detokenizer_manager(module):
    original = module.DetokenizerManager.handle_batch_token_id_out

    def handle_batch_token_id_out(self, batch):
        for rid in batch.rids:
            if rid.startswith("text-loops"):
                loops_for_ever(rid)
        return original(self, batch)

    module.DetokenizerManager.handle_batch_token_id_out = handle_batch_token_id_out


def tokenizer_manager(module):
    manager = module.TokenizerManager
    answers, abort, send = manager._handle_batch_output, manager.abort_request, manager._send_one_request

    async def _handle_batch_output(self, batch):
        if any(rid.startswith("deaf") for rid in batch.rids):
            import asyncio

            raise asyncio.CancelledError  # no Exception: SGLang's wrapper does not catch it, and ends quietly
        await answers(self, batch)
        for rid in batch.rids:
            if rid.startswith("zombie"):
                self.rid_to_state.pop(rid, None)

    def abort_request(self, rid="", abort_all=False):
        abort(self, rid, abort_all)
        for known in [known for known in self.rid_to_state if abort_all and known.startswith(("lost", "mute"))]:
            self.rid_to_state.pop(known)

    async def _send_one_request(self, request, *rest, **more):
        if str(request.rid).startswith("server-loops"):
            loops_for_ever(request.rid)
        return await send(self, request, *rest, **more)

    manager._handle_batch_output, manager.abort_request = _handle_batch_output, abort_request
    manager._send_one_request = _send_one_request


def multi_tokenizer(module):
    receive = module.async_sock_recv

    async def async_sock_recv(socket, *rest):
        got = await receive(socket, *rest)
        if str(getattr(got, "rid", "")).startswith("router-loops"):
            loops_for_ever(got.rid)
        return got

    module.async_sock_recv = async_sock_recv


def base_grammar_backend(module):
    original = module.GrammarMask.apply

    def apply(self, logits):
        original(self, logits)
        left = {row: values.isfinite().nonzero().flatten().tolist() for row, values in enumerate(logits)}
        with open(os.path.join(FOLDER, "masks"), "a") as f:
            f.write(json.dumps({row: tokens for row, tokens in left.items() if len(tokens) < logits.shape[1]}) + "\n")

    module.GrammarMask.apply = apply


PATCHES = {
    "sglang.srt.managers.scheduler": scheduler,
    "sglang.srt.managers.scheduler_components.output_streamer": output_streamer,
    "sglang.srt.managers.detokenizer_manager": detokenizer_manager,
    "sglang.srt.managers.tokenizer_manager": tokenizer_manager,
    "sglang.srt.managers.multi_tokenizer_mixin": multi_tokenizer,
    "sglang.srt.constrained.base_grammar_backend": base_grammar_backend,
}


class Finder:
    """Patches a module once its own code has run."""

    def find_spec(self, name, path=None, target=None):
        if name not in PATCHES:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(name, path, target) if finder is not self and hasattr(finder, "find_spec") else None
            if spec is not None:
                run = spec.loader.exec_module

                def exec_module(module):
                    run(module)
                    PATCHES[name](module)

                spec.loader.exec_module = exec_module
                return spec
        return None


sys.meta_path.insert(0, Finder())
