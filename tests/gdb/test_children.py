"""A tree of variables: what opens, page by page, is what the subject says of itself on every CPython; what is private stays so
however deep."""

import pytest
from harness.subjects import PYTHONS, running

from gdbext.answers.children import PAGE, Variable, of_names
from gdbext.engines.sensitive_names import names_for

SECRETS = ("the-secret", "990017", "990023", "990029")


def local(target, truth, name):
    """The `Variable` of a name in `main`."""
    from gdbext.cpython.runtime import open_runtime

    rt = open_runtime(target)
    frame = next(f for f in rt.frames(rt.thread(truth["pid"])) if f.function == "main")
    return next(v for v in of_names(frame.locals(), names_for(rt)) if v.name == name)


def is_told(one, truth, deep):
    """A variable is what the subject says of it, `deep` levels down."""
    assert one.kind == truth["type"] and (sum(one.counts()) > 0) == truth["opens"], (one.path, one.kind, one.counts())
    whole = truth["repr"].replace("\x1b", "\\x1b")
    assert one.text == whole or one.text.endswith(("...", "...]", "...)", "...}")) and len(one.text) <= 400, (one.text, whole)
    if truth["inside"] is None or not deep:
        return
    expected = list(truth["inside"].items())
    found = one.children()
    assert [c.name for c in found] == [name for name, _ in expected][:PAGE], one.path
    for child, (_, told) in zip(found, expected):
        is_told(child, told, deep - 1)


@pytest.mark.parametrize("python", PYTHONS)
def test_what_opens_is_what_the_subject_holds(python):
    with running(python, "editor.py") as (target, truth):
        machine = local(target, truth, "machine")
        is_told(machine, truth["self"], 3)
        many = next(c for c in machine.children() if c.name == "many")
        assert many.counts() == (0, 1000)
        pages = [c.text for start in range(0, 1000, 300) for c in many.children(start, 300)]
        assert pages == [str(n) for n in range(1000)] and many.children(1000, 5) == []


def walked(one, size, depth=6):
    """Every variable of a tree, opened in pages of `size`."""
    yield one
    total = sum(one.counts()) if depth else 0
    for start in range(0, total, size):
        for child in one.children(start, size):
            yield from walked(child, size, depth - 1)


@pytest.mark.parametrize("size", [1, PAGE])
def test_what_is_private_stays_hidden_at_every_depth(size):
    with running(PYTHONS[0], "editor.py", "engine") as (target, truth):
        told = [text for v in walked(local(target, truth, "served"), size) for text in (v.name, v.text, v.path)]
        assert not [text for text in told if any(secret in text for secret in SECRETS)]
        assert str(truth["steps"]) in told  # what is no content is shown


def test_the_same_is_shown_in_a_process_of_no_engine():
    with running(PYTHONS[0], "editor.py") as (target, truth):
        told = [v.text for v in walked(local(target, truth, "served"), PAGE)]
        assert all(any(secret in text for text in told) for secret in SECRETS)


def test_values_that_an_expression_makes_open_too():
    made = Variable("", [1, {"a": (2, None)}], "made")
    one, two = made.children()
    assert (one.text, two.text, made.counts()) == ("1", "{'a': (2, None)}", (0, 2))
    (entry,) = two.children()
    assert (entry.name, entry.path, [c.text for c in entry.children()]) == ("'a'", "made[1]['a']", ["2", "None"])
