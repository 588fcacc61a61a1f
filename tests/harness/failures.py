"""What is known of a test's failure while it is torn down."""

import pytest

FAILED = pytest.StashKey()  # of a test: whether it, its setup or its teardown failed
SETUPS = pytest.StashKey()  # of a module: how many of its tests failed while they were set up


def note(item, report):
    """Keeps what a report says; `tests/conftest.py` hands each over."""
    if report.failed:
        item.stash[FAILED] = True
        module = item.getparent(pytest.Module)
        module.stash[SETUPS] = module.stash.get(SETUPS, 0) + (report.when == "setup")


def has_failed(item):
    return item.stash.get(FAILED, False)


def setups(item):
    """How many setups have failed in the test's module."""
    return item.getparent(pytest.Module).stash.get(SETUPS, 0)
