"""torch.distributed over NCCL with one rank: five all-reduces, a broadcast, an all-gather, then it waits for a line of input.

nccl_alone.py PORT"""

import json
import os
import sys

import torch
import torch.distributed as dist

dist.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{sys.argv[1]}", rank=0, world_size=1)
x = torch.ones(4, device="cuda")
for _ in range(5):
    dist.all_reduce(x)
dist.broadcast(x, 0)
dist.all_gather([torch.empty_like(x)], x)
torch.cuda.synchronize()
print(json.dumps({"pid": os.getpid(), "nccl": ".".join(map(str, torch.cuda.nccl.version())), "begun": 7}), flush=True)
sys.stdin.readline()
