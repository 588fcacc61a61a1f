"""The line that says how far a command is."""

import io

import pytest

from gdbext.render import progress


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream):
    """What is told at looks a hundredth of a second apart."""
    with progress.shown(stream, "llm-record", 2.5) as tell:
        for look in range(251):
            tell(look / 100)


def test_a_terminal_sees_each_second_once_and_nothing_at_the_end():
    stream = Terminal()
    shown(stream)
    lines = stream.getvalue().split("\r")
    assert lines[1:4] == [f"llm-record: {n} of 2.5 s" for n in range(3)]
    assert lines[4:] == [" " * len(lines[3]), ""]


def test_a_line_of_a_command_that_fails_is_gone_too():
    stream = Terminal()
    with pytest.raises(KeyError), progress.shown(stream, "llm-record", 2.5) as tell:
        tell(0.0)
        raise KeyError
    assert stream.getvalue().endswith(" \r")


@pytest.mark.parametrize("stream", [io.StringIO(), None])
def test_who_is_no_terminal_sees_nothing(stream):
    shown(stream)
    assert stream is None or stream.getvalue() == ""


def test_a_terminal_that_is_gone_ends_nothing():
    class Gone(Terminal):
        def write(self, text):
            raise OSError(5, "Input/output error")

    shown(Gone())
