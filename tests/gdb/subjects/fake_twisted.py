"""A fake of Twisted's reactor, Deferred, DeferredLock and inlineCallbacks: the same names, attributes and file ends, no sockets.

Two coroutines each have one lock and want the other's, a generator waits for an item of a queue; `rest`: none of them; `odd`:
besides, Deferreds whose callbacks have forms of no release, drawn, also before and after those that wait."""

import gc
import random
import sys
import types

DEFER = """
class Deferred:
    def __init__(self):
        self.called, self.callbacks = False, []
    def addBoth(self, call, *args):
        self.callbacks.append(((call, args, {}), (call, args, {})))
    def __await__(self):
        yield self
class DeferredLock:
    def __init__(self):
        self.locked, self.waiting = False, []
    def acquire(self):
        found = Deferred()
        if self.locked:
            self.waiting.append(found)
        else:
            self.locked = found.called = True
        return found
    def release(self):
        self.locked = False
class DeferredQueue:
    def __init__(self):
        self.waiting, self.pending, self.size = [], [], None
    def get(self):
        found = Deferred()
        self.waiting.append(found)
        return found
def _inlineCallbacks(gen, waiting=None):
    result = gen.send(None)
    while result.called:
        result = gen.send(None)
    result.addBoth(_inlineCallbacks, waiting, gen, None, None)
"""
BASE = """
import time
class ReactorBase:
    def mainLoop(self):
        print("READY", flush=True)
        time.sleep(1000)
"""


def module(name, source, path):
    made = sys.modules[name] = types.ModuleType(name)
    exec(compile(source, path, "exec"), made.__dict__)
    return made


for package in ("twisted", "twisted.internet"):
    sys.modules[package] = types.ModuleType(package)
defer = module("twisted.internet.defer", DEFER, "/no/such/twisted/internet/defer.py")
base = module("twisted.internet.base", BASE, "/no/such/twisted/internet/base.py")
ONE, OTHER, QUEUE = defer.DeferredLock(), defer.DeferredLock(), defer.DeferredQueue()


async def crosses(mine, wanted):
    await mine.acquire()
    await turn
    await wanted.acquire()


def takes(queue):
    yield queue.get()


turn = defer.Deferred()
if sys.argv[1] != "rest":
    both = [crosses(ONE, OTHER), crosses(OTHER, ONE)]
    for each in both:
        defer._inlineCallbacks(each)
    turn.called, again = True, [call[1][1] for (call, _) in turn.callbacks]
    turn.callbacks = []
    for each in again:
        defer._inlineCallbacks(each)
    defer._inlineCallbacks(takes(QUEUE))
if sys.argv[1] == "odd":
    draw, odd = random.Random(int(sys.argv[2])), []

    def form(depth=4):
        several = [form(depth - 1) for _ in range(draw.randrange(4))] if depth else []
        return draw.choice([None, 7, "x", (), several, tuple(several), tuple(several), dict.fromkeys("abc"), form])

    for known in [one for one in gc.get_objects() if isinstance(one, defer.Deferred)]:
        known.callbacks = [*(form() for _ in range(5)), *known.callbacks, *(form() for _ in range(5))]
    for callbacks in ([()], [((1, 2), 3)], [(None,)], None, [((),)], [[]], *(form() for _ in range(60))):
        odd.append(defer.Deferred())
        odd[-1].callbacks = callbacks
base.ReactorBase().mainLoop()
