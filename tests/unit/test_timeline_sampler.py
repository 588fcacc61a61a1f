"""What a thread's clock says of a thread that is ready to run: whether it is on a processor."""

import pytest

from gdbext.timeline import sampler
from gdbext.timeline.recording import POLL, QUEUED, RUNNING, ThreadTrack


class Closed:
    """No file of /proc stays open."""

    def open(self, path):
        return -1


def after(state, looks):
    """What is said at the last of looks, each (seconds, ns it ran, ns it was kept waiting); `state` at the looks before."""
    thread = sampler.Thread(1, 0, ThreadTrack(1, ""), (), Closed())
    thread.has_clock = True
    for at, run, delayed in looks:
        said = thread.on_a_cpu(b"%d %d 7" % (run, delayed), at)
        thread.state = state
    return said


MS = 1_000_000


@pytest.mark.parametrize(
    "state, looks, on_a_processor",
    [
        (RUNNING, [(0.0, 5 * MS, 0), (0.01, 15 * MS, 0), (0.02, 24 * MS, 0)], True),
        (RUNNING, [(0.0, 5 * MS, 0), (0.02, 5 * MS, 0)], False),
        (RUNNING, [(0.0, 5 * MS, 0), (0.004, 5 * MS, 0)], True),
        (QUEUED, [(0.0, 5 * MS, 0), (0.008, 5 * MS, 0), (0.016, 5 * MS, 0)], False),
        (RUNNING, [(0.0, 5 * MS, 0), (0.02, 6 * MS, 15 * MS)], False),
        (POLL, [(0.0, 5 * MS, 0), (0.5, 5 * MS, 0)], True),
        (POLL, [(0.0, 5 * MS, 0), (0.5, 6 * MS, 1 * MS)], True),
    ],
)
def test_one_that_is_ready_and_does_not_run_waits_for_a_processor(state, looks, on_a_processor):
    assert after(state, looks) is on_a_processor


def test_a_kernel_without_clocks_leaves_it_open():
    thread = sampler.Thread(1, 0, ThreadTrack(1, ""), (), Closed())
    assert thread.on_a_cpu(b"", 1.0) and thread.track.cpu == 0.0
