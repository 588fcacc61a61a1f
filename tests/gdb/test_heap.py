"""The Python heap from outside against what the process says of itself: counts, bytes, containers, leaks, resident memory."""

import ast
import json
import os
import subprocess
import sys
from functools import partial

import pytest
from harness.answers import answer, run
from harness.growing import asleep, grown
from harness.subjects import PYTHONS, kernel_core, running, spawned, unlimited_core

from gdbext.access.collect import collect
from gdbext.access.proc import ProcTarget
from gdbext.access.retry import retry_reading
from gdbext.access.snapshot import CoreFileTarget
from gdbext.cpython.expressions import evaluate
from gdbext.cpython.gc import incremental
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError
from gdbext.heap import model, resident
from gdbext.heap.collector import Collector, collected_now
from gdbext.heap.listing import Census
from gdbext.heap.model import Clock
from gdbext.heap.walk import walk
from gdbext.stacks import snapshots

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FORKED = {"_thread.RLock"}  # the child of a fork makes one of its own
EXACT = set(
    "list tuple dict set frozenset type function collections.deque collections.OrderedDict generator coroutine frame".split()
)


def frames_of(rt):
    return [(frame, False) for thread in rt.threads() for frame in rt.frames(thread)]


def settled(target):
    """Waits until the subject sleeps in its read; -> its last line of truth."""
    more = json.loads(target.process.stdout.readline())
    asleep(target)
    return more


def by_type(census):
    return {s.name: (s.count, s.bytes, s.held, s.exact) for s in census.types()}


def compare(census, truth):
    """Every tracked type has the count and the bytes that the process says."""
    found = by_type(census)
    wrong = []
    for name in sorted((set(truth["counts"]) | {n for n, f in found.items() if f[0]}) - FORKED):
        count, size, _, exact = found.get(name, (0, 0, 0, True))
        if count != truth["counts"].get(name, 0):
            wrong.append(f"{name}: {count} objects, says {truth['counts'].get(name, 0)}")
        elif exact and size != truth["sizes"].get(name):
            wrong.append(f"{name}: {size} bytes, says {truth['sizes'].get(name)}")
        elif not exact and name in EXACT:
            wrong.append(f"{name} is called inexact")
    assert not wrong, "\n".join(wrong)
    assert len(truth["counts"]) > 100


@pytest.fixture(params=PYTHONS)
def python(request):
    probe = "import sys, sysconfig; print(sysconfig.get_config_var('Py_GIL_DISABLED') or 0)"
    if subprocess.run([request.param, "-c", probe], stdout=subprocess.PIPE, text=True).stdout.strip() == "1":
        pytest.skip("a free-threaded build has no lists to walk")
    return request.param


def test_counts_and_bytes_are_those_of_the_process(python):
    seed = os.environ.get("GDBEXT_TEST_SEED", str(PYTHONS.index(python) + 1))
    with running(python, "py_heap.py", seed) as (target, first):
        truth, generations = settled(target), first["generations"]
        rt = open_runtime(target)
        census = Census(rt, frames_of(rt))
        compare(census, truth)
        heap = census.heap
        assert 0 <= sum(generations) - sum(heap.generations) <= len(FORKED), seed
        assert sum(heap.generations[1:3]) == sum(generations[1:3]) and (incremental(rt) or heap.generations[1] == generations[1])
        state = Collector(rt, heap)
        assert [g.threshold for g in state.generations] == truth["thresholds"]
        for own, said in zip(state.generations, truth["stats"]):
            assert (own.collections, own.collected, own.seconds) == (said["collections"], said["collected"], said.get("duration"))
            assert (own.last is None) == (own.seconds is None) and (own.last is None or 0 <= own.last <= own.seconds + 1e-9)
        assert not state.enabled and not state.collecting and state.frozen == heap.generations[3] > 1000
        for name, (address, length) in truth["lists"].items():
            node = census.names.node(address)
            assert heap.lengths[node] == length and census.owner(node).text == f"__main__:{name}"


