"""Properties, `__len__`, `__bool__` and `__iter__` of the process's own classes: evaluated from their bytecode where that only
reads and computes, as Python gives them, and refused by name where it does more."""

import os
import re
import sys

import pytest
from harness.answers import run
from harness.subjects import PYTHONS, running

from gdbext.cpython import resolution
from gdbext.cpython.expressions import evaluate
from gdbext.cpython.reprs import FULL, Repr
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError

PAIRS = [(p, s) for p in PYTHONS for s in (1, 2, 3)]


@pytest.fixture(scope="module", params=PAIRS, ids=lambda p: f"{os.path.basename(p[0])}-{p[1]}")
def subject(request):
    python, seed = request.param
    with running(python, "py_plain_code.py", str(seed)) as (target, truth):
        rt = open_runtime(target)
        yield rt, next(f for f in rt.frames(rt.threads()[0]) if f.function == "main"), truth


def test_what_code_only_computes_is_what_python_says(subject):
    rt, frame, truth = subject
    wrong, refused, right = [], [], 0
    for text, expected in truth["expressions"]:
        try:
            found = Repr(FULL)(evaluate(rt, text, frame))
        except GdbextError as e:
            refused += [f"{text}: {e}"] if expected is not None else []
            continue
        right += found == expected
        wrong += [] if found == expected else [(text, found, expected)]
    assert not wrong, wrong[:5]
    named = [line for line in refused if not re.match(r"g\.p\d+: ", line)]
    assert [line.partition(":")[0] for line in named] in ([], ["r.formats"]), named
    assert right >= 0.9 * sum(expected is not None for _, expected in truth["expressions"]), refused[:5]


def test_what_does_more_is_refused_with_the_reason(subject):
    rt, frame, truth = subject
    for text in truth["refused"]:
        with pytest.raises(GdbextError, match=r"only running its code can answer|nested too deeply|has no attribute"):
            evaluate(rt, text, frame)


def test_the_frame_that_got_farthest_is_told_first():
    """Frames that each have a `self`: only one has what the expression goes on with, and fails behind it."""
    with running(sys.executable, "py_plain_code.py", "1", "within") as (target, _):
        rt = open_runtime(target)
        frames = rt.frames(rt.threads()[0])
        with pytest.raises(GdbextError, match=r"none of the .*; in frame \d+, Request.holds: counts of the Request"):
            resolution.resolve(rt, "self.counts.nothing", frames, outward=True)
        with pytest.raises(GdbextError, match=r"in frame \d+, Request.holds: sleeps of the Request .*calls"):
            run(f"pyprint -on {target.pid} self.sleeps")
