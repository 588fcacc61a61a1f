"""asks_again.py HOW GIVER STATE [handled]: the main thread asks over and over, with short pauses or none, for what a giver is to
give. HOW: "queue", "event", "flag", "future", "spin"; GIVER: "thread", "child", "task"; STATE: "dead", it has ended without;
"well", it gives now and then; "handled": a signal's handler may give too. Says as JSON what is true of itself: {"pid", "pids",
"hung"}."""

import asyncio
import concurrent.futures
import ctypes
import json
import os
import queue
import signal
import sys
import threading
import time

how, giver, state = sys.argv[1:4]
pids = []


class Shared:
    def __init__(self):
        self.items, self.event, self.flag, self.future = queue.Queue(), threading.Event(), False, concurrent.futures.Future()
        self.taken = self.asked = 0

    def give(self, *_):
        self.items.put(1)
        self.event.set()
        self.flag = True

    def work(self):
        while state == "well":
            time.sleep(0.05)
            self.give()

    # each gives True where it was given something
    def queue(self):
        try:
            return self.items.get(timeout=0.02)
        except queue.Empty:
            return 0

    def spin(self):
        try:
            return self.items.get_nowait()
        except queue.Empty:
            return 0

    def wait(self):
        got = self.event.wait(0.02)
        self.event.clear()
        return got

    def flagged(self):
        time.sleep(0.02)
        got, self.flag = self.flag, False
        return got

    def result(self):
        try:
            return self.future.result(timeout=0.02)
        except concurrent.futures.TimeoutError:
            return 0


def from_a_child():
    reads, writes = os.pipe()
    pid = os.fork()
    if not pid:
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        while state == "well":
            time.sleep(0.05)
            os.write(writes, b"x")
        os._exit(0)
    pids.append(pid)
    os.set_blocking(reads, False)

    def ask():
        time.sleep(0.02)
        try:
            return len(os.read(reads, 100))
        except BlockingIOError:
            return 0

    return ask


async def on_a_loop(shared):
    async def work():
        while state == "well":
            await asyncio.sleep(0.05)
            shared.give()

    made = asyncio.ensure_future(work())
    await asyncio.sleep(0.2)
    say()
    while True:
        if shared.flag:
            shared.taken += 1
            shared.flag = False
        await asyncio.sleep(0.02)
    del made


def say():
    print(json.dumps({"pid": os.getpid(), "pids": pids, "hung": state == "dead"}), flush=True)


def main():
    shared = Shared()
    ask = {"queue": shared.queue, "spin": shared.spin, "event": shared.wait, "flag": shared.flagged, "future": shared.result}[how]
    if "handled" in sys.argv:
        signal.signal(signal.SIGTERM, shared.give)
    if giver == "task":
        asyncio.run(on_a_loop(shared))
    if giver == "child":
        ask = from_a_child()
        time.sleep(0.3)
    else:
        made = threading.Thread(target=shared.work, daemon=True)
        made.start()
        if state == "dead":
            made.join()
    say()
    while True:
        if ask():
            shared.taken += 1


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    main()