def test_arrays_and_tensors_are_counted_and_measured(torch_python):
    with running(torch_python, "py_heap.py", "3", "numpy", "torch") as (target, _):
        truth = settled(target)
        rt = open_runtime(target)
        census = Census(rt, frames_of(rt))
        compare(census, truth)
        sums = {s.name: s for s in census.types()}
        tensors = sums["torch.Tensor"]
        assert tensors.exact and (tensors.count, tensors.bytes) == (
            truth["counts"]["torch.Tensor"],
            truth["sizes"]["torch.Tensor"],
        )
        assert sums["numpy.ndarray"].exact and len(truth["arrays"]) >= 10
        measured = [(int(census.heap.sizes[census.names.node(at)]), size) for at, size in truth["arrays"]]
        assert all(own == said for own, said in measured), measured


OF_OBJECTS = """
import os, time
import numpy
class Marked:
    pass
class Holder:
    pass
grid = numpy.empty((3, 2), dtype=object)
grid[2, 1] = Marked()
flat = numpy.array([None, Marked(), 5], dtype=object)
held = Holder()
held.array = numpy.array([[Marked()]], dtype=object)
turned = numpy.empty((2, 2), dtype=object, order="F")
turned[0, 1] = Marked()
numbers = numpy.array([id(turned[0, 1])] * 9)
names = {"grid[2, 1]": grid[2, 1], "flat[1]": flat[1], "held.array[0, 0]": held.array[0, 0], "turned": turned[0, 1]}
print("READY " + repr({name: id(one) for name, one in names.items()}), flush=True)
del names
time.sleep(3600)
"""


def test_arrays_of_objects_hold_what_they_hold(torch_python):
    with spawned([torch_python, "-c", OF_OBJECTS], "READY") as process:
        truth = ast.literal_eval(process.said[6:])
        rt = open_runtime(ProcTarget(process.pid))
        census = Census(rt, frames_of(rt))
        owners = {name: census.owner(census.names.node(at)).text for name, at in truth.items()}
        assert owners == {**{name: f"__main__:{name}" for name in truth}, "turned": f"({truth['turned']:#x})"}
        frame = rt.frames(rt.threads()[0])[-1]
        assert evaluate(rt, "grid[2, 1]", frame).address == truth["grid[2, 1]"] and evaluate(rt, "flat[0]", frame).is_none()
        numbers = evaluate(rt, "numbers", frame).address
        assert truth["turned"] not in edges(census.heap).get(numbers, ())


def edges(heap):
    """{object: what it refers to}"""
    at = [int(address) for address in heap.addresses]
    return {at[i]: {at[j] for j in heap.targets[heap.begin[i] : heap.begin[i + 1]]} for i in range(len(at))}


def test_a_look_that_takes_too_long_says_what_it_has_not_read():
    with running(PYTHONS[0], "py_leaks.py") as (target, _):
        asleep(target)
        cut = Census(open_runtime(target), [], Clock(0.0))
        assert cut.types() and cut.heap.unread and "(-deadline)" in "".join(cut.heap.partial)


def test_without_numpy_one_line_says_how_to_get_it(monkeypatch):
    with running(PYTHONS[0], "py_leaks.py") as (target, _):
        monkeypatch.setitem(sys.modules, "numpy", None)
        with pytest.raises(GdbextError, match="pyheap needs numpy.*; run: .* -m pip install numpy") as e:
            run(f"pyheap -on {target.pid}")
        assert "\n" not in str(e.value)


def test_who_waits_is_told_how_far_a_look_is(monkeypatch):
    monkeypatch.setattr(model, "TELL_EVERY", 0.0)
    with running(PYTHONS[0], "py_leaks.py") as (target, _):
        asleep(target)
        said = []
        walk(open_runtime(target), Clock(60.0, said.append))
        assert any(line.startswith("listing objects: ") for line in said)
        assert any(line.startswith("reading objects: ") for line in said)


