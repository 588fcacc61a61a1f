"""Properties, lengths, truths and iterations by code of their own, as engines have them, and generated ones. Says what Python
gives for each expression, {"expressions": [[text, repr or null]], "refused": [texts]}, then waits; the functions have been called
often enough to be specialised, or not at all, by turns.

py_plain_code.py SEED [within]    within: it waits in methods of several objects, each with another `self`
"""

import collections
import json
import random
import sys
import time

LIMIT = 7


def helper(x):
    return x * 2 + LIMIT


class Queue(collections.deque):
    """A queue whose own methods only ask the class above."""

    def __len__(self):
        return super().__len__()

    def __iter__(self):
        return super().__iter__()

    def __bool__(self):
        return len(self) > 0


class Deeper(Queue):
    def __len__(self):
        return super().__len__() + 100


class Heap:
    def __init__(self, *items):
        self._heap = list(items)

    def __len__(self):
        return len(self._heap)

    def __bool__(self):
        return bool(self._heap)


class Pool:
    def __init__(self, blocks, free):
        self.num_blocks, self.queue, self.changed = blocks, Heap(*range(free)), 0

    def free_count(self):
        return len(self.queue)

    def usage_of(self, count, total):
        return 1.0 - (count / total)

    @property
    def usage(self):
        total = self.num_blocks - 1
        if not total:
            return 0
        return self.usage_of(self.free_count(), total)

    @property
    def helped(self):
        return helper(self.num_blocks)


class Base:
    kind = "base"

    def __init__(self, n, prompt, output):
        self.n, self.prompt, self.output, self.end, self.me = n, prompt, output, None, self
        self.d = {"a": [n, 2], n: "number"}

    def size(self):
        return self.n


def around(number):
    class Inside(Base):
        @property
        def captured(self):
            return number + self.n

    return Inside


class Others:
    def passes(self, number, then):
        Others().passes(number - 1, then) if number else then()


class Request(Base):
    """As engines' requests are."""

    def holds(self, then):
        Others().passes(5, then)

    def size(self):
        return super().size() + 1

    @property
    def num_tokens(self):
        return len(self.prompt) + len(self.output)

    @property
    def num_output_tokens(self):
        return len(self.output)

    @property
    def is_finished(self):
        return self.end is not None

    @property
    def state(self):
        return "long" if self.num_tokens > 5 else "short" if self.num_tokens else "empty"

    @property
    def both(self):
        return self.is_finished or self.n and self.num_tokens

    @property
    def item(self):
        return self.d["a"][0] + self.d["a"][-1]

    @property
    def inside(self):
        return self.n in self.prompt, self.n  # a tuple: refused or right

    @property
    def has(self):
        return self.n in self.prompt

    @property
    def lacks(self):
        return self.n not in self.prompt

    @property
    def same(self):
        return self.me is self and self.kind == "base" and -self.n <= 3 != self.n

    @property
    def larger(self):
        return max(self.n, 3) + min(2, self.n) - abs(-self.n)

    @property
    def sized(self):
        return self.size()

    @property
    def kept(self):
        a = self.n
        b = a + 300
        return b - a * 2

    def plus(self, number, factor=3):
        return self.n * factor + number

    @property
    def by_keyword(self):
        return self.plus(number=1) + self.plus(2, factor=5)

    @property
    def unpacked(self):
        first, second = self.d["a"]
        first += second
        return second, first

    @property
    def one_number(self):
        return self.n is len(self.d)

    @property
    def above(self):
        return super(Request, self).size()

    # what only running them could answer
    @property
    def counts(self):
        self.n += 0
        return self.n

    @property
    def loops(self):
        total = 0
        for x in self.prompt:
            total += x
        return total

    @property
    def catches(self):
        try:
            return self.nothing
        except AttributeError:
            return 1

    @property
    def formats(self):
        return f"{self.n}!"

    @property
    def sleeps(self):
        return time.monotonic() > 0

    @property
    def fails(self):
        return self.nothing

    @property
    def grows(self):
        seen = self.prompt
        seen += [1]
        return seen

    @property
    def endless(self):
        return self.endless


