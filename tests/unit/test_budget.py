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
    "commands": 5800,
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
    ("agents", 46, "what to do next, as a call of a tool"),
    ("cpython", 148, "numbers of ml_dtypes in arrays, of which torch has some (25 lines left it); where tasks were made"),
    ("heap", 20, "arrays of objects as owners"),
    ("render", 416, "names of Rust's compiler: the grammar of its version 0, which no library of C++ reads"),
