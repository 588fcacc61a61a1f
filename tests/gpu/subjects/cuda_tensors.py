"""Tensors on the GPU. Writes what is true of them as a line of JSON, then stands in one of several ways.

    cuda_tensors.py sync|item|stream|event|rest|launching

sync, item, stream, event: waits in this call for a kernel that does not end; rest: waits for a line of input, with nothing on the
GPU; launching: launches one short kernel after another."""

import json
import os
import sys

import torch

how = sys.argv[1]
t = torch.arange(12.0, device="cuda").reshape(3, 4)
half = (torch.arange(24, device="cuda") / 7).to(torch.float16).reshape(2, 3, 4)
bf = (torch.arange(10, device="cuda") / 3).to(torch.bfloat16)
f8 = (torch.arange(8, device="cuda") / 4).to(torch.float8_e4m3fn)
ints = torch.arange(-5, 5, device="cuda", dtype=torch.int64)
flags = torch.tensor([True, False, True], device="cuda")
part = torch.arange(100.0, device="cuda").reshape(10, 10)[2:8:2, 1::3]
bad = torch.tensor([1.0, float("nan"), float("inf"), -2.5], device="cuda")
big = torch.zeros(40 << 20, device="cuda")  # more than is read in one go
big[-1] = 7.0
weight = torch.nn.Linear(4, 3).cuda().weight
junk = [torch.empty(1 << 18, device="cuda") for _ in range(10)]
del junk[3:7]
shown = {name: repr(globals()[name]) for name in ("t", "half", "bf", "f8", "ints", "flags", "part", "bad", "weight")}
torch.cuda.synchronize()
stats, segments = torch.cuda.memory_stats(), torch.cuda.memory_snapshot()


def wait():
    event, stream = torch.cuda.Event(), torch.cuda.current_stream()
    if how not in ("rest", "launching"):
        torch.cuda._sleep(1 << 40)
        event.record()
    print(json.dumps({"pid": os.getpid(), "shown": shown, "stats": stats, "segments": segments}), flush=True)
    if how == "sync":
        torch.cuda.synchronize()
    elif how == "item":
        t.max().item()
    elif how == "stream":
        stream.synchronize()
    elif how == "event":
        event.synchronize()
    elif how == "rest":
        sys.stdin.readline()
    more = t
    while how == "launching":
        more = more + 1  # something that changes: without it the loop could as well turn in one place
        torch.cuda.synchronize()


wait()
