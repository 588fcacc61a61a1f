"""One process with some of everything that reading commands show: threads, locks that wait in a ring, asyncio tasks, an exception
that is being handled, objects of many types, tensors. Prints its pid and some addresses, then waits."""

import asyncio
import collections
import json
import os
import sys
import threading
import time

import torch

first, second, ready = threading.Lock(), threading.Lock(), threading.Barrier(6)


class Request:
    def __init__(self, request_id):
        self.request_id, self.tokens, self.parent = request_id, [1, 2, 3], None


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 2)
        self.register_buffer("scale", torch.tensor([0.5, float("nan"), 2.0]))


def lock_both(one, other):
    with one:
        ready.wait()
        with other:
            pass


def handle():
    try:
        try:
            {}["missing"]
        except KeyError as e:
            raise ValueError("no such request") from e
    except ValueError:
        ready.wait()
        time.sleep(3600)


def serve():
    async def consume(queue, name):
        await queue.get()

    async def main():
        queue = asyncio.Queue()
        tasks = [asyncio.create_task(consume(queue, n), name=f"consumer-{n}") for n in range(3)]
        asyncio.get_running_loop().call_later(0.2, ready.wait)
        await asyncio.gather(*tasks)

    asyncio.run(main())


def work(request, layer):
    numbers, table = [1, 2.5, None, True, 1 << 70], collections.OrderedDict(a=1, b=[b"bytes", "text"])
    matrix = torch.arange(12, dtype=torch.float32).reshape(3, 4)
    named = collections.namedtuple("Point", "x y")(1, 2)
    ready.wait()
    time.sleep(0.5)
    print(json.dumps({"pid": os.getpid(), "request": id(request), "matrix": id(matrix), "data": matrix.data_ptr()}), flush=True)
    time.sleep(3600)
    return numbers, table, named


if __name__ == "__main__":
    sys.setswitchinterval(0.001)
    for target, *arguments in ((lock_both, first, second), (lock_both, second, first), (handle,), (serve,)):
        threading.Thread(target=target, args=arguments, daemon=True, name=target.__name__).start()
    threading.Thread(target=ready.wait, daemon=True, name="sixth").start()
    work(Request("req-1"), Layer())
