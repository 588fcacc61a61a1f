"""Native stacks against others' unwinders on the same stopped threads: gdb's own frames, pystack and py-spy. All frames that can
be known must be equal.

Hand-written kernels (MKL's, for instance) have no call-frame information: nobody knows their caller. gdb then guesses from the
function's first instructions, by its "prologue" unwinders, and shows what it finds there as frames; the pack guesses in
another way and calls the frames unreliable, or ends there. So two stacks must agree up to the first frame that gdb unwinds by
such a guess, and just there the pack must begin to call its frames unreliable: not earlier, not later.

What may differ is named here: gdb's tail-call frames (made up from call sites, they have no frame of their own), inlined
functions (they have none either), and other names of the same function (aliases, parts that a compiler split off, C++ names that
gdb demangles, symbols that only gdb reads from a file's compressed .gnu_debugdata).
"""

import itertools
import json
import os
import platform
import re
import subprocess

import pytest
from harness.gdb_run import run_gdb
from harness.subjects import SUBJECTS, spawned

from gdbext.access.collect import collect
from gdbext.access.snapshot import CoreFileTarget
from gdbext.stacks.threads import ProcessView

VIRTUAL = ("inline", "TAILCALL_FRAME")
_AFFIXES = re.compile(r"^(__GI_+|__libc_|_+)|(\.(part|constprop|isra|cold|lto_priv|localalias)(\.\d+)?)+$|@.*")
_LINE = re.compile(r'\((C|Python)\) File "(.*?)", line \d+, in (.*?)( \(inlined\))?(?: \((/.*)\))?$')


def plain(name):
    return _AFFIXES.sub("", name)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    path = tmp_path_factory.mktemp("cases") / "unwind_cases.so"
    source = os.path.join(SUBJECTS, "unwind_cases.c")
    subprocess.run(["gcc", "-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-o", path, source], check=True)
    return str(path)


def started(python, library, *more):
    return spawned([python, os.path.join(SUBJECTS, "unwind_cases.py"), library, *more], ready="up ")


@pytest.fixture(scope="module")
def cases(library):
    with started(os.environ["GDBEXT_TEST_PYTHON"], library) as process:
        yield process


def both(gdb_path, arguments, tmp_path, stops=1):
    """[{tid: gdb's and the pack's frames} for each stop], what gdb invents by itself left out."""
    file = str(tmp_path / "both.json")
    script = os.path.join(SUBJECTS, "both_stacks.py")
    env = {"BOTH_STACKS": file, "BOTH_STOPS": str(stops)}
    run = run_gdb(gdb_path, [f"source {script}"], arguments, env=env, before=["set auto-solib-add on"])
    assert os.path.exists(file), run.text
    with open(file) as f:
        said = json.load(f)
    assert len(said) == stops
    for stop in said:
        assert stop["doubts"] == []
        for thread in stop["threads"].values():
            thread["gdb"] = [f for f in thread["gdb"] if f[1] not in VIRTUAL]
    return [stop["threads"] for stop in said]


def known(frames):
    """How many of gdb's frames it knows: up to the first whose caller it guesses, which is the last known one."""
    guessed = (level for level, frame in enumerate(frames, 1) if frame[4].endswith("prologue"))
    return next(guessed, len(frames))


def same_frames(threads):
    """Asserts that all known frames are equal and the pack calls just those reliable; -> (threads known to their outermost frame,
    frames compared, names of functions that both gave)."""
    whole = frames = names = 0
    for thread in threads.values():
        theirs, ours, name = thread["gdb"], thread["ours"], thread["name"]
        assert theirs and all(unwinder for *_, unwinder in theirs), name
        count = known(theirs)
        assert [f[0] for f in ours[:count]] == [f[0] for f in theirs[:count]], name
        assert [reliable for _, _, reliable, _ in ours] == [level < count for level in range(len(ours))], name
        whole += count == len(theirs) == len(ours)
        for (_, kind, their_name, start, _), (_, own_name, _, own_start) in zip(theirs[:count], ours):
            frames += 1
            if own_name:
                names += 1
                assert plain(own_name) == plain(their_name) or start == own_start, (name, kind, their_name, own_name)
    return whole, frames, names


@pytest.mark.every_gdb
def test_live_threads_have_gdbs_frames(cases, gdb_path, tmp_path):
    (said,) = both(gdb_path, ["-p", str(cases.pid)], tmp_path)
    whole, frames, names = same_frames(said)
    assert whole == 8 and frames > 150 and names > 0.9 * frames
    functions = [f[1] for thread in said.values() for f in thread["ours"]]
    assert functions.count("deep") + functions.count("deep.localalias") == 8
    assert {"wait_here", "in_handler", "sorting", "spinning"} <= set(functions)


def test_busy_threads_of_torch_and_numpy_have_gdbs_frames(library, torch_python, gdb_path, tmp_path):
    """At any instruction: in the middle of kernels, of functions' beginnings and ends."""
    stops = 3 if os.environ.get("GDBEXT_TEST_LONG") else 1
    with started(torch_python, library, "torch") as process:
        total = 0
        for stop in both(gdb_path, ["-p", str(process.pid)], tmp_path, stops=stops):
            whole, frames, names = same_frames(stop)
            assert whole >= 8 and names > 0.8 * frames  # the main thread and those that wait, at the least
            total += frames
        assert total > 160 * stops


