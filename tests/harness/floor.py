"""The oldest Python that the pack promises to run on, and the newest here."""

import functools
import os
import subprocess
import sys

from tools.system import find_pythons

FLOOR = (3, 8)


def random_bytes(rng, size):
    """`rng.randbytes(size)`, which Python 3.8 lacks."""
    return rng.getrandbits(8 * size).to_bytes(size, "little")


@functools.lru_cache(None)
def oldest():
    """The path of an interpreter of the documented floor; '' where none is here."""
    return find_pythons(FLOOR, FLOOR).get(FLOOR, "")


@functools.lru_cache(None)
def newest():
    """The path of the newest interpreter that the tests were given, of those that find their own library without being told: one
    that was unpacked somewhere is told by PYTHONHOME, and so is the gdb that it starts, wrongly."""
    given = [p for p in os.environ.get("GDBEXT_TEST_PYTHONS", "").split(":") if p]
    alone = [p for p in given if subprocess.run([p, "-I", "-c", ""], stderr=subprocess.DEVNULL).returncode == 0]
    return (alone or [sys.executable])[-1]
