"""Counts turns, and is nearly always in the call of one of them. Says {}."""


def spin():
    for _ in range(20000):
        pass


def count():
    n = 1 << 20  # small numbers have places of their own
    print("{}", flush=True)
    while True:
        spin()
        n += 1


count()
