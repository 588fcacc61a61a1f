"""Links to source files (OSC 8): only where the terminal knows them, only ours, and in no column."""

import os

import pytest

from gdbext.render.columns import columns_of, cut
from gdbext.render.text import Style, escape_output, knows_links

VARIABLES = ["NO_COLOR", "TERM", "FORCE_HYPERLINK", "VTE_VERSION", "TERM_PROGRAM", "KITTY_WINDOW_ID", "WT_SESSION"]
VARIABLES += ["KONSOLE_VERSION", "DOMTERM", "ALACRITTY_WINDOW_ID"]


@pytest.mark.parametrize(
    "env,terminal,known",
    [
        ({}, True, False),
        ({"VTE_VERSION": "7200"}, True, True),
        ({"VTE_VERSION": "4600"}, True, False),
        ({"TERM_PROGRAM": "vscode"}, True, True),
        ({"TERM_PROGRAM": "Apple_Terminal"}, True, False),
        ({"TERM": "xterm-kitty"}, True, True),
        ({"KONSOLE_VERSION": "220401"}, True, True),
        ({"KONSOLE_VERSION": "220401"}, False, False),  # a pipe
        ({"KONSOLE_VERSION": "220401", "NO_COLOR": "1"}, True, False),
        ({"KONSOLE_VERSION": "220401", "TERM": "dumb"}, True, False),
        ({"KONSOLE_VERSION": "220401", "FORCE_HYPERLINK": "0"}, True, False),
        ({"FORCE_HYPERLINK": "1"}, False, True),
    ],
)
def test_who_gets_links(monkeypatch, env, terminal, known):
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert knows_links(terminal) is known


def linking():
    style = Style(True)
    style.links = True
    return style


@pytest.mark.parametrize("file", ["/a/b c.py", "/x/%41\u00fc;.py", "/tmp/a'\"&#?.py"])
def test_a_link_passes_takes_no_column_and_ends_where_it_is_cut(file):
    text = linking().source(file, "b.py:3")
    assert text.startswith(f"\x1b]8;;file://{os.uname().nodename}/") and text.endswith("\x1b]8;;\x1b\\")
    assert escape_output(text, True, True) == text and columns_of(text) == len("b.py:3")
    assert "\x1b]" not in escape_output(text, True) and "\x1b" not in escape_output(text)
    assert cut(text + " and more", 5).count("\x1b]8;;\x1b\\") == 1


@pytest.mark.parametrize("file", ["<string>", "b.py", "/a/\\x1b]8;;x"])
def test_what_is_no_path_of_a_file_is_no_link(file):
    assert "\x1b]" not in linking().source(file, "b.py:3")


@pytest.mark.parametrize(
    "evil", ["\x1b]8;;http://a/\x1b\\", "\x1b]8;;file://h/a b\x1b\\", "\x1b]52;c;aGk=\x07", "\x1b]8;id=1;file://h/a\x1b\\"]
)
def test_other_links_and_commands_are_escaped(evil):
    assert "\x1b" not in escape_output(f"x{evil}", True, True).replace("\x1b]8;;\x1b\\", "")
