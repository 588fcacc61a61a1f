"""What engines hold shows as Python itself shows it: msgspec Structs, pydantic models, numpy arrays, collections; tensors in one
line."""

import json
import os
import sys

import pytest
from harness.subjects import PYTHONS, running, spawned

from gdbext.access.proc import ProcTarget
from gdbext.commands.pyprint import PyPrint
from gdbext.cpython.reprs import FULL, SHORT, Repr
from gdbext.cpython.runtime import open_runtime
from gdbext.session.session import Session

MANY = """
import collections, dataclasses, json, time
Settings = dataclasses.make_dataclass("Settings", [(f"option_{i}", int, i) for i in range(700)])
Row = collections.namedtuple("Row", [f"column_{i}" for i in range(300)])
held = [Settings(), Row(*range(300)), [Settings(), Row(*range(300))]]
print(json.dumps([(id(one), repr(one)) for one in held]), flush=True)
time.sleep(900)
"""
HAS = {"numpy": 300, "msgspec": 8, "pydantic": 8}  # library -> how many objects it adds at least


def interpreters():
    found = dict.fromkeys([*PYTHONS, os.environ.get("GDBEXT_TEST_PYTHON"), os.environ.get("GDBEXT_TEST_TORCH_PYTHON")])
    return [p for p in found if p]


@pytest.fixture(scope="module", params=interpreters(), ids=lambda p: "/".join(p.split(os.sep)[-3:]))
def subject(request):
    with running(request.param, "py_engine_objects.py") as (target, truth):
        session = Session()
        yield session.runtime(str(target.pid)), truth, session


def test_repr_is_pythons_own(subject):
    rt, truth, _ = subject
    wrong = []
    for label, address, expected in truth["objects"]:
        shown = Repr(FULL)
        found = shown(rt.object(address))
        if found != expected or shown.truncated or shown.opaque:
            wrong.append(f"{label}: {found[:300]}\n    not {expected[:300]}")
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:20])
    assert len(truth["objects"]) >= 25 + sum(HAS.get(name, 0) for name in truth["has"])


def test_hundreds_of_fields_are_read_as_far_as_they_are_shown(monkeypatch):
    """A snapshot reads what thousands of objects show, and SGLang's settings, 700 fields, hang on many of them."""
    named, seen = Repr.named, []
    monkeypatch.setattr(Repr, "named", lambda self, name, *rest, **more: seen.append(name) or named(self, name, *rest, **more))
    with spawned([sys.executable, "-c", MANY], ready="[") as process:
        rt = open_runtime(ProcTarget(process.pid))
        for address, expected in json.loads(process.said):
            whole, short = Repr(FULL), Repr(SHORT)
            assert whole(rt.object(address)) == expected and not whole.truncated
            seen.clear()
            text = short(rt.object(address))
            assert text[:100] == expected[:100] and len(text) <= SHORT.total and short.truncated and 5 < len(seen) < 60


def test_what_only_running_code_would_tell_shows_its_fields_and_is_marked(subject):
    rt, truth, _ = subject
    assert len(truth["partly"]) == sum({"msgspec": 1, "pydantic": 2}.get(name, 0) for name in truth["has"])
    for label, address, expected in truth["partly"]:
        shown = Repr(FULL)
        assert shown(rt.object(address)) == expected and shown.opaque, label


def test_tensors_take_one_line(subject):
    rt, truth, session = subject
    if "torch" not in truth["has"]:
        pytest.skip("no torch in this interpreter")
    assert truth["tensors"]
    for address, expected in truth["tensors"]:
        assert Repr(SHORT)(rt.object(address)) == expected
        answer = PyPrint().answer(session, PyPrint.parse(f"-on {rt.target.pid} {address:#x}"))
        assert json.loads(answer.json("pyprint"))["repr"] == expected and answer.to_text().splitlines()[0] == expected


def test_a_line_stays_a_line_and_bounds_hold(subject):
    rt, truth, session = subject
    lines = 0
    for label, address, expected in truth["objects"]:
        shown = Repr(SHORT)
        found = shown(rt.object(address))
        assert "\n" not in found and len(found) <= SHORT.total, label
        if label.startswith("array float (2, 3)"):
            assert found.startswith("<numpy.ndarray shape (2, 3) float") and (found.endswith("]]>") or shown.truncated)
        if label.startswith("array float (4, 5)") and lines < 5:
            text = PyPrint().answer(session, PyPrint.parse(f"-on {rt.target.pid} {address:#x}")).to_text()
            assert text.startswith(expected)
            lines += 1
    assert lines or "numpy" not in truth["has"]
