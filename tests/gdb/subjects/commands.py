"""A subject: known frames and values, in two threads; says what is true of itself, then sleeps."""

import json
import os
import sys
import threading
import time


class Item:
    def __init__(self, name):
        self.name = name


def stack(frame):
    found = []
    while frame is not None:
        code = frame.f_code
        found.append([getattr(code, "co_qualname", code.co_name), frame.f_lineno])
        frame = frame.f_back
    return found


def inner(items, depth):
    if depth:
        return inner(items, depth - 1)
    here = sys._getframe()
    truth = {"pid": os.getpid(), "items": repr(items), "main": [["inner", here.f_lineno + 2]] + stack(here)[1:]}
    print(json.dumps(truth), flush=True)
    time.sleep(1000)


def other(ready):
    ready.set()
    threading.Event().wait()


def main():
    marker = "only here"
    ready = threading.Event()
    threading.Thread(target=other, args=(ready,), name="other", daemon=True).start()
    ready.wait()
    inner([Item("one"), Item("two"), 3], 3)
    del marker


main()
