"""The main interpreter and two more of the same process, each parked in a thread of its own at a known line."""

import json
import os
import sys
import threading
import time

if sys.version_info < (3, 13):
    import _xxsubinterpreters as interpreters
else:
    import _interpreters as interpreters

SOURCE = """
import os, time
def parked(label, pipe):
    os.write(pipe, b'x')
    time.sleep(3600)
parked('in {0}', {1})
"""

read, write = os.pipe()
made = []
for number in range(2):
    # Sharing the lock with the main interpreter where that can be asked for: time.sleep gives it up.
    made.append(interpreters.create("legacy") if sys.version_info >= (3, 13) else interpreters.create())
    text = SOURCE.format(number, write)
    threading.Thread(target=lambda i=made[-1], t=text: interpreters.run_string(i, t), daemon=True).start()
seen = b""
while len(seen) < 2:
    seen += os.read(read, 1)
time.sleep(0.2)
sys.stdout.write(json.dumps({"version": list(sys.version_info[:3])}) + "\n")
sys.stdout.flush()
time.sleep(3600)
