"""gloo_rank.py RANK WORLD PORT FOLDER: one rank of a torch.distributed gloo group. Reads words from standard input and does each:

all_reduce, barrier, recv N | nap F, spin F, lock F: stays away in that manner until the file F is there; gil F: until something
is written to the FIFO F, prints "keeps" before | steps N | numbers: prints "numbers" and [name, ranks, number of the last
collective] of each group, of a new one of all ranks too. Prints "did WORD" after each; "up PID" first; "culprit TID" where
another thread is to blame."""

import ctypes
import datetime
import json
import os
import sys
import threading
import time

import torch
import torch.distributed as dist

held_libc = ctypes.PyDLL(None)


def nap(path):
    while not os.path.exists(path):
        time.sleep(0.05)


def spin(path):
    until, n = time.monotonic() + 300, 0
    while time.monotonic() < until:
        n += 1
        if n % 1000 == 0 and os.path.exists(path):
            break


def lock(path):
    """A lock that another thread keeps until the file is there."""
    mine, has = threading.Lock(), threading.Event()

    def keep():
        with mine:
            has.set()
            nap(path)

    thread = threading.Thread(target=keep, name="keeper", daemon=True)
    thread.start()
    has.wait()
    print("culprit", thread.native_id, flush=True)
    with mine:
        pass


def gil(path):
    """Reads from a FIFO with the GIL held, while another thread asks for it."""
    os.mkfifo(path)
    kept, started = os.open(path, os.O_RDWR), threading.Event()

    def ask():
        started.set()
        while kept is not None:
            time.sleep(0.001)

    threading.Thread(target=ask, name="other", daemon=True).start()
    started.wait()
    print("keeps", flush=True)
    held_libc.read(kept, ctypes.create_string_buffer(1), 1)
    kept = None


def steps(count):
    x = torch.ones(10)
    for _ in range(int(count)):
        time.sleep(0.05)
        dist.all_reduce(x)


def numbers():
    c10d = dist.distributed_c10d
    group = dist.new_group(range(dist.get_world_size()))
    dist.all_reduce(torch.ones(1), group=group)
    said = [
        (c10d._pg_names[pg], sorted(ranks, key=ranks.get), pg._get_backend(torch.device("cpu"))._get_sequence_number_for_group())
        for pg, ranks in c10d._pg_group_ranks.items()
    ]
    print("numbers", json.dumps(said), flush=True)


def main():
    rank, world, port = sys.argv[1:4]
    os.environ.update(RANK=rank, WORLD_SIZE=world, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, OMP_NUM_THREADS="1")
    torch.set_num_threads(1)
    print("starting", os.getpid(), flush=True)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=900))
    dist.barrier()
    print("up", os.getpid(), flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        if word == "all_reduce":
            dist.all_reduce(torch.ones(10))
        elif word == "barrier":
            dist.barrier()
        elif word == "recv":
            dist.recv(torch.ones(10), src=int(rest[0]))
        else:
            {"nap": nap, "spin": spin, "lock": lock, "gil": gil, "steps": steps, "numbers": numbers}[word](*rest)
        print("did", word, flush=True)


main()
