"""short_threads.py COUNT [blocks]: once told, threads that call `step` once each, several at a time; then `finished`. New threads
get the stacks of ended ones. `blocks`: SIGURG is blocked in all of them."""

import os
import signal
import sys
import threading


def step(number):
    return number + 1


def finished():
    return True


if "blocks" in sys.argv:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGURG})
print(os.getpid(), flush=True)
sys.stdin.readline()
for first in range(0, int(sys.argv[1]), 3):
    some = [threading.Thread(target=step, args=(first + n,)) for n in range(3)]
    for thread in some:
        thread.start()
    for thread in some:
        thread.join()
finished()
