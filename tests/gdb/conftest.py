"""For tests with a real gdb: `gdb(commands, …)` runs one and returns what each command said."""

import functools

import pytest

from gdbrun import run_gdb


@pytest.fixture
def gdb(gdb_path):
    return functools.partial(run_gdb, gdb_path)
