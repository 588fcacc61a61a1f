"""DTensors on drawn meshes and jagged nested tensors as `D` and `J`; prints what torch says of them."""

import json
import os
import random
import sys
import time

import torch
import torch.distributed as dist

os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", RANK="0", WORLD_SIZE="8")
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

draw = random.Random(int(sys.argv[1]))
dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=8)
D, J, truth = [], [], {"D": [], "J": []}
for number in range(8):
    sizes = draw.choice([(8,), (2, 4), (2, 2, 2)])
    names = draw.choice([None, ("a", "b", "c")[: len(sizes)]])
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=names)
    places = [draw.choice([Shard(0), Shard(1), Replicate(), Partial(), Partial("max")]) for _ in sizes]
    local = torch.arange(6.0).reshape(2, 3) + number
    D.append(DTensor.from_local(local, mesh, places, run_check=False))
    said = D[-1]
    shape = [list(sizes), list(names) if names else None, "cpu"]
    truth["D"].append([list(said.shape), shape, [repr(p) for p in said.placements], repr(said.to_local())])
for number in range(6):
    lengths = [draw.randrange(5) for _ in range(draw.randrange(1, 12))]
    if number % 3 == 2:  # with room between the parts
        offsets = torch.tensor([0] + [sum(n + 2 for n in lengths[: i + 1]) for i in range(len(lengths))])
        values = torch.arange(2.0 * int(offsets[-1])).reshape(-1, 2)
        J.append(torch.nested.nested_tensor_from_jagged(values, offsets, torch.tensor(lengths)))
    else:
        J.append(torch.nested.nested_tensor([torch.rand(n, 3) for n in lengths], layout=torch.jagged))
    held = J[-1]
    starts = held._offsets.tolist()
    parts = [held._values[a : a + n] for a, n in zip(starts, lengths)]
    truth["J"].append([[list(p.shape) for p in parts], [repr(p) for p in parts]])
print(json.dumps(truth), flush=True)
time.sleep(3600)
