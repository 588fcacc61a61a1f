"""Waits of situations.py for ranks and devices: gloo's collectives over one group and over several, a made-up NCCL and its
device (fake_nccl.c), vLLM's own ring in shared memory. Each takes (draw, `drawn`: what the ender does) and gives (kind of truth,
function that waits). torch and vLLM are imported by those that need them."""

import ctypes
import datetime
import functools
import json
import os
import subprocess
import tempfile
import time

from nccl_rank import communicator
from situation_parts import LATE, SPINNING, STUCK, behind_a_lock, children, stuck, tids

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
RANKS = 3
AWAY = RANKS - 1  # the rank that does not come


def forked(function):
    """Runs `function(tell)` in a child, which tells its `tids`: here when it has told."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            function(lambda: os.write(write, json.dumps(tids).encode()))
        finally:
            os._exit(1)
    os.close(write)
    children.append(pid)
    return read


def heard(*pipes):
    """Takes in what children tell."""
    for read in pipes:
        tids.update({name: tid for name, tid in json.loads(os.read(read, 4096)).items() if name != "main"})


def keep_away(drawn, tell):
    """What the process does that should end the wait: its main thread does it."""
    tids["ender"] = os.getpid()
    if drawn == "behind a lock":
        behind_a_lock(tell)
    tell()
    (STUCK.get(drawn) or SPINNING.get(drawn))()


# ---- gloo ------------------------------------------------------------------------------------------------------------
def operation(name):
    """A function of (torch.distributed, group) that begins a collective and waits for its end."""
    import torch

    return {
        "all_reduce": lambda dist, group: dist.all_reduce(torch.ones(8), group=group),
        "barrier": lambda dist, group: dist.barrier(group=group),
        "all_gather": lambda dist, group: dist.all_gather(
            [torch.ones(8) for _ in range(dist.get_world_size(group))], torch.ones(8), group=group
        ),
    }[name]


def set_up(rank, path, groups):
    """(torch.distributed with gloo, its `groups`, each of a list of ranks)"""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    limit = datetime.timedelta(seconds=900)
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=RANKS, timeout=limit)
    made = [dist.new_group(ranks) for ranks in groups]
    dist.barrier()
    return dist, made


def ranks(behave, groups=()):
    """This process as rank 0, the others as its children; `behave(rank, dist, groups, drawn, tell)` is what each does."""

    def build(draw, drawn):
        import torch.distributed  # noqa: F401  once, before there are ranks

        path = os.path.join(tempfile.mkdtemp(), "store")

        def live(rank):
            return lambda tell: behave(rank, *set_up(rank, path, groups), drawn, tell)

        told = [forked(live(rank)) for rank in range(1, RANKS)]
        mine = set_up(0, path, groups)
        heard(*told)
        return "ranks", lambda: behave(0, *mine, drawn, lambda: None)

    return build


def collective(name, groups=(), used=None):
    """Ranks in a collective of all, or of `groups[used]`, to which the last one does not come. Who is not in that group goes on
    by itself."""

    def behave(rank, dist, made, drawn, tell):
        begin = operation(name)
        if rank == AWAY and drawn != "slow":
            keep_away(drawn, tell)
        tell()
        n = 0
        while True:
            n += 1
            if rank == AWAY:
                time.sleep(LATE)
            if used is None or rank in groups[used]:
                begin(dist, made[used] if used is not None else None)
            else:
                time.sleep(0.02)

    return ranks(behave, groups)


def crossed(rank, dist, made, drawn, tell):
    """Rank 0 waits in one group for rank 1, and rank 1 in another for rank 0; rank 2 naps."""
    tids["ender" if rank == 1 else "beside"] = os.getpid()
    tell()
    if rank == AWAY:
        time.sleep(100000)
    operation("all_reduce")(dist, made[rank])


# ---- a device, and a made-up NCCL ------------------------------------------------------------------------------------
DEVICE = {"slow": 1, "spinning": 2, "polling": 3, "sleeping": 0}  # what the fake's cudaStreamSynchronize does with its stream


@functools.lru_cache(None)
def fake_library():
    path = os.path.join(tempfile.mkdtemp(), "libnccl.so.2")
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", path, os.path.join(HERE, "fake_nccl.c")], check=True)
    return ctypes.CDLL(path)


def a_device(draw, drawn):
    synchronize = fake_library().cudaStreamSynchronize

    def wait():
        step = 0
        while True:
            synchronize(ctypes.c_void_p(DEVICE[drawn]))
            step += 1

    return "device", wait


def nccl(draw, drawn):
    """All ranks wait for their devices; with "skipped" one has begun one collective fewer, with others it does not come there."""
    with open(os.path.join(ROOT, "gdbext", "layouts", "nccl.json")) as f:
        row = [row for row in json.load(f).values() if isinstance(row, dict)][-1]
    library = fake_library()

    def live(rank, tell=lambda: None):
        late = rank == AWAY and drawn != "together"
        memory = communicator(library, row, rank, RANKS, [0, 0, 0, 0, 700 - late])
        if late:
            tids["ender"] = os.getpid()
        if late and drawn != "skipped":
            keep_away(drawn, tell)
        tell()
        library.cudaStreamSynchronize(None)
        return memory

    heard(*[forked(lambda tell, rank=rank: live(rank, tell)) for rank in range(1, RANKS)])
    return ("device" if drawn == "together" else "ranks"), lambda: live(0)


# ---- vLLM's ring -----------------------------------------------------------------------------------------------------
CHUNKS = 4


def ring(waits):
    """The child `waits` for a "message" that this process does not write, or this one for "room" that the child does not make."""

    def build(draw, drawn):
        from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

        queue = MessageQueue(1, 1, max_chunk_bytes=1024, max_chunks=CHUNKS)

        class Worker:
            def __init__(self):
                self.rpc_broadcast_mq = MessageQueue.create_from_handle(queue.export_handle(), 0)
                self.rpc_broadcast_mq.wait_until_ready()

            def read(self, tell):
                self.rpc_broadcast_mq.dequeue(indefinite=True)
                if waits == "room" and drawn != "slow":
                    keep_away(drawn, tell)
                tell()
                while True:
                    if waits == "room":
                        time.sleep(LATE)
                    self.rpc_broadcast_mq.dequeue(indefinite=True)

        told = forked(lambda tell: Worker().read(tell))
        queue.wait_until_ready()
        queue.enqueue("begin")
        heard(told)
        stand = stuck(drawn) if waits == "message" else None

        def write():
            if stand is not None:
                stand()
            n = 0
            while True:
                n += 1
                if waits == "message":
                    time.sleep(LATE)
                queue.enqueue(n)

        if waits == "message":
            tids["ender"] = os.getpid()
        return "ring", write

    return build


STATES = ("slow", "sleeping", "receiving", "behind a lock", "spinning", "trying")
WAITS = {
    "all_reduce": (collective("all_reduce"), STATES),
    "barrier": (collective("barrier"), STATES),
    "all_gather": (collective("all_gather"), STATES[:2]),
    "all_reduce in a group of some": (collective("all_reduce", [[0, 1], [0, 2]], 1), STATES),
    "all_reduce in groups crosswise": (ranks(crossed, [[0, 1], [0, 1]]), ("cycle",)),
    "device": (a_device, tuple(DEVICE)),
    "NCCL": (nccl, ("skipped", "together", "sleeping", "spinning", "behind a lock")),
    "ring's message": (ring("message"), STATES),
    "ring's room": (ring("room"), STATES),
}
RINGS = tuple(name for name in WAITS if name.startswith("ring"))
GLOO = tuple(name for name in WAITS if name not in ("device", "NCCL", *RINGS))
