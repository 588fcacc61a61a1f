"""Lines of the product's rooms against their budget: what grows says why, what shrinks gives back.

`python3 tests/unit/test_budget.py` prints today's numbers.
"""

import collections
import os

import pytest

PACK = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "gdbext")
# Lines of a room's .py files on 28 November 2026. A room that has become smaller by more than SLACK gets its new number here.
BUDGET = {
    "__init__": 22,
    "__main__": 233,
    "access": 11778,
    "agents": 439,
    "answers": 5475,
    "archive": 48,
    "commands": 5880,
    "control": 7517,
    "cpython": 13169,
    "dap": 721,
    "engines": 11148,
    "errors": 58,
    "frame_filters": 217,
    "functions": 116,
    "heap": 2880,
    "init": 33,
    "kernels": 3075,
    "kvcache": 2477,
    "layouts": 0,
    "log": 107,
    "observe": 2395,
    "package": 117,
    "printers": 478,
    "render": 1172,
    "requests": 1832,
    "session": 2604,
    "setup": 1209,
    "stacks": 5079,
    "timeline": 3128,
    "torch": 5724,
    "verdict": 5900,
    "wheels": 171,
}
# What rooms have grown by since: (room, lines, why these lines are worth it). A room that shrinks takes its lines out first.
GROWN = [
    ("__init__", 52, "the library's names, loaded when they are asked for"),
    (
        "access",
        480,
        "a copy of what cannot be stopped, -unstopped; events of the kernel's; decoders of machine code, which left kernels",
    ),
    ("control", 150, "breakpoints that are events of the kernel's: a gdb that is killed leaves nothing armed"),
    ("agents", 19, "schemas of what the tools answer"),
    ("answers", 640, "fields of ten commands are declared; llm-hang on one screen, its waits as a tree in text, JSON and SVG"),
    ("api", 1674, "the library: its nouns, and the one place that says which processes are meant, which left session"),
    ("cpython", 76, "one table of what differs between minors, one machine for bytecode"),
    ("observe", 35, "a base class of what takes samples; the guard against torn clocks"),
    ("primitives", 316, "the table of what threads wait on; its rows leave stacks, cpython, timeline and verdict"),
    ("render", 188, "one declaration of a field: JSON, table, merge, schema, documentation"),
    ("render", 152, "the one codec of dataclasses between machines, which left verdict and kvcache"),
    ("verdict", 120, "one graph of waits; what a program is for: parked main threads; native waits by both ends; closed futexes"),
]
FEW = 25  # lines by which a room may be over: a sentence, a parameter
SLACK = 500


def rooms():
    """{room: lines}; a module that is no folder is a room of its own."""
    found = collections.Counter()
    for folder, _, names in os.walk(PACK):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as f:
                    found[os.path.relpath(path, PACK).split(os.sep)[0].replace(".py", "")] += sum(1 for _ in f)
    return found


def allowed():
    found = collections.Counter(BUDGET)
    for room, lines, why in GROWN:
        assert lines > 0 and len(why) > 20, (room, "say what the lines are for")
        found[room] += lines
    return found


@pytest.mark.sources
def test_no_room_is_larger_than_its_budget():
    found, budget = rooms(), allowed()
    over = [
        f"{room}: {lines} lines, {budget[room]} allowed" for room, lines in sorted(found.items()) if lines > budget[room] + FEW
    ]
    assert not over, "delete, or add to GROWN of tests/unit/test_budget.py and say why:\n" + "\n".join(over)


@pytest.mark.sources
def test_what_was_given_back_is_not_budget_for_something_else():
    found, budget = rooms(), allowed()
    under = [f"{room}: {found[room]} lines, {budget[room]} allowed" for room in budget if found[room] < budget[room] - SLACK]
    assert not under, "lower BUDGET of tests/unit/test_budget.py:\n" + "\n".join(under)


if __name__ == "__main__":
    print("".join(f'    "{room}": {lines},\n' for room, lines in sorted(rooms().items())), end="")
