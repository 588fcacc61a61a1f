"""What Python's own `repr` and `getattr` give in a running interpreter, gdbext must give from its memory."""

import json
import os

import pytest
from harness.answers import answer
from harness.subjects import PYTHONS, running, spawned

from gdbext.access.proc import ProcTarget
from gdbext.cpython.reprs import FULL, Limits, Repr
from gdbext.cpython.runtime import open_runtime

# -> how many objects it shows at least, and whether some have a repr of their own
SUBJECTS = {"py_objects.py": (330, True), "py_library_objects.py": (220, False)}
# Texts that only code of the process makes, in some releases: shown as object.__repr__ shows them, and marked.
MADE_BY_CODE = ()


@pytest.fixture(
    scope="module", params=[(p, s) for p in PYTHONS for s in SUBJECTS], ids=lambda p: "-".join(map(os.path.basename, p))
)
def subject(request):
    python, name = request.param
    with running(python, name) as (target, truth):
        truth["enough"], truth["own reprs"] = SUBJECTS[name]
        yield open_runtime(target), truth


def short(text):
    return text if len(text) < 300 else f"{text[:150]} … {text[-100:]} ({len(text)} characters)"


def test_the_subject_has_hundreds_of_objects(subject):
    rt, truth = subject
    assert list(rt.version) == truth["version"][:2]
    assert len(truth["objects"]) > truth["enough"]


def test_repr_is_pythons_own(subject):
    rt, truth = subject
    wrong = []
    for label, address, expected, plain in truth["objects"]:
        shown = Repr(FULL)
        found = shown(rt.object(address))
        if found != expected and not (found == plain and shown.opaque and label.startswith(MADE_BY_CODE)):
            wrong.append(f"{label}: {short(found)}\n    not {short(expected)}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_attributes_are_those_that_getattr_gives(subject):
    rt, truth = subject
    wrong = []
    for label, address, name, expected in truth["attributes"]:
        try:
            found = Repr(FULL)(rt.object(address).attr(name))
        except Exception as e:  # each failure is one line of the report, whatever it is
            found = f"{type(e).__name__}: {e}"
        if found != expected:
            wrong.append(f"{label}.{name}: {short(found)}\n    not {short(expected)}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_an_own_repr_is_never_run_but_marked(subject):
    rt, truth = subject
    assert bool(truth["opaque"]) == truth["own reprs"]
    for address, expected in truth["opaque"]:
        shown = Repr(FULL)
        assert shown(rt.object(address)) == expected
        assert shown.opaque


def test_bounds_hold_for_every_object(subject):
    """No object, however large or deep, gives a longer text than asked for, and the cut is told."""
    rt, truth = subject
    bounds = Limits(items=5, string=20, depth=2, total=200)
    assert len(truth["objects"]) > 50
    for label, address, expected, plain in truth["objects"]:
        shown = Repr(bounds)
        found = shown(rt.object(address))
        assert len(found) <= 200, label
        if found not in (expected, plain):
            assert shown.truncated or shown.opaque, (label, found, expected)


def test_numpy_arrays_show_their_shape_and_type_or_as_numpy_does(subject):
    rt, truth = subject
    for address, shape, dtype in truth["arrays"]:
        found = Repr(FULL)(rt.object(address))
        assert found.startswith((f"<numpy.ndarray shape {shape} {dtype}", "array("))


GENERIC = """
import collections, ipaddress, json, operator, sys, typing
kept = [collections.ChainMap({"a": 1}), ipaddress.ip_address("10.1.2.3"), operator.itemgetter(1), typing.List[int]]
print(json.dumps([[id(one), f"{type(one).__module__}.{type(one).__qualname__}"] for one in kept]), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_what_has_no_form_of_its_own_here_shows_its_class_and_address(python):
    with spawned([python, "-c", GENERIC], ready="[") as process:
        target = ProcTarget(process.pid)
        rt = open_runtime(target)
        for address, name in json.loads(process.said):
            assert Repr(FULL)(rt.object(address)) == f"<{name} object at {address:#x}>"
        target.close()


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_attributes_that_a_text_leaves_out_stand_below_it(python):
    with running(python, "subclasses.py") as (target, truth):
        for name, attributes in truth.items():
            fields = answer(f"pyprint -on {target.pid} __main__:V[{name!r}]")["fields"]
            assert {f["name"]: f["text"] for f in fields if not f["name"].startswith("__")} == attributes, name
