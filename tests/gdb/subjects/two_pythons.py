"""A CPython that has loaded another one's library, which is never initialised; says its process id. two_pythons.py LIBRARY"""

import ctypes
import json
import os
import sys
import threading

if sys.argv[1:]:
    ctypes.CDLL(sys.argv[1])
value = [1, 2, {"k": "v"}]
there = threading.Event()


def leaf():
    there.set()
    threading.Event().wait()


def middle():
    leaf()


threading.Thread(target=middle, daemon=True, name="second").start()
there.wait()
sys.stdout.write(json.dumps({"pid": os.getpid()}) + "\n")
sys.stdout.flush()
sys.stdin.read()
