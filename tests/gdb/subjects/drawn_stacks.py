"""Threads with drawn stacks of Python and native frames. It says of each what its frames are, innermost first: those of this file
and of the library, as they were made.

drawn_stacks.py LIBRARY SEED COUNT: drawn_stacks.c as a library."""

import ctypes
import json
import os
import random
import sys
import threading

library, seed, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
lib = ctypes.CDLL(library)
NAMES = ctypes.c_char_p.in_dll(lib, "names").value.decode().split()
CALLBACK = ctypes.CFUNCTYPE(None)
draw = random.Random(seed)
here, told = os.pipe()
never, _ = os.pipe()
kept = []


def rests():
    os.write(told, b"p")
    os.read(never, 1)


def python_frame(name, inner):
    """A function of this name that calls `inner`."""
    scope = {"inner": inner}
    exec(compile(f"def {name}():\n    inner()\n", __file__, "exec"), scope)
    return scope[name]


def native_layers(inner, truth):
    """What calls `inner` (None: it rests in C) through drawn native layers. `truth` gets these."""
    kind, up = draw.choice((0, 0, 1, 2)), draw.randrange(2)
    chosen = [draw.randrange(len(NAMES)) for _ in range(draw.randrange(4))]
    ids, last = (ctypes.c_int * (len(chosen) + 1))(*chosen), CALLBACK(inner) if inner else ctypes.cast(None, CALLBACK)
    kept.append((ids, last))
    truth += [["native", NAMES[i]] for i in reversed(chosen)]
    truth += [[], [["native", "begin"], ["other stack", ""]], [["native", "handler"]]][kind]
    truth.append(["native", "hop"])
    return lambda: lib.hop(kind, up, len(chosen), ids, last, told)


def stack():
    """-> (what a thread is to call, its frames)"""
    if draw.randrange(2):
        truth, inner = [["python", "rests"]], rests
    else:
        truth = [["native", "pymain_rests"]]
        call = native_layers(None, truth)
        truth.append(["python", "<lambda>"])
        inner = call
    for _ in range(draw.randrange(1, 7)):
        if draw.randrange(2):
            inner = native_layers(inner, truth)
            truth.append(["python", "<lambda>"])
        name = draw.choice(NAMES)
        inner = python_frame(name, inner)
        truth.append(["python", name])
    return inner, truth


truths = {}
for i in range(count):
    inner, truths[f"drawn-{i}"] = stack()
    threading.Thread(target=inner, name=f"drawn-{i}", daemon=True).start()
    os.read(here, 1)
sys.stdout.write(json.dumps({"pid": os.getpid(), "file": __file__, "stacks": truths}) + "\n")
sys.stdout.flush()
sys.stdin.read()
