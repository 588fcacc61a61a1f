"""The oldest Python that the pack promises to run on, and the newest here."""

import functools
import os
import sys

from tools.system import find_pythons

FLOOR = (3, 8)


@functools.lru_cache(None)
def oldest():
    """The path of an interpreter of the documented floor; '' where none is here."""
    return find_pythons(FLOOR, FLOOR).get(FLOOR, "")


def newest():
    """The path of the newest interpreter that the tests were given."""
    return ([p for p in os.environ.get("GDBEXT_TEST_PYTHONS", "").split(":") if p] or [sys.executable])[-1]
