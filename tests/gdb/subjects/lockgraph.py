"""Threads that wait for one another in every way that llm-locks knows. Says who waits for whom, by thread name:

{"pid", "child": pid of a forked process, "tids": {name: tid}, "edges": {waiter: [kind, owner or null]}, "cycles": [[names]],
"candidates": {waiter: [names]}}; then waits.
"""

import json
import os
import queue
import sys
import tempfile
import threading
import time

from fault_parts import crossed_mutexes

tids = {}


def start(name, function, *args):
    def body():
        tids[name] = threading.get_native_id()
        function(*args)

    thread = threading.Thread(target=body, name=name, daemon=True)
    thread.start()
    return thread


def forever():
    time.sleep(100000)


class Box:
    pass


# ---- locks left locked by a fork -------------------------------------------------------------------------------------
def forked():
    plain, again = threading.Lock(), threading.RLock()

    def hold():
        with plain, again:
            forever()

    start("fork holder", hold)
    while not plain.locked() or "fork holder" not in tids:
        time.sleep(0.01)
    time.sleep(0.1)
    read, write = os.pipe()
    pid = os.fork()
    if pid:
        os.close(write)
        said = os.read(read, 100)
        assert said == b"up"
        return pid
    threading.Thread(target=plain.acquire, name="child plain", daemon=True).start()
    os.write(write, b"up")
    again.acquire()
    os._exit(1)


# ---- ABBA ------------------------------------------------------------------------------------------------------------
class Cache:
    def __init__(self):
        self.first, self.second, self.meet = threading.Lock(), threading.RLock(), threading.Barrier(2)

    def one(self):
        with self.first:
            self.meet.wait()
            with self.second:
                pass

    def two(self):
        self.second.acquire()
        try:
            self.meet.wait()
            self.first.acquire()
            self.first.release()
        finally:
            self.second.release()


# ---- owners of a plain lock ------------------------------------------------------------------------------------------
def with_then_sleep(lock, ready):
    """Was in a `with` of a lock and is out of it: what is left of that on its value stack must not count."""
    with lock:
        pass
    ready.set()
    forever()


def in_with(lock, ready):
    with open(os.devnull), lock:
        ready.set()
        forever()


def by_calls(lock, ready):
    lock.acquire()
    try:
        ready.set()
        forever()
    finally:
        lock.release()


def want(lock):
    with lock:
        pass


def plain_with():
    lock = threading.Lock()
    for name, function in (("was in", with_then_sleep), ("in with", in_with)):
        ready = threading.Event()
        start(name, function, lock, ready)
        ready.wait()
    start("wants with", want, lock)


def plain_calls():
    lock, ready = threading.Lock(), threading.Event()
    start("in calls", by_calls, lock, ready)
    ready.wait()
    start("wants calls", want, lock)


def taken_and_gone():
    """Locked in a function that has returned: nobody can know who did it."""
    box = Box()
    box.lock = threading.Lock()

    def take(box):
        box.lock.acquire()

    def reach(box):
        forever()

    take(box)
    start("could reach", reach, box)
    start("wants gone", want, box.lock)


def twice():
    lock = threading.Lock()
    with lock:
        with lock:
            pass


def condition():
    """One waits in a Condition, which gives the lock back; another holds that lock; a third wants it."""
    cond, ready = threading.Condition(threading.Lock()), threading.Event()

    def wait():
        with cond:
            cond.wait()

    def hold():
        with cond:
            ready.set()
            forever()

    start("cond waiter", wait)
    time.sleep(0.1)
    start("cond holder", hold)
    ready.wait()
    start("wants cond", want, cond)


def containers(box):
    """Waits for a queue's items and room, an event, a semaphore's permit and a thread's end."""
    box.full, box.empty, box.event, box.semaphore = queue.Queue(1), queue.Queue(), threading.Event(), threading.Semaphore(1)
    box.full.put(1)
    start("putter", lambda: box.full.put(2))
    start("getter", lambda: box.empty.get())
    start("listener", lambda: box.event.wait())

    def permit():
        with box.semaphore:
            forever()

    start("has permit", permit)
    time.sleep(0.1)
    start("wants permit", lambda: box.semaphore.acquire())
    sleeper = start("sleeper", forever)
    start("joiner", lambda: sleeper.join())


def importing():
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "slow_module.py"), "w") as f:
            f.write("import time\ntime.sleep(100000)\n")
        sys.path.insert(0, folder)

        def load():
            import slow_module  # noqa: F401

        start("importer", load)
        time.sleep(0.3)
        start("wants import", load)
        time.sleep(0.5)


def log_handler():
    import logging

    handler = logging.StreamHandler(open(os.devnull, "w"))
    logging.getLogger("x").addHandler(handler)

    def keep():
        handler.acquire()
        forever()

    start("log holder", keep)
    time.sleep(0.1)
    start("logger", lambda: logging.getLogger("x").warning("text"))
    time.sleep(0.5)


def finding():
    """A thread in a finder has CPython's import lock and waits for a lock whose holder imports. No import ends after this."""
    hooks = threading.Lock()

    class Finder:
        def find_spec(self, name, path=None, target=None):
            if name == "not_there":
                with hooks:
                    pass

    sys.meta_path.insert(0, Finder())

    def hold():
        with hooks:
            time.sleep(1)
            import colorsys  # noqa: F401

    def find():
        import not_there  # noqa: F401

    def wave():
        import wave  # noqa: F401

    start("hooker", hold)
    time.sleep(0.2)
    start("in finder", find)
    time.sleep(1.5)
    start("wants finder", wave)
    time.sleep(0.5)


EDGES = {
    "cache one": ["RLock", "cache two"],
    "cache two": ["Lock", "cache one"],
    "mutex one": ["mutex", "mutex two"],
    "mutex two": ["mutex", "mutex one"],
    "wants with": ["Lock", "in with"],
    "wants calls": ["Lock", "in calls"],
    "wants gone": ["Lock", None],
    "twice": ["Lock", "twice"],
    "wants cond": ["Lock", "cond holder"],
    "cond waiter": ["Condition", None],
    "putter": ["Queue", None],
    "getter": ["Queue", None],
    "listener": ["Event", None],
    "wants permit": ["Semaphore", "has permit"],
    "joiner": ["Thread", "sleeper"],
    "wants import": ["import", "importer"],
    "logger": ["RLock", "log holder"],
    "in finder": ["Lock", "hooker"],
    "hooker": ["import", "in finder"],
    "wants finder": ["import", "in finder"],
}
CYCLES = [["cache one", "cache two"], ["mutex one", "mutex two"], ["twice"], ["hooker", "in finder"]]


def main():
    child = forked()
    box = Box()
    cache = Cache()
    start("cache one", cache.one)
    start("cache two", cache.two)
    crossed_mutexes(start, "mutex one", "mutex two")
    plain_with()
    plain_calls()
    taken_and_gone()
    start("twice", twice)
    condition()
    containers(box)
    importing()
    log_handler()
    finding()
    truth = {
        "pid": os.getpid(),
        "child": child,
        "tids": tids,
        "edges": EDGES,
        "cycles": CYCLES,
        "candidates": {"wants gone": ["could reach"]},
    }
    print(json.dumps(truth), flush=True)
    forever()


main()
