"""Threads that each wait inside a function of C code, called in a different way; the subject says which, by thread."""

import ctypes
import functools
import json
import os
import queue
import random
import select
import signal
import sys
import threading
import time

PIPE = os.pipe()
FOREVER = 3600
held = threading.Lock()
held.acquire()
event = threading.Event()
fifo = queue.SimpleQueue()
TABLE = {"nap": time.sleep}
sleep = time.sleep
TRUTH = {}


class Key:
    def __init__(self, number):
        self.number = number

    def __lt__(self, other):
        time.sleep(FOREVER)


class Iterates:
    def __iter__(self):
        return self

    def __next__(self):
        time.sleep(FOREVER)


def by_module():
    time.sleep(FOREVER)


def by_global():
    sleep(FOREVER)


def by_local():
    nap = time.sleep
    nap(FOREVER)


def by_cell():
    nap = time.sleep

    def inner():
        nap(FOREVER)

    inner()


def by_method():
    held.acquire()


def by_method_and_keyword():
    held.acquire(blocking=True, timeout=FOREVER)


def by_queue():
    fifo.get()


def by_star():
    time.sleep(*[FOREVER])


def by_stars():
    held.acquire(timeout=FOREVER)


def in_the_middle():
    return [1, (2, [3, len("abc"), held.acquire(True, FOREVER)])] + [4]


def in_handlers():
    with open("/dev/null") as f:
        for _ in range(3):
            try:
                raise ValueError(f)
            except ValueError:
                try:
                    for a in (1, 2):
                        for b in (a, a):
                            print(b, select.select([PIPE[0]], [], []), file=f)
                finally:
                    print("end", file=f)


def by_sorted():
    sorted([Key(2), Key(1)])


def by_sort():
    [Key(2), Key(1)].sort()


def by_type():
    tuple(Iterates())


def by_partial():
    functools.partial(time.sleep, FOREVER)()


def a_generator():
    yield 1
    yield time.sleep(FOREVER)


def in_a_generator():
    list(a_generator())


def by_a_comparison():
    Key(1) < Key(2)


def a_python_function():
    event.wait()


def long_code():
    """More than 256 names and constants: instructions with extended arguments."""
    exec("\n".join(f"v{i} = {i} + 1000" for i in range(400)) + f"\nimport time as last\nlast.sleep({FOREVER})", {})


# thread: what its outermost function of this file has called; None: no function of C code
WAYS = [
    (by_module, {"by_module": "time.sleep"}),
    (by_global, {"by_global": "time.sleep"}),
    (by_local, {"by_local": "time.sleep"}),
    (by_cell, {"by_cell": "", "by_cell.<locals>.inner": "time.sleep"}),
    (by_method, {"by_method": "_thread.lock.acquire"}),
    (by_method_and_keyword, {"by_method_and_keyword": "_thread.lock.acquire"}),
    (by_queue, {"by_queue": "_queue.SimpleQueue.get"}),
    (by_star, {"by_star": "time.sleep"}),
    (by_stars, {"by_stars": "_thread.lock.acquire"}),
    (in_the_middle, {"in_the_middle": "_thread.lock.acquire"}),
    (in_handlers, {"in_handlers": "select.select"}),
    (by_sorted, {"by_sorted": "sorted", "Key.__lt__": "time.sleep"}),
    (by_sort, {"by_sort": "list.sort", "Key.__lt__": "time.sleep"}),
    (by_type, {"by_type": "tuple", "Iterates.__next__": "time.sleep"}),
    (by_partial, {"by_partial": ""}),
    (in_a_generator, {"in_a_generator": "list", "a_generator": "time.sleep"}),
    (by_a_comparison, {"by_a_comparison": "", "Key.__lt__": "time.sleep"}),
    (a_python_function, {"a_python_function": ""}),
    (long_code, {"long_code": "exec", "<module>": "time.sleep"}),
]


AROUND = (
    "[{0}, 1]",
    "(1, 2, {0})",
    "{{'a': 1, 'b': {0}}}",
    "str({0})",
    "len([1, [2, {0}]])",
    "(1 if event else {0}) and (1 if not event else {0})",
    "[0 for _ in (1, {0})]",
    "print(1, {0}, sep='', end='')",
    "max(1, 2, key=lambda x, y={0}: x)",
    "({0}, 1)[0]",
    "{0} or 2",
    "'%s %s' % (1, {0})",
    "f'{{event}}' + str(print(*[1], **{{'sep': {0}}}))",
)


def drawn(seed):
    """`[(function, its truth, its source)]`: drawn expressions and blocks around the call, told the same way."""
    draw, found = random.Random(seed), []
    for number in range(12):
        text, truth = draw.choice([("time.sleep(3600)", "time.sleep"), ("held.acquire(True, 3600)", "_thread.lock.acquire")])
        for _ in range(draw.randrange(6)):
            text = draw.choice(AROUND).format(text)
        heads = ["for a in (1, 2):", "while True:", "try:", "with event._cond:"]  # each once: the lock is no RLock
        heads = draw.sample(heads, draw.randrange(4))
        lines = ["def drawn_%d():" % number] + ["    " * (i + 1) + head for i, head in enumerate(heads)]
        lines.append("    " * (len(heads) + 1) + text)
        if "try:" in heads:
            at = "    " * (heads.index("try:") + 1)
            lines += [at + "finally:", at + "    str(1)"]
        space = {"time": time, "held": held, "event": threading.Event()}
        exec("\n".join(lines), space)
        name = "drawn_%d" % number
        found.append((space[name], {name: truth}, "\n".join(lines)))
    return found


def behind():
    """A function whose call has ended: what it gave, a function of C code, stands where it stood, and a handler of a signal that
    came meanwhile runs before the next instruction."""
    return next(map({0: time.sleep}.get, map(getattr(ctypes.CDLL(None), "raise"), [signal.SIGUSR1])))


def handler(*_):
    TRUTH[threading.main_thread().native_id] = [{"behind": "", "handler": "time.sleep"}, ""]
    print(json.dumps(TRUTH), flush=True)
    time.sleep(FOREVER)


if __name__ == "__main__":
    for function, truth, source in [(*way, "") for way in WAYS] + drawn(int(sys.argv[1])):
        thread = threading.Thread(target=function, daemon=True)
        thread.start()
        TRUTH[thread.native_id] = [truth, source]
    signal.signal(signal.SIGUSR1, handler)
    behind()
