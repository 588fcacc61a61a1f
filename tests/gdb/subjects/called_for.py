"""called_for.py KIND: a thread, for which the main thread waits, sleeps in Python code that the interpreter called by itself.

KIND: "finalizer", "collected" (a finalizer that the collector calls), "weakref" (its callback), "signal" (a handler, in the main
thread itself), "plain" (a function). Says {"tid"} of the thread as JSON.
"""

import gc
import json
import signal
import sys
import threading
import time
import weakref

KIND = sys.argv[1]


def sleeps(*_):
    print(json.dumps({"tid": threading.get_native_id()}), flush=True)
    time.sleep(3600)


class Ends:
    def __del__(self):
        sleeps()


class Known:
    pass


def works():
    if KIND == "finalizer":
        one = Ends()
        del one
    elif KIND == "collected":
        one = Ends()
        one.itself = one
        del one
        gc.collect()
    elif KIND == "weakref":
        one = Known()
        ref = weakref.ref(one, sleeps)
        del one
        ref()
    elif KIND == "signal":
        signal.signal(signal.SIGUSR1, sleeps)
        signal.raise_signal(signal.SIGUSR1)
    else:
        sleeps()


if KIND == "signal":
    works()
else:
    thread = threading.Thread(target=works)
    thread.start()
    thread.join()
