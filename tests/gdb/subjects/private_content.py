"""A process that has loaded an engine (a FAKE module vllm) and holds a user's prompt and its tokens in every way that
handlers do. Prints addresses."""

import asyncio
import collections
import functools
import itertools
import json
import multiprocessing
import os
import re
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


class Kept:
    def __init__(self, text):
        self.remark, self.others = text, {"status": "RUNNING", "note": "\u79d8\u5bc6" + text[6:]}
        self.stop = [text[6:]]
        self.block_ids, self.path, self.dtype, self.digest = (
            [3, 5, 7],
            "/models/llama-3/config.json",
            "torch.float16",
            bytes(range(200, 232)),
        )


class Sent:
    """What users send as dicts and lists: of vLLM's StructuredOutputsParams, SamplingParams and ChatCompletionRequest."""

    FIELDS = (
        "json extra_args tools tool_choice reasoning reasoning_content logprobs top_logprobs vllm_xargs custom_params documents "
        "response_format chat_template_kwargs mm_processor_kwargs function_call guided_json guided_choice".split()
    )

    def __init__(self, word):
        schema = {"type": "object", "properties": {word: {"enum": [word]}}}
        self.json, self.guided_json, self.response_format = schema, dict(schema), {"json_schema": schema, "type": word}
        self.tools = [{"type": "function", "function": {"name": word, "parameters": schema}}]
        self.tool_choice = self.function_call = {"function": {"name": word}}
        self.logprobs, self.top_logprobs = {word: -0.5}, [{word: -0.5}]
        self.documents, self.guided_choice = [{"title": word}], [word]
        for name in self.FIELDS:
            self.__dict__.setdefault(name, {"key": word, word: {"inner": [word]}})
        self.structured_outputs = {"json": schema, "choice": [word]}
        self.user = self.suffix = self.whitespace_pattern = self.guided_regex = word


def handed_on(request, auth, api_key):
    """What the repr of types that are no containers shows of others, under names that say nothing; and keys by their names."""
    text, tokens = request.prompt[6:], request.prompt_token_ids
    old, new = dict.fromkeys(tokens, 1), dict.fromkeys(tokens, text)
    vals, arr, item, pair = list(tokens), old.keys(), new.values(), old.items()
    seq, out, res = slice(tokens[1], None), range(tokens[1], tokens[2]), complex(tokens[1], 0)
    match, it, tmp2 = re.match(".*", text), itertools.repeat(text), itertools.repeat(tokens)
    prompt, prompts = re.match(".*", text), old.keys()
    config = {"authkey": auth, "HF_TOKEN": api_key, "passwords": [api_key]}
    headers = [("accept", "text/plain"), ("x-api-key", api_key)]
    del old, new
    while True:
        time.sleep(3600)
    return vals, arr, item, pair, seq, out, res, match, it, tmp2, prompt, prompts, config, headers


def named(text):
    """Tasks whose names are what a user sent, of a loop that sleeps: one waits for the other, in a thread of such a name."""

    async def rests():
        await asyncio.sleep(3600)

    async def both():
        first = asyncio.create_task(rests(), name="answers " + text)
        await asyncio.create_task(asyncio.wait([first]), name=f"waits for ({text})")

    threading.Thread(target=asyncio.run, args=(both(),), daemon=True, name="task: " + text).start()


def neutral(x, data, line, kwargs, ids, n, element, doc, chunk, history, rest, last, obj, val, msg, left, then):
    """What says nothing of what it holds: text of one word, bytes of a body, tokens; and text in an attribute of any name."""
    kept = Kept("about " + x)
    kept.found = re.search(".*", kept.remark)
    kept.by_id = {"tokens of": {"req-1": ids}, 7: {"about " + x: ids}}
    kept.seen = {"about " + x}
    params = Sent(x)
    kept.wrapped = collections.UserDict(note=kept.remark)
    then()
    return kept, params, data, line, kwargs, ids, n, element, doc, chunk, history, rest, last, obj, val, msg, left


def main():
    request = Request("req-1")
    input_ids = torch.tensor(request.prompt_token_ids)
    token_ids_cpu_tensor = input_ids.clone()
    words = (RawRequest(request.prompt), request.prompt, request)
    thread = threading.Thread(target=handle, args=words, daemon=True, name="answer: " + request.prompt)
    thread.start()
    named(request.prompt)
    ready.wait()
    secret = request.prompt[6:]
    body, more = json.dumps({"prompt": secret}).encode(), {"request_id": "req-1", "question": request.prompt}
    words = [secret, body, [secret], more, list(request.prompt_token_ids), input_ids]
    words += [collections.UserList(request.prompt_token_ids), collections.UserString(secret), collections.UserList([secret])]
    words += [set(words[4]), collections.deque(words[4]), {"req-1": words[4], 7: words[4]}]
    words += [
        collections.Counter(words[4]),
        functools.partial(print, words[4], secret),
        ValueError("bad", secret),
        [[[words[4]]]],
    ]
    del secret, body, more
    auth, key = multiprocessing.current_process().authkey, "sk-Key-of-a-user"
    words.append(functools.partial(handed_on, request, auth, key))
    sys.modules["vllm"].held = [request.prompt]
    truth = {"pid": os.getpid(), "request": id(request), "prompt": id(request.prompt), "tokens": id(request.prompt_token_ids)}
    truth.update(
        held=id(sys.modules["vllm"].held),
        ids=id(input_ids),
        secret=request.prompt[6:],
        token=request.prompt_token_ids[1],
        sent=Sent.FIELDS,
        handler=thread.native_id,
        auth=id(auth),
        keys=[repr(bytes(auth))[2:-1], key],
    )
    print(json.dumps(truth), flush=True)
    del truth, auth, key
    neutral(*words)
    return token_ids_cpu_tensor


main()
