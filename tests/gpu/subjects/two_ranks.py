"""two_ranks.py HOW [cpu]: two ranks of torch.distributed on one GPU over NCCL's sockets, without end; with cpu over gloo.

After three all-reduces each rank's pid is known; its line on the standard output is {"pids": [rank 0, rank 1], "nccl": version}.
Then HOW:
  none   both go on
  skip   rank 1 leaves out its fourth all-reduce and sleeps
  shape  rank 1's fourth all-reduce has fewer elements
  spin   rank 1 launches a kernel that does not end; its fourth all-reduce is queued behind it
NCCL takes ranks that name hosts of their own (NCCL_HOSTID) for ranks of two machines; two of one host on one GPU it refuses."""

import json
import os
import socket
import subprocess
import sys
import time

ENVIRON = {
    "NCCL_SOCKET_IFNAME": "lo",
    "GLOO_SOCKET_IFNAME": "lo",
    "NCCL_IB_DISABLE": "1",
    "NCCL_NET": "Socket",
    "NCCL_MNNVL_ENABLE": "0",
}


def run_rank(how, rank, cpu):
    import torch
    import torch.distributed as dist

    device = "cpu" if cpu else "cuda:0"
    dist.init_process_group("gloo" if cpu else "nccl")
    x = torch.full((1 << 20,), float(rank + 1), device=device)
    for _ in range(3):
        y = x.clone()
        dist.all_reduce(y)
        assert y[0].item() == 3.0, y[0]
    print(json.dumps({"pid": os.getpid(), "nccl": "" if cpu else ".".join(map(str, torch.cuda.nccl.version()))}), flush=True)
    if rank == 1 and how == "skip":
        time.sleep(3600)
    if rank == 1 and how == "shape":
        x = x[:1024].clone()
    if rank == 1 and how == "spin":
        torch.cuda._sleep(1 << 44)
    while True:
        dist.all_reduce(x.fill_(1.0))
        x[0].item()


def main():
    how, cpu = sys.argv[1], "cpu" in sys.argv[2:]
    if "RANK" in os.environ:
        return run_rank(how, int(os.environ["RANK"]), cpu)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    ranks = []
    for rank in range(2):
        own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        environ = {**os.environ, **ENVIRON, **{k: str(v) for k, v in own.items()}, "NCCL_HOSTID": f"gdbext-{rank}"}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=environ, stdout=subprocess.PIPE, text=True))
    said = [json.loads(next((line for line in rank.stdout if line.startswith("{")), '{"pid": 0, "nccl": ""}')) for rank in ranks]
    print(json.dumps({"pids": [one["pid"] for one in said], "nccl": said[0]["nccl"]}), flush=True)
    return max(rank.wait() for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
