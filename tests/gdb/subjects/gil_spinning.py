"""The main thread and `count` others want the GIL at each moment, one sleeps. Prints {tid: "wants" | "none"}."""

import json
import sys
import threading
import time

go, never, truth = threading.Event(), threading.Event(), {}
known = threading.Barrier(int(sys.argv[1]) + 2)


def spin():
    i = 0
    while True:
        i += 1


def run(state, begins, then):
    truth[threading.get_native_id()] = state
    known.wait()
    begins.wait()
    then()


for _ in range(int(sys.argv[1])):
    threading.Thread(target=run, args=("wants", go, spin), daemon=True).start()
sleeper = threading.Thread(target=run, args=("none", never, None), daemon=True)
sleeper.start()
truth[threading.get_native_id()] = "wants"
known.wait()
while not never._cond._waiters:
    time.sleep(0.001)
time.sleep(0.1)  # it stands in the lock that it waits for, and wants no GIL
print(json.dumps(truth), flush=True)
go.set()
spin()
