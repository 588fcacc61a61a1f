"""A real `vllm serve` (tests/engines/serve_http.py) with faults that come and go, and what its clients ask."""

import contextlib
import http.client
import itertools
import json
import os
import threading
import time

from harness.answers import answer

CONTENT = {"Content-Type": "application/json"}
STUCK = ("behind", "parked", "never-fits", "lost", "zombie")


class Asked(threading.Thread):
    """One request of a client, its answer read as it comes. `name` is in the engine's own id; `prompt`: a text, or of how many
    tokens."""

    def __init__(self, port, name, prompt, tokens, headers, more):
        super().__init__(name=name, daemon=True)
        self._client = http.client.HTTPConnection("127.0.0.1", port)
        words = prompt if isinstance(prompt, str) else [5 + i * 7 % 900 for i in range(prompt)]
        body = {"model": "subject", "prompt": words, "max_tokens": tokens, "stream": True}
        self._client.connect()
        self._socket = self._client.sock
        self._client.request("POST", "/v1/completions", json.dumps({**body, "ignore_eos": True, **more}), headers)
        self.start()

    def run(self):
        with contextlib.suppress(OSError, http.client.HTTPException, AttributeError, ValueError):
            self._client.getresponse().read()

    def take_back(self):
        """The client goes away."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(2)
        self._client.close()


class Served:
    """`engine`: of tools.engines; `faults`: the folder whose files are the faults."""

    def __init__(self, engine, faults):
        self.engine, self.faults = engine, faults
        self.port = engine.said["port"]

    def pids(self):
        """{label: pid} of its processes, as llm-ranks names them."""
        ranks = answer("llm-ranks -json")["ranks"]
        mine = set(self.engine.pids())
        return {r["label"]: r["pid"] for r in ranks if r["pid"] in mine}

    def ask(self, name, prompt=16, tokens=160, fault=None, **more):
        headers = {**CONTENT, "X-Request-Id": name}
        if fault is not None:
            headers["X-Fault"] = fault
        return Asked(self.port, name, prompt, tokens, headers, more)

    @contextlib.contextmanager
    def asked(self, *names, **how):
        """Requests that are there while the block runs."""
        asked = [self.ask(name, **how) for name in names]
        try:
            yield asked
        finally:
            for one in asked:
                one.take_back()

    @contextlib.contextmanager
    def traffic(self, count=3, prompt=None, **more):
        """Requests without end, so many at a time; the prompt of every third is long, where none is given."""
        over, current = threading.Event(), {}

        def keep_asking(number):
            for turn in itertools.count():
                if over.is_set():
                    return
                words = prompt or (180 if turn % 3 == 2 else 16)
                one = current[number] = self.ask(f"traffic-{number}-{turn}", prompt=words, tokens=60, **more)
                one.join()

        threads = [threading.Thread(target=keep_asking, args=(n,), daemon=True) for n in range(count)]
        for t in threads:
            t.start()
        try:
            yield
        finally:
            over.set()
            for one in list(current.values()):
                one.take_back()
            for t in threads:
                t.join()

    @contextlib.contextmanager
    def fault(self, name):
        path = os.path.join(self.faults, name)
        open(path, "w").close()
        try:
            yield
        finally:
            os.unlink(path)

    def happened(self, fault, seconds=120):
        """The pid of the API server that a request brought a fault to."""
        path, end = os.path.join(self.faults, fault + ".pid"), time.monotonic() + seconds
        while not os.path.exists(path) or not os.path.getsize(path):
            assert time.monotonic() < end, f"no server took the request with {fault}"
            time.sleep(0.05)
        with open(path) as f:
            return int(f.read())

    def requests(self):
        """{engine's id: request} as llm-requests says."""
        return {r["request_id"]: r for r in answer(f"llm-requests {self.engine.said['pid']} -json")["requests"]}

    def until(self, wanted, seconds=120):
        """The first answer of llm-requests of which `wanted(requests)` is true."""
        end = time.monotonic() + seconds
        while True:
            found = self.requests()
            if wanted(found):
                return found
            assert time.monotonic() < end, found

    def hang(self):
        """llm-hang on all of its processes."""
        return answer("llm-hang " + " ".join(str(pid) for pid in self.pids().values()) + " -json")


def named(found, text):
    """The one request whose id has `text`."""
    (one,) = [r for name, r in found.items() if text in name]
    return one
