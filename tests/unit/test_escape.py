"""What a terminal would obey, and what a reader would not see, is shown escaped; all else as it is."""

import unicodedata

import pytest

from gdbext.errors import GdbextError, MissingError
from gdbext.render.text import escape, escape_output


@pytest.mark.parametrize(
    "code", [0x1B, 0x7F, 0x85, 0x9B, 0xAD, 0x61C, 0x180E, 0x200E, 0x2028, 0x202E, 0x2067, 0xFEFF, 0xD800, 0xE0041]
)
def test_what_steers_a_terminal_or_hides_is_escaped(code):
    shown = escape(f"a{chr(code)}b")
    assert shown.isascii() and shown.isprintable() and shown.lower().endswith(f"{code:x}b")
    assert escape_output(f"a{chr(code)}b") == shown


def test_no_control_or_format_character_is_left():
    left = escape("".join(map(chr, range(0x110000))))
    assert not {unicodedata.category(c) for c in left} & {"Cc", "Cf", "Cs", "Zl", "Zp"}


def test_text_of_any_language_stays():
    text = "Gr\xfc\xdfe\xa0\u4f60\u597d\u3000\u05e9\u05dc\u05d5\u05dd \U0001f600"
    assert escape(text) == text and escape("a\n\tb", keep="\n") == "a\n\\tb"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\x0b", "\x1c", "\x85", "\u2028"])
def test_a_message_is_one_line_whatever_a_name_holds(end):
    for error in (
        GdbextError(f"there is no x in a{end}b"),
        MissingError(f"there is no x in a{end}b", lambda: f"; it has c{end}d"),
    ):
        assert str(error).splitlines() == [str(error)] and "a b" in str(error)
