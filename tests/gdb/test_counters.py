"""Counters of processes that run on, read again and again: of programs that nobody wrote for their reader."""

import sys
import time

import pytest
from harness.subjects import spawned

from gdbext.access.proc import ProcTarget
from gdbext.access.retry import settled_counts
from gdbext.cpython.runtime import open_runtime
from gdbext.engines.objects import counted, in_frames
from gdbext.errors import GdbextError

BATCHES = """
import time
class Trainer:
    def __init__(self): self.batches = 10 ** 6
    def fit(self):
        print("up", flush=True)
        while True:
            self.batches += 1  # a new int each time; the old one's memory goes to the next
            rows = [n * 1000003 for n in range(300)]
            time.sleep(0.002)
Trainer().fit()
"""

SWAPPED = """
import itertools
class Table:
    def turn(self):
        print("up", flush=True)
        for n in itertools.count():
            self.rows = 5000 if n % 2 else 7 ** 9  # no counter: it leaps to and fro
Table().turn()
"""

LOGGED = """
import logging.handlers, queue, threading, time
held = queue.Queue(8)
listener = logging.handlers.QueueListener(held, logging.NullHandler())
listener.start()
log = logging.getLogger("a"); log.addHandler(logging.handlers.QueueHandler(held)); log.setLevel(logging.INFO)
print("up", flush=True)
while True:
    log.info("line"); time.sleep(0.001)
"""


def reading(code):
    return spawned([sys.executable, "-c", code], ready="up")


def test_a_trainers_counter_only_grows_and_by_as_much_as_time_allows():
    with reading(BATCHES) as process:
        target, seen, began = ProcTarget(process.pid), [], time.monotonic()
        while len(seen) < 60:
            target.invalidate()
            try:
                rt = open_runtime(target)
                seen += counted(rt, in_frames(rt, {"Trainer": ""}), {"batches": "batches"}).values()
            except (GdbextError, AttributeError):  # no frame could be read just now
                continue
        most = (time.monotonic() - began) / 0.002 + 10**6 + 10000
    assert seen == sorted(seen) and seen[0] >= 10**6 and seen[-1] <= most, seen


def test_a_number_whose_int_is_replaced_is_never_anothers():
    with reading(SWAPPED) as process:
        target, tries = ProcTarget(process.pid), 0
        while tries < 30:
            target.invalidate()
            try:
                rt = open_runtime(target)
                table = in_frames(rt, {"Table": ""})
                found = counted(rt, table, {"rows": "rows"}) if table is not None else None
            except GdbextError:
                continue
            if found is not None:
                tries += 1
                assert set(found.values()) <= {5000, 7**9}, found


def test_items_through_a_loggers_queue_are_counted_on_and_on():
    from gdbext.verdict import sampling

    with reading(LOGGED) as process:
        target, seen = ProcTarget(process.pid), {}
        while sum(map(len, seen.values())) < 40:
            target.invalidate()
            try:
                now = sampling._settled(open_runtime(target))
            except GdbextError:
                continue
            for key, count in now.items():
                seen.setdefault(key, []).append(count)
    assert seen and all(counts == sorted(counts) for counts in seen.values()), seen


class Made:
    """A process whose numbers are made up, one reading after the other."""

    def __init__(self, readings, stopped=False):
        self.readings, self.is_stopped = iter(readings), stopped

    def drop_pages(self):
        pass

    def read(self):
        return next(self.readings)


@pytest.mark.parametrize(
    "readings, stopped, right",
    [
        ([{"a": 5}, {"a": 6}], False, {"a": 6}),
        ([{"a": 5}], True, {"a": 5}),
        ([{"a": 5, "b": 9}, {"a": 10**9, "b": 9}, {"a": 7, "b": 9}, {"a": 8, "b": 9}], False, {"a": 8, "b": 9}),
        ([{"ring": 9}, {"ring": 0}, {"ring": 1}], False, {"ring": 1}),  # it begins anew
        ([{"a": n} for n in (5, 900, 6, 800, 7)], False, {}),
        ([{"a": 5}, {}, {"b": 1}, {"b": 1}], False, {"b": 1}),
    ],
)
def test_two_readings_that_agree_are_believed(readings, stopped, right):
    made = Made(readings, stopped)
    assert settled_counts(made, made.read, 8) == right
