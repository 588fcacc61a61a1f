"""Requests of a process that runs on, read a batch at a time."""

import random

import pytest

from gdbext.engines.batches import read_in_batches
from gdbext.errors import LayoutError


class Moves:
    """A table of 3,000 members, of which one leaves at each read; who has left cannot be read."""

    is_stopped = False

    def __init__(self, seed, leaves):
        self.draw, self.leaves = random.Random(seed), leaves
        self.members, self.dropped, self.budgets = dict.fromkeys(range(3000)), 0, {}
        self.target = self

    def drop_pages(self):
        self.dropped += 1

    def has_ended(self):
        return False

    refresh_pages = drop_pages

    def read(self, some):
        if self.leaves and self.draw.random() < 0.5:
            self.members.pop(self.draw.randrange(200), None)
        if any(one not in self.members for one in some):
            raise LayoutError("no object")
        return [-one for one in some]


@pytest.mark.parametrize("seed", range(20))
def test_who_leaves_meanwhile_is_left_out_and_nobody_else(seed):
    table = Moves(seed, True)
    listed = list(table.members)
    found = read_in_batches(table, listed, lambda: table.members, table.read)
    assert found == sorted(found, reverse=True) and set(map(abs, found)) >= set(table.members)
    assert set(map(abs, found)) <= set(listed)


def test_who_is_there_and_cannot_be_read_is_an_error():
    table = Moves(0, False)
    with pytest.raises(LayoutError):
        read_in_batches(table, [*range(200), "torn"], lambda: [*table.members, "torn"], table.read)


def test_a_process_that_stands_is_read_once():
    table = Moves(0, False)
    table.is_stopped = True
    assert read_in_batches(table, list(range(3000)), dict, table.read) == [-n for n in range(3000)] and not table.dropped