def test_a_core_and_a_snapshot_say_the_same(tmp_path):
    python = PYTHONS[min(2, len(PYTHONS) - 1)]
    with running(python, "py_heap.py", "5", cwd=str(tmp_path), preexec_fn=unlimited_core) as (target, _):
        truth = settled(target)
        live = by_type(Census(open_runtime(target), []))
        copy = str(tmp_path / "snapshot")
        collect(target.pid, copy, "gdbext.stacks.prefetch", heap=512 << 20)
        core = kernel_core(target.process, tmp_path)
    for path in filter(None, (copy, core)):
        again = Census(open_runtime(CoreFileTarget(path)), [])
        compare(again, truth)
        assert by_type(again) == live


@pytest.mark.parametrize("python", sorted({PYTHONS[0], PYTHONS[-1]}))
def test_leaks_are_found_by_their_paths(python):
    expected = {
        "list": "__main__:answers",
        "dict": "__main__:engine.scheduler.table",
        "deque": "__main__:box['queue']",
        "set": "__main__:box[('seen', 1)]",
        "closure": "__main__:remember.__closure__[0].cell_contents",
        "cycle": "__main__:ring",
        "slots": "__main__:slotted.items",
        "bytes": "__main__:blob",
        "tasks": "__main__:tasks",
        "thread-local": "__main__:local",
    }
    with running(python, "py_leaks.py") as (target, said):
        assert said["names"] == sorted(expected)
        for _, rt, found in grown(target, expected):
            assert max(row.after - row.before for row in found) >= 400
            for row in found:
                assert row.address in (None, evaluate(rt, row.path.text).address)


COLLECTS = """
import gc
class Item:
    __slots__ = ("before", "own", "__weakref__")
    def __init__(self, before):
        self.before, self.own = before, [before]
items = tuple([Item(i) for i in range(20000)])  # the tuple stands behind what it holds: a collection sets all of it aside first
gc.collect()
print("ready", flush=True)
while True:
    gc.collect()
"""


