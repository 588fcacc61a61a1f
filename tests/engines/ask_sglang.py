"""Asks a SGLang server for N tokens after one prompt, and adds them to FILE as a line.

    ask_sglang.py PORT FILE KEY N

Requests of one KEY share their prefix's KV cache; the first of a KEY computes the whole prompt."""

import json
import sys

from serve_sglang import ask

PROMPT = [5 + 3 * i % 900 for i in range(70)]


def main():
    port, path, key, count = sys.argv[1:]
    sampling = {"max_new_tokens": int(count), "ignore_eos": True, "temperature": 0}
    body = {"input_ids": PROMPT, "extra_key": key, "sampling_params": sampling}
    status, answer = ask(int(port), "POST", "/generate", body)
    with open(path, "a") as f:
        f.write(json.dumps([key, status, json.loads(answer).get("output_ids")]) + "\n")


if __name__ == "__main__":
    main()
