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


def test_a_root_that_C_called_is_known_at_once_and_another_after_two_readings(monkeypatch):
    clock(monkeypatch, 1e-5)
    one = roots.Roots()
    assert one.prove(A, True, True, awake) and one.known == A
    assert not one.prove(B, True, True, awake) and one.known == A
    assert one.prove(B, True, True, awake) and one.known == B


def test_without_a_mark_of_C_readings_agree_for_a_while(monkeypatch):
    clock(monkeypatch, 1e-5)
    one = roots.Roots()
    assert not any(one.prove(A, False, True, awake) for _ in range(3 * AGREE)), "all in a moment"
    clock(monkeypatch, 0.01)
    one = roots.Roots()
    proven = [one.prove(A, False, True, awake) for _ in range(AGREE)]
    assert proven == [False] * (AGREE - 1) + [True] and one.known == A


def test_a_whole_stack_between_them_ends_a_doubt(monkeypatch):
    clock(monkeypatch, 0.01)
    one = roots.Roots()
    one.prove(A, True, True, awake)
    for _ in range(3 * AGREE):
        assert not one.prove(None, False, False, awake)
        one.seen()


def test_a_thread_that_sleeps_is_whole_and_a_generator_is_never_the_root_that_is_known(monkeypatch):
    clock(monkeypatch, 1e-5)
    one = roots.Roots()
    assert one.prove(B, True, False, asleep) and one.known is None
    assert one.prove(None, False, False, asleep) and one.known is None
    assert not one.prove(B, True, False, awake)
    assert one.prove(A, False, True, asleep) and one.known == A
