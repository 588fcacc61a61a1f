"""Threads at work, for good or for nothing, and those that only sleep: scenarios of faults.py."""

import gc
import threading
import time

from fault_parts import MAIN, say
from situation_parts import forever, thread


def works_for_nobody_who_waits():
    """An eviction that removes nothing, and somebody who waits for its end."""
    done, order, data = threading.Event(), {"gone": 1}, {}

    def evict():
        while len(order) > len(data):
            data.pop("gone", None)
        done.set()

    thread("evictor", evict)
    say("evictor")
    done.wait()


def idle_polling():
    say()
    while True:
        time.sleep(0.02)


def at_work():
    say(MAIN)
    total = 0
    while True:
        for i in range(1000):
            total += i * i % 7


def spinning_in_place():
    flag = threading.Event()
    say(MAIN)
    while not flag._flag:
        pass


def gc_storm():
    keep = [[i] for i in range(300000)]
    say(MAIN)
    while True:
        gc.collect()
    del keep


def slow_but_moving():
    def step(n):
        time.sleep(0.03)
        return sum(i * i for i in range(20000 + n))

    def other_step(n):
        time.sleep(0.02)
        return step(n)

    say()
    n = 0
    while True:
        n += 1
        step(n)
        other_step(n)


def sleeps_for_good():
    say()
    forever()


def stopped():
    say()
    forever()


dead = stopped
