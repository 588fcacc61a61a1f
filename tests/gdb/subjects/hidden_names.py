"""A thread of native code that calls Python; says its process id. hidden_names.py LIBRARY"""

import ctypes
import json
import os
import sys
import threading

lib = ctypes.CDLL(sys.argv[1])
there = threading.Event()


@ctypes.CFUNCTYPE(None)
def forward():
    there.set()
    threading.Event().wait()


lib.begin(forward)
there.wait()
sys.stdout.write(json.dumps({"pid": os.getpid()}) + "\n")
sys.stdout.flush()
sys.stdin.read()
