"""A weak reference holds nothing: pyheap names who holds an object, and who knows it weakly beside that."""

import os

import pytest
from harness.answers import answer
from harness.subjects import PYTHONS, running


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_weak_reference_is_no_hold(python):
    with running(python, "weakly_known.py") as (target, truth):
        told = {name: answer(f"pyheap -path {one['address']:#x} -on {target.pid}") for name, one in truth.items()}
        owners = {row["address"]: row["owner_shown"] for row in answer(f"pyheap -type Big -on {target.pid}")["instances"]}
    for name, one in truth.items():
        holders = sorted(row["holder"].rpartition(".")[2] for row in told[name]["paths"])
        if name != "attribute":
            assert holders == one["holders"] == ["list"], name
            assert told[name]["paths"][0]["owner_shown"].startswith("__main__:held.one['two'][0][0]["), name
        else:  # its holder is a reference with an attribute: that one, or the dict of its attributes
            assert told[name]["paths"][0]["owner_shown"] == "__main__:by_attribute[0].kept"
        assert len(told[name]["weakly"]) == one["weakly"], name
    assert told["set"]["weakly"][0]["owner_shown"].startswith("__main__:by_set")
    assert told["values"]["weakly"][0]["holder"].endswith("KeyedRef")
    assert told["alone"]["weakly"] == []
    for name in ("list", "set", "values", "proxy", "keys", "alone"):
        assert owners[hex(truth[name]["address"])].startswith("__main__:held.one['two'][0][0]["), name
