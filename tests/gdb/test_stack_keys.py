"""What tells two looks at a Python thread apart."""

import time

import pytest
from harness.heartbeats import eventually
from harness.subjects import PYTHONS, running

from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError
from gdbext.observe.stack_keys import advanced, stack_key

LOOKS = 40


def _clock(pid):
    """Seconds that a process had a processor: on a busy machine it need not have run between two looks."""
    return time.clock_gettime(~pid << 3 | 2)


@pytest.mark.parametrize("python", PYTHONS)
def test_a_count_that_changes_its_place_goes_on_at_every_sample(python):
    with running(python, "counts.py") as (target, _):
        rt, looks = open_runtime(target), []
        for _ in range(LOOKS):
            target.invalidate()
            try:
                looks.append(stack_key(rt.frames(rt.threads()[0])))
            except GdbextError:  # it went on while it was read
                continue
            ran = _clock(target.pid)
            eventually(lambda ran=ran: _clock(target.pid) > ran + 0.01, "that it runs again")
    counted = [next(key for key in reversed(look) if key.numbers) for look in looks if len(look) > 1]
    assert len(counted) > LOOKS // 2
    assert len({key.words for key in counted}) < len(counted)  # its words alone come again
    assert all(advanced(pair) for pair in zip(looks, looks[1:]) if all(len(look) > 1 for look in pair))
