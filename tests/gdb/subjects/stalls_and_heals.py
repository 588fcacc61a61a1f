"""Makes steps until it reads `stall`; then its main thread waits for a lock that another one holds, until it reads `go`. At
`raise` it ends by an exception."""

import sys
import threading
import time

lock, asked = threading.Lock(), [""]


def holder():
    for line in sys.stdin:
        word = line.strip()
        if word == "stall":
            lock.acquire()
        elif word == "go":
            lock.release()
        asked[0] = word


def step(n):
    with lock:
        time.sleep(0.01 + n % 3 / 1000)


threading.Thread(target=holder, name="holder", daemon=True).start()
print("up", flush=True)
number = 0
while asked[0] != "raise":
    number += 1
    step(number)
raise RuntimeError("as asked")
