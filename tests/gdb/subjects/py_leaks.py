"""Leaks of ten shapes, half of them in containers that gc.freeze() put away; each line read names one and makes it grow."""

import asyncio
import collections
import gc
import threading

from growing import serve


class Holder:
    pass


class Slotted:
    __slots__ = ("items",)


class Node:
    def __init__(self, before):
        self.before, self.after = before, before.after if before else self


class Response:
    pass


def keeper():
    kept = []

    def remember(x):
        kept.append(x)

    return remember


async def nothing():
    pass


answers = []
engine = Holder()
engine.scheduler = Holder()
engine.scheduler.table = {}
box = {"queue": collections.deque(), ("seen", 1): set()}
gc.collect()
gc.freeze()
remember = keeper()
ring = Node(None)
slotted = Slotted()
slotted.items = []
blob = bytearray()
tasks = set()
local = threading.local()
local.items = []
loop = asyncio.new_event_loop()


def grow_ring(i):
    new = Node(ring)
    ring.after.before = new
    ring.after = new


def grow_bytes(i):
    blob.extend(b"x" * 100)


GROW = {
    "list": lambda i: answers.append(Response()),
    "dict": lambda i: engine.scheduler.table.setdefault(f"request-{len(engine.scheduler.table)}", [i]),
    "deque": lambda i: box["queue"].append((i, [i])),
    "set": lambda i: box["seen", 1].add(("id", len(box["seen", 1]))),
    "closure": lambda i: remember({"i": i}),
    "cycle": grow_ring,
    "slots": lambda i: slotted.items.append(Response()),
    "bytes": grow_bytes,
    "tasks": lambda i: tasks.add(loop.create_task(nothing())),
    "thread-local": lambda i: local.items.append([i]),
}
serve(GROW)
