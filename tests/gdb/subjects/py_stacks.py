"""Threads parked at known places, and what `sys._current_frames()` says of them: `threads` is
{native id: [[qualname, file, line, {local: ["repr", text] or ["type", name]}], ...]}, innermost first. A local that is not set is
not listed. Then all stay.

    py_stacks.py [alone]     one thread, in which each place calls the next: every kind of frame in one stack, told as `main`
"""

import asyncio
import functools
import json
import os
import signal
import sys
import threading
import time
import types

ready, hold, idents, NAMES = [], threading.Event(), {}, {}
SIMPLE = (int, str, float, bool, type(None), bytes, tuple, list, dict, set)


def park():
    """Every thread ends here, waiting in C."""
    if "alone" in sys.argv:
        return PLACES.pop(0)() if PLACES else tell()
    ready.append(threading.get_ident())
    hold.wait()


# ---- places
def recursion(n=400):
    if n == 0:
        return park()
    here = n * 2
    return recursion(n - 1) + here


def generators():
    def inner(limit):
        for number in range(limit):
            if number == 2:
                park()
            yield number

    def outer():
        label = "delegates"
        yield from inner(5)
        return label

    total = 0
    for value in outer():
        total += value


def coroutines():
    async def leaf(depth):
        note = f"leaf {depth}"
        park()
        return note

    async def branch(depth):
        if depth:
            return await branch(depth - 1)
        return await leaf(depth)

    async def agen():
        got = await branch(2)
        yield got

    async def main():
        async for item in agen():
            pass

    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())


def closures():
    shared, unset_later, counter = ["captured"], 1, 0

    def middle(argument, second="default"):
        nonlocal counter
        counter += 1
        own = {"argument": argument}

        def inner():
            nonlocal counter
            counter += 10
            copy = shared, argument, second
            park()
            return copy, own, unset_later

        inner()

    del unset_later
    middle("an argument that is a cell")


def comprehension():
    factor = 3
    return [(factor, parked(x)) for x in [1, 2] if x]


def parked(x):
    if x == 2:
        park()
    return x


def nested_comprehension():
    rows = [[1, 2], [3, 4]]
    return {k: [parked(v - k) for v in row] for k, row in enumerate(rows)}


def class_body():
    outside = "seen from the class"

    class Body:
        first = 1
        second = [outside]
        park()

    return Body


def lambdas():
    call = lambda x, *rest, key=None, **more: (park(), x)  # noqa: E731
    call(1, 2, 3, key="k", other="o")


def from_c():
    def key(item):
        if item == "b":
            park()
        return item

    sorted(["a", "b", "c"], key=key)


class Dies:
    def __init__(self):
        self.name = "dying"

    def __del__(self):
        why = "deleted"
        park()
        return why


def destructor():
    thing = Dies()
    del thing


def executed():
    # An expression over several lines makes line numbers go backwards.
    source = "def made(\n  a,\n  b):\n  x = (\n    a,\n\n\n    b,\n    stop(\n      )\n  )\n  return x\n"
    source += "result = made(\n  1,\n  2)\n"
    exec(compile(source, "<made up>", "exec"), {"stop": park})


def backwards():
    value = max(
        [
            1,
            2,
        ],
        key=functools.partial(
            lambda first, x: park() if x == 2 else x,
            "first",
        ),
    )
    return value


def far_lines():
    text = "x = 0\n" + "\n" * 5000 + "def far():\n" + "    y = 1\n" + "\n" * 700 + "    stop()\n" + "far()\n"
    exec(compile(text, "far lines.py", "exec"), {"stop": park})


def long_code():
    lines = ["def long():", "  total = 0"] + [f"  total += {i} * 1000000{i}" for i in range(3000)] + ["  stop()", "long()"]
    exec(compile("\n".join(lines), "long.py", "exec"), {"stop": park})


