"""What commands write: complete or not there whatever ends them, in nobody's place, and through one door."""

import ast
import os
import signal
import socket
import subprocess
import sys
import time

import pytest
from harness.gdb_run import ROOT

from gdbext.errors import GdbextError
from gdbext.render import files

# Modules of the pack that open a file to write, make a folder or a name, besides the one door, and why.
OTHERS = {
    "access/cgroups.py": "a control group's list of processes, for the guard",
    "access/collect.py": "the file for one collector, given open",
    "access/collector.py": "what is given open",
    "access/core_writer.py": "what is given open",
    "access/guard_process.py": "/dev/null",
    "access/helpers.py": "/dev/null",
    "access/recovery.py": "a process's memory, where gdb's breakpoints are taken out",
    "access/kept_indexes.py": "the folder of gdb's indexes, in the user's own cache folder",
    "access/kept_symbols.py": "a library's answers, in the user's own cache folder",
    "access/room.py": "copies without a name",
    "access/sweeper.py": "a process's memory, where a request to run what is removed is taken back",
    "bundle/format.py": "a member of an archive, in the file that render/files.py has made",
    "control/quirks/stuck_open.py": "a FIFO's writer, which writes nothing",
    "control/inject.py": "a process's memory, by llm-inject",
    "control/shared_folder.py": "a new folder in the process's own /tmp, its files by descriptor",
    "control/time_limit.py": "/dev/null",
    "commands/llm_top.py": "/dev/null",
    "agents/server.py": "/dev/null",
    "agents/skill.py": "the folders of a skill, whose files render/files.py writes",
    "package.py": "its own oom_score_adj",
    "session/node_start.py": "on another machine: the pack in the user's cache folder, and in memory",
    "session/ray_carrier.py": "a file without a name, by a program of Ray's Python",
    "setup/initfile.py": "gdb's own init file, which its user may have linked elsewhere",
    "setup/inside.py": "the answer, in a file that setup/outside.py has made for it",
    "setup/unpack.py": "folders of the pack unpacked for gdb, whose files render/files.py writes",
    "render/streams.py": "/dev/null",
    "torch/files.py": "a part of an archive that is open",
    "torch/layer_records.py": "values without a name, until all are there",
    "watch/events.py": "lines that are appended to a file",
    "watch/metrics.py": "a textfile, which is replaced whole every few seconds",
    "wheels.py": "the folder for gdb's Python",
    "__main__.py": "/dev/null",
    "watch/moments.py": "a folder for a moment of several watches, under a name of its own, then renamed",
}
MAKE = {
    *"mkdtemp mkstemp NamedTemporaryFile TemporaryDirectory TemporaryFile SpooledTemporaryFile".split(),
    *"replace rename renames link symlink makedirs mkdir mkfifo mknod truncate write_text write_bytes touch".split(),
    *"copy copy2 copyfile copytree move save savez savez_compressed tofile savefig dump".split(),
}
ON = {"os", "tempfile", "shutil", "pathlib", "numpy", "np", "self", "figure"}
CREATES = {"O_CREAT", "O_WRONLY", "O_RDWR", "O_TMPFILE", "O_APPEND"}


