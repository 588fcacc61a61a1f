"""A snapshot of a process with more memory than it holds answers what one with all memory answers, or names the option."""

import contextlib
import json
import os
import sys
import time

import pytest
from harness.answers import answer
from harness.heartbeats import asleep
from harness.subjects import SUBJECTS, spawned

from gdbext.access import resident
from gdbext.access.collector import Collection
from gdbext.access.model import PAGE
from gdbext.access.ranges import stack_ranges
from gdbext.access.snapshot import CoreFileTarget
from gdbext.commands import snapshot_reader
from gdbext.errors import FaultError, GdbextError
from gdbext.stacks import prefetch, snapshots

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


def test_a_snapshot_answers_what_one_with_all_memory_answers(pythons, tmp_path):
    """Of a process with more memory than it holds; what it lacks it names, with the option that brings it."""
    for name, python in enumerate(pythons):
        files = {one: str(tmp_path / f"{name}-{one}") for one in ("heap", "small")}
        with spawned([python, "-c", BIG], ready="up") as child:
            asleep(child.pid)
            options = {"heap": "-heap", "small": ""}
            shots = {one: answer(f"llm-snapshot {child.pid} -o {file} {options[one]} -json") for one, file in files.items()}
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


FAR = """
import asyncio, collections, time
class Part:
    def __init__(self, n):
        self.n, self.text, self.table = n, f"part {n}", {"k": [n] * 3}
far = {}
for n in range(400000):
    far.setdefault(n % 7, {}).setdefault(n % 11, []).append(f"far away {n}")
def holes():
    for n in range(7):  # new objects take the places of old ones, all over the memory
        del far[n][n][::3]
"""
AT_WORK = {
    "tables": """
def work():
    print("up", flush=True)
    turn = 0
    while True:
        turn += 1
        holes()
        table = {n: Part(turn + n) for n in range(2000)}
        time.sleep(0.002)
work()
""",
    "queue": """
def work():
    print("up", flush=True)
    queue, done = collections.deque(maxlen=200), []
    while True:
        holes()
        queue.append(Part(len(done)))
        done.append(f"done {len(done)}" * 50)
        time.sleep(0.0001)
work()
""",
    "tasks": """
async def step(part):
    await asyncio.sleep(0.01)
    return part
async def work():
    print("up", flush=True)
    turn = 0
    while True:
        turn += 1
        holes()
        parts = [Part(turn + n) for n in range(100)]
        await asyncio.gather(*(step(part) for part in parts))
asyncio.run(work())
""",
}
OF_WORK = [
    *(
        "pybt -all -locals -on {F} -json",
        "llm-bt -all -locals -on {F} -json",
        "pylocals -on {F} -json",
        "pythreads -on {F} -json",
    ),
    *("pytasks -all -on {F} -json", "llm-locks {F} -json", "llm-stacks {F} -json"),
]
OF_ENGINE = [
    *("llm-kv -on {F} -json", "llm-kv check -on {F} -json", "llm-kv free -on {F} -json", "llm-requests {F} -json"),
    *("pybt -all -locals -on {F} -json", "llm-locks {F} -json"),
]


class Twins(Collection):
    """Writes two snapshots of one stop: one with all that was copied, and the one with what was chosen of it."""

    def __init__(self, pid, folder):
        words = (prefetch.KV, prefetch.REACH)
        super().__init__(
            pid,
            lambda target: snapshot_reader.read(target, *words),
            heap=snapshots.limit(),
            choose=lambda target: snapshot_reader.choose(target, *words),
        )
        self.files = [os.path.join(folder, name) for name in ("whole", "part")]
        self.at, self.moved, self.dropped = time.time(), 0, 0

    def _note(self, label):
        return {**super()._note(label), "time": self.at}

    def take(self):
        try:
            self.select_heap()
            self.collect()
        finally:
            self.stopper.end()
        self.write(self.files[0], "")
        beside = {page for low, high in self.heap_spans for page in range(low & -PAGE, high, PAGE)} & self.stop.memory.keys()
        small = resident.select(self.tid, self.maps, resident.SMALL).spans
        kept = {page for low, high in small for page in range(low & -PAGE, high, PAGE)}
        writable = [(m.start, m.end) for m in self.stop.maps if "w" in m.perms]
        for at, size in stack_ranges(self.stop.registers.values(), self.live.arch, sorted(writable)):
            kept.update(range(at & -PAGE, at + size, PAGE))
        known = set(self.recorder.read_log.pages)
        read = {page for log in self.logs for page in log.pages}
        self.moved = len(read & beside - known)
        for page in beside - kept - read:
            del self.stop.memory[page]
            self.dropped += PAGE
        self.write(self.files[1], "")
        return self.files


def said(line, file):
    try:
        return json.dumps(answer(line.format(F=file))).replace(file, "F")
    except GdbextError as e:
        return str(e).replace(file, "F")


def same_of_one_moment(pid, folder, lines):
    """Takes twins and compares what `lines` say of them. -> how many pages were chosen that were not known before the stop"""
    twins = Twins(pid, str(folder))
    whole, part = twins.take()
    for line in lines:
        assert said(line, whole) == said(line, part), line
    assert os.path.getsize(part) < os.path.getsize(whole) and twins.dropped > 16 << 20
    return twins.moved


@pytest.mark.parametrize("work", AT_WORK)
def test_what_is_kept_of_a_process_at_work_is_chosen_as_it_is_copied(pythons, tmp_path, work):
    python = pythons[sorted(AT_WORK).index(work) % len(pythons)]
    with spawned([python, "-c", FAR + AT_WORK[work]], ready="up") as child:
        moved = same_of_one_moment(child.pid, tmp_path, OF_WORK)
    assert moved > 0, "nothing moved between learning and copying: the test shows nothing"


def test_tables_of_an_engine_at_work_are_chosen_as_it_is_copied(tmp_path):
    subject = os.path.join(SUBJECTS, "requests_vllm.py")
    run = f"import runpy, sys\nsys.argv = [{subject!r}, '300', 'work']\nrunpy.run_path({subject!r}, run_name='__main__')"
    with spawned([sys.executable, "-c", FAR + run], ready="{") as child:
        same_of_one_moment(child.pid, tmp_path, OF_ENGINE)


ROAMING = """
import ctypes, mmap, random
room = mmap.mmap(-1, 4096 << 12)
start = ctypes.addressof(ctypes.c_char.from_buffer(room))
for n in range(1, 4096):
    ctypes.c_uint64.from_address(start + (n << 12)).value = n
here = ctypes.c_uint64.from_address(start)
here.value = start + 4096
print(start, flush=True)
while True:
    here.value = start + (random.randrange(1, 4096) << 12)
"""


def test_what_only_the_chooser_reads_of_what_moves_is_copied_in_the_end(tmp_path):
    read_there = []

    def read(target):
        with contextlib.suppress(FaultError):
            read_there.append(target.u64(start))
            target.u64(read_there[-1])
        return ""

    with spawned([sys.executable, "-c", ROAMING], ready="") as child:
        start, path = int(child.said), str(tmp_path / "a.core")
        collection = Collection(child.pid, lambda target: "", choose=read)
        collection.collect()
        collection.write(path, "")
        collection.stopper.end()
    target = CoreFileTarget(path)
    there = target.u64(start)
    assert target.u64(there) == (there - start) >> 12
    late = any("were copied while it ran" in line for line in collection.partial)
    assert late or there in read_there, collection.partial  # on a full machine it may not have moved since the choice
