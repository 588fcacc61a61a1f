"""canaries.py FILE [WORDS...]: a process that has loaded an engine (a FAKE module vllm) and holds each line of FILE as users and
operators leave secrets and content: prompts, messages, bodies, headers, tokens. Prints its pid and how many lines it holds."""

import json
import os
import sys
import threading
import time
import types

sys.modules["vllm"] = types.ModuleType("vllm")


class Request:
    def __init__(self, number, text):
        self.request_id, self.prompt = f"req-{number}", text if number % 2 else "please tell " + text
        self.prompt_token_ids = [990000 + 3 * number, 990001 + 3 * number]
        self.sampling_params = {"stop": [text], "user": text}


class RawRequest:
    def __init__(self, text):
        self._body, self._json = json.dumps({"prompt": text}).encode(), {"prompt": text}
        self.headers = {"authorization": "Bearer " + text, "x-api-key": text}


def serve(requests, raw, messages, bodies, headers, api_key, password):
    time.sleep(3600)
    return requests, raw, messages, bodies, headers, api_key, password


def main():
    with open(sys.argv[1]) as f:
        words = f.read().split()
    parts = [words[i::6] for i in range(6)]
    requests = [Request(number, word) for number, word in enumerate(parts[0])]
    raw = [RawRequest(word) for word in parts[1]]
    messages = [{"role": "user", "content": word if n % 2 else "about " + word} for n, word in enumerate(parts[2])]
    bodies = [json.dumps({"prompt": "say " + word}).encode() for word in parts[3]]
    headers = [("cookie", "session=" + word) for word in parts[4]]
    keys = [(f"key-{word}"[4:], word) for word in parts[5]]
    for api_key, password in keys:
        threading.Thread(target=serve, args=(requests, raw, messages, bodies, headers, api_key, password), daemon=True).start()
    print(json.dumps({"pid": os.getpid(), "held": len(words)}), flush=True)
    serve(requests, raw, messages, bodies, headers, *keys[0])


if __name__ == "__main__":
    main()