def wrapper(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        before = "before"
        return function(*args, **kwargs), before

    return inner


@wrapper
@wrapper
def decorated(x, *, y):
    park()


def decorators():
    decorated(1, y=2)


def кириллица():
    имя = "значение"
    park()
    return имя


class Klass:
    def method(self):
        try:
            raise ValueError("being handled")
        except ValueError as error:
            try:
                park()
            finally:
                del error

    @classmethod
    def made(cls):
        with open(os.devnull) as handle:
            cls().method()
            return handle

    @property
    def attribute(self):
        return self.made()

    def __getattr__(self, name):
        return Klass.made()

    def __lt__(self, other):
        return Klass().missing


def methods():
    return [Klass(), Klass()].sort()


def many_locals():
    scope = {"park": park}
    names = ", ".join(f"v{i}" for i in range(300))
    text = f"def wide(): {names.replace(', ', ' = ')} = 7; park()"
    exec(text, scope)
    scope["wide"]()


def all_kinds(positional, /, normal, *args, keyword, **kwargs):
    unset: int
    truth, nothing, real, big = True, None, -0.0, 10**40
    text, raw = "Ω 'q'", b"\x00b"
    pair, items, table, group = (1, (2,)), [1, [2]], {"k": [None]}, {5}
    if normal:
        park()
    unset = 1
    return unset


def kinds():
    all_kinds(1, 2, 3, 4, keyword=5, extra=6)


def unpacking():
    for index, (left, right) in enumerate([((1, 2), "r")]):
        try:
            first, *rest = left
            with_walrus = [last := v for v in rest]
            park()
        finally:
            del index


def generator_expression():
    return sum(parked(n) for n in (1, 2))


def contextual():
    import contextlib

    @contextlib.contextmanager
    def manager():
        park()
        yield

    with manager():
        pass


def imported():
    module = types.ModuleType("made_module")
    exec(compile("import sys\nVALUE = 5\nstop()\n", "made_module.py", "exec"), dict(module.__dict__, stop=park))


def traced_line():
    def tracer(frame, event, argument):
        if event == "line" and frame.f_code.co_name == "watched":
            park()
        return tracer

    def watched():
        a = 1
        return a

    sys.settrace(tracer)
    watched()


PLACES = [
    recursion,
    generators,
    coroutines,
    closures,
    comprehension,
    nested_comprehension,
    class_body,
    lambdas,
    from_c,
    destructor,
    executed,
    backwards,
    far_lines,
    long_code,
    decorators,
    кириллица,
    methods,
    many_locals,
    kinds,
    unpacking,
    generator_expression,
    contextual,
    imported,
    traced_line,
]


def shown(value):
    """The repr where it says everything, else the type's name."""

    def simple(v, depth=0):
        if depth > 5 or type(v) not in SIMPLE:
            return False
        if isinstance(v, dict):
            return len(v) < 50 and all(simple(k, depth + 1) and simple(x, depth + 1) for k, x in v.items())
        if isinstance(v, (tuple, list, set)):
            return len(v) < 50 and all(simple(x, depth + 1) for x in v)
        return True

    return ["repr", repr(value)] if simple(value) else ["type", type(value).__name__]


def stack(frame):
    found = []
    while frame is not None:
        code = frame.f_code
        own = {}
        if code.co_name != "<module>" and "threading.py" not in code.co_filename:
            own = {str(k): shown(v) for k, v in frame.f_locals.items()}
        found.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno, own])
        frame = frame.f_back
    return found


def start(place):
    def run():
        idents[threading.get_ident()] = threading.get_native_id()
        NAMES[threading.get_native_id()] = place.__name__
        place()

    threading.Thread(target=run, daemon=True, name=f"at {place.__name__}").start()


def in_signal_handler(signum, frame):
    interrupted = signum
    if "alone" in sys.argv:
        park()
    for place in PLACES:
        start(place)
    deadline = time.monotonic() + 60
    while len(ready) < len(PLACES) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)  # the last ones are on their way from `ready` into the wait
    if len(ready) < len(PLACES):
        sys.exit(f"only {len(ready)} of {len(PLACES)} places are reached")
    tell()
    return interrupted


def tell():
    # Called for its own frame: the line it sleeps in is not the line it looks at itself from.
    frames = sys._current_frames()
    threads = {idents[ident]: stack(frame) for ident, frame in frames.items() if ident in idents}
    mine = stack(sys._getframe())[1:]
    sys.stdout.write(json.dumps({"version": list(sys.version_info[:3]), "threads": threads, "names": NAMES, "main": mine}) + "\n")
    sys.stdout.flush()
    time.sleep(3600)


def main():
    signal.signal(signal.SIGUSR1, in_signal_handler)
    os.kill(os.getpid(), signal.SIGUSR1)
    return time.sleep(3600)


main()
