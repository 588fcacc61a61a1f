"""Workers that are joined, for situations.py: what they change lies in no variable of their functions."""

import os

from situation_parts import thread


class Work:
    def __init__(self):
        self.n, self.items, self.out, self.wanted = 0, [], open(os.devnull, "w"), True  # noqa: SIM115

    def counting(self):
        while True:
            self.n += 1

    def calling(self):
        while True:
            self.step()

    def step(self):
        self.n += 1
        self.items[:] = self.items[-50:] + [self.n]

    def writing(self):
        while True:
            self.out.write("x" * 100)

    def asking(self):
        while self.wanted:
            pass

    def asking_calls(self):
        while self.wants():
            pass

    def wants(self):
        return self.wanted or len(self.items) > self.n


def a_worker(draw, drawn):
    return "work for others", thread("ender", getattr(Work(), drawn.replace(" ", "_"))).join


STATES = ("counting", "calling", "writing", "asking", "asking calls")
FOR_EVER = ("asking", "asking calls")
