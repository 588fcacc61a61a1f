"""For how long a collection has been under way: what looks at the process say against when the process says it began."""

import contextlib
import time

import pytest
from harness.answers import answer
from harness.subjects import PYTHONS, spawned

from gdbext.access.proc import ProcTarget
from gdbext.cpython.runtime import open_runtime
from gdbext.heap.collector import Sightings, under_way

SOME = sorted({PYTHONS[0], PYTHONS[len(PYTHONS) // 2], PYTHONS[-1]})
LONG = """
import gc, select, sys, time
class Last:
    def __init__(self):
        self.me = self
    def __del__(self):
        print("began", began, flush=True)  # the collector counts a moment after it has called back
        while not select.select([0], [], [], 0)[0]:  # a collection as long as the test wants it
            pass
def say(phase, info):
    global began
    if phase == "start":
        began = time.monotonic()
gc.disable()
gc.callbacks.append(say)
Last()
gc.collect()
"""
MANY = """
import gc
class Item:
    pass
items = [Item() for _ in range(20000)]
print("ready", flush=True)
while True:
    gc.collect()
"""


@pytest.mark.parametrize("python", SOME)
@pytest.mark.parametrize("words,least", [("", 0), (" -watch 1", 1), (" -unstopped", 0)])
def test_a_collection_that_lasts_has_taken_at_least_as_long_as_it_was_seen(python, words, least):
    with spawned([python, "-c", LONG], ready="began") as process:
        began = float(process.said.split()[1])
        gc = answer(f"pyheap -on {process.pid}{words} -json")["gc"]
        assert gc["collecting"] and gc["generation"] in (2, None)  # None: what is freed has made objects
        assert least < gc["collecting_seconds"] < time.monotonic() - began


@pytest.mark.parametrize("python", SOME)
def test_collections_one_after_the_other_are_not_one(python):
    with spawned([python, "-c", MANY], ready="ready") as process:
        target, sightings, collecting = ProcTarget(process.pid), Sightings(), 0
        with contextlib.closing(target):
            rt = open_runtime(target)
            for _ in range(40):
                ended = under_way(rt)
                while under_way(rt) == ended:  # until this one has ended
                    target.drop_pages()
                sightings.look(rt)
                collecting += under_way(rt) is not None
                assert sightings.seconds(rt) is None
        assert collecting >= 10
