"""Asked from outside of a container, from inside or from beside it: no program that happens to have a number of the container's
own is read, stopped or named, and the chain ends at the container's own child. Situations are drawn (harness/pods.py)."""

import os
import shutil
import subprocess

import pytest
from harness import pods

VERDICT = {"pipe": "starved", "lock": "lock-held", "stopped": "stopped"}


@pytest.fixture(scope="module")
def spaces():
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter"))):
        pytest.skip("needs root, unshare and nsenter")
    if subprocess.run([*pods.SPACE, "true"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody make pid namespaces")


@pytest.mark.parametrize("seed", range(50))
@pytest.mark.drawn(2)
def test_a_number_of_a_container_leads_to_no_program_outside(spaces, tmp_path, seed):
    one = pods.draw(seed)
    came = pods.ask(one, str(tmp_path))
    assert came.decoys, "no program could be given the number"
    assert not came.touched, (one, came)
    if one.asked == "beside":
        assert "/proc is of another pid namespace" in came.answer["error"], came.answer
        return
    assert came.child in came.reached and came.reached <= {came.parent, came.child}, (one, came)
    if one.what in VERDICT:
        culprits = {place["pid"] for place in came.answer["culprits"]}
        assert came.answer["verdict"] == VERDICT[one.what] and culprits <= {came.child}, (one, came)
    else:
        assert came.answer["verdict"] == "unknown" and not came.answer["culprits"], (one, came)
