"""GDBEXT_LOG=debug: a line for each error that is passed over, each retry and each refusal, and nothing else."""

import ast
import os
import subprocess
import sys

import pytest

from gdbext import log
from gdbext.access import retry
from gdbext.engines.targets import Targets
from gdbext.errors import GdbextError, NotFoundError
from gdbext.session.command import Answer, Command

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture
def lines(capfd):
    with log.during(True):
        yield lambda: capfd.readouterr().err.splitlines()


def tries(error):
    try:
        raise error
    except GdbextError as e:
        log.passed_over(e, "the thing")


def test_a_line_names_the_place_the_thing_and_the_error(lines):
    tries(NotFoundError("no such\nprocess \x1b[31m"))
    (line,) = lines()
    assert line.startswith("gdbext: test_log.py:") and " tries: the thing: no such process " in line and "\x1b" not in line


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


def test_without_it_nothing_is_written(capfd):
    tries(GdbextError("quiet"))
    log.note("%s", "quiet")
    with log.passing_over():
        raise GdbextError("quiet")
    assert log.pass_on("gdbext: a.py:1 f: of a child\n") == "gdbext: a.py:1 f: of a child\n"
    assert capfd.readouterr().err == ""


def test_each_retry_is_noted_with_its_error(lines):
    left = [NotFoundError("moved"), NotFoundError("moved again")]

    def read():
        if left:
            raise left.pop(0)
        return 7

    assert retry.retry(read, lambda: True, retry.Budget()) == 7
    first, second = lines()
    assert "access/retry.py:" in first and "try 1" in first and first.endswith(": moved")
    assert "try 2" in second and second.endswith(": moved again")


def test_what_a_child_logs_goes_on_and_what_it_complains_of_is_given_back(lines):
    assert log.pass_on("gdbext: access/proc.py:7 f: away\nno such file\n") == "no such file\n"
    assert lines() == ["gdbext: access/proc.py:7 f: away"]


class Looks(Command):
    """Looks."""

    name = "looks"

    def run(self, session, args):
        tries(GdbextError("not there"))
        child = [sys.executable, "-c", "from gdbext import log; print(log.enabled())"]
        return Answer({}, subprocess.run(child, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout)


class Session:
    moving, targets = False, Targets()


@pytest.mark.parametrize("word", ["-debug", "--debug", "-deb"])
def test_every_command_takes_debug_which_lasts_as_long_as_its_answer(word, capfd, monkeypatch):
    monkeypatch.delenv(log.VARIABLE, raising=False)
    assert Looks().answer(Session(), Looks.parse(word)).text == "True\n"
    assert "the thing: not there" in capfd.readouterr().err
    assert log.VARIABLE not in os.environ
    assert Looks().answer(Session(), Looks.parse("")).text == "False\n"
    assert capfd.readouterr().err == ""


def test_debug_makes_no_prefix_of_another_option_ambiguous():
    from gdbext.commands.llm_record import LlmRecord

    assert LlmRecord.parse("-di old.json").diff and not LlmRecord.parse("-d 5").debug


# ---- every handler ---------------------------------------------------------------------------------------------------------
# Handlers of expected errors without a line: (file, function): why.
SILENT = {
    ("log.py", "passing_over"): "the log itself",
    ("cpython/objects.py", "equals"): "asked of each key of a dict: an object of another kind is the usual answer",
}


def parsed():
    for folder, _, names in os.walk(os.path.join(ROOT, "gdbext")):
        for name in names:
            if name.endswith(".py"):
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as f:
                    yield os.path.relpath(path, os.path.join(ROOT, "gdbext")).replace(os.sep, "/"), ast.parse(f.read())


def named(node):
    return {getattr(n, "id", None) or getattr(n, "attr", None) for n in ast.walk(node)} - {None}


def expected_errors(trees):
    """The names of GdbextError, of its subclasses, of tuples that have one of them, and of what is wider."""
    made = []  # (names that a statement gives to classes or tuples of classes, names that they are made of)
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                made.append(({node.name}, set().union(*map(named, node.bases))))
            elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Tuple):
                if all(isinstance(one, (ast.Name, ast.Attribute, ast.Starred)) for one in node.value.elts):
                    made.append((set().union(*map(named, node.targets)), named(node.value)))
    errors, before = {"GdbextError"}, 0
    while len(errors) != before:
        before = len(errors)
        errors |= {name for names, parts in made if parts & errors for name in names}
    return errors | {"Exception", "BaseException"}


def is_told(handler):
    """Whether a handler raises, uses its error, or logs it."""
    below = [node for statement in handler.body for node in ast.walk(statement)]
    return isinstance(handler.body[-1], ast.Raise) or any(
        isinstance(node, ast.Name) and node.id == handler.name and isinstance(node.ctx, ast.Load) for node in below
    )


def swallowing(tree, errors):
    """(function, line) of each handler that passes an expected error over without a word."""
    stack = [("", tree)]
    while stack:
        function, node = stack.pop()
        for child in ast.iter_child_nodes(node):
            stack.append((child.name if isinstance(child, (ast.FunctionDef, ast.ClassDef)) else function, child))
        if isinstance(node, ast.ExceptHandler) and (node.type is None or named(node.type) & errors) and not is_told(node):
            yield function, node.lineno
        if isinstance(node, ast.Call) and named(node.func) & {"suppress"} and any(named(a) & errors for a in node.args):
            yield function, node.lineno


@pytest.mark.sources
def test_every_expected_error_is_raised_used_or_logged():
    trees = dict(parsed())
    errors = expected_errors(trees)
    assert {"FaultError", "TornError", "UsageError", "READ_ERRORS"} <= errors
    found = [(file, function, line) for file, tree in trees.items() for function, line in swallowing(tree, errors)]
    silent = [f"gdbext/{file}:{line} {function}" for file, function, line in found if (file, function) not in SILENT]
    assert not silent, "passed over without a word: log.passed_over(e), or log.passing_over(...):\n" + "\n".join(silent)
    needless = SILENT.keys() - {(file, function) for file, function, _ in found} - {("log.py", "passing_over")}
    assert not needless, f"they are silent no more: {needless}"


@pytest.mark.parametrize(
    "body",
    [
        "try:\n    f()\nexcept GdbextError:\n    pass",
        "try:\n    f()\nexcept (OSError, errors.FaultError):\n    x = None",
        "try:\n    f()\nexcept GdbextError as e:\n    return None",
        "try:\n    f()\nexcept:\n    pass",
        "try:\n    f()\nexcept Exception:\n    if x:\n        raise\n    y()",
        "with contextlib.suppress(OSError, GdbextError):\n    f()",
        "with suppress(FaultError):\n    f()",
    ],
)
def test_a_swallowed_error_is_found(body):
    inside = "def one():\n" + "\n".join("    " + line for line in body.splitlines())
    assert [function for function, _ in swallowing(ast.parse(inside), {"GdbextError", "FaultError", "Exception"})] == ["one"]
