"""Starts two children, by fork and by spawn; each goes through step() until the file that is named first exists, and counts in a
file of its own."""

import multiprocessing
import os
import sys
import time


def child(n):
    i = 0
    while not os.path.exists(sys.argv[1]):
        i = step(n, i)
        time.sleep(0.05)


def step(n, i):
    with open(f"{sys.argv[1]}.{n}.new", "w") as f:
        f.write(str(i))
    os.replace(f"{sys.argv[1]}.{n}.new", f"{sys.argv[1]}.{n}")
    return i + 1


if __name__ == "__main__":
    ps = [multiprocessing.get_context(how).Process(target=child, args=(n,)) for n, how in ((1, "fork"), (2, "spawn"))]
    for p in ps:
        p.start()
    for p in ps:
        p.join()
    print("parent done", flush=True)
