"""Expressions of the process's own variables: Python in the process evaluates each, gdbext reads each; what it answers is the
same."""

import os

import pytest
from harness.subjects import PYTHONS, running

from gdbext.cpython.expressions import condition, evaluate
from gdbext.cpython.reprs import FULL, Repr
from gdbext.cpython.resolution import frame_of, resolve
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError, NotFoundError

SEEDS = (1, 2)
COUNT = 1200


@pytest.fixture(scope="module", params=[(p, s) for p in PYTHONS for s in SEEDS], ids=lambda p: f"{os.path.basename(p[0])}-{p[1]}")
def subject(request):
    python, seed = request.param
    with running(python, "py_expressions.py", str(seed), str(COUNT)) as (target, truth):
        rt = open_runtime(target)
        yield rt, rt.frames(rt.threads()[0]), truth["expressions"]


def text_of(rt, value):
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__name__}: {sorted(map(repr, value))}"
    if hasattr(value, "isa") and value.isa("set", "frozenset"):
        return f"{value.type_name}: {sorted(Repr(FULL)(v) for v in value.elements())}"
    return Repr(FULL)(value)


def test_what_is_answered_is_what_python_answers(subject):
    """No wrong answer, and no answer where Python has none; what only code could tell is refused."""
    rt, frames, expressions = subject
    main = next(f for f in frames if f.function == "main")
    wrong, refused, right = [], [], 0
    for text, expected, raised in expressions:
        try:
            found = text_of(rt, evaluate(rt, text, main))
        except GdbextError as e:
            assert "\n" not in str(e)
            if expected is not None:
                refused.append(f"{text}: {e}")
            continue
        if found != expected:
            wrong.append(f"{text}: {found[:200]}\n    not {expected[:200] if expected else raised}")
        else:
            right += 1
    print(
        (
            f"{rt.layout.name}: {right} right, {len(refused)} refused of {len(expressions)}, "
            f"{sum(e[1] is not None for e in expressions)} have a value"
        )
    )
    print("\n".join(r[:160] for r in refused))
    assert not wrong, f"{len(wrong)} wrong\n" + "\n".join(wrong[:40])
    answerable = sum(expected is not None for _, expected, _ in expressions)
    assert len(expressions) > 800 and answerable > 400 and right > 0.85 * answerable


def test_a_condition_on_text_that_is_none_does_not_hold(subject):
    rt, frames, _ = subject
    main = next(f for f in frames if f.function == "main")
    for text in ("'a' in dim.text", "dim.text.startswith('a')", "dim.text > 'a'", "not ('a' in dim.text)", "dim.text[0] == 'a'"):
        assert condition(rt, text, main) is False, text
        with pytest.raises(GdbextError):
            evaluate(rt, text, main)
    assert condition(rt, "dim.text is None", main) and condition(rt, "'some' in plain.text", main)
    assert condition(rt, "dim.text is None or 'a' in dim.text", main)
    with pytest.raises(GdbextError, match="no name zork"):
        condition(rt, "zork > 1", main)


@pytest.fixture(scope="module", params=PYTHONS, ids=os.path.basename)
def nested(request):
    with running(request.param, "py_outward.py") as (target, truth):
        rt = open_runtime(target)
        yield rt, rt.frames(rt.threads()[0]), truth["expressions"]


def test_the_nearest_frame_that_resolves_the_whole_expression_is_taken(nested):
    rt, frames, expressions = nested
    found, nowhere = 0, 0
    for text, truth in expressions.items():
        for level in range(len(frames)):
            inside = [t for t in truth if t[0] >= level]
            if not inside:
                with pytest.raises(NotFoundError, match="resolves in none of the|no name") as failure:
                    resolve(rt, text, frames, level=level, outward=True)
                assert "\n" not in str(failure.value)
                nowhere += 1
                continue
            got = resolve(rt, text, frames, level=level, outward=True)
            if text != "len":  # a built-in name has a value in every frame
                assert (got.frame.level, Repr(FULL)(got.value)) == tuple(inside[0]), text
            assert got.where == f"frame {got.frame.level}, {frames[got.frame.level].function}"
            found += 1
    assert found > 60 and nowhere > 5


def test_without_any_only_the_frame_counts_the_error_names_the_other(nested):
    rt, frames, expressions = nested
    compared = 0
    for text, truth in expressions.items():
        for level, frame in enumerate(frames):
            here = [t for t in truth if t[0] == level]
            if here:
                got = resolve(rt, text, frames, level=level)
                assert got.frame.level == level and Repr(FULL)(got.value) == here[0][1], text
                assert resolve(rt, text, frames, function=frame.function).frame.level == level
                compared += 1
            else:
                with pytest.raises(GdbextError):
                    resolve(rt, text, frames, level=level)
    assert compared > 30
    with pytest.raises(NotFoundError, match=r"table is not in the selected frame step, but in frame 2, run"):
        resolve(rt, "table", frames, level=1)


def test_a_frame_is_named_by_its_function(nested):
    rt, frames, _ = nested
    assert resolve(rt, "self.name", frames, function="step").frame.function == "step"
    assert frame_of(frames, "loop").level == 3
    assert resolve(rt, "self.scheduler.running[0]", frames, function="step", outward=True).where == "frame 2, run"
    with pytest.raises(NotFoundError, match="no frame of this thread runs lop; it has loop"):
        frame_of(frames, "lop")
    assert resolve(rt, "sys:maxsize", frames).frame is None
