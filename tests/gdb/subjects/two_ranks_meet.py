"""Two processes that meet in each round, as ranks in a collective: neither gets on without the other. Says their pids, then runs.

Each round: `before`, the meeting, `after`; the count of a process never is more than one ahead of the other's.
"""

import json
import os
import socket
import time


def meet(peer):
    peer.send(b".")
    return peer.recv(1)


def rounds(name, peer):
    count = 0
    while True:
        count += 1  # LINE before
        got = meet(peer)
        assert got
        time.sleep(0.001)


ours, theirs = socket.socketpair()
pid = os.fork()
if pid == 0:
    ours.close()
    rounds("one", theirs)
theirs.close()
print(json.dumps({"pids": [os.getpid(), pid]}), flush=True)
rounds("zero", ours)
