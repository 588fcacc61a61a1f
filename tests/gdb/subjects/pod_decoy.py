"""`pod_decoy.py WHAT`: a program outside of a container that does WHAT, and has nothing to do with it; its pid is a number in
there."""

import os
import signal
import sys
import threading
import time

lock = threading.Lock()


def innocent_owner():
    with lock:
        threading.Event().wait()


def innocent():
    if sys.argv[1] == "lock":
        threading.Thread(target=innocent_owner, daemon=True).start()
        time.sleep(0.1)
        print("READY", flush=True)
        with lock:
            pass
    print("READY", flush=True)
    if sys.argv[1] == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    if sys.argv[1] == "pipe":
        os.read(os.pipe()[0], 1)
    time.sleep(7000)


innocent()
