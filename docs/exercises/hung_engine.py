"""Exercise 1: a small engine that answers some requests, and then none. python3 hung_engine.py

It prints its pid. Why does it stop answering?  (The solution: ../exercises.md. With -truth it says so itself, to a test.)
"""

import itertools
import json
import multiprocessing
import os
import sys
import threading
import time


class Worker:
    """Runs the requests, and moves KV blocks in a thread of its own."""

    def __init__(self, pipe):
        self.pipe = pipe
        self.blocks = threading.Lock()
        self.batch = threading.Lock()
        self.offloading = threading.Event()

    def run_step(self, request):
        with self.batch:
            if request >= 5:  # the batch no longer fits: blocks are to be offloaded
                self.offloading.set()
                time.sleep(0.5)
            with self.blocks:
                return f"token of request {request}"

    def offload_blocks(self):
        while True:
            self.offloading.wait()
            with self.blocks:
                time.sleep(1)
                with self.batch:
                    self.offloading.clear()

    def serve(self):
        threading.Thread(target=self.offload_blocks, name="offloader", daemon=True).start()
        while True:
            self.pipe.send(self.run_step(self.pipe.recv()))


def worker_main(pipe):
    Worker(pipe).serve()


def truth(worker):
    """For the test: each thread of the worker that is to blame, with the lock it holds and the one that it wants."""
    return {"worker": worker, "holds": {"MainThread": ["batch", "blocks"], "offloader": ["blocks", "batch"]}}


def main():
    pipe, far = multiprocessing.Pipe()
    worker = multiprocessing.Process(target=worker_main, args=(far,), daemon=True)
    worker.start()
    print(json.dumps({"pid": os.getpid(), **(truth(worker.pid) if "-truth" in sys.argv else {})}), flush=True)
    for request in itertools.count():
        pipe.send(request)
        print(pipe.recv(), flush=True)


if __name__ == "__main__":
    main()
