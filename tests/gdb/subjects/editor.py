"""Objects and lines for an editor. The first line says what is true of them: threads, the variables of `turn` two levels deep. A
line on stdin names how many rounds to run; what came of them is answered. With a word after it, it is an engine's process (a FAKE
module vllm) that holds a prompt in many ways."""

import collections
import json
import os
import sys
import threading
import types

Point = collections.namedtuple("Point", "x y")
LIMIT = 7


class Part:
    def __init__(self, name, size):
        self.name, self.size, self.tags = name, size, [name, f"{name} \x1b[31m"]


class Slotted:
    __slots__ = ("left", "right", "unset")

    def __init__(self, left, right):
        self.left, self.right = left, right


class Machine:
    def __init__(self):
        self.parts = {"first": Part("a part", 1), "second": Part("b", 2), 7: "seven", (1, 2): None}
        self.sizes, self.many = [1, 2.5, True], list(range(1000))
        self.point, self.slotted = Point(3, -4), Slotted({"k": 1}, (1,))
        self.queue, self.kinds = collections.deque(["one", "two"]), {11}
        self.ordered = collections.OrderedDict(a=1, b=[2])
        self.ordered.move_to_end("a")
        self.nothing, self.empty = None, {}

    def turn(self, number):
        doubled = helper(number)  # LINE call
        total = doubled + LIMIT  # LINE after
        return total  # LINE return


SECRET = "about the-secret-of-the-user"


class Served:
    """A prompt, its tokens and a key, each in several places."""

    def __init__(self):
        self.prompt, self.prompt_token_ids = SECRET, [990017, 990023]
        self.by_prompt = {SECRET: [990017]}
        self.nested = [{"prompt": [SECRET]}, ("authorization", "990029-key"), ("k", {"api_key": "990029-key"})]
        self.items = [[990017, 990023], SECRET.split(" ")]
        self.deep = collections.OrderedDict(part=Part(SECRET, 1))
        self.slotted, self.api_key = Slotted(SECRET, {"messages": [{"content": SECRET}]}), "990029-key"
        self.steps = 41  # no content


def helper(value):
    result = value * 2  # LINE helper
    return result


def inside(value):
    """{name as an editor shows it: value}, in order."""
    if isinstance(value, dict):
        return {repr(key): held for key, held in value.items()}
    if isinstance(value, Point):
        return value._asdict()
    if isinstance(value, (list, tuple, set, collections.deque)):
        return {f"[{n}]": held for n, held in enumerate(value)}
    names = getattr(type(value), "__slots__", None) or getattr(value, "__dict__", {})
    return {name: getattr(value, name) for name in names if hasattr(value, name)}


def told(value, depth=2):
    return {
        "repr": repr(value),
        "type": type(value).__name__,
        "inside": {k: told(v, depth - 1) for k, v in inside(value).items()} if depth else None,
        "opens": bool(inside(value)),
    }


def parked(gate):
    gate.wait()


def main():
    if sys.argv[1:]:
        sys.modules["vllm"] = types.ModuleType("vllm")
    machine, served, gate = Machine(), Served(), threading.Event()
    workers = [threading.Thread(target=parked, args=(gate,), name=f"worker-{n}") for n in range(2)]
    for worker in workers:
        worker.start()
    truth = {
        "pid": os.getpid(),
        "self": told(machine, 3),
        "threads": sorted(t.name for t in threading.enumerate()),
        "steps": served.steps,
    }
    print(json.dumps(truth), flush=True)
    for line in sys.stdin:
        print(json.dumps([machine.turn(number) for number in range(int(line))]), flush=True)  # LINE rounds
    gate.set()


if __name__ == "__main__":
    main()
