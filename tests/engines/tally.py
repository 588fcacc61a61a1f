"""What an engine has answered so far, counted by the one who asked, for others to read while it runs."""

import mmap
import struct
import threading

FORMAT = "<QQ"


class Tally:
    """Writes NAME.tokens (tokens, requests) and NAME.finished (a line for each request's id)."""

    def __init__(self, name):
        with open(name + ".tokens", "wb") as f:
            f.write(bytes(mmap.PAGESIZE))
        with open(name + ".tokens", "r+b") as f:
            self.memory = mmap.mmap(f.fileno(), 0)
        self.ids = open(name + ".finished", "a", buffering=1)  # noqa: SIM115 - for as long as the process lives
        self.count, self.requests, self.lock = 0, 0, threading.Lock()

    def tokens(self, number):
        with self.lock:
            self.count += number
            struct.pack_into(FORMAT, self.memory, 0, self.count, self.requests)

    def finished(self, name):
        with self.lock:
            self.requests += 1
            self.ids.write(name + "\n")
            struct.pack_into(FORMAT, self.memory, 0, self.count, self.requests)
