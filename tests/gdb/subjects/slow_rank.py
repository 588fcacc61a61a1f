"""slow_rank.py KIND RANK WORLD PORT FOLDER: ranks of one group that start; the last comes late. Prints "up PID" when it has the
group. `reads`: from a file, piece by piece, with pauses, as weights from a slow disk; `helper`: the same with a child that was
forked when the group was there; `loader`: a thread loads and hands on through a queue; `waits`: the first waits for a client,
the others for its next command. Of these nobody is to be accused. `sleeps`, `stuck`, `helper_late`: the last sleeps, reads a
pipe of its own, sleeps beside a forked child: the last rank is."""

import datetime
import os
import queue
import socket
import sys
import threading
import time

import torch
import torch.distributed as dist

kind, rank, world, port, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]


def read(name, give=None):
    """A megabyte at a time: what counts is that it gets on."""
    while True:
        with open(os.path.join(folder, name), "rb") as f:
            total = 0
            for _ in range(64):
                piece = f.read(1 << 20)
                total += len(piece)
                (give.put(total) if give else None)
                time.sleep(0.02)


def forked():
    if not os.fork():
        time.sleep(7200)


def late():
    if kind in ("reads", "helper"):
        if kind == "helper":
            forked()
        read("weights")
    elif kind == "loader":
        pieces = queue.Queue(2)
        threading.Thread(target=read, args=("weights", pieces), daemon=True).start()
        while pieces.get() is not None:
            pass
    elif kind == "stuck":
        os.read(os.pipe()[0], 1)
    else:
        if kind == "helper_late":
            forked()
        time.sleep(7200)


torch.set_num_threads(1)
dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", timeout=datetime.timedelta(hours=2), rank=rank, world_size=world)
x = torch.ones(4)
dist.all_reduce(x)
os.environ.update(RANK=str(rank), WORLD_SIZE=str(world))
if rank == 0:
    with open(os.path.join(folder, "weights"), "wb") as f:
        f.truncate(64 << 20)
dist.barrier()
print("up", os.getpid(), flush=True)
if kind == "waits":
    if rank == 0:
        socket.create_server(("127.0.0.1", 0)).accept()
    dist.broadcast(x, 0)
elif rank == world - 1:
    late()
dist.barrier()
