"""A small server whose two threads hold each other's lock: the subject of docs/library.md and of its examples. Says
{"pid", "evictor": tid, "running": [ids], "weights": [[...]]}, then hangs."""

import array
import json
import os
import threading
import time

try:
    import numpy
except ImportError:
    numpy = None


class Request:
    def __init__(self, request_id, tokens):
        self.request_id, self.tokens = request_id, tokens


class Scheduler:
    def __init__(self):
        self.running = [Request("req-7", 132), Request("req-8", 101)]
        self.waiting = []
        self.limits = {"max_seqs": 256, "names": ("a", "b")}


class EngineCore:
    def __init__(self):
        self.scheduler = Scheduler()
        self.cache_lock, self.pool_lock = threading.Lock(), threading.RLock()
        values = [[0.0, 0.5, 1.0], [1.5, 2.0, 2.5]]
        self.weights = numpy.array(values, "float32") if numpy is not None else array.array("d", values[0])

    def step(self, tried):
        with self.cache_lock:
            tried.wait()
            with self.pool_lock:
                return len(self.scheduler.running)

    def evict(self, tried):
        with self.pool_lock:
            said["evictor"] = threading.get_native_id()
            tried.wait()
            with self.cache_lock:
                self.scheduler.waiting.clear()


core, both = EngineCore(), threading.Barrier(3)
said = {"pid": os.getpid(), "running": [r.request_id for r in core.scheduler.running]}


def say():
    both.wait()
    time.sleep(0.2)
    print(json.dumps(said), flush=True)


threading.Thread(target=core.evict, args=(both,), name="evictor", daemon=True).start()
threading.Thread(target=say, daemon=True).start()
core.step(both)
