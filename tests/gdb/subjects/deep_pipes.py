"""deep_pipes.py N: a process that reads a line of a child, which reads one of its own, N deep. The last one waits for a lock
that it has itself. Each writes its pid and those of its descendants, as JSON, when all are where they stay."""

import json
import os
import subprocess
import sys
import threading

deep = int(sys.argv[1])
if deep:
    child = subprocess.Popen([sys.executable, __file__, str(deep - 1)], stdout=subprocess.PIPE, text=True)
    below = json.loads(child.stdout.readline())["pids"]
    print(json.dumps({"pids": [os.getpid(), *below]}), flush=True)
    child.stdout.readline()
else:
    lock = threading.Lock()
    lock.acquire()
    print(json.dumps({"pids": [os.getpid()]}), flush=True)
    lock.acquire()
