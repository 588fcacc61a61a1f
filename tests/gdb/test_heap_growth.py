"""What grew between two looks: leaks in what programs keep without a list or dict of their own, and programs that do not grow."""

import pytest
from harness.answers import answer
from harness.growers import perf_or_skip
from harness.growing import grown
from harness.subjects import PYTHONS, running, spawned

from gdbext.cpython.expressions import evaluate

SOME = sorted({PYTHONS[0], PYTHONS[len(PYTHONS) // 2], PYTHONS[-1]})
LEAKS = {
    "context": "__main__:variable.<list>",
    "generator": "__main__:generator.",
    "handlers": "__main__:logger.handlers",
    "lru-cache": "__main__:cached.<dict>",
    "ordered": "__main__:order",
    "proxy": "__main__:view",
    "queue": "__main__:queue._queue",
    "split": "__main__:split.rows",
    "tee": "__main__:behind",
    "weakrefs": "__main__:callbacks",
}
# Requests with lists of every length come and go, in all that has a bound; `kept` grows where the test wants it.
CHURNS = """
import collections, functools, random, sys, time
class Request:
    def __init__(self, i):
        self.name, self.tokens = f"r{i}", list(range(random.randrange(200)))
@functools.lru_cache(maxsize=2000)
def cached(key):
    return [key]
ring, table, kept = collections.deque(maxlen=5000), {}, []
def step(i):
    request = Request(i)
    table[request.name] = request
    ring.append((i, [i]))
    cached(f"k{random.randrange(10000)}")
    while len(table) > 1000:
        table.pop(next(iter(table)))
    if sys.argv[1] == "leaks":
        kept.append(request.name)
    if i > 30000 and i % 50 == 0:
        time.sleep(0.005)  # a frame holds a request meanwhile
for i in range(30000):
    step(i)
print("ready", flush=True)
while True:
    i += 1
    step(i)
"""


@pytest.mark.parametrize("python", SOME)
def test_leaks_in_what_is_no_container_of_the_programs_own(python):
    with running(python, "py_more_leaks.py") as (target, said):
        assert said["names"] == sorted(LEAKS)
        for name, rt, found in grown(target, LEAKS):
            if name != "tee":  # its blocks hold 57 each
                assert max(row.after - row.before for row in found) >= 400
                assert any(row.address == evaluate(rt, row.path.text).address for row in found), name


@pytest.mark.parametrize("python", SOME)
@pytest.mark.parametrize("kept", ["no", "leaks"])
@pytest.mark.drawn(3)
def test_a_program_that_allocates_much_and_keeps_nothing_does_not_grow(python, kept):
    with spawned([python, "-c", CHURNS, kept], ready="ready") as process:
        rows = answer(f"pyheap -on {process.pid} -watch 1 -json")["growth"]
        large = [(row["owner_shown"], row["before"], row["after"]) for row in rows if row["kind"] == "container"]
        if kept == "no":
            assert [row for row in large if row[2] - row[1] > 1] == []  # by one it is longer until the step has taken one out
        else:
            (grown,) = large
            assert grown[0] == "__main__:kept" and grown[2] > grown[1] >= 30000


# Three containers, each made longer by one line of one thread; what is taken out again is taken by another line.
WRITERS = """
import collections, threading, time
kept, table, passed = [], {}, collections.deque([0])
def keeps(i):
    kept.append([i])  # kept
def notes(i):
    table[i] = [i]  # table
def passes():
    for i in range(10**9):
        passed.popleft()
        passed.append([i])  # passed
        passed.append([i])  # passed
        time.sleep(0.002)
threading.Thread(target=passes, name="passes", daemon=True).start()
print("ready", flush=True)
for i in range(10**9):
    keeps(i), notes(i)
    time.sleep(0.002)
"""


@pytest.mark.parametrize("python", SOME)
@pytest.mark.parametrize("ways", [[], ["-no-perf"]])
def test_who_makes_a_container_longer_is_named(python, ways):
    if not ways:
        perf_or_skip()
    lines = {n: line.split("# ")[1] for n, line in enumerate(WRITERS.splitlines(), 1) if "# " in line}
    with spawned([python, "-c", WRITERS], ready="ready") as process:
        for _ in range(4):  # on a full machine a thread may not have written in one of the watch's moments
            found = answer(f"pyheap -on {process.pid} -watch 2 {' '.join(ways)} -json")
            (own,) = found["grow"]
            rows = [(row["path"].rpartition(":")[2], row) for row in own["grows"] if row["kind"] == "Python heap"]
            for name, row in rows:
                assert row["bytes_per_minute"] > 0 and (row["file"] is None) == (row["source"] == "differences")
                if name != "passed":  # one line takes out what the next ones put in: few looks may mix them up
                    assert row["file"] is None or lines.get(row["line"]) == name, row
            seen = {name for name, row in rows if ways or row["source"] == "writes" and row["tids"]}
            if {"kept", "table"} <= seen and {name for name, _ in rows} == {"kept", "table", "passed"}:
                break
        else:
            raise AssertionError(rows)
        assert own["next"] and found["growth"]
