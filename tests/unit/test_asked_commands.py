"""Each command that reads a process is asked for its JSON fields and private content, or its row says what does so instead."""

import pytest
from harness import probe
from harness.command_lines import ASKED, _usual, all_of

from gdbext.commands import table
from gdbext.session.command import Command


def asked(lines):
    return {line.split()[0] for line in lines}


def outside_gdb(**left):
    ((reason, none),) = left.items()
    return {c.name for c in table.load_all() if not c.gdb_only and bool(getattr(ASKED[c.name], reason)) is none}


def test_each_command_that_reads_a_process_is_asked_for_its_fields():
    lines = asked(all_of("live", "both", "kv"))
    assert outside_gdb(fields_by=False) <= lines and not outside_gdb(fields_by=True) & lines


def test_each_command_that_reads_a_process_is_asked_for_private_content():
    lines = asked((*probe.LIVE, *probe.BOTH, *probe.OF_OBJECTS)) | {"llm-request"}
    elsewhere = outside_gdb(content_by=True)
    assert not elsewhere & lines
    assert outside_gdb(content_by=False) - lines <= outside_gdb(fields_by=True)


def test_a_command_without_a_row_is_asked_as_its_class_says():
    class Age(Command):
        name = "llm-age"

    class Ages(Age):
        operand, takes_target = "[WHAT...]", False

    class Needs(Age):
        operand = "TEXT"

    assert _usual(Age).lines[0][0] == "-on P" and _usual(Age).both == ("-on {on}",) and _usual(Age).in_gdb == ""
    assert _usual(Ages).lines[0][0] == "P" and _usual(Ages).private == ("{on}",) and _usual(Ages).in_gdb == "{P}"
    with pytest.raises(AssertionError, match="llm-age needs a row"):
        _usual(Needs)
