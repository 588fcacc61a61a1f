"""Threads parked at every kind of place: the frames, lines and locals read from memory are those that Python itself gives."""

import os
import sys

import pytest
from harness.answers import answer, run
from harness.heartbeats import asleep
from harness.subjects import PYTHONS, running, spawned

from gdbext.cpython.dialects import MAX_FRAMES
from gdbext.cpython.reprs import FULL, Repr
from gdbext.cpython.runtime import open_runtime


@pytest.fixture(scope="module", params=PYTHONS, ids=os.path.basename)
def subject(request):
    with running(request.param, "py_stacks.py") as (target, truth):
        yield open_runtime(target), truth


def stacks(subject):
    """(place, truth's frames, frames read) for each parked thread."""
    rt, truth = subject
    threads = {thread.tid: thread for thread in rt.threads()}
    for tid, expected in truth["threads"].items():
        assert int(tid) in threads, f"no thread {tid}: {sorted(threads)}"
        yield truth["names"][tid], expected, rt.frames(threads[int(tid)])


def test_all_threads_are_there(subject):
    rt, truth = subject
    assert len(truth["threads"]) == 24
    assert {int(t) for t in truth["threads"]} < {thread.tid for thread in rt.threads()}
    assert len(rt.threads()) == 25
    main = rt.threads()[0]
    assert main.tid == rt.target.pid


def test_functions_files_and_lines_are_pythons(subject):
    wrong = []
    for place, expected, frames in stacks(subject):
        want = [tuple(f[:3]) for f in expected]
        found = [(f.function, f.file, f.line) for f in frames]
        if found != want:
            parts = [f"{a} not {b}" for a, b in zip(found, want) if a != b] or [f"{len(found)} frames, not {len(want)}"]
            wrong.append(f"{place}: " + "; ".join(parts[:4]))
    assert not wrong, "\n" + "\n".join(wrong)


def test_locals_are_pythons_with_cells_followed(subject):
    wrong, compared = [], 0
    for place, expected, frames in stacks(subject):
        for truth, frame in zip(expected, frames):
            if not truth[3]:
                continue
            found = {name: value for name, value in frame.locals() if value is not None}
            # A class body's own f_locals leaves out the variables it takes from around it; we show them.
            around = {"outside"} if truth[0].endswith("Body") else set()
            if set(found) != set(truth[3]) | around:
                wrong.append(f"{place} {truth[0]}: names {sorted(set(found) ^ set(truth[3]))[:6]} differ")
            for name, (how, text) in truth[3].items():
                if name not in found:
                    continue
                compared += 1
                got = Repr(FULL)(found[name]) if how == "repr" else found[name].type_name
                if got != text:
                    wrong.append(f"{place} {truth[0]}: {name} = {got[:200]}, not {text[:200]}")
    assert not wrong, "\n" + "\n".join(wrong)
    assert compared > 1000


def test_the_main_thread_stands_in_its_signal_handler(subject):
    rt, truth = subject
    frames = rt.frames(rt.threads()[0])
    want = [tuple(f[:3]) for f in truth["main"]]
    assert frames[0].function == "tell"
    assert [(f.function, f.file, f.line) for f in frames[1:]] == want


def test_names_of_threads_are_those_that_python_gave(subject):
    rt, truth = subject
    found = {str(thread.tid): rt.thread_name(thread) for thread in rt.threads()}
    assert truth["names"] and {tid: found.get(tid) for tid in truth["names"]} == {
        tid: f"at {name}" for tid, name in truth["names"].items()
    }


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_every_kind_of_frame_in_one_stack(python):
    with running(python, "py_stacks.py", "alone") as (target, truth):
        rt = open_runtime(target)
        (thread,) = rt.threads()
        found = [(f.function, f.file, f.line) for f in rt.frames(thread)]
    assert found[0][0] == "tell" and found[1:] == [tuple(f[:3]) for f in truth["main"]] and len(found) > 480


DEEP = """
import sys, time
sys.setrecursionlimit(100000)
def f(n):
    if n:
        return f(n - 1)
    print("up", flush=True)
    time.sleep(600)
f(int(sys.argv[1]))
"""


@pytest.mark.skipif(sys.version_info < (3, 11), reason="its recursion takes the C stack")
def test_a_stack_with_more_frames_than_are_read_says_so():
    for depth, cut in ((MAX_FRAMES - 3, False), (MAX_FRAMES, True)):  # and <module>
        with spawned([sys.executable, "-c", DEEP, str(depth)], ready="up") as one:
            said = answer(f"pybt -on {one.pid} -json")
        assert any("further outward are more" in reason for reason in said["partial"]) == cut
        assert len(said["threads"][0]["frames"]) == min(depth + 2, MAX_FRAMES)


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_columns_are_those_of_the_code_objects(python):
    with running(python, "columns.py") as (target, truth):
        asleep(target.pid)
        told = answer(f"pybt -columns -on {target.pid}")["threads"][0]["frames"]
        text = run(f"pybt -columns -on {target.pid}").to_text()
    places = [[f["function"], f["end_line"], f["column"], f["end_column"]] for f in told]
    expected = [[name, end, column, last] for name, _, end, column, last in truth["frames"]]
    assert places[1:] == expected[1:]  # the innermost one has gone on
    if expected[1][2] is not None:
        assert f":{expected[1][2]}-{expected[1][3]})" in text


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_threads_that_a_fork_by_c_left_behind_are_called_missing(python):
    with running(python, "bare_fork.py", start_new_session=True) as (target, truth):
        asleep(truth["child"])
        parent, child = (answer(f"pybt -all -on {pid}")["threads"] for pid in (target.pid, truth["child"]))
        text = run(f"pybt -all -on {truth['child']}").to_text()
    assert [th["missing"] for th in parent] == [False] * 3
    assert sorted(th["name"] for th in child if th["missing"]) == truth["names"]
    assert [th["tid"] for th in child if not th["missing"]] == [truth["child"]]
    assert text.count("no thread of this process") == 2
