"""`asking_parents.py HOW WHAT`: a parent that asks its two children over and over, up to half a second each time, for what they
give. HOW: "loader" (as torch's DataLoader does: a queue, in functions of its own, and whether each child lives), "select" or
"poll". WHAT: "stuck" (they never give anything) or "gives". Says {"pid", "pids": of the children}."""

import json
import multiprocessing
import os
import queue
import select
import sys
import time

HOW, WHAT = sys.argv[1:]
LIMIT = 0.5


def give(put):
    while True:
        time.sleep(3600 if WHAT == "stuck" else 0.02)
        put(bytes(4096))


def fetch(given, children):
    try:
        return True, given.get(timeout=LIMIT)
    except queue.Empty:
        dead = []
        for child in children:
            if not child.is_alive():
                dead.append(child.pid)
        if dead:
            raise RuntimeError(dead) from None
        return False, None


def next_of(given, children):
    while True:
        there, data = fetch(given, children)
        if there:
            return data


def main():
    fork = multiprocessing.get_context("fork")
    pipes, given = [fork.Pipe(False) for _ in range(2)], fork.Queue()
    puts = [given.put] * 2 if HOW == "loader" else [one.send for _, one in pipes]
    children = [fork.Process(target=give, args=(put,), daemon=True) for put in puts]
    for child in children:
        child.start()
    print(json.dumps({"pid": os.getpid(), "pids": [child.pid for child in children]}), flush=True)
    ends, size = [one for one, _ in pipes], 0
    while True:
        if HOW == "loader":
            size += len(next_of(given, children))
        elif HOW == "select":
            for end in select.select(ends, [], [], LIMIT)[0]:
                size += len(end.recv())
        else:
            for end in ends:
                if end.poll(LIMIT):
                    size += len(end.recv())


main()
