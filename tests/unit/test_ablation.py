"""What scripts/tools/ablation.py switches off is there, and is off (docs/ablation.md)."""

import importlib

from tools import ablation

from gdbext.verdict.rules import ORDER


def test_each_function_that_is_switched_off_is_there():
    for reader in ablation.READERS.values():
        for module, name, instead in reader.off:
            assert callable(getattr(importlib.import_module(f"gdbext.{module}"), name)) and callable(instead)
    assert all(ablation.lines_of(idea) for idea in ablation.READERS if ablation.files_of(idea))
    assert all(ablation.lines_of(ablation.name_of(rule)) for rule in ORDER)


def test_a_reader_is_off_under_each_name_that_a_module_has_for_it():
    def off():
        polls = importlib.import_module("gdbext.stacks.polls")
        names = [name for name, value in vars(polls).items() if value is importlib.import_module("gdbext.stacks.givers").may_end]
        before = [getattr(polls, name) for name in names]
        ablation.switch_off("who could end a wait, by what it reaches")
        return [len(names), all(getattr(polls, name) is not was for name, was in zip(names, before)), polls.may_end(1, 2)]

    assert ablation.in_fork(off) == [1, True, True]


def test_what_a_switched_off_idea_turns_is_told_apart():
    whole = ablation.Said("lock-held", ["7"], "right", "named", ["a"])
    assert ablation.differ(whole, whole, whole) == ("", "", "")
    other = ablation.Said("unknown", [], "unknown", "", ["b"])
    assert ablation.differ(whole, whole, other) == ("right lock-held -> unknown unknown", "named -> not named", "other")
    moved = whole._replace(evidence=["c"])
    assert ablation.differ(whole, moved, whole._replace(evidence=["d"])) == ("", "", ""), "it moves by itself"


def test_the_table_has_what_turns_least_first():
    found = [("f1", "right", [ablation.Turned("the GIL", "", "", ""), ablation.Turned("load.busy", "busy -> unknown", "", "")])]
    lines = ablation.table(["load.busy", "the GIL"], found)
    assert lines[2].startswith("| reader | the GIL | ") and lines[2].endswith(" |  |  |  |  |")
    assert lines[3].startswith("| rule | load.busy | ") and lines[3].endswith("| 1 |  |  | f1: busy -> unknown |")
