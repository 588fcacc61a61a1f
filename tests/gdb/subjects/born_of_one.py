"""A parent and a child that multiprocessing started; the parent waits for the child's answer. Prints {parent, child}."""

import contextlib
import json
import multiprocessing
import os
import sys


def child(requests, ready):
    ready.send(os.getpid())
    with contextlib.suppress(EOFError):
        requests.recv()


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    (requests, give), (heard, ready) = context.Pipe(False), context.Pipe(False)
    one = context.Process(target=child, args=(requests, ready), daemon=True)
    one.start()
    print(json.dumps({"parent": os.getpid(), "child": heard.recv()}), flush=True)
    sys.stdin.read()
