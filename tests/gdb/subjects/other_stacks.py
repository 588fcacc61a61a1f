"""Threads whose native code stands on another stack than their own; says of each thread its Python frames, innermost first, and
the C function that it rests in.

other_stacks.py LIBRARY: other_stacks.c as a library."""

import ctypes
import json
import os
import sys
import threading
import time

lib = ctypes.CDLL(sys.argv[1])
CALLBACK = ctypes.CFUNCTYPE(None)
rests = threading.Event()


@CALLBACK
def called_back():
    rests.wait()


def fiber(up):
    lib.on_fiber(called_back, up)


def c_fiber(up):
    lib.on_fiber(lib.c_waits, up)


def signal_stack(up):
    lib.on_signal_stack(up)


def plain(up):
    lib.plainly(called_back, up)


def nested(up):
    lib.on_fiber(CALLBACKS[up], up)


def c_fiber_in_fiber(up):
    lib.on_fiber(CALLBACKS[2 + up], up)


CALLBACKS = [
    CALLBACK(lambda: fiber(1)),
    CALLBACK(lambda: fiber(0)),
    CALLBACK(lambda: signal_stack(1)),
    CALLBACK(lambda: c_fiber(0)),
]


def run(function, up):
    function(up)


todo = {f"{f.__name__}-{up}": (f, up) for f in (fiber, c_fiber, signal_stack, plain, nested, c_fiber_in_fiber) for up in (0, 1)}
threads = {}
for name, what in todo.items():
    threads[name] = threading.Thread(target=run, args=what, name=name, daemon=True)
    threads[name].start()
    time.sleep(0.3)
truth = {}
for name, thread in threads.items():
    frame, stack = sys._current_frames()[thread.ident], []
    while frame is not None:
        stack.append(frame.f_code.co_name)
        frame = frame.f_back
    truth[name] = stack
sys.stdout.write(json.dumps({"pid": os.getpid(), "stacks": truth}) + "\n")
sys.stdout.flush()
sys.stdin.read()
