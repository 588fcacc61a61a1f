"""C code forks a process with two more threads, and the child goes on in Python. Prints {"child": its pid,
"names": of its parent's other threads}."""

import ctypes
import json
import threading
import time


def wait_in_parent():
    time.sleep(3600)


others = [threading.Thread(target=wait_in_parent, name=f"parents{i}", daemon=True) for i in range(2)]
for one in others:
    one.start()
names = [one.name for one in others]
child = ctypes.PyDLL(None).fork()  # not os.fork, after which Python forgets the threads that are not there
if child == 0:
    time.sleep(3600)
print(json.dumps({"child": child, "names": names}), flush=True)
time.sleep(3600)
