"""frozendicts of CPython 3.15 are printed, measured and looked into as Python does."""

import json
import os

import pytest
from harness.answers import answer
from harness.subjects import PYTHONS, SUBJECTS, minor, spawned

SEED = os.environ.get("GDBEXT_TEST_SEED", "3")  # of what is drawn; a failure names it


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_frozendicts_are_read_as_dicts_are(python):
    if minor(python) < 15:
        pytest.skip("it has none")
    with spawned([python, os.path.join(SUBJECTS, "frozendicts.py"), SEED], "[") as process:
        for i, (text, length) in enumerate(json.loads(process.said)):
            assert answer(f"pyprint VALUES[{i}] -full -on {process.pid}")["repr"] == text, (SEED, i)
            if length is not None:
                assert answer(f"pyprint len(VALUES[{i}]) -on {process.pid}")["repr"] == str(length), (SEED, i)
        assert answer(f"pyprint VALUES[1]['a'] -on {process.pid}")["repr"] == "1"
