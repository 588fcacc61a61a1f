"""What clients ask of a real SGLang server whose requests bring their faults with them (engines/subject/sglang_faults.py).
`engine`: of tools.engines, its `faults` the folder of the faults' files."""

import contextlib
import http.client
import json
import os

from .answers import answer
from .heartbeats import eventually
from .served import STUCK


def requests(engine, how=""):
    """`{id: request}` as llm-requests says of the engine."""
    return {r["request_id"]: r for r in answer(f"llm-requests {engine.said['pid']} -json {how}")["requests"]}


def steadily(engine, *stuck, moving=False):
    """An answer in which just `stuck` ((beginning of an id, verdict) each), of all, do not get on; `moving`: and another moves.
    The requests come to where they stay before that."""
    found = {}

    def arrived():
        found.clear()
        found.update(requests(engine))
        accused = sorted((name, r["verdict"]) for name, r in found.items() if r["verdict"] in STUCK)
        right = len(accused) == len(stuck) and all(any(n.startswith(b) and v == w for b, w in stuck) for n, v in accused)
        return right and (not moving or any(r["verdict"] == "moving" for r in found.values()))

    eventually(arrived, f"{stuck}", 240)
    return {next((b for b, _ in stuck if name.startswith(b)), name): r for name, r in found.items()}


def post(engine, path, body):
    """A connection on which a request has been sent."""
    connection = http.client.HTTPConnection("127.0.0.1", engine.said["port"], timeout=120)
    connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    return connection


@contextlib.contextmanager
def sent(engine, *asked, forgotten=True):
    """Requests ((id, tokens of its prompt, tokens to make, more parameters) each) whose answers somebody waits for while the
    block runs. A file of the id keeps a loop going. In the end the engine has `forgotten` them."""
    connections, names = [], {rid for rid, *_ in asked}
    for rid, prompt, tokens, *more in asked:
        open(os.path.join(engine.faults, rid), "w").close()
        body = {
            "rid": rid,
            "input_ids": [5 + i % 64 for i in range(prompt)],
            "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True, **dict(*more)},
        }
        connections.append(post(engine, "/generate", body))
    try:
        yield
    finally:
        for name in os.listdir(engine.faults):
            os.remove(os.path.join(engine.faults, name))
        for connection in connections:
            connection.close()
        if forgotten:
            eventually(lambda: abort(engine) or not names & requests(engine, "-between 0").keys(), f"the end of {names}", 240)


def abort(engine):
    """Lets the server abort all requests that it knows; it may be busy."""
    with contextlib.suppress(OSError, http.client.HTTPException):
        post(engine, "/abort_request", {"rid": "", "abort_all": True}).getresponse().read()
