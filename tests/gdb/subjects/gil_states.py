"""Threads in each state of the GIL, for good: one keeps it in C, three want it, one waits for something else. Prints {tid: [name,
state]}."""

import ctypes
import json
import threading
import time

go, never = threading.Event(), threading.Event()
truth, known = {}, threading.Barrier(5)


def say(name, state):
    truth[threading.get_native_id()] = [name, state]
    known.wait()


def keep():
    say("keeper", "holds")
    go.wait()
    ctypes.PyDLL(None).sleep(3600)  # PyDLL: called with the GIL


def want(name):
    say(name, "waits")
    go.wait()
    while True:
        pass


def wait_for_nothing():
    say("idle", "none")
    never.wait()


for target, *arguments in ((keep,), (want, "want0"), (want, "want1"), (wait_for_nothing,)):
    threading.Thread(target=target, args=arguments, daemon=True).start()
truth[threading.get_native_id()] = ["MainThread", "waits"]
known.wait()
while not (never._cond._waiters and len(go._cond._waiters) == 3):
    time.sleep(0.001)
time.sleep(0.1)  # from here on all of them stand in the lock that they wait for, and want no GIL
print(json.dumps(truth), flush=True)
go.set()
while True:
    pass
