"""A FAKE of SGLang's scheduler, named so: its main thread waits nowhere between two steps. Every second or so a step takes long,
and then nothing is asked for a while. Says {"begin", "end"} of each step, on the monotonic clock."""

import json
import sys
import time
import types

for name in ("sglang", "sglang.version"):
    sys.modules[name] = types.ModuleType(name)
sys.modules["sglang.version"].__version__ = "0.5.23"


class Scheduler:
    def __init__(self, attributes):
        for n in range(attributes):  # as many as a real one has: Python keeps them in a dict of the object's own
            setattr(self, f"other_{n}", None)
        self.forward_ct = 0

    def recv_requests(self, seconds):
        spin(seconds)

    def run_batch(self, seconds):
        spin(seconds)

    def event_loop_normal(self):
        while True:
            rest = 0.4 if self.forward_ct % 20 == 10 else 0.001
            self.recv_requests(rest)
            begin = time.monotonic()
            self.run_batch(0.3 if self.forward_ct % 20 == 19 else 0.04)
            self.forward_ct += 1
            print(json.dumps({"begin": begin, "end": time.monotonic()}), flush=True)


def spin(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


Scheduler(int(sys.argv[1])).event_loop_normal()
