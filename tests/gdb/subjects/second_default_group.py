"""A process of torch.distributed with two groups, each with a store of its own; WHICH of them (0, 1) is the default one. Writes
{"store": its HOST:PORT, "group": its name} as a line of JSON, then waits for a line."""

import json
import sys
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

which = int(sys.argv[1])
stores = [dist.TCPStore("127.0.0.1", 0, 1, True) for _ in range(2)]
dist.init_process_group("gloo", store=stores[0], rank=0, world_size=1)
first = dist.group.WORLD
own = dist.PrefixStore("second", stores[1])
second, _ = c10d._new_process_group_helper(1, 0, [0], c10d.Backend("gloo"), own, "second", timeout=timedelta(minutes=1))
c10d._world.pg_group_ranks[second] = {0: 0}
c10d._update_default_pg((first, second)[which])
store, name = stores[which], c10d._world.pg_names[dist.group.WORLD]
print(json.dumps({"store": f"{store.host}:{store.port}", "group": name}), flush=True)
sys.stdin.readline()
