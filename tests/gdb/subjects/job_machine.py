"""job_machine.py: a machine on which ranks of gloo jobs live, one line of JSON on standard input for each:
{rank, size, store, kind, odd, op, named, interface}. torch is imported once; each rank is a child, which prints "ready RANK PID"
when it has met the others, then behaves as its `kind` says. "end" ends the children. `odd`: the rank that does not do as the
others do."""

import datetime
import itertools
import json
import os
import signal
import socket
import sys
import threading
import time

import torch
import torch.distributed as dist

x = torch.ones(4)


def all_reduce(group):
    dist.all_reduce(x, group=group)


def all_gather(group):
    dist.all_gather([torch.ones(4) for _ in range(dist.get_world_size(group))], x, group=group)


def barrier(group):
    dist.barrier(group=group)


OPS = {"all_reduce": all_reduce, "all_gather": all_gather, "barrier": barrier}


def keeps_away(how):
    """What a rank does that the others wait for."""
    if how == "lock":
        lock, has = threading.Lock(), threading.Event()

        def keep():
            with lock:
                has.set()
                time.sleep(7200)

        threading.Thread(target=keep, name="keeper", daemon=True).start()
        has.wait()
        with lock:
            pass
    elif how == "own lock":
        lock = threading.Lock()
        with lock, lock:
            pass
    elif how == "pipe":
        read, write = os.pipe()
        os.read(read, 1)
        os.close(write)
    elif how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(7200)


def stages(told, group, mine):
    """A pipeline: each rank takes from the one before it and gives to the next. One stage comes to wait for a lock that nobody
    gives back ("stage"), or the first one for a client ("head")."""
    before, after = told["rank"] - 1, told["rank"] + 1
    for number in itertools.count():
        if before >= 0:
            dist.recv(x, src=before, group=group)
        if mine and number == 3:
            if told["kind"] == "head":
                socket.create_server(("127.0.0.1", 0)).accept()
            keeps_away("lock")
        if after < told["size"]:
            dist.send(x, dst=after, group=group)


def steps(step, seconds):
    """Meets the others again and again, after `seconds` of this rank's own."""
    while True:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            torch.ones(64, 64).sum()
        time.sleep(0.02)
        step()


def behave(told, one, two, some):
    kind, mine, step = told["kind"], told["rank"] == told["odd"], OPS[told["op"]]
    if kind == "crossed":
        step(two if mine else one)
    elif kind == "skipped":
        dist.barrier(group=one) if mine else all_reduce(one)
    elif kind == "message":
        time.sleep(7200) if mine else dist.recv(x, src=told["odd"], group=one)
    elif kind == "beside":  # what is awaited is another one, in a group that this one is not in
        if mine or told["rank"] == (told["odd"] + 1) % told["size"]:
            time.sleep(7200)
        step(some)
    elif kind in ("stage", "head"):
        stages(told, one, mine)
    elif kind == "work":
        steps(lambda: step(one), 0.0)
    elif kind == "slow":
        steps(lambda: step(one), 0.4 if mine else 0.0)
    elif kind == "idle":
        if mine:
            socket.create_server(("127.0.0.1", 0)).accept()
        dist.broadcast(x, told["odd"], group=one)
    elif kind == "network":
        while not down():
            time.sleep(0.05)
        step(one)
    elif mine:
        keeps_away(kind)
    else:
        step(one)


def down():
    """Whether the interface between the machines is down."""
    with open("/proc/self/net/route") as f:
        return "veth" not in f.read()


def rank(told):
    os.environ["GLOO_SOCKET_IFNAME"] = told["interface"]
    if told["named"]:
        os.environ.update(RANK=str(told["rank"]), WORLD_SIZE=str(told["size"]))
    torch.set_num_threads(1)
    limit = datetime.timedelta(hours=2)
    dist.init_process_group(
        "gloo", init_method=f"tcp://{told['store']}", rank=told["rank"], world_size=told["size"], timeout=limit
    )
    one, two = (dist.new_group(list(range(told["size"]))) for _ in range(2))
    some = dist.new_group([r for r in range(told["size"]) if r != told["odd"]])
    for _ in range(3):
        dist.all_reduce(x, group=one)
        dist.all_reduce(x, group=two)
    os.write(1, f"ready {told['rank']} {os.getpid()}\n".encode())
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    behave(told, one, two, some)


def main():
    children = []
    print("up", os.getpid(), flush=True)
    for line in sys.stdin:
        if line.strip() == "end":
            for pid in children:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            children.clear()
            print("ended", flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            try:
                rank(json.loads(line))
            finally:
                os._exit(1)
        children.append(pid)


main()
