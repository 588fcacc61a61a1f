"""Leaks in what programs keep without a list or dict of their own, half of them frozen; each line read names one and makes it grow."""

import asyncio
import collections
import contextvars
import functools
import gc
import itertools
import logging
import types
import weakref

from growing import serve


class Item:
    pass


class Split:
    """Its attributes stand in it, or in values that it shares the keys of with others."""

    def __init__(self):
        self.name, self.rows = "split", []


@functools.lru_cache(maxsize=None)
def cached(key):
    return [key]


def counted(kept):
    while True:
        kept.append([(yield)])


variable = contextvars.ContextVar("variable")
context = contextvars.copy_context()
context.run(variable.set, [])
order = collections.OrderedDict()
view = types.MappingProxyType({"inner": {}})
split = Split()
gc.collect()
gc.freeze()
watched = Item()
callbacks = []
logger = logging.getLogger("engine")
logger.propagate = False
loop = asyncio.new_event_loop()
queue = asyncio.Queue()
ahead, behind = itertools.tee(itertools.count(1 << 40))
generator = counted([])
next(generator)
GROW = {
    "lru-cache": lambda i: cached(f"key-{cached.cache_info().currsize}"),
    "context": lambda i: context.run(variable.get).append([i]),
    "ordered": lambda i: order.setdefault(f"id-{len(order)}", [i]),
    "proxy": lambda i: view["inner"].setdefault(len(view["inner"]), [i]),
    "split": lambda i: split.rows.append((i, [i])),
    "weakrefs": lambda i: callbacks.append(weakref.ref(watched, lambda ref, i=[i]: i)),
    "handlers": lambda i: logger.addHandler(logging.NullHandler()),
    "queue": lambda i: queue.put_nowait(loop.create_future()),
    "tee": lambda i: next(ahead),
    "generator": lambda i: generator.send(i),
}
serve(GROW)
