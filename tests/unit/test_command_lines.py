"""What a command line is taken for."""

import pytest

from gdbext.commands import table
from gdbext.session.command import UsageError

PROCESSES = [c for c in table.load_all() if "WHAT" in c.operand and "COMMAND" not in c.operand]


@pytest.mark.parametrize("command", PROCESSES, ids=lambda c: c.name)
def test_an_option_that_there_is_not_is_no_process(command):
    assert len(PROCESSES) > 10
    first = command.all_options()[0]
    value = "" if first.kind == "flag" else " 1"
    for line in ("TP0 -nosuch 3", f"TP0 -{first.name}{value} -nosuch", "-nosuch TP0"):
        with pytest.raises(UsageError, match="option -nosuch is unknown; "):
            command.parse(line)
    assert command.parse("-- TP0 -nosuch").operand_text == "TP0 -nosuch"
    assert command.parse("TP0 7").operand_text == "TP0 7"
