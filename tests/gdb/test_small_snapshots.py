"""A small snapshot of a process with more memory answers what one with all memory answers, or names the option."""

import json

from harness.answers import answer
from harness.heartbeats import asleep
from harness.subjects import spawned

from gdbext.errors import GdbextError

BIG = """
import asyncio, collections, sys, threading, time
class Part:
    def __init__(self, n):
        self.n, self.text, self.table = n, f"part {n}", {"k": [n] * 3}
    @property
    def twice(self):
        return 2 * self.n
    def __len__(self):
        return self.n
class Whole:
    def __init__(self):
        self.parts = [Part(n) for n in range(50)]
        self.queue = collections.deque(self.parts[:5])
far = {}
for n in range(400000):
    far.setdefault(n % 7, {}).setdefault(n % 11, []).append(f"far away {n}")
def wait(whole, lock):
    nothing = {}
    print("up", flush=True)
    with lock:
        time.sleep(1000)
lock = threading.Lock()
threading.Thread(target=lambda: asyncio.run(asyncio.sleep(900)), daemon=True).start()
wait(Whole(), lock)
"""
OF_BIG = [
    "pybt -all -locals -on {F} -json",
    "llm-bt -all -locals -on {F} -json",
    "pylocals -on {F} -json",
    "pythreads -on {F} -json",
    "pytasks -all -on {F} -json",
    "llm-locks {F} -json",
    "llm-stacks {F} -json",
    *(
        f"pyprint -any -on {{F}} -json {one}"
        for one in (
            *("whole", "whole.parts[3]", "whole.parts[49].table['k'][2]", "len(whole.parts[7])", "whole.parts[7].twice"),
            *("[p.text for p in whole.parts]", "whole.queue", "vars(whole.parts[0])", "lock", "threading:main_thread"),
        )
    ),
]


def test_a_small_snapshot_answers_what_one_with_all_memory_answers(pythons, tmp_path):
    """Of a process with more memory than a small one holds; what it lacks it names, with the option that brings it."""
    for name, python in enumerate(pythons):
        files = {one: str(tmp_path / f"{name}-{one}") for one in ("heap", "small")}
        with spawned([python, "-c", BIG], ready="up") as child:
            asleep(child.pid)
            shots = {one: answer(f"llm-snapshot {child.pid} -o {file} -{one} -json") for one, file in files.items()}
        small, heap = shots["small"]["snapshots"][0], shots["heap"]["snapshots"][0]
        assert small["left_out_bytes"] > 16 << 20 and not heap["left_out_bytes"], (name, small)
        assert small["bytes"] < heap["bytes"] / 2, (name, small, heap)
        assert not shots["small"]["partial"], shots["small"]["partial"]
        for line in OF_BIG:
            whole, part = (json.dumps(answer(line.format(F=file))).replace(file, "F") for file in (files["heap"], files["small"]))
            assert whole == part, (name, line)
        lacks = []
        for number in range(7):  # all over the memory
            line = f"pyprint -on {{}} -json far[{number}][0][{740 * number}]"
            whole = answer(line.format(files["heap"]))["repr"]
            try:
                assert answer(line.format(files["small"]))["repr"] == whole
            except GdbextError as e:
                lacks.append(str(e))
        assert lacks and all("left out of the snapshot: take it with -heap" in why for why in lacks), (name, lacks)
