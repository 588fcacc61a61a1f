"""A process that has loaded an engine (a FAKE module vllm) and holds a user's prompt and its tokens in every way that
handlers do. Prints addresses."""

import json
import os
import sys
import threading
import time
import types

import torch

sys.modules["vllm"] = types.ModuleType("vllm")
ready = threading.Barrier(2)


class Request:
    def __init__(self, request_id):
        self.request_id, self.prompt = request_id, "about the-secret-of-the-user"
        self.prompt_token_ids = [990017, 990023, 990029]


class RawRequest:
    def __init__(self, body):
        self._body, self._json = body.encode(), {"prompt": body}

    def __getitem__(self, key):
        return self._json[key]


def handle(raw_request, body, request):
    engine_prompt = {"prompt": body, "prompt_token_ids": list(request.prompt_token_ids)}
    messages = [{"role": "user", "content": body}]
    try:
        try:
            raise KeyError(body)
        except KeyError as e:
            raise ValueError("bad prompt: " + body) from e
    except ValueError:
        ready.wait()
        time.sleep(3600)
    return engine_prompt, messages


def main():
    request = Request("req-1")
    input_ids = torch.tensor(request.prompt_token_ids)
    thread = threading.Thread(target=handle, args=(RawRequest(request.prompt), request.prompt, request), daemon=True)
    thread.start()
    ready.wait()
    sys.modules["vllm"].held = [request.prompt]
    truth = {"pid": os.getpid(), "request": id(request), "prompt": id(request.prompt), "tokens": id(request.prompt_token_ids)}
    truth.update(
        held=id(sys.modules["vllm"].held),
        ids=id(input_ids),
        secret=request.prompt[6:],
        token=request.prompt_token_ids[1],
        handler=thread.native_id,
    )
    print(json.dumps(truth), flush=True)
    del truth
    while True:
        time.sleep(3600)


main()
