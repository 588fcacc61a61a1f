"""Threads that run an interpreter inside another: one, two deep, and with a Lock that it takes twice; says its process id."""

import json
import os
import sys
import threading
import time

if sys.version_info >= (3, 13):
    import _interpreters as made
else:
    import _xxsubinterpreters as made

LEAF = "import time\ndef {name}_leaf():\n    time.sleep(1000)\ndef {name}_middle():\n    {name}_leaf()\n{name}_middle()"
TWICE = "import threading\nL = threading.Lock()\ndef twice():\n    with L:\n        L.acquire()\ntwice()"
INSIDE = (
    f"import {made.__name__} as made\ndef inside():\n    made.run_string(made.create(), {LEAF.format(name='two')!r})\ninside()"
)


def caller(code):
    made.run_string(made.create(), code)


def outer(code):
    caller(code)


for name, code in ("one", LEAF.format(name="one")), ("two", INSIDE), ("twice", TWICE):
    threading.Thread(target=outer, args=(code,), name=name, daemon=True).start()
    time.sleep(0.5)
time.sleep(1.5)
sys.stdout.write(json.dumps({"pid": os.getpid()}) + "\n")
sys.stdout.flush()
sys.stdin.read()
