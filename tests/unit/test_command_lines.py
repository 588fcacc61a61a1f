"""What a command line is taken for."""

import errno
import types

import pytest

from gdbext.commands import table
from gdbext.errors import GdbextError
from gdbext.session.command import Command, UsageError, finite

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


@pytest.mark.parametrize("command", table.load_all(), ids=lambda c: c.name)
def test_on_names_the_process_of_every_command_that_is_about_some(command):
    """An operand, and -rank of breakpoints, are its other names."""
    on = next((o for o in command.all_options() if o.name == "on"), None)
    whole = command.gdb_only and "WHAT" not in command.operand or command.name in ("llm", "llm-ranks", "llm-gpucore", "llm-diff")
    assert on is not None or whole
    if on is not None and on.was:
        assert command.parse("-rank TP1").on == command.parse("-on TP1").on == command.parse("-r TP1").on == "TP1"
    if command in PROCESSES and not command.takes_target:
        before = command.operand.partition("WHAT")[0].replace("[", " ").split()
        head = " ".join(before)
        for line in (f"-on TP0 {head}", f"{head} -on TP0", f"{head} TP0"):
            assert command.parse(line).operand_text == f"{head} TP0".strip()
        with pytest.raises(UsageError, match="WHAT there or as -on WHAT"):
            command.parse(f"-on TP0 {head} TP1")
        if before:
            with pytest.raises(UsageError, match="WHAT there or as -on WHAT"):
                command.parse("-on TP0")


def test_what_follows_a_process_stays_behind_it():
    assert table.load("llm-continue").parse("-on TP0 &").operand_text == "TP0 &"
    assert table.load("llm-apply").parse("-on TP0 bt 3 -on x").operand_text == "TP0 bt 3 -on x"
    assert table.load("llm-stacks").parse("-on 'TP0 TP1'").operand_text == "TP0 TP1"
    top = table.load("llm-top").parse
    assert top("-o").once and not top("-on TP0").once and top("-on TP0").operand_text == "TP0"


def test_the_ten_of_the_first_hour_are_shown_first_and_all_by_llm_all():
    llm = table.load("llm")
    asked = [llm().run(None, llm.parse(line)) for line in ("", "all")]
    few, every = (answer.to_text().splitlines() for answer in asked)
    assert asked[0].data == asked[1].data and asked[0].data["first"] == list(table.FIRST)
    assert [line.split()[0] for line in few[1:-1]] == list(table.FIRST) and len(table.FIRST) == 10
    rows = [line.split()[0] for line in every if line.split()[0] in table.names()]
    assert sorted([*rows, "llm"]) == sorted(table.names())


@pytest.mark.parametrize(
    "error, said",
    [
        (ProcessLookupError(errno.ESRCH, "No such process"), "ended while it was looked at"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/proc/17/fd"), "ended while it was looked at"),
        (OSError(errno.EMFILE, "Too many open files"), "ulimit -n"),
        (FileNotFoundError(errno.ENOENT, "No such file", "/tmp/x"), None),
    ],
)
def test_a_process_that_ends_meanwhile_is_one_line_at_every_door(error, said):
    class Ends(Command):
        def run(self, session, args):
            raise error

    session = types.SimpleNamespace(moving=True, targets=types.SimpleNamespace(running=list))
    with pytest.raises(GdbextError if said else OSError, match=said or "No such file"):
        Ends().answer(session, types.SimpleNamespace())
