"""Waits for a word in the file that its argument names, runs places that a debugger may stop at, and says afterwards what
happened.

`tally` counts each place's passes by itself; it is printed at the end, after `finished()`. The first line says what the compiler
made of the functions: {name: [offsets of the instructions]}."""

import dis
import functools
import importlib
import json
import os
import sys
import tempfile
import threading
import time

ROUNDS = 300
tally = {}


def count(name):
    tally[name] = tally.get(name, 0) + 1


def work(number):
    step = number + 1
    double = step * 2  # LINE work
    return double


class Machine:
    """Methods, branches, loops."""

    def run(self, number):
        total = 0
        for each in range(3):
            total += each  # LINE loop
        if number % 2:
            kind = "odd"
        else:
            kind = "even"
        count("run")
        return kind  # LINE kind

    def two(self, number):
        if number % 3:
            return "a", number
        return "b", number


def wrapper(function):
    @functools.wraps(function)
    def inner(*args, **kwargs):
        return function(*args, **kwargs)

    return inner


@wrapper
@wrapper
def decorated(number, *, key):
    count("decorated")
    return number + key


def outer(add):
    def closure(number):
        result = number + add  # LINE closure
        count("closure")
        return result

    return closure


def generator(limit):
    for each in range(limit):
        count("generator")
        yield each  # LINE generator


def catches(number):
    try:
        fails(number)
    except ValueError as error:
        return str(error)
    finally:
        count("catches")


def fails(number):
    if number % 10 == 0:
        raise ValueError(f"number {number}")
    return number


def in_thread(name, rounds):
    for number in range(rounds):
        threaded(name, number)


def threaded(name, number):
    text = f"{name} {number}"
    return text  # LINE threaded


def stepped(number):
    total = 0
    for each in (1, 2):
        total += each
    if total > number:
        total = helper(total)
    else:
        total = 0
    try:
        failing(total)
    except ValueError as error:
        total = len(str(error))
    found = sorted([3, 1], key=by_key)
    for made in two_items(number):
        total += made
    return total, found


def helper(value):
    doubled = value * 2
    return doubled


def failing(value):
    text = f"wrong {value}"
    raise ValueError(text)


def by_key(item):
    negative = -item
    return negative


def two_items(number):
    yield number
    yield number + 1


def steps_of(function):
    """[[event, function, line, how deep]] as sys.settrace tells them: each line, and for each return the line of the caller it
    goes to."""
    told, depth = [], [0]

    def trace(frame, event, argument):
        if event == "call":
            depth[0] += 1
        elif event == "line":
            told.append([event, frame.f_code.co_name, frame.f_lineno, depth[0]])
        elif event == "return":
            depth[0] -= 1
            told.append([event, frame.f_back.f_code.co_name, frame.f_back.f_lineno, depth[0]])
        return trace

    sys.settrace(trace)
    try:
        function(1)
    finally:
        sys.settrace(None)
    return told


def calls_of(function):
    """[[event, function, how deep]] as sys.setprofile tells them of the calls and returns of this file's functions."""
    told, depth = [], [0]

    def profile(frame, event, argument):
        if frame.f_code.co_filename != __file__ or event not in ("call", "return"):
            return
        depth[0] -= event == "return"
        told.append([event, frame.f_code.co_name, depth[0]])
        depth[0] += event == "call"

    sys.setprofile(profile)
    try:
        function(1)
    finally:
        sys.setprofile(None)
    return told


def called(number):
    """Calls of every kind: inlined, by way of C, recursive, generators, exceptions, keywords, methods of builtins."""
    total = helper(number) + sum(two_items(number))
    total += len(repr([Shown(number), {"x": Shown(number)}])) + sorted([3, 1, 2], key=by_key)[0]
    total += recursive(4) + decorated(number, key=2)
    for each in two_items(total):
        total += each
    for wrong in range(2):
        try:
            failing(wrong)
        except ValueError:
            total += 1
    return total + functools.reduce(adds, [1, 2, 3])


class Shown:
    def __init__(self, number):
        self.number = number

    def __repr__(self):
        return str(helper(self.number))


def recursive(number):
    return 0 if not number else number + recursive(number - 1)


def adds(one, two):
    return one + two


def caught_by_nobody(number):
    mine = {"number": number}
    try:
        return mine["missing"]
    except ValueError:
        return None


def thread_that_dies():
    catches(10)
    caught_by_nobody(7)


held = threading.Lock()


def holds_lock():
    with held:
        time.sleep(0.5)
        sum(range(100000))


def waits_for_lock():
    number = 1
    with held:
        number = 2
    return number


def lock():
    thread = threading.Thread(target=holds_lock)
    thread.start()
    time.sleep(0.1)
    waits_for_lock()
    thread.join()


def finished():
    return "finished"


def run():
    machine, one, ten = Machine(), outer(1), outer(10)
    for number in range(ROUNDS):
        work(number)
        machine.run(number)
        machine.two(number)
        decorated(number, key=1)
        one(number)
        ten(number)
        catches(number)
    for each in generator(ROUNDS):
        pass
    threads = [threading.Thread(target=in_thread, args=(f"t{i}", 20), name=f"t{i}") for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def late(folder):
    """A module that is not there when the debugger asks for it, then loaded again."""
    path = os.path.join(folder, "late_module.py")
    with open(path, "w") as f:
        f.write("VALUE = 1\n\n\nclass Late:\n    def call(self, number):\n        doubled = number * 2\n        return doubled\n")
    sys.path.insert(0, folder)
    sys.dont_write_bytecode = True
    module = importlib.import_module("late_module")
    return [module.Late().call(n) for n in range(5)]


def main():
    if sys.argv[1] == "steps":  # in a process of its own: what was traced once keeps its instrumentation
        print(json.dumps(steps_of(stepped)))
        return
    if sys.argv[1] == "calls":
        print(json.dumps(calls_of(called)))
        return
    functions = {"work": work, "two": Machine.two, "fails": fails, "run": run, "generator": generator, "late": late}
    made = {name: [i.offset for i in dis.get_instructions(f) if i.opname != "CACHE"] for name, f in functions.items()}
    with tempfile.TemporaryDirectory() as folder:  # which imports something yet
        print(json.dumps({"pid": os.getpid(), "offsets": made, "version": list(sys.version_info[:3])}), flush=True)
        while True:
            word = told()
            if word == "run":
                run()
            elif word == "die":
                thread = threading.Thread(target=thread_that_dies)
                thread.start()
                thread.join()
                caught_by_nobody(8)
            elif word == "stuck":
                time.sleep(3600)
            elif word == "lock":
                lock()
            elif word == "step":
                stepped(1)
            elif word == "call":
                print(called(1), file=sys.stderr)
            elif word == "late":
                late(folder)
            elif word == "speed":
                speed()
            elif word == "spin":
                threading.Thread(target=run_forever, daemon=True).start()
            finished()
            print(json.dumps(tally), flush=True)


def speed(calls=300_000):
    """Calls per second of processor time."""
    began = time.process_time()
    for number in range(calls):
        work(number)
    tally["speed"] = calls / (time.process_time() - began)


def told():
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    with open(sys.argv[1]) as f:
        word = f.read().strip()
    os.remove(sys.argv[1])
    return word


def run_forever():
    machine = Machine()
    while True:
        machine.run(1)
        time.sleep(0.05)


main()
