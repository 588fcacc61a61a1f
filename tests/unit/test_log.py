"""GDBEXT_LOG=debug: a line for what is passed over, and nothing else."""

import pytest

from gdbext import log
from gdbext.errors import GdbextError, NotFoundError


@pytest.fixture
def lines(capsys):
    log.enable()
    yield lambda: capsys.readouterr().err.splitlines()
    log.enable(False)


def tries(error):
    try:
        raise error
    except GdbextError as e:
        log.passed_over(e, "the thing")


def test_a_line_names_the_place_the_thing_and_the_error(lines):
    tries(NotFoundError("no such\nprocess \x1b[31m"))
    (line,) = lines()
    assert line.startswith("gdbext: test_log.py:") and " tries: the thing: no such\\nprocess " in line and "\x1b" not in line


def test_a_decision_is_noted_with_its_values(lines):
    log.note("layout %s of %d refused", "3.16", 7)
    assert lines()[0].endswith("layout 3.16 of 7 refused")


def test_what_is_suppressed_is_noted_where_it_was(lines):
    with log.passing_over():
        raise GdbextError("away")
    with log.passing_over(OSError, what="a file"):
        raise OSError("gone")
    first, second = lines()
    assert "test_what_is_suppressed_is_noted_where_it_was: away" in first and "OSError: a file: gone" in second
    with pytest.raises(ValueError), log.passing_over():
        raise ValueError("another kind")


def test_without_it_nothing_is_written(capsys):
    tries(GdbextError("quiet"))
    log.note("%s", "quiet")
    assert capsys.readouterr().err == ""