REFUSED = [f"r.{name}" for name in ("counts", "loops", "catches", "sleeps", "fails", "grows", "endless")]
OTHERS = """r.by_keyword r.unpacked r.above r.one_number s.one_number s.by_keyword s.unpacked i.captured""".split()
ASKED = (
    """
len(queue) len(deeper) bool(queue) bool(empty) list(queue) list(empty) len(heap) bool(heap) len(pool.queue) pool.usage none.usage pool.helped
r.num_tokens r.num_output_tokens r.is_finished r.state r.both r.item r.inside r.has r.lacks r.same r.larger r.sized r.kept r.formats
s.num_tokens s.is_finished s.state s.both s.item s.has s.lacks s.same s.larger s.sized s.kept s.num_output_tokens
""".split()
    + ["1 if queue else 2", "1 if empty else 2", "r.num_tokens > 3 and len(queue) == 3", "[x.num_tokens for x in (r, s)]"]
)
ATOMS = ["self.a", "self.b", "self.t", "self.none", "3", "-2", "len(self.items)", "self.items[1]", "self.items[-1]", "300", "0.5"]
BINARY = ["+", "-", "*", "/", "//", "%", "<", "<=", "==", "!=", ">", ">=", "and", "or", "is", "is not", "&", "|", "in", "**"]


def drawn(rng, depth):
    """An expression of attributes, numbers and operators."""
    if not depth or rng.random() < 0.2:
        return rng.choice(ATOMS)
    part = lambda: drawn(rng, depth - 1)  # noqa: E731
    choice = rng.random()
    if choice < 0.62:
        return f"({part()} {rng.choice(BINARY)} {part()})"
    if choice < 0.8:
        return f"({part()} if {part()} else {part()})"
    if choice < 0.9:
        return f"({rng.choice(['-', 'not '])}{part()})"
    return f"{rng.choice(['bool', 'abs', 'len', 'int', 'float', 'max'])}({part()})"


def generated(rng, count):
    """A class with so many properties."""
    lines = ["class Drawn:", "    pass"]
    for n in range(count):
        text = drawn(rng, 4)
        if rng.random() < 0.5:
            body = f"        return {text}"
        else:
            body = f"        x = {text}\n        if {drawn(rng, 2)}:\n            return x\n        return {drawn(rng, 3)}"
        lines += ["    @property", f"    def p{n}(self):", body]
    space = {}
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec("\n".join(lines), space)
    made = space["Drawn"]()
    made.a, made.b, made.t, made.none, made.items = rng.choice([0, 1, 7]), 2.5, rng.choice(["", "text"]), None, [4, -1, 900]
    return made


def value_of(text, names):
    try:
        return repr(eval(text, globals(), names))
    except Exception:
        return None


def main():
    rng = random.Random(int(sys.argv[1]))
    queue, deeper, empty, heap = Queue([1, 2, 3]), Deeper([1]), Queue(), Heap(5, 6)
    pool, none = Pool(100, 40), Pool(1, 0)
    r, s = Request(2, [1, 2, 3], [4, 5, 6]), Request(0, [], [])
    g = generated(rng, 150)
    i = around(40)(2, [], [])
    asked = ASKED + OTHERS + [f"g.p{n}" for n in range(150)]
    names = dict(locals())
    for text in asked:  # some code is specialised, some is as it was compiled
        if rng.random() < 0.5:
            for _ in range(60):
                value_of(text, names)
    said = [[text, value_of(text, names)] for text in asked]

    def end():
        print(json.dumps({"expressions": said, "refused": REFUSED}), flush=True)
        time.sleep(900)

    r.holds(end) if sys.argv[2:] else end()


main()
