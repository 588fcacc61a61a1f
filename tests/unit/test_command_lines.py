"""What a command line is taken for."""

import pytest

from gdbext.commands import table
from gdbext.session.command import UsageError, finite

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


FLOATS = [(c, o) for c in table.load_all() for o in c.options if o.kind in ("float", "int")]


@pytest.mark.parametrize(
    "word", ["nan", "NaN", "-nan", "inf", "-inf", "Infinity", "1e999", "²", "٣", "1" * 5000, "0x" + "f" * 5000, "1,5", "''"]
)
def test_a_number_is_finite_at_each_option(word):
    assert len(FLOATS) > 30
    for command, option in FLOATS:
        with pytest.raises(UsageError) as e:
            command.parse(f"-{option.name} {word}")
        assert f"-{option.name} needs a number" in str(e.value) and len(str(e.value)) < 200
    for text, kind, number in (("0x10", int, 16), ("-3", int, -3), ("1.5e-3", float, 0.0015), ("7", float, 7.0)):
        assert finite(text, kind) == number