def writes(tree):
    """Lines of calls that can make or fill a file."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        where = getattr(getattr(node.func, "value", None), "id", "")
        modes = [*node.args[1:2], *(k.value for k in node.keywords if k.arg == "mode")]
        text = next((m.value for m in modes if isinstance(m, ast.Constant) and isinstance(m.value, str)), "")
        flags = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        if name in ("open", "fdopen") and where != "os" and set(text) & set("wax+"):
            yield node.lineno
        elif name == "open" and where == "os" and flags & CREATES or name in MAKE and where in ("os", "tempfile", "shutil"):
            yield node.lineno
        elif name in ("write_text", "write_bytes", "tofile", "savez", "savez_compressed"):
            yield node.lineno


@pytest.mark.sources
def test_nothing_is_written_but_through_the_one_door():
    found = {}
    for folder, _, names in os.walk(os.path.join(ROOT, "gdbext")):
        for name in (n for n in names if n.endswith(".py")):
            path = os.path.join(folder, name)
            with open(path) as f:
                lines = list(writes(ast.parse(f.read())))
            if lines:
                found[os.path.relpath(path, os.path.join(ROOT, "gdbext"))] = lines
    assert "render/files.py" in found
    del found["render/files.py"]
    assert set(found) == set(OTHERS), {name: found.get(name) for name in set(found) ^ set(OTHERS)}


def content(path):
    with open(path, "rb") as f:
        return f.read()


def taken(tmp_path):
    """{what stands at a name: its path}, and what may not happen to it."""
    (tmp_path / "file").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    (tmp_path / "core").write_bytes(b"\x7fELF\2\1\1" + bytes(57))
    os.mkfifo(tmp_path / "fifo")
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.path.relpath(tmp_path / "socket"))
    listening.close()
    names = ["link", "dangling", "folder", "core", "fifo", "socket"]
    if os.geteuid() == 0:
        os.mknod(tmp_path / "device", 0o20600, os.makedev(1, 3))
        (tmp_path / "theirs").write_text("kept")
        os.chown(tmp_path / "theirs", 4711, 4711)
        names += ["device", "theirs"]
    return names


@pytest.mark.parametrize("force", [False, True])
def test_what_is_no_file_of_ours_stays_what_it_is(tmp_path, force):
    names = taken(tmp_path)
    before = {name: os.lstat(tmp_path / name) for name in names}
    for name in names:
        with pytest.raises(GdbextError, match="name another file") as e, files.writing(str(tmp_path / name), "-o", force) as f:
            f.write(b"new")
        assert "\n" not in str(e.value)
        now = os.lstat(tmp_path / name)
        assert (now.st_mode, now.st_ino, now.st_size) == (before[name].st_mode, before[name].st_ino, before[name].st_size), name
    assert content(tmp_path / "file") == b"kept"
    assert sorted(os.listdir(tmp_path)) == sorted([*names, "file"])
    for path in (
        tmp_path / "no" / "file",
        tmp_path / "file" / "x",
        "/proc/self/x",
        "/dev/full/x",
        "a\0b",
        tmp_path / ("n" * 300),
    ):
        with pytest.raises(GdbextError), files.writing(str(path), "-o", force) as f:
            f.write(b"new")


@pytest.fixture(params=["nameless", "named"])
def way(request, monkeypatch):
    """With O_TMPFILE, and on a file system that has none."""
    if request.param == "named":
        monkeypatch.setattr(files.os, "O_TMPFILE", os.O_RDWR | os.O_DIRECTORY)  # EISDIR, as an old kernel says
    return request.param


def test_a_file_of_ours_is_replaced_by_force_alone_and_whole(tmp_path, way):
    path = tmp_path / "file"
    with files.writing(str(path), "-o") as f:
        f.write(b"one")
        assert not path.exists()
    with pytest.raises(GdbextError, match="-force replaces it"), files.writing(str(path), "-o") as f:
        f.write(b"two")
    assert content(path) == b"one"
    with files.writing(str(path), "-o", True) as f:
        f.write(b"three")
        f.flush()
        assert content(path) == b"one"
    assert content(path) == b"three"
    with pytest.raises(ZeroDivisionError), files.writing(str(path), "-o", True) as f:
        f.write(b"four")
        raise ZeroDivisionError
    assert content(path) == b"three" and os.listdir(tmp_path) == ["file"]
    with pytest.raises(GdbextError, match="there already"), files.writing(str(tmp_path / "late"), "-o") as f:
        (tmp_path / "late").write_text("somebody's")
    assert content(tmp_path / "late") == b"somebody's" and sorted(os.listdir(tmp_path)) == ["file", "late"]


def test_modes_are_those_asked_for_less_the_umask(tmp_path, way):
    before = os.umask(0o027)
    try:
        for name, mode, wanted in (("page", 0o666, 0o640), ("core", 0o600, 0o600)):
            draft = files.Draft(str(tmp_path / name), "-o", mode=mode)
            draft.keep()
            draft.close()
            assert os.stat(tmp_path / name).st_mode & 0o777 == wanted
    finally:
        os.umask(before)


def test_a_core_is_replaced_where_allowed_and_its_folders_are_made(tmp_path):
    (tmp_path / "core").write_bytes(b"\x7fELF")
    for force, may, why in ((False, True, "-force replaces it"), (True, False, "nothing replaces"), (False, False, "is a core")):
        with pytest.raises(GdbextError, match=why):
            files.Draft(str(tmp_path / "core"), "-o", force, may_replace=lambda path: may)
    draft = files.Draft(str(tmp_path / "core"), "-o", True, may_replace=lambda path: True)
    draft.write("new")
    draft.keep()
    assert content(tmp_path / "core") == b"new"
    draft = files.Draft(str(tmp_path / "a" / "b" / "c"), "-o", folders=True)
    draft.write("new")
    assert os.listdir(tmp_path) == ["core"]
    assert content(draft.keep()) == b"new" and os.stat(tmp_path / "a" / "b").st_mode & 0o777 == 0o700


WRITES = """
import os, sys
sys.path.insert(0, sys.argv[1])
from gdbext.render import files
path, force = sys.argv[2], len(sys.argv) > 3
print("ready", flush=True)
while True:
    with files.writing(path, "-o", force) as f:
        for i in range(100):
            f.write(b"x" * 1000)
    if not force:
        os.unlink(path)
"""


@pytest.mark.parametrize("force", [[], ["force"]])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGKILL])
def test_a_writer_that_is_ended_leaves_a_whole_file_or_none(tmp_path, number, force):
    for delay in (0.0, 0.0007, 0.003, 0.01, 0.0213):
        words = [sys.executable, "-c", WRITES, ROOT, str(tmp_path / "file"), *force]
        with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(delay)
            process.send_signal(number)
        left = os.listdir(tmp_path)
        assert left in ([], ["file"])
        assert not left or os.path.getsize(tmp_path / "file") == 100_000
        if left:
            os.unlink(tmp_path / "file")
