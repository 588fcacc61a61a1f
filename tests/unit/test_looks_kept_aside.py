"""Looks that are taken in later, against a list with one entry a look."""

import random

import pytest

from gdbext.timeline.aside import Aside, Kept
from gdbext.timeline.recording import DROPPED, RUNNING, SLEEP, ProcessTrack, ThreadTrack


def expanded(track, end):
    """(node, state) of each look before `end`."""
    found = {}
    for look, node, state, after in zip(track.looks, track.nodes, track.states, [*track.looks[1:], end]):
        found.update(dict.fromkeys(range(look, after), (node, state)))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_a_stack_is_put_where_it_was_dropped_and_nowhere_else(seed):
    rng = random.Random(seed)
    track, truth, first = ThreadTrack(1, "x"), {}, rng.randint(0, 5)
    end = first + rng.randint(1, 40)
    for look in range(first, end):
        truth[look] = rng.choice([DROPPED, DROPPED, 1, 2]), rng.choice([RUNNING, SLEEP])
        track.add(look, *truth[look])
    for node in (7, 8, 9):
        begin = rng.randint(0, end)
        after = rng.randint(begin, end)
        due = [look for look in truth if begin <= look < after and truth[look][0] == DROPPED]
        assert track.put(begin, after, node, end) == len(due)
        truth.update({look: (node, truth[look][1]) for look in due})
        assert expanded(track, end) == truth
        assert list(track.looks) == sorted(set(track.looks))


class Places:
    """Of a thread whose stack ended at `root`, once it is known to be `known`."""

    def __init__(self, root, node, known=None):
        self.root, self.stack, self.roots = root, self, self
        self.node, self.known = node, known


class Reader:
    """Knows the code object 10 to be a root."""

    def __init__(self):
        self.root_codes = self

    def knows(self, code):
        return code == 10


def test_what_is_kept_aside_is_taken_in_once_its_root_is_known():
    process, reader, kept = ProcessTrack("x", 1), Reader(), Kept()
    process.begins.extend(range(9))
    process.dropped = 3
    threads = [ThreadTrack(2, "short"), ThreadTrack(3, "torn"), ThreadTrack(4, "known later")]
    for thread, root, known in zip(threads, ((1, 10), (2, 20), (3, 30)), (None, None, (3, 30))):
        thread.add(4, DROPPED, RUNNING)
        thread.ended = 6
        one = Aside(thread, Places(root, 5, known), 4)
        one.after = 6
        kept.add(one)
    kept.take_in(reader, process)
    assert [list(thread.nodes) for thread in threads] == [[5], [DROPPED], [5]] and process.dropped == 1
    kept.take_in(reader, process)
    assert process.dropped == 1, "each is taken in once"
