"""Exercise 2: an engine that grows by some megabytes a second. python3 leak.py

It prints its pid. What keeps the memory?  (The solution: ../exercises.md. With -truth it says so itself, to a test.)
"""

import collections
import json
import os
import sys
import time


class Request:
    def __init__(self, number):
        self.number = number
        self.tokens = list(range(number, number + 500))


class PrefixCache:
    """Keeps the last 1,000 prefixes: it is full soon, and grows no more."""

    def __init__(self):
        self.prefixes = collections.OrderedDict()

    def put(self, request):
        self.prefixes[request.number] = request.tokens[:100]
        if len(self.prefixes) > 1000:
            self.prefixes.popitem(last=False)


class Scheduler:
    def __init__(self):
        self.running = collections.deque()
        self.cache = PrefixCache()
        self.by_client = {}

    def add(self, number):
        request = Request(number)
        self.running.append(request)
        self.by_client.setdefault(number % 3, []).append(request)

    def step(self):
        while len(self.running) > 20:
            self.cache.put(self.running.popleft())


TRUTH = {"grows": [f"scheduler.by_client[{client}]" for client in range(3)], "full": "scheduler.cache.prefixes"}


def main():
    scheduler = Scheduler()
    print(json.dumps({"pid": os.getpid(), **(TRUTH if "-truth" in sys.argv else {})}), flush=True)
    for number in range(25000):  # it ends by itself, below 1 GB
        scheduler.add(number)
        scheduler.step()
        time.sleep(0.002)


if __name__ == "__main__":
    main()
