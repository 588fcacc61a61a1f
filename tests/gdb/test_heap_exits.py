"""What only a callback of atexit or a signal handler holds is held; what they held before and is in a cycle is not."""

import os
import shutil

import pytest
from harness.answers import answer
from harness.subjects import PYTHONS, copy, minor, running

OLD = [python for python in PYTHONS if minor(python) < 12]  # whose table of handlers is a static variable of C


def owners_are_those_of(argv, env=None):
    with running(argv, "held_for_exit.py", env=env) as (target, truth):
        said = answer(f"pyheap -type Kept -on {target.pid}")
    owners = {row["address"]: row["owner_shown"] or "" for row in said["instances"]}
    assert owners.keys() == truth.keys()
    for address, owner in truth.items():
        assert owners[address].startswith(owner) and bool(owner) == bool(owners[address]), (owner, owners[address])
    assert not [reason for reason in said["partial"] if "has no owner here" in reason]


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_what_is_kept_for_the_end_and_for_signals_has_an_owner(python):
    owners_are_those_of(python)


@pytest.mark.skipif(not shutil.which("strip"), reason="no strip here")
@pytest.mark.parametrize("python", OLD, ids=os.path.basename)
def test_so_it_has_where_the_table_has_no_symbol(python, tmp_path):
    argv, env, _ = copy(python, tmp_path, strip=True)
    owners_are_those_of(argv, env)
