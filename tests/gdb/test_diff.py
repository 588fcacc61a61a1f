"""llm-diff of snapshots, a bundle and a process that runs, against what the process says that it does."""

import os

import pytest
from harness.answers import answer, run
from harness.subjects import PYTHONS, spawned

from gdbext.errors import GdbextError

SUBJECT = """
import sys, threading
kept, step = [], threading.Semaphore(0)
class Item:
    def __init__(self): self.x = [0] * 50
def waits(): threading.Event().wait()
def first(): step.acquire()
def second(): threading.Event().wait()
def moves(): first(); second()
for f in (waits, moves): threading.Thread(target=f, name=f.__name__, daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    kept.extend(Item() for _ in range(2000))
    threading.Thread(target=waits, name="late", daemon=True).start()
    step.release()
    print("done", flush=True)
"""


@pytest.mark.parametrize("python", PYTHONS[-1:])
def test_what_moved_stands_and_grew_is_told(python, tmp_path):
    before, after = tmp_path / "before.core", tmp_path / "after.core"
    with spawned([python, "-c", SUBJECT], ready="ready") as child:
        answer(f"llm-snapshot {child.pid} -heap -o {before}")
        answer(f"llm-bundle {child.pid} -wait 0.1 -o {tmp_path}/x.gdbext")
        child.stdin.write("go\n")
        child.stdin.flush()
        assert child.stdout.readline() == "done\n"
        answer(f"llm-snapshot {child.pid} -heap -o {after}")
        found = answer(f"llm-diff -heap {before} {after}")
        live = answer(f"llm-diff {tmp_path}/x.gdbext {child.pid}")
        text = run(f"llm-diff -heap {before} {after}").to_text()
    for one in (found, live):
        assert [(p["before"], p["after"], p["same"]) for p in one["processes"]] == [(child.pid, child.pid, True)]
        changes = {t["name"]: t["change"] for t in one["threads"]}
        assert changes["waits"] == "still" and changes["moves"] == "moved" and changes["late"] == "came", one["threads"]
        (moved,) = [t for t in one["threads"] if t["name"] == "moves"]
        assert moved["before"]["function"].endswith("moves") or moved["after"]["function"].endswith("second"), moved
        assert one["seconds"] > 0 and not one["failed"] and not one["requests"]
    items = {t["type"]: t["after"] - t["before"] for t in found["types"]}
    assert items["__main__.Item"] == 2000 and items["list"] >= 2000
    assert not live["types"] and "__main__.Item" in text and "stands still: thread " in text and "(waits)" in text


def test_what_cannot_be_compared_is_one_line(tmp_path):
    for line in ("llm-diff", f"llm-diff {os.getpid()}", f"llm-diff {tmp_path}/no.core {os.getpid()}"):
        with pytest.raises(GdbextError) as e:
            answer(line)
        assert "\n" not in str(e.value)
