"""Imports torch once; then each line of its input, a JSON list of a program of this folder and its arguments, becomes a process
that runs the program as its main one. With a program that fails this process ends too."""

import json
import os
import runpy
import signal
import sys
import traceback

import torch

HERE = os.path.dirname(os.path.abspath(__file__))
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # who has ended is gone
print("ready", torch.__version__, flush=True)
for line in sys.stdin:
    if os.fork():
        continue
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    name, *arguments = json.loads(line)
    sys.argv = [os.path.join(HERE, name), *arguments]
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except BaseException:
        traceback.print_exc()
        os.kill(os.getppid(), signal.SIGKILL)
    os._exit(1)
