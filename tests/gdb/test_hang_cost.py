"""What llm-hang and llm-locks do grows with the number of threads, not with its square: by calls counted, no clock is asked."""

import sys

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.subjects import spawned

# Threads that wait at some depth for events that nobody sets, for one lock that is held, and for a queue.
CODE = """
import queue, sys, threading
count, lock, items = int(sys.argv[1]), threading.Lock(), queue.Queue()
lock.acquire()
waits = [lambda: threading.Event().wait(), lock.acquire, items.get]
def deep(wait, depth):
    deep(wait, depth - 1) if depth else wait()
for i in range(count):
    threading.Thread(target=deep, args=(waits[i % 3], 8), daemon=True).start()
print("ready", flush=True)
sys.stdin.read()
"""


def calls(line):
    """How many functions of Python and of C a command calls."""
    count = [0]

    def seen(frame, event, argument):
        if event in ("call", "c_call"):
            count[0] += 1

    sys.setprofile(seen)
    try:
        answer(line)
    finally:
        sys.setprofile(None)
    return count[0]


@pytest.mark.parametrize("command", ["llm-hang -wait 0.1", "llm-locks"])
def test_four_times_the_threads_are_no_more_than_six_times_the_work(command):
    cost = {}
    for count in (5, 40, 160):  # the first reads what is read once
        with spawned([sys.executable, "-c", CODE, str(count)], ready="ready") as process:
            asleep(process.pid)
            cost[count] = calls(f"{command} {process.pid} -json")
    assert cost[160] <= 6 * cost[40], cost
