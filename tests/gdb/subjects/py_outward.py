"""Frames whose variables share names, and for each expression the frames in which it has a value: {"functions": [innermost
first], "expressions": {text: [[level, repr]]}}. Then it sleeps in the innermost frame."""

import json
import sys
import time

LIMIT = 5
EXPRESSIONS = """
self|self.scheduler.running|self.scheduler.running[0]|self.name|self.batch.reqs[1]|key|table[key]|table["deep"]
len(self.batch.reqs)|items|items[0]|any(r == "r2" for r in self.batch.reqs)|self.zork|zork|LIMIT|LIMIT + key
max(items)|self.counts["x"]|self.batch.name|self.scheduler.running[7]|nothing.rid|outermost|outermost["a"] + key|len
[r for r in self.batch.reqs if r]|not self.flag|self.flag
"""


class Holder:
    def __init__(self, **own):
        self.__dict__.update(own)


def wait(self, told):
    nothing, items = None, ()
    frame, frames = sys._getframe(), []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    expressions = EXPRESSIONS.strip().replace("\n", "|").split("|")
    found = {text: [] for text in expressions}
    for level, frame in enumerate(frames):
        names = dict(frame.f_locals)
        for text in expressions:
            try:
                found[text].append([level, repr(eval(text, dict(frame.f_globals), names))])
            except Exception:
                pass
    del frame, frames[:]
    print(json.dumps({"expressions": found}), flush=True)
    time.sleep(3600)


def step(self, key):
    items = [3, 1]
    return wait(Holder(name="innermost", flag=True), items)


def run(self, table):
    key = "k"
    self.batch.reqs.append("r2")
    return step(Holder(name="step", counts={"x": 5}, batch=Holder(reqs=["r1", "r3"], name="b")), 2)


def loop(self):
    outermost, table = {"a": 1}, {"k": "of loop", "deep": [1]}
    return run(Holder(batch=Holder(reqs=["r1"]), scheduler=Holder(running=["q1", "q2"]), flag=False), {"k": "of run"})


def main():
    loop(Holder(scheduler=Holder(running=list(range(20))), name="loop", flag=0))


if __name__ == "__main__":
    main()
