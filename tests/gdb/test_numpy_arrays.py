"""pyprint of numpy arrays: every dimension, layout and dtype, indexed and sliced, as numpy itself prints them."""

import hashlib
import json
import os
import random
import sys

import pytest
from harness.answers import answer
from harness.subjects import running, spawned

from gdbext.access.proc import ProcTarget
from gdbext.cpython.expressions import evaluate
from gdbext.cpython.libraries import numpy_objects
from gdbext.cpython.reprs import FULL, Repr
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError

numpy = pytest.importorskip("numpy")
HERE = os.path.dirname(os.path.abspath(__file__))
SEED = int(os.environ.get("GDBEXT_TEST_SEED", "11"))  # of drawn arrays; a failure names it


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


@pytest.fixture(scope="module")
def kinds():
    with spawned([sys.executable, os.path.join(HERE, "subjects", "numpy_kinds.py"), str(SEED)], "{") as process:
        yield process.pid, json.loads(process.said)


def test_drawn_dtypes_are_printed_as_numpy_does(kinds):
    rt = open_runtime(ProcTarget(kinds[0]))
    frame = rt.frames(rt.threads()[0])[-1]
    wrong = {}
    for expression, expected in kinds[1]["reprs"].items():
        found = evaluate(rt, expression, frame)
        shown = Repr(FULL)(found) if not isinstance(found, (bool, int, float, complex)) else repr(found)
        if shown != expected:
            wrong[expression] = (shown, expected)
    assert not wrong, (SEED, len(wrong), dict(list(wrong.items())[:3]))
    assert len(kinds[1]["reprs"]) > 200


def _digest(path):
    return hashlib.sha256(numpy.load(path).tobytes()).hexdigest()


def test_arrays_of_numbers_are_sliced_saved_and_compared_as_tensors(kinds, tmp_path):
    pid, truth = kinds
    drawn = random.Random(SEED).sample(sorted(truth["sums"]), 16) + [max(truth["sums"], key=lambda t: int(t[2:].split("]")[0]))]
    for number, expression in enumerate(drawn):
        whole, least, greatest, last = truth["sums"][expression]
        file = str(tmp_path / f"{number}.npy")
        told = answer(f"pytensor {expression} -stats -save {file} -on {pid}")
        assert (told["stats"]["min"], told["stats"]["max"]) == (least, greatest), (SEED, expression)
        assert _digest(file) == whole, (SEED, expression)
        assert answer(f"pytensor {expression} -compare {file} -on {pid}")["compare"]["equal"] is True, (SEED, expression)
        if last:
            part = str(tmp_path / f"{number}-part.npy")
            answer(f"pytensor {expression} -slice ...,-1: -save {part} -on {pid}")
            assert _digest(part) == last, (SEED, expression)


def test_arrays_of_other_elements_are_shown_and_say_why_no_more(kinds):
    pid, truth = kinds
    at = next(e for e, text in truth["reprs"].items() if "datetime64[D]" in text and e.count("[") == 1)
    assert answer(f"pytensor {at} -repr -on {pid}")["repr"] == truth["reprs"][at]
    with pytest.raises(GdbextError, match="no numbers"):
        answer(f"pytensor {at} -stats -on {pid}")


ML_TYPES = """
import json, os, sys, time
import ml_dtypes, numpy
names = [n for n, t in vars(ml_dtypes).items() if n.startswith(("bfloat", "float", "int", "uint")) and isinstance(t, type)]
made = {}
for name in names:
    dtype = numpy.dtype(getattr(ml_dtypes, name))
    bits = getattr(ml_dtypes, "finfo" if "float" in name else "iinfo")(dtype).bits
    stored = numpy.arange(1 << bits, dtype=f"u{dtype.itemsize}") if bits < 16 else numpy.arange(0, 1 << 16, 7, dtype="u2")
    made[name] = stored.view(dtype)
expressions = {f"made['{name}']{part}": f"made['{name}']{part}" for name in names for part in ("", "[1]", "[::-1]", "[:0]")}
truth = {}
for text in expressions:
    value = eval(text)
    truth[text] = repr(value) if value.shape else float(value)
with numpy.printoptions(threshold=1 << 20):
    whole = {name: [float(v) for v in made[name]] for name in names}
truth = {"pid": os.getpid(), "reprs": truth, "whole": whole}
print(json.dumps(truth).replace("Infinity", "1e999").replace("NaN", '"nan"'), flush=True)
time.sleep(3600)
"""


def test_numbers_of_ml_dtypes_are_as_it_has_them():
    pytest.importorskip("ml_dtypes")
    with spawned([sys.executable, "-c", ML_TYPES], "{") as process:
        truth = json.loads(process.said)
        rt = open_runtime(ProcTarget(process.pid))
        frame = rt.frames(rt.threads()[0])[-1]
        wrong = {}
        for expression, expected in truth["reprs"].items():
            found = evaluate(rt, expression, frame)
            shown = Repr(FULL)(found) if not isinstance(found, (int, float)) else "nan" if found != found else found
            if shown != expected:
                wrong[expression] = (shown, expected)
        assert not wrong and len(truth["reprs"]) > 60, (len(wrong), dict(list(wrong.items())[:3]))
        for name, expected in truth["whole"].items():
            values = numpy_objects.values(evaluate(rt, f"made['{name}']", frame))
            found = ["nan" if v != v else v for v in values]
            assert found == expected, name
        said = answer(f"pytensor -on {process.pid} made['bfloat16'] -slice 2000:2004 -stats")
        assert said["stats"]["max"] == truth["whole"]["bfloat16"][2003]
