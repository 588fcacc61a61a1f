"""pyprint of numpy arrays: every dimension, layout and dtype, indexed and sliced, as numpy itself prints them."""

import sys

import pytest
from harness.answers import answer
from harness.subjects import running

from gdbext.cpython.expressions import evaluate
from gdbext.cpython.reprs import FULL, Repr
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError

numpy = pytest.importorskip("numpy")


def test_arrays_and_their_parts_are_printed_as_numpy_does():
    with running(sys.executable, "arrays.py") as (target, truth):
        rt = open_runtime(target)
        frame = rt.frames(rt.threads()[0])[-1]
        wrong = {}
        for expression, expected in truth.items():
            found = evaluate(rt, expression, frame)
            shown = Repr(FULL)(found) if not isinstance(found, (bool, int, float, complex)) else None
            if shown is None:  # one element: a plain number
                told = eval(expected, {"np": numpy})
                same = found == told or abs(found - told) < 1e-6
            else:
                same = shown == expected
            if not same:
                wrong[expression] = (shown, expected)
        assert not wrong and len(truth) > 300, dict(list(wrong.items())[:3])
        for key, said in (("[9, 0]", "index 9 is outside"), ("[0, 0, 0, 0]", "4 indices"), ("['x']", "whole numbers, slices")):
            with pytest.raises(GdbextError, match=said):
                evaluate(rt, f"A['int32']{key}", frame)
        data = answer(f"pyprint -on {target.pid} __main__:A['int64'][3,4].shape")
        assert data["repr"] == "(6,)"
