"""What only a callback of atexit or a signal handler holds is held; what they held before and is in a cycle is not."""

import os

import pytest
from harness.answers import answer
from harness.subjects import PYTHONS, running


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_what_is_kept_for_the_end_and_for_signals_has_an_owner(python):
    with running(python, "held_for_exit.py") as (target, truth):
        rows = answer(f"pyheap -type Kept -on {target.pid}")["instances"]
    owners = {row["address"]: row["owner_shown"] or "" for row in rows}
    assert owners.keys() == truth.keys()
    for address, owner in truth.items():
        assert owners[address].startswith(owner) and bool(owner) == bool(owners[address]), (owner, owners[address])
