"""`python3 -m gdbext`: what it lists, what it refuses, exit statuses and JSON errors; no gdb and no other process."""

import json

import pytest

from gdbext.__main__ import main
from gdbext.commands import table


def listed(capsys):
    assert main(["--help"]) == 0
    return {line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("  ")}


def test_help_lists_every_command_that_works_outside_gdb_and_no_other(capsys):
    names = listed(capsys)
    for command in table.load_all():
        assert (command.name in names) is not command.gdb_only, command.name
    assert {"doctor", "install", "llm-ranks", "pybt"} <= names and "llm-attach" not in names


@pytest.mark.parametrize("name", ["llm-attach", "llm-detach", "llm-continue", "llm-apply"])
def test_commands_on_gdbs_own_inferiors_are_refused_by_name(capsys, name):
    assert main([name, "all"]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"gdbext: {name} is typed in gdb; `python3 -m gdbext gdb` prints")
    assert main([name, "all", "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == f"{name}/1" and "in gdb" in answer["error"]
    assert main([name, "--help"]) == 0


def test_a_command_that_does_not_exist(capsys):
    assert main(["llm-nothing"]) == 1
    assert capsys.readouterr().err == "gdbext: there is no command 'llm-nothing'; python3 -m gdbext --help lists them\n"
    for word, meant in (("guide", "llm guide"), ("llm-rnaks", "llm-ranks"), ("docter", "doctor")):
        assert main([word]) == 1
        assert capsys.readouterr().err.startswith(f"gdbext: there is no command {word!r} ({meant}?); python3 -m gdbext")
