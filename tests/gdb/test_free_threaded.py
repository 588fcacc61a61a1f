"""A free-threaded CPython has no GIL. A thread that stays attached in C code while another wants all to stop is told by llm-hang;
stacks, objects and tasks are read as of other builds, and what is not read is refused by the reason."""

import os
import time

import pytest
from harness.answers import answer, run
from harness.subjects import running

from gdbext.cpython.runtime import open_runtime
from gdbext.cpython.world import wanted_stop
from gdbext.errors import GdbextError

PYTHONS = [path for path in os.environ.get("GDBEXT_TEST_FREE_THREADED_PYTHONS", "").split(":") if path]
pytestmark = pytest.mark.skipif(not PYTHONS, reason="no free-threaded CPython here (python3.13t)")


def stops(target):
    """Waits until a thread wants all others to stop: from then on the subject can say nothing any more."""
    end = time.monotonic() + 120
    while wanted_stop(open_runtime(target)) is None:
        assert time.monotonic() < end
        target.invalidate()


@pytest.mark.parametrize("how", ["asleep", "at_work", "detached", "turns"])
@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_thread_that_keeps_all_others_from_stopping(python, how):
    with running(python, "free_threaded.py", how) as (target, truth):
        assert not truth["gil"]
        if how in ("asleep", "at_work"):
            stops(target)
        said = answer(f"llm-hang {target.pid}")
        threads = {t["tid"]: t for t in answer(f"pythreads -on {target.pid}")["threads"]}
    assert {t["gil"] for t in threads.values()} == {"disabled"}
    culprits = [c["tid"] for c in said["culprits"]]
    if how in ("asleep", "at_work"):
        assert (said["verdict"], culprits) == ("gil", [truth["tids"]["keeps"]]), said
        assert any("stays attached to the interpreter" in line for line in said["evidence"])
        chain = next(c for c in said["chains"] if c["waiter"]["tid"] == truth["tids"]["collects"])
        assert chain["end"]["place"]["tid"] == truth["tids"]["keeps"] and "stop of all other threads" in chain["waits_for"]
    else:
        assert said["verdict"] in ("busy", "idle", "unknown") and culprits == [], said


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_stacks_and_objects_are_read_and_the_heap_is_refused(python):
    with running(python, "py_stacks.py") as (target, truth):
        found = {t["tid"]: t["frames"] for t in answer(f"pybt -all -on {target.pid}")["threads"]}
        for tid, frames in truth["threads"].items():
            assert [[f["function"], f["file"], f["line"]] for f in found[int(tid)]] == [f[:3] for f in frames]
        with pytest.raises(GdbextError, match="free-threaded: its collector keeps no lists"):
            run(f"pyheap -on {target.pid} -unstopped")