@pytest.mark.parametrize("python", sorted({PYTHONS[0], PYTHONS[len(PYTHONS) // 2], PYTHONS[-1]}))
def test_a_copy_made_during_a_collection_has_every_object(python, tmp_path):
    path, seen = str(tmp_path / "snapshot"), set()
    with spawned([python, "-c", COLLECTS], ready="ready") as process:
        for _ in range(4):
            collect(process.pid, path, "gdbext.stacks.prefetch", heap=512 << 20)
            rt = open_runtime(CoreFileTarget(path))
            census = Census(rt, [])
            count, _, held, _ = by_type(census)["__main__.Item"]
            assert count + held == 20000
            state = Collector(rt, census.heap)
            if state.collecting:
                seen.add(state.generation)
                assert state.tid == process.pid and "collection is under way" in "".join(census.heap.partial)
    assert seen == {None} if incremental(rt) else 2 in seen and seen <= {2, None}  # None: before the counts are set back


@pytest.mark.parametrize("counts,generation", [((0, 1, 5), 0), ((0, 0, 3), 1), ((0, 0, 0), 2), ((4, 1, 0), None)])
def test_the_generation_that_is_collected_is_known_by_the_counts(counts, generation):
    assert collected_now(counts) == generation


CHURNS = """
import gc, random
gc.disable()
class Item:
    pass
class Other:
    pass
items = [Item() for _ in range(30000)]
others = [[Other() for _ in range(50)] for _ in range(200)]
gc.collect()
print("ready", flush=True)
while True:
    others[random.randrange(200)] = [Other() for _ in range(random.randrange(90))]
"""


@pytest.mark.parametrize("python", sorted({PYTHONS[0], PYTHONS[-1]}))
def test_objects_that_stay_are_counted_while_others_come_and_go(python):
    with spawned([python, "-c", CHURNS], ready="ready") as process:
        for _ in range(3):
            target = ProcTarget(process.pid)
            heap = retry_reading(target, partial(walk, open_runtime(target)))
            kinds = [kind for kind in heap.shapes if heap.name(kind) == "__main__.Item"]
            assert sum(node < heap.tracked for node in heap.of_kinds(kinds)) == 30000
            target.close()


def pack(*words):
    done = subprocess.run(
        [sys.executable, "-m", "gdbext", *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120
    )
    return done.returncode, done.stdout, done.stderr


def test_the_command_saves_compares_and_finds_ways(tmp_path):
    with running(PYTHONS[0], "py_leaks.py") as (target, _):
        on, saved = str(target.pid), str(tmp_path / "before.json")
        asleep(target)
        code, said, _ = pack("pyheap", "-on", on, "-save", saved)
        assert code == 0 and "held in all" in said and "frozen" in said and "paused" in said, said
        for _ in range(2):
            target.process.stdin.write("list\n")
            target.process.stdin.flush()
            target.process.stdout.readline()
        data = json.loads(pack("pyheap", "-on", on, "-diff", saved, "--json")[1])
        assert data["growth"][0]["owner"] == "__main__:answers" and data["partial"] == []
        assert [p["pid"] for p in data["pauses"]] == [target.pid] and 0 <= data["pauses"][0]["seconds"] < 60
        again = json.loads(pack("pyheap", "-on", on, "-diff", saved, "-unstopped", "--json")[1])
        assert again["growth"] == data["growth"] and (again["partial"], again["pauses"]) == (["unstopped"], [])
        assert data["growth"][0]["after"] - data["growth"][0]["before"] == 1000
        instances = json.loads(pack("pyheap", "-on", on, "-type", "Response", "-all", "--json")[1])["instances"]
        held = next(i for i in instances if i["owner"] == "__main__:answers[7]")
        ways = json.loads(pack("pyheap", "-on", on, "-path", held["address"], "--json")[1])["paths"]
        assert [(w["holder"], w["owner"]) for w in ways] == [("list", "__main__:answers[7]")]
        for words, message in (
            (("-diff", __file__), "no heap of pyheap"),
            (("-type", "Nobody"), "no object of it is found"),
            (("-path", "0x10"), "no object"),
            (("-save", saved), "there already"),
        ):
            code, _, error = pack("pyheap", "-on", on, *words)
            said = [line for line in error.splitlines() if not line.endswith(" s")]  # how far it is, on a busy machine
            assert code == 1 and len(said) == 1 and message in said[0], error


SMALL = {  # programs that a leak is looked for in, the smaller the better: a level of their heaps may refer to nothing
    "sleeps": "import time; said(); time.sleep(900)",
    "serves": "import socketserver; server = socketserver.TCPServer(('127.0.0.1', 0), None); said(); server.handle_request()",
    "reads": "said(); input(); input()",
    "leaks": "import time; kept = [[i] for i in range(100)]; said(); [kept.append([i]) or time.sleep(900) for i in kept]",
    "tasks": "import asyncio\nasync def main():\n"
    "    some = [asyncio.create_task(asyncio.sleep(900)) for _ in range(100)]\n"
    "    await asyncio.sleep(0); said(); await asyncio.gather(*some)\nasyncio.run(main())",
    "threads": "import threading, time\nfor _ in range(60):\n"
    "    threading.Thread(target=time.sleep, args=(900,), daemon=True).start()\nsaid(); time.sleep(900)",
    "leaves": "import time; kept = tuple(object() for _ in range(5000)), {i: -i for i in range(99)}; said(); time.sleep(900)",
    "empties": "import time; kept = [[] for _ in range(500)]; said(); time.sleep(900)",
    "freezes": "import gc, time; gc.collect(); gc.freeze(); gc.disable(); said(); time.sleep(900)",
}
SAYS = "import sys\ndef said():\n    print('ready', flush=True)\n"


@pytest.mark.parametrize("program", SMALL)
@pytest.mark.drawn(6)
def test_every_option_answers_about_a_small_program(python, program, tmp_path):
    with spawned([python, "-c", SAYS + SMALL[program]], ready="ready") as process:
        on, saved = f"-on {process.pid} -json", tmp_path / "look.json"
        asleep(ProcTarget(process.pid))
        first = answer(f"pyheap {on} -all -save {saved}")
        assert {row["type"] for row in first["types"]} >= {"dict", "function", "str"}
        assert first["tracked"] > 1000 and first["partial"] == []
        at = first["containers"][0]["address"]
        for more in (f"-diff {saved}", "-unstopped", "-type dict", f"-path {at}", "-watch 0.01"):
            told = answer(f"pyheap {on} {more}")
            assert (told["tracked"], told["growth"]) == (first["tracked"], []), more
            assert told["objects"] == first["objects"] or "-unstopped" in more  # a few untracked ones of 3.14 are in no copy


GROWS = """
import time
answers = []
print("ready", flush=True)
while True:
    answers.append([len(answers), "x"])
    time.sleep(0.001)
"""


def test_two_looks_by_itself_find_what_grows(tmp_path):
    with spawned([PYTHONS[0], "-c", GROWS], ready="ready") as process:
        data = json.loads(pack("pyheap", "-on", str(process.pid), "-watch", "1", "--json")[1])
        row = data["growth"][0]
        assert (row["type"], row["owner"]) == ("list", "__main__:answers") and row["after"] >= row["before"] + 20
        assert [pause["pid"] for pause in data["pauses"]] == [process.pid]
        path = str(tmp_path / "snapshot")
        collect(process.pid, path, "gdbext.stacks.prefetch", heap=512 << 20)
    code, _, error = pack("pyheap", "-on", path, "-watch", "1")
    assert code == 1 and "-watch needs a process that runs" in error, error


def test_a_copy_that_lacks_what_objects_lie_in_is_made_again(monkeypatch):
    taken, complete, collects = [], 1, snapshots.collect

    def without_heap(found, paths, *, heap, seconds):
        """As if all private memory had come into use after it was chosen what is copied."""
        taken.append(heap)
        collects(found, paths, heap=heap if len(taken) > complete else 0, seconds=seconds)

    with running(PYTHONS[0], "py_leaks.py") as (target, _):
        asleep(target)
        monkeypatch.setattr(snapshots, "collect", without_heap)
        told = answer(f"pyheap -on {target.pid} -json")
        assert len(taken) == 2 and told["partial"] == [] and told["pauses"]
        assert told["tracked"] == walk(open_runtime(target)).tracked
        taken, complete = [], 9
        with pytest.raises(GdbextError):
            answer(f"pyheap -on {target.pid} -json")
        assert len(taken) == 3


def test_a_look_that_takes_too_long_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(model, "Clock", lambda seconds, say: Clock(0.0))
    with running(PYTHONS[0], "py_leaks.py") as (target, _):
        asleep(target)
        for more in ("", " -unstopped"):
            told = answer(f"pyheap -on {target.pid}{more} -json")
            assert told["types"] and "(-deadline)" in "".join(told["partial"]), told["partial"]


def test_a_ring_that_is_damaged_is_an_error():
    from harness.subjects import Damaged

    with running(PYTHONS[0], "py_leaks.py") as (target, _):
        asleep(target)
        rt = open_runtime(target)
        some = int(walk(rt).addresses[100])
        damaged = Damaged(target.pid)
        damaged.bad = {some - 16 + rt.layout["gc.head._gc_next"]: 64}
        with pytest.raises(GdbextError, match="collector's list"):
            walk(open_runtime(damaged))
        damaged.close()


# A number beside a type, where something leads to it, as msgspec keeps its flags: by its looks the beginning of an object.
LOOKS_LIKE_OBJECTS = """
import ctypes, gc, os, struct
kinds = [tuple, list, int, bytearray]
blobs = [bytearray(struct.pack("<100Q", 0x400001, id(kind), *[1 << 50] * 98)) for kind in kinds]
kept = [memoryview(blob) for blob in blobs]
real = tuple([[]] * 3)
gc.collect()
print("[%s]" % ",".join(map(str, [id(real)] + [ctypes.addressof(ctypes.c_char.from_buffer(b)) for b in blobs])), flush=True)
os.read(0, 1)
"""


@pytest.mark.parametrize("python", sorted({PYTHONS[0], PYTHONS[-1]}))
def test_what_only_looks_like_an_object_is_none(python):
    from harness.subjects import Damaged

    with spawned([python, "-c", LOOKS_LIKE_OBJECTS], ready="[") as process:
        real, *others = json.loads(process.said)
        target = Damaged(process.pid)
        asleep(target)
        target.is_stopped = True
        rt = open_runtime(target)
        heap = walk(rt)
        found = {int(address): heap.kind(node) for node, address in enumerate(heap.addresses)}
        assert heap.partial == [] and not any(found.get(address, 0) for address in others)
        assert real in found
        # a tracked one that says it takes more than there is memory is an object all the same, and damaged
        target.bad = {real + rt.layout["varobj.ob_size"]: 1 << 50}
        assert "1 objects are no objects, or damaged" in "".join(walk(open_runtime(target)).partial)
        target.close()


def test_the_parts_of_resident_memory_add_up(torch_python):
    code = (
        "import mmap, torch, os, threading, time\n"
        "kept = [torch.ones(1 << 20) for _ in range(20)]\n"
        "shared = torch.ones(1 << 21).share_memory_()\n"
        "objects = [list(range(9)) for _ in range(100000)]\n"
        "del objects[::2]\n"
        "area = mmap.mmap(-1, 8 << 20); area.write(b'x' * (8 << 20))\n"
        "threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()\n"
        "print('{}', flush=True)\n"
        "os.read(0, 1)\n"
    )
    with spawned([torch_python, "-c", code], ready="{}") as process:
        data = json.loads(pack("llm-memory", str(process.pid), "--json")[1])
        rank = data["ranks"][0]
        parts = {p["what"]: p["bytes"] for p in rank["parts"]}
        assert abs(sum(parts.values()) - rank["rss"]) <= 0.02 * rank["rss"]
        assert abs(rank["rss"] - resident.resident_bytes(process.pid)) <= 0.02 * rank["rss"]
        assert 80 << 20 <= parts["torch: CPU tensors"] < 90 << 20
        assert 8 << 20 <= parts["torch: shared CPU tensors"] < 9 << 20
        assert parts["shared memory"] >= 8 << 20 and parts["libraries"] > 20 << 20
        assert parts["pymalloc: used"] > 10 << 20 and parts["pymalloc: free"] > 5 << 20
        assert rank["gpu_tensor_bytes"] == 0


@pytest.mark.parametrize(
    "name,said", [("libjemalloc.so.2", "jemalloc"), ("libtcmalloc_minimal.so.4", "tcmalloc"), ("libown.so", "")]
)
def test_memory_that_another_malloc_may_have_is_called_so(name, said, tmp_path):
    """A stand-in by its name: where its heaps lie cannot be told, that it is there can."""
    library = tmp_path / name
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)], input="int none;", text=True, check=True)
    code = "import mmap, time; m = mmap.mmap(-1, 1 << 24, flags=34); m.write(b'x' * (1 << 24)); "
    with spawned(
        [sys.executable, "-c", code + "print('ready', flush=True); time.sleep(900)"],
        "ready",
        env={**os.environ, "LD_PRELOAD": str(library)},
    ) as process:
        parts = answer(f"llm-memory {process.pid}")["ranks"][0]["parts"]
    unknown = {part["what"]: part["bytes"] for part in parts if part["what"].startswith("anonymous, unknown")}
    assert list(unknown) == ["anonymous, unknown" + (f": {said}'s heaps are among it" if said else "")]
    assert unknown.popitem()[1] >= 1 << 24
