"""Fixtures of the unit tests."""

import gc

import pytest
from harness.fake_proc import FakeProc

gc.set_threshold(100_000, 50, 100)  # a fifth of the time went into looking at syntax trees and test items that all stay


@pytest.fixture
def proc(tmp_path):
    """A FAKE /proc without processes."""
    return FakeProc(tmp_path)
