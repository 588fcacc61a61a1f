"""Fixtures of the unit tests."""

import pytest
from harness.fake_proc import FakeProc


@pytest.fixture
def proc(tmp_path):
    """A FAKE /proc without processes."""
    return FakeProc(tmp_path)
