"""The collector's lists and the paths to objects, on every CPython here, against what the process says of itself."""

import time

import pytest
from harness.subjects import PYTHONS, running

from gdbext.cpython import gc, referrers
from gdbext.cpython.expressions import evaluate
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError


@pytest.fixture(params=PYTHONS)
def process(request):
    with running(request.param, "py_gc.py") as (target, truth):
        while target.is_live and target.threads()[0].state != "S":  # what it does until it waits makes and frees objects
            time.sleep(0.01)
            target.invalidate()
        yield open_runtime(target), truth


def test_every_tracked_object_is_found_once_also_the_frozen_ones(process):
    rt, truth = process
    if rt.layout.free_threaded:
        with pytest.raises(GdbextError, match="no lists"):
            list(gc.tracked(rt))
        return
    found = list(gc.tracked(rt))
    addresses = [a for a, _ in found]
    assert len(set(addresses)) == len(addresses)
    kind = rt.object(truth["things"][0]).type.address
    assert {a for a, t in found if t == kind} >= set(truth["things"])
    assert not gc.collecting(rt)


def test_the_paths_found_lead_to_the_objects(process):
    rt, truth = process
    frame = rt.frames(rt.threads()[0])[0]
    wanted = set(truth["paths"].values())
    found = referrers.find(rt, wanted, [*referrers.frame_roots([(frame, True)]), *referrers.module_roots(rt)])
    assert set(found) == wanted
    for address, path in found.items():
        assert evaluate(rt, path.text, frame).address == address
    assert {p.text for p in found.values()} == set(truth["paths"])


def test_a_frame_that_is_not_selected_gives_paths_by_address(process):
    rt, truth = process
    frame = rt.frames(rt.threads()[0])[0]
    wanted = truth["paths"]["here['local']"]
    path = referrers.find(rt, {wanted}, referrers.frame_roots([(frame, False)]))[wanted]
    assert path.shown == "here['local']" and path.note == "frame 0, wait" and path.text.startswith("(0x")
    assert evaluate(rt, path.text).address == wanted


def test_the_search_ends_with_its_budget(process):
    rt, truth = process
    assert referrers.find(rt, {12345678}, referrers.module_roots(rt), max_edges=50) == {}
