"""`llm-memory -grow` on programs that say of themselves what makes them grow (subjects/growers.py)."""

import gc
import json
import os
import platform
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest
from harness.answers import run
from harness.growers import (
    GROWERS,
    HEALTHY,
    PARTS,
    RIGHT,
    ROOT,
    SILENT,
    WAYS,
    WRONG,
    build,
    growing,
    matrix,
    perf_is_there,
    perf_or_skip,
    told,
    verdict,
    watch,
)
from harness.subjects import PYTHONS

from gdbext.access import page_faults
from gdbext.access.proc import ProcTarget
from gdbext.access.procfs import task_ids
from gdbext.cpython.runtime import open_runtime
from gdbext.errors import GdbextError
from gdbext.heap import grow_watch
from gdbext.heap.calls import Calls
from gdbext.heap.free import Free
from gdbext.heap.grow_watch import GrowWatch
from gdbext.heap.grown import ARENAS, HEAP

LONG = os.environ.get("GDBEXT_TEST_LONG")


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("growers"))
    build(folder)
    return folder


def test_a_hook_below_a_library_and_locked_memory_are_named(libraries):
    perf_or_skip()
    names = ("mmap_hook", "pinned", "dictionary")
    pythons = [PYTHONS[0], PYTHONS[-1], PYTHONS[len(PYTHONS) // 2]]
    with ExitStack() as stack:
        subjects = [stack.enter_context(growing(p, name, 3, libraries)) for p, name in zip(pythons, names)]
        begun = [(truth, watch(pid, 20)) for pid, truth in subjects]
        for truth, command in begun:
            answer = told(command)
            assert verdict(truth, answer) == RIGHT, answer["grows"]
            assert answer["next"] and answer["grows"][0]["bytes_per_minute"] > 1 << 20


def test_who_warms_up_or_churns_is_not_named_without_perf_either(libraries, tmp_path):
    page = str(tmp_path / "grow.html")
    with growing(sys.executable, "churns", 5, libraries) as (pid, _), growing(sys.executable, "brk", 5, libraries) as (
        other,
        truth,
    ):
        begun = watch(pid, 8), watch(other, 8, "-no-perf", "-o", page)
        quiet, loud = map(told, begun)
        assert verdict({}, quiet) == SILENT, quiet["grows"]
        assert verdict(truth, loud) not in (WRONG, SILENT) and loud["grows"][0]["kind"] == truth["kind"]
        sources = {one["source"]: one for one in loud["sources"]}
        assert not sources["page faults"]["used"] and sources["each thread's count of faults"]["cannot_see"]
    with open(page) as f:
        text = f.read()
    assert "<polyline" in text and "cannot see" in text


INNER = """
kept = []


def keeps():
    kept.append(bytearray(b"x") * 300_000)


def called(function):
    keeps()
    return function()
"""
OUTER = """
import inner, time


def work():
    end = time.perf_counter() + 0.03
    while time.perf_counter() < end:
        sum(range(3000))


print('{"line": %d}' % (inner.keeps.__code__.co_firstlineno + 1), flush=True)
while True:
    list(map(inner.called, [work]))
    time.sleep(0.02)
"""


@pytest.mark.parametrize("python", PYTHONS)
def test_a_short_function_below_a_call_from_c_is_named_itself(python, tmp_path):
    perf_or_skip()
    (tmp_path / "inner.py").write_text(INNER)
    (tmp_path / "outer.py").write_text(OUTER)
    with subprocess.Popen([python, str(tmp_path / "outer.py")], stdout=subprocess.PIPE, text=True) as process:
        truth = json.loads(process.stdout.readline())
        try:
            answer = told(watch(process.pid, 8))
        finally:
            process.kill()
    lines = {(os.path.basename(row["file"]), row["line"]) for row in answer["grows"] if row["file"]}
    assert lines <= {("inner.py", truth["line"])}, answer["grows"]  # none where the machine gave it no time


def test_a_line_that_touches_what_another_keeps_is_not_named(libraries):
    ways = [[], ["-no-perf"]] if perf_is_there() else [["-no-perf"]]
    with ExitStack() as stack:
        subjects = [(stack.enter_context(growing(sys.executable, name, 11, libraries)), more) for name in PARTS for more in ways]
        begun = [(truth, more, watch(pid, 10, *more)) for (pid, truth), more in subjects]
        for truth, more, command in begun:
            answer = told(command)
            if more and truth["kind"] == "anonymous":  # which pools are free is seen by samples alone
                continue
            assert verdict(truth, answer) != WRONG, answer["grows"]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="calls are told on x86-64 alone")
@pytest.mark.parametrize(
    "name, kind, library", [("arena", ARENAS, "libpump.so"), ("brk", HEAP, "libpump.so"), ("churns", HEAP, "")]
)
def test_stacks_show_which_library_makes_mallocs_heap_grow(libraries, name, kind, library):
    with growing(sys.executable, name, 9, libraries) as (pid, _):
        calls, deadline = Calls(ProcTarget(pid), 1e9), time.monotonic() + 60
        while time.monotonic() < deadline and max(calls.looks.values(), default=0) < 30:
            for tid in task_ids(pid):
                calls.look(tid)
            time.sleep(0.1)
        found = {calls.place(kind, tid).library for tid in task_ids(pid)} - {""}
    assert found == ({library} if library else set()), (calls.looks, calls.seen)


FREES = """
import ctypes, sys
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.free.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
blocks = [libc.malloc(100_000) for _ in range(40)]
for one in blocks:
    ctypes.memset(one, 1, 100_000)
given = blocks[:30:3]
for one in given:
    libc.free(one)
print(*given, "|", *(b for b in blocks if b not in given), flush=True)
sys.stdin.read()
"""


def test_what_malloc_holds_free_is_what_was_given_back():
    with subprocess.Popen([PYTHONS[-1], "-c", FREES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        given, kept = ([int(word) for word in part.split()] for part in process.stdout.readline().split("|"))
        target = ProcTarget(process.pid)
        free = Free(target, open_runtime(target), target.presence())
        free.look([])
        middle = 50_000
        assert free.free(at + middle for at in given) == [True] * len(given)
        assert free.free(at + middle for at in kept) == [False] * len(kept)
        process.kill()


def test_what_cannot_grow_and_what_is_asked_wrongly_is_an_error(libraries):
    for line, words in (("llm-memory -grow 1 P", "5 to 86400"), ("llm-memory -grow 5 999999999", "no process")):
        with pytest.raises(GdbextError, match=words):
            run(line.replace("P", str(os.getpid())))


def test_a_thread_that_maps_all_the_time_is_left_in_peace():
    perf_or_skip()
    code = "import mmap, os\nos.read(0, 1)\nfor _ in range(3000): mmap.mmap(-1, 8192)[0] = 1\nprint('done', flush=True)\n"
    code += "x = bytearray(b'x') * (1 << 20)\nprint('more', flush=True)\nos.read(0, 1)"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        faults = GrowWatch(ProcTarget(process.pid), "", 5, True).faults
        try:
            assert faults.threads[process.pid].mappings
            process.stdin.write(b"x")
            process.stdin.flush()
            process.stdout.readline()
            _, mapped, _ = faults.take()
            assert mapped and all(one.tid == process.pid and one.size for one, _ in mapped)  # those that found room
            assert not faults.threads[process.pid].mappings
            process.stdout.readline()
            counted, mapped, _ = faults.take()
            assert not mapped and (not counted or counted[process.pid][0] > 0)
        finally:
            faults.close()
            process.kill()


def events_open():
    links = [f"/proc/self/fd/{file}" for file in os.listdir("/proc/self/fd")]
    return sum("perf_event" in os.readlink(link) for link in links if os.path.lexists(link))


def test_a_watch_that_is_interrupted_leaves_no_event_open(monkeypatch):
    """In its rounds, and before the first one."""
    perf_or_skip()
    code = "import threading, time\n[threading.Thread(target=time.sleep, args=(99,), daemon=True).start() for _ in range(9)]\n"
    with subprocess.Popen(
        [sys.executable, "-c", code + "print(1, flush=True)\ntime.sleep(99)"], stdout=subprocess.PIPE
    ) as process:
        try:
            process.stdout.readline()
            before = events_open()
            with pytest.raises(KeyboardInterrupt):
                interrupted(process.pid, monkeypatch)
            assert events_open() == before
            kept = GrowWatch(ProcTarget(process.pid), "", 5, True)
            assert events_open() > before
            del kept
            gc.collect()
            assert events_open() == before
        finally:
            process.kill()


def interrupted(pid, monkeypatch):
    one = GrowWatch(ProcTarget(pid), "", 5, True)

    def stops():
        assert events_open()
        raise KeyboardInterrupt

    monkeypatch.setattr(one, "round", stops)
    grow_watch.run([one], 5)


def test_threads_that_have_ended_make_room_for_others(monkeypatch):
    perf_or_skip()
    monkeypatch.setattr(page_faults, "MAX_THREADS", 4)
    code = "import sys, threading\nfor line in sys.stdin:\n    one = threading.Thread(target=input)\n    one.start()\n"
    code += "    print(one.native_id, flush=True)\n    one.join()\n"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with subprocess.Popen([sys.executable, "-c", code], **pipes) as process:
        faults = page_faults.PageFaults(process.pid, [process.pid])
        try:
            for number in range(12):
                process.stdin.write("begin\n")
                tid = int(process.stdout.readline())
                assert faults.add(tid) == "", number
                process.stdin.write("end\n")
                while os.path.exists(f"/proc/{process.pid}/task/{tid}"):
                    time.sleep(0.01)
                faults.wait(0.1)
                faults.take()
            assert not faults.left_out and list(faults.threads) == [process.pid]
            assert [bool(faults.add(tid)) for tid in range(1 << 22, (1 << 22) + 3)] == [True] * 3 and len(faults.left_out) == 3
        finally:
            faults.close()
            process.kill()


# Runs its arguments where a filter refuses perf_event_open, as a container's default one does.
REFUSES = """
import ctypes, errno, os, platform, struct, sys
number = {"x86_64": 298, "aarch64": 241}[platform.machine()]
code = b"".join(struct.pack("<HBBI", *one) for one in (
    (0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x50000 | errno.EPERM), (0x06, 0, 0, 0x7FFF0000)))
held = ctypes.create_string_buffer(code, len(code))
program = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 4, ctypes.addressof(held)))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(program), 0, 0) == 0, ctypes.get_errno()
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def _refused(*words):
    asked = [sys.executable, "-c", REFUSES, "-m", "gdbext", *words, "-json"]
    return subprocess.Popen(asked, stdout=subprocess.PIPE, text=True, cwd=ROOT)


def test_where_a_container_refuses_samples_it_says_what_it_had(libraries, tmp_path):
    page = str(tmp_path / "grow.html")
    with growing(sys.executable, "brk", 7, libraries) as (pid, truth), growing(sys.executable, "ring", 7, libraries) as (well, _):
        begun = [_refused("llm-memory", "-grow", "10", "-o", page, str(pid)), _refused("llm-memory", "-grow", "8", str(well))]
        begun.append(_refused("pyheap", "-watch", "3", "-on", str(pid)))
        loud, quiet = map(told, begun[:2])
        (heap,) = json.loads(begun[2].communicate(timeout=600)[0])["grow"]
    for one in (loud, quiet, heap):
        sources = {source["source"]: source for source in one["sources"]}
        assert "Operation not permitted" in sources["page faults"]["why"] and not sources["page faults"]["used"]
        assert sources["each thread's count of faults"]["used"] and all(source["cannot_see"] for source in sources.values())
    assert verdict(truth, loud) not in (WRONG, SILENT) and loud["grows"][0]["kind"] == truth["kind"], loud["grows"]
    assert verdict({}, quiet) == SILENT, quiet["grows"]
    with open(page) as f:
        text = f.read()
    assert text.count("<polyline") >= 2 and "Operation not permitted" in text and "brk heap" in text


@pytest.mark.skipif(not LONG, reason="GDBEXT_TEST_LONG: minutes")
@pytest.mark.parametrize("seed", [101, 102])
def test_nine_of_ten_growers_are_named_and_no_healthy_one(seed):
    found = list(matrix(seed, 60.0, together=4))
    for way in WAYS:
        of = {name: how for name, one, how, _, _ in found if one == way}
        assert [name for name in HEALTHY if of[name] != SILENT] == [], way
        assert sum(of[name] == RIGHT for name in GROWERS) >= (9 if way == "perf" else 6), (way, of)
        assert not [name for name in GROWERS if of[name] == WRONG], (way, of)
