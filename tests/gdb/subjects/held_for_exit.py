"""Objects that only callbacks of atexit and signal handlers hold, and one that only its own cycle holds. Says who holds each."""

import atexit
import gc
import json
import signal
import time

gc.disable()


class Kept:
    def at_end(self, *_):
        pass


def closes_over(held):
    return lambda *_: held


def at_exit():
    held = [Kept() for _ in range(5)]
    atexit.register(held[0].at_end)
    atexit.register(print, held[1])
    atexit.register(print, file=held[2])
    atexit.register(closes_over(held[3]))
    atexit.register(held[4].at_end)
    atexit.unregister(held[4].at_end)
    atexit.register(closes_over([held[4]]))
    return {hex(id(one)): "(an atexit callback)" for one in held}


def handlers():
    held = [Kept() for _ in range(3)]
    signal.signal(signal.SIGUSR1, held[0].at_end)
    signal.signal(signal.SIGUSR2, closes_over(held[1]))
    signal.signal(signal.SIGHUP, held[2].at_end)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    held[2].me = held[2]
    of = {0: signal.SIGUSR1, 1: signal.SIGUSR2}
    return {hex(id(one)): f"(a handler of signal {int(of[n])})" if n in of else "" for n, one in enumerate(held)}


print(json.dumps({**at_exit(), **handlers()}), flush=True)
time.sleep(3600)
