"""Python code that no Python code called: a finalizer, a signal handler, a weak reference's callback. llm-hang says so."""

import os

import pytest
from harness.answers import answer
from harness.subjects import PYTHONS, running

from gdbext.errors import NotFoundError

LONG = bool(os.environ.get("GDBEXT_TEST_LONG"))
NAMED = {"finalizer": "a finalizer", "collected": "a finalizer", "plain": ""}
BY_SYMBOLS = {
    "signal": ("a signal handler", "_PyErr_CheckSignalsTstate"),
    "weakref": ("a weak reference's callback", "handle_callback"),
}
CASES = [*((python, kind) for python in PYTHONS for kind in NAMED), *((PYTHONS[2 % len(PYTHONS)], kind) for kind in BY_SYMBOLS)]


def look(python, kind):
    with running(python, "called_for.py", kind, start_new_session=True) as (target, truth):
        said = answer(f"llm-hang {target.pid} -wait 0.3 -json")
        if kind in BY_SYMBOLS:
            try:
                target.symbol(BY_SYMBOLS[kind][1])
            except NotFoundError:
                pytest.skip("an interpreter without symbols")
    end = said["chains"][0]["end"]
    assert end["state"] == "sleeps" and end["place"]["tid"] == truth["tid"], said["chains"]
    return end["why"]


@pytest.mark.parametrize("python, kind", CASES if LONG else CASES[::4] + CASES[-2:], ids=str)
def test_who_called_it_is_said(python, kind):
    why = look(python, kind)
    named = NAMED[kind] if kind in NAMED else BY_SYMBOLS[kind][0]
    assert (f"inside {named}" in why) if named else ("inside" not in why), why
