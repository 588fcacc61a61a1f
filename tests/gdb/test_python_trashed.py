"""Overwritten objects, and objects that change while they are read: a bounded text or an expected error, and nothing else."""

import os

import pytest
from harness.subjects import PYTHONS, running

from gdbext.cpython.reprs import NORMAL, SHORT, Repr
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError


@pytest.fixture(scope="module", params=PYTHONS, ids=os.path.basename)
def trashed(request):
    with running(request.param, "py_trashed.py") as (target, truth):
        yield open_runtime(target), truth


@pytest.fixture(scope="module", params=PYTHONS, ids=os.path.basename)
def moving(request):
    with running(request.param, "py_trashed.py", "moving") as (target, truth):
        yield target, truth


def attempts(obj):
    """Every way to look at an object, one after the other."""
    yield lambda: Repr(SHORT)(obj)
    yield lambda: Repr(NORMAL)(obj)
    yield lambda: obj.type_name
    yield lambda: obj.fields()
    yield lambda: obj.attr("a")
    yield lambda: obj.len()
    yield lambda: obj.elements(100)
    yield lambda: obj.items(100)
    yield lambda: obj.string(100)
    yield lambda: obj.integer()
    yield lambda: obj.item("a")
    yield lambda: obj.item(0)
    yield lambda: obj.plain()


def test_overwritten_objects_raise_nothing_unexpected(trashed):
    rt, truth = trashed
    wrong = []
    assert len(truth["objects"]) > 500
    for label, address in truth["objects"]:
        for number, look in enumerate(attempts(rt.object(address))):
            try:
                found = look()
            except GdbextError as e:
                assert "\n" not in str(e)
            except Exception as e:
                wrong.append(f"{label}, attempt {number}: {type(e).__name__}: {e}")
            else:
                if number < 2:
                    limits = (SHORT, NORMAL)[number]
                    assert isinstance(found, str) and found and len(found) <= limits.total, label
                    assert "\n" not in found and found.isprintable() or "\\" in found, label
    assert not wrong, f"{len(wrong)}\n" + "\n".join(wrong[:60])


def test_objects_that_change_under_the_reader_raise_nothing_unexpected(moving):
    target, truth = moving
    rt = open_runtime(target)
    shown, wrong = 0, []
    for _ in range(20):
        for label, address in truth["objects"]:
            target.invalidate()
            for number, look in enumerate(attempts(rt.object(address))):
                try:
                    look()
                    shown += 1
                except GdbextError:
                    pass
                except Exception as e:
                    wrong.append(f"{label}, attempt {number}: {type(e).__name__}: {e}")
        for thread in rt.threads():
            try:
                for frame in rt.frames(thread):
                    assert frame.file is not None and (frame.line is None or frame.line > -1000)
                    frame.locals()
                    shown += 1
            except GdbextError:
                pass
            except Exception as e:
                wrong.append(f"frames: {type(e).__name__}: {e}")
    assert not wrong, f"{len(wrong)}\n" + "\n".join(sorted(set(wrong))[:30])
    assert shown > 500
