"""Unions, generic aliases, type parameters, `type` statements, t-strings, sentinels and lazy imports have Python's own text."""

import json
import os

import pytest
from harness.answers import answer
from harness.subjects import PYTHONS, SUBJECTS, spawned

SEED = os.environ.get("GDBEXT_TEST_SEED", "3")  # of what is drawn; a failure names it


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_they_have_pythons_own_text(python):
    with spawned([python, os.path.join(SUBJECTS, "typing_objects.py"), SEED], "[") as process:
        said = json.loads(process.said)
        assert answer(f"pyprint VALUES -full -on {process.pid}")["repr"] == f"[{', '.join(said)}]", SEED
        assert len(said) >= 27