@pytest.mark.every_gdb
@pytest.mark.skipif(platform.machine() != "x86_64", reason="code without call-frame information is here for x86-64")
def test_frames_behind_code_without_frame_information_are_unreliable(library, gdb_path, tmp_path):
    with started(os.environ["GDBEXT_TEST_PYTHON"], library, "bare") as process:
        (said,) = both(gdb_path, ["-p", str(process.pid)], tmp_path)
    whole, _, _ = same_frames(said)
    assert whole == 8
    (thread,) = [thread for thread in said.values() if "bare" in [f[1] for f in thread["ours"]]]
    count = known(thread["gdb"])
    assert thread["gdb"][count - 1][2] == "bare" and count < len(thread["gdb"])


def test_cores_have_gdbs_frames(cases, gdb_path, tmp_path):
    """A core that gdb wrote and one of the collector."""
    core, snapshot = str(tmp_path / "core"), str(tmp_path / "snapshot")
    run_gdb(gdb_path, [f"gcore {core}"], ["-p", str(cases.pid)], load=False, before=["set auto-solib-add off"])
    collect(cases.pid, snapshot, "gdbext.stacks.prefetch")
    for file in (core, snapshot):
        program = os.readlink(f"/proc/{cases.pid}/exe")
        (said,) = both(gdb_path, [program, "-c", file], tmp_path)
        whole, frames, _ = same_frames(said)
        assert whole == 8 and frames > 150


def entries(pid, tmp_path):
    """{tid: [(kind, function, library)]} as the pack places them, innermost first, without what lies in the interpreter."""
    file = str(tmp_path / "placed")
    collect(pid, file, "gdbext.stacks.prefetch")
    view, found = ProcessView(CoreFileTarget(file)), {}
    inside = os.path.basename(view.rt.library.path)
    for thread in view.threads:
        assert not thread.reasons, thread.reasons
        found[thread.tid] = rows = []
        for entry in thread.entries:
            if entry.python is not None:
                rows.append(("Python", entry.python.function.rpartition(".")[2], ""))
            elif os.path.basename(entry.native.library) != inside:
                rows.append(("C", entry.native.function, os.path.basename(entry.native.library)))
    return found, inside


def compared(ours, theirs):
    """Asserts that two lists of frames are equal; -> (frames, those of C)."""
    assert [(k, f if k == "Python" else lib) for k, f, lib in ours] == [(k, f if k == "Python" else lib) for k, f, lib in theirs]
    for (_, own, _), (_, other, _) in zip(ours, theirs):
        if own and other and not other.startswith(("0x", "?")):
            assert plain(own) == plain(other) or {plain(own), plain(other)} in ({"gsignal", "raise"}, {"clone3", "clone"}), (
                own,
                other,
            )
    return len(ours), sum(kind == "C" for kind, _, _ in ours)


def test_native_frames_stand_between_python_frames_where_pystack_puts_them(cases, tmp_path):
    pytest.importorskip("pystack")
    ours, inside = entries(cases.pid, tmp_path)
    tool = os.path.join(os.path.dirname(os.environ["GDBEXT_TEST_PYTHON"]), "pystack")
    text = subprocess.run([tool, "remote", "--native", str(cases.pid)], capture_output=True, text=True, check=True).stdout
    threads = frames = native = 0
    for block in text.split("Traceback for thread ")[1:]:
        theirs = []
        for line in block.splitlines():
            found = _LINE.match(line.strip())
            if found and not found[4] and os.path.basename(found[5] or "") != inside:
                kind, _, function, _, place = found.groups()
                theirs.append(
                    (kind, function.rpartition(".")[2] if kind == "Python" else function, os.path.basename(place or ""))
                )
        count, of_c = compared(ours[int(block.split()[0])], theirs[::-1])
        threads, frames, native = threads + 1, frames + count, native + of_c
    assert threads == 8 and frames > 100 and native > 50


def test_native_frames_stand_between_python_frames_where_pyspy_puts_them(cases, tmp_path):
    """py-spy leaves the program's own beginning and some libraries' frames out, and shows inlined functions as frames: the frames
    of one library that follow each other count as one, and what it shows must be in ours, in its order."""
    tool = os.path.join(os.path.dirname(os.environ["GDBEXT_TEST_PYTHON"]), "py-spy")
    if not os.path.exists(tool):
        pytest.skip("no py-spy in the environment of the tests")
    ours, inside = entries(cases.pid, tmp_path)
    said = subprocess.run([tool, "dump", "--native", "--json", "--pid", str(cases.pid)], capture_output=True, check=True).stdout
    matched = 0
    for thread in json.loads(said):
        rows = [(kind, name if kind == "Python" else library) for kind, name, library in ours[thread["os_thread_id"]]]
        theirs = []
        for frame in thread["frames"]:
            library = os.path.basename(frame["module"] or "")
            if not library:
                theirs.append(("Python", frame["name"].rpartition(".")[2]))
            elif library != inside:
                theirs.append(("C", library))
        left = iter(row for row, _ in itertools.groupby(rows))
        theirs = [row for row, _ in itertools.groupby(theirs)]
        assert all(row in left for row in theirs), (thread["os_thread_id"], rows, theirs)
        matched += len(theirs)
    assert matched > 60
