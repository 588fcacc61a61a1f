"""Works under torch.profiler until it is told to end, then writes the trace to argv[1] and says when each piece of work was."""

import json
import os
import sys
import threading
import time

import torch
from torch.profiler import ProfilerActivity, profile, record_function

x, told, pieces = torch.randn(64, 64), threading.Event(), []


def marked_work():
    until, y = time.monotonic() + 0.3, x
    while time.monotonic() < until:
        y = torch.mm(y, x).softmax(-1)


threading.Thread(target=lambda: (sys.stdin.readline(), told.set()), daemon=True).start()
with profile(activities=[ProfilerActivity.CPU]) as profiler:
    torch.mm(x, x)
    print(json.dumps({"pid": os.getpid()}), flush=True)
    while not told.is_set():
        with record_function("marked"):
            begin = time.time()
            marked_work()
            pieces.append((begin, time.time()))
        time.sleep(0.2)
profiler.export_chrome_trace(sys.argv[1])
print(json.dumps(pieces), flush=True)
time.sleep(900)
