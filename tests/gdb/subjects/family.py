"""Forks a child and spawns one; each reaches a line three times, then this process reaches it itself."""

import multiprocessing


def child(n):
    total = 0
    for i in range(3):
        total = step(n, i)
    return total


def step(n, i):
    value = n * 10 + i
    return value  # LINE step


if __name__ == "__main__":
    for how in ("fork", "spawn"):
        ctx = multiprocessing.get_context(how)
        ps = [ctx.Process(target=child, args=(k,)) for k in ((1,) if how == "fork" else (2,))]
        for p in ps:
            p.start()
        for p in ps:
            p.join()
    print("parent done", step(9, 9), flush=True)
