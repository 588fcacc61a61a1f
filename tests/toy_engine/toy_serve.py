"""The toy engine itself: a scheduler with two requests, that says what it has and waits for work for good. toy_serve.py RANK"""

import json
import sys
import threading
import types

toy_engine = types.ModuleType("toy_engine")
toy_engine.__version__ = "1.0"
sys.modules["toy_engine"] = toy_engine


class ToyRequest:
    def __init__(self, request_id, toy_prompt, produced, blocks):
        self.request_id, self.toy_prompt, self.produced, self.blocks = request_id, toy_prompt, produced, blocks


class ToyScheduler:
    def __init__(self, rank):
        self.rank, self.blocks, self.block_size = rank, 8, 4
        self.free = [7, 3, 5]
        self.running = [ToyRequest("toy-a", [11, 12, 13, 14, 15, 16], 9, [0, 1, 2, 4])]
        self.waiting = [ToyRequest("toy-b", [21] * 30, 0, []), ToyRequest("toy-c", [22], 0, [])]
        self.work = threading.Event()

    def run(self):
        print(json.dumps({"free": self.free, "ids": [r.request_id for r in self.running + self.waiting]}), flush=True)
        self.wait_for_work()

    def wait_for_work(self):
        self.work.wait()


scheduler = ToyScheduler(int(sys.argv[1]))
scheduler.run()
