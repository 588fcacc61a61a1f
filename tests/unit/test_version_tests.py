"""The recipe for a CPython minor names every place that asks for one: by scripts/version-tests, which finds them in the code."""

import glob
import os
import re
import sys

import pytest
from harness.gdb_run import ROOT
from tools import version_tests

from gdbext.cpython import dialects
from gdbext.cpython.minors import Minor

pytestmark = pytest.mark.skipif(sys.version_info < (3, 9), reason="scripts run by Python 3.11 or newer")
ASK = [
    "if rt.version >= (3, 12): pass",
    "x = 1 if (3, 10) < self.rt.version < (3, 13) else 2",
    "y = rt.version not in ((3, 11), (3, 12))",
    "if version[0] == 3 and version[1] >= 13: pass",
    "z = obj.rt.version == (3, 11) and flags",
]
DO_NOT = ["if sys.version_info < (3, 8): pass", "size = (3, 12)", "x = shape == (3, 2)", "table = {(3, 12): 1}", "y = version[0]"]


@pytest.mark.parametrize("source", ASK)
def test_a_place_that_asks_is_found(source):
    assert [(p.line, p.source) for p in version_tests.places(f"\n{source}\n", "x.py")] == [(2, source)]


@pytest.mark.parametrize("source", DO_NOT)
def test_what_asks_for_no_minor_of_a_process_is_not(source):
    assert list(version_tests.places(source, "x.py")) == []


@pytest.mark.sources
def test_the_recipe_names_the_script_and_each_room_that_asks():
    with open(os.path.join(ROOT, "CONTRIBUTING.md"), encoding="utf-8") as f:
        recipe = f.read().partition("## A CPython minor")[2].partition("\n## ")[0]
    found = version_tests.of_the_pack()
    assert 0 < len(found) < 20 and "scripts/version-tests" in recipe
    named = re.search(r"scripts/version-tests`[^.]*?\(([^)]*)\)", recipe).group(1)
    assert set(re.findall(r"`(\w+)`", named)) == {p.room for p in found}


@pytest.mark.sources
def test_each_fact_of_the_table_differs_between_minors_and_is_asked_for():
    known = [vars(Minor((3, minor))) for minor in range(dialects.OLDEST[1], dialects.NEWEST[1] + 1)]
    assert not [name for name in known[0] if all(one[name] == known[0][name] for one in known)]
    asked = set()
    for path in glob.glob(os.path.join(ROOT, "gdbext", "*", "**", "*.py"), recursive=True):
        with open(path, encoding="utf-8") as f:
            asked.update(re.findall(r"minor\.(\w+)", f.read()))
    assert set(known[0]) <= asked, set(known[0]) - asked


@pytest.mark.sources
def test_no_place_asks_for_a_minor_beyond_those_that_are_read():
    oldest, newest = dialects.OLDEST[1], dialects.NEWEST[1]
    for place in version_tests.of_the_pack():
        for minor in map(int, re.findall(r"\(3, (\d+)\)", place.source)):
            assert oldest < minor <= newest or minor == oldest, place
