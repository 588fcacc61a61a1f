"""Looks at subjects/growing.py's subjects, before and after each thing in them has grown."""

import time

from gdbext.cpython.runtime import open_runtime
from gdbext.heap import growth
from gdbext.heap.listing import Census


def asleep(target):
    """Waits until the subject sleeps in its read."""
    deadline = time.monotonic() + 20
    while target.threads()[0].state != "S" and time.monotonic() < deadline:
        time.sleep(0.01)
        target.invalidate()
    target.invalidate()


def grown(target, expected):
    """Makes each thing of `expected` ({name: beginning of its path}) grow: (name, Runtime, the rows with that path, of which one
    is among the first five) for each; at the end nothing has grown since the last look."""
    asleep(target)
    before = growth.look(Census(open_runtime(target), []), "1")
    for name, path in sorted(expected.items()):
        target.process.stdin.write(name + "\n")
        target.process.stdin.flush()
        target.process.stdout.readline()
        asleep(target)
        rt = open_runtime(target)
        census = Census(rt, [])
        rows = growth.compare(before, census)
        found = [row for row in rows[:5] if row.path is not None and row.path.shown.startswith(path)]
        assert found, (name, [(row.type, row.path and row.path.shown, row.before, row.after) for row in rows[:8]])
        yield name, rt, found
        before = growth.look(census, "1")
    assert growth.compare(before, census) == []
