"""Functions whose last instruction before the return is another one each, called again and again; its first line is the truth."""

import json
import os
import time

TABLE, LIST, PAIR = {"a": "of a dict"}, ["of a list", "second"], ("t0", "t1")


class Own:
    shared = "of a class"

    def __init__(self):
        self.own = "its own"

    def __getitem__(self, index):
        return "an item"


OWN = Own()


def called():
    return "called"


# fmt: off
def list_item(a, b): return a[b]
def tuple_item(a, b): return a[b]
def dict_item(a, b): return a[b]
def own_item(a, b): return a[b]
def letter(a, b): return a[b]
def a_slice(a, b): return a[1:2]
def add(a, b): return a + b
def add_floats(a, b): return a + b
def add_texts(a, b): return a + b
def multiply(a, b): return a * b
def divide(a, b): return a // b
def negative(a, b): return -b
def a_tuple(a, b): return a, b
def a_list(a, b): return [a, b]
def a_dict(a, b): return {a: b}
def less(a, b): return a < b
def same(a, b): return a is b
def within(a, b): return a in b
def negated(a, b): return not a
def own_attribute(a, b): return a.own
def shared_attribute(a, b): return a.shared
def length(a, b): return len(a)
def text(a, b): return f"{a}{b}"
def texted(a, b): return str(b)
def of_module(a, b): return LIST
def local(a, b): return b
def either(a, b): return a and b
def call(a, b): return called()
# fmt: on

CALLS = {
    list_item: (LIST, 1), tuple_item: (PAIR, 1), dict_item: (TABLE, "a"), own_item: (OWN, 4), letter: ("xyz", 1),
    a_slice: (LIST, 0),
    add: (1000, 7), add_floats: (1.5, 2.25), add_texts: ("ab", "cd"), multiply: (1000, 7), divide: (1000, 7), negative: (0, 55),
    a_tuple: ("x", 3), a_list: ("x", 3), a_dict: ("x", 3), less: (3, 4), same: (OWN, OWN), within: ("a", TABLE), negated: (0, 0),
    own_attribute: (OWN, 0), shared_attribute: (OWN, 0), length: (LIST, 0), text: ("p", 4), texted: (0, 77), of_module: (5, 6),
    local: (1, "b!"), either: (1, "second"), call: (0, 0),
}  # fmt: skip


def first_end():
    here = 1
    return here


def second_end():
    here = 2
    return here


for _ in range(300):  # afterwards the instructions are specialised
    truth = {function.__name__: repr(function(*given)) for function, given in CALLS.items()}
print(json.dumps([os.getpid(), truth]), flush=True)
while True:
    for end in (first_end, second_end):
        for function, given in CALLS.items():
            function(*given)
        end()
        time.sleep(0.01)
