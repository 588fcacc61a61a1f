"""When a stack that does not end where the one before it did is taken for whole."""

from gdbext.cpython.whole_stacks import AGREE
from gdbext.observe import roots

A, B = (1, 10), (2, 20)


def awake():
    return False


def asleep():
    return True


def clock(monkeypatch, step):
    times = iter(range(1000))
    monkeypatch.setattr(roots.time, "monotonic", lambda: next(times) * step)


def test_a_root_is_known_after_as_many_readings_as_prove_it(monkeypatch):
    clock(monkeypatch, 1e-5)
    one = roots.Roots()
    assert one.prove(A, 1, True, awake) and one.known == A
    for alike in (2, 3):
        assert [one.prove(B, alike, True, awake) for _ in range(alike)] == [False] * (alike - 1) + [True] and one.known == B
        assert one.prove(A, 1, True, awake)


def test_without_a_mark_of_C_readings_agree_for_a_while(monkeypatch):
    clock(monkeypatch, 1e-5)
    one = roots.Roots()
    assert not any(one.prove(A, 0, True, awake) for _ in range(3 * AGREE)), "all in a moment"
    clock(monkeypatch, 0.01)
    one = roots.Roots()
    proven = [one.prove(A, 0, True, awake) for _ in range(AGREE)]
    assert proven == [False] * (AGREE - 1) + [True] and one.known == A


def test_a_whole_stack_between_them_ends_a_doubt(monkeypatch):
    clock(monkeypatch, 0.01)
    one = roots.Roots()
    one.prove(A, 1, True, awake)
    for _ in range(3 * AGREE):
        assert not one.prove(None, 0, False, awake)
        one.seen()


def test_a_thread_that_sleeps_is_whole_and_a_generator_is_no_root(monkeypatch):
    clock(monkeypatch, 1e-5)
    one = roots.Roots()
    assert one.prove(B, 1, False, asleep) and one.known is None
    assert one.prove(None, 0, False, asleep) and one.known is None
    assert not one.prove(B, 1, False, awake)
    assert one.prove(A, 0, True, asleep) and one.known == A


def test_a_code_object_that_nothing_calls_is_a_root_once_it_was_one(monkeypatch):
    """Threads too short for a proof of their own: together they prove the code object that each began with."""
    clock(monkeypatch, 0.01)
    codes = roots.RootCodes()
    codes.seen(10, True)
    assert codes.knows(10) and not codes.knows(20)
    for number in range(AGREE):
        assert codes.knows(20) is False, number
        codes.seen(20, False)
    assert codes.knows(20)
    codes.called([20])
    assert not codes.knows(20) and codes.knows(10)
    codes.forget([10])
    assert not codes.knows(10)


def test_readings_of_one_moment_prove_no_root_code(monkeypatch):
    clock(monkeypatch, 1e-5)
    codes = roots.RootCodes()
    for _ in range(3 * AGREE):
        codes.seen(20, False)
    assert not codes.knows(20)
