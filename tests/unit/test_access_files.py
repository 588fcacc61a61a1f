"""Which files are opened, and what reading may cost."""

import json
import os
import random
import shutil
import subprocess
import sys
import time

import pytest

from gdbext.access import files, in_root
from gdbext.engines.processes import ProcessRef
from gdbext.errors import GdbextError, NotFoundError
from gdbext.render import files as written
from gdbext.stacks import snapshots

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "absent", "nul"])
def test_only_regular_files_are_opened_and_nothing_waits(tmp_path, kind):
    path = {"device": "/dev/zero", "folder": str(tmp_path), "absent": str(tmp_path / "no"), "nul": "/tmp/a\0b"}.get(kind)
    if kind == "fifo":
        path = str(tmp_path / "fifo")
        os.mkfifo(path)
    with pytest.raises(NotFoundError):
        files.open_regular(path)
    with pytest.raises(NotFoundError):
        files.source_lines(path)


def test_what_is_no_regular_file_is_not_even_opened(tmp_path):
    """A writer that waits at a FIFO gets through as soon as anybody opens it; a watchdog would be armed."""
    path = str(tmp_path / "fifo")
    os.mkfifo(path)
    code = f"import os; print('waits', flush=True); os.open({path!r}, os.O_WRONLY); print('opened', flush=True)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout.readline() == "waits\n"
        while not _waits_in_open(writer.pid):
            time.sleep(0.01)
        with pytest.raises(NotFoundError, match="not a regular file"):
            files.open_regular(path)
        with pytest.raises(OSError, match="not a regular file"):
            in_root.open_in_root(os.getpid(), path)
        assert _waits_in_open(writer.pid)
        writer.kill()
        assert writer.stdout.read() == ""


def _waits_in_open(pid):
    with open(f"/proc/{pid}/wchan") as f:
        return f.read() in ("wait_for_partner", "fifo_open")


def test_lines_of_a_source_are_bounded(tmp_path):
    (tmp_path / "a.py").write_bytes(b"one\n\xff\xfe two\n" + b"x" * (20 << 20))
    lines = files.source_lines(str(tmp_path / "a.py"))
    assert lines[0] == "one" and len(lines) == 3 and len(lines[2]) < files.MAX_SOURCE


def test_a_budget_ends_what_a_file_makes_endless(monkeypatch):
    budget = files.Budget("f", 1000, 60)
    budget.take(1000)
    with pytest.raises(GdbextError, match="^f: damaged: reading it would take more"):
        budget.take(1)
    with pytest.raises(GdbextError, match="^f: damaged"):
        files.Budget("f").take(-1)
    late = files.Budget("f", seconds=1.0)
    now = time.thread_time()
    monkeypatch.setattr(files.time, "thread_time", lambda: now + 2)
    with pytest.raises(GdbextError, match="not read in 1 s"):
        late.take(0)


def test_what_damage_raises_is_one_line_that_names_the_file():
    for damage in (
        lambda: json.loads("[" * 100_000),
        lambda: json.loads("nonsense\n"),
        lambda: {}["absent"],
        lambda: [][1],
        lambda: 1 + "a",
        lambda: b"\xff".decode(),
        lambda: 1 // 0,
        lambda: (_ for _ in ()).throw(RuntimeError("encrypted, password required")),  # as zipfile says it
    ):
        with pytest.raises(GdbextError, match=r"^the file: damaged \(") as error, files.reading("the file", RuntimeError):
            damage()
        assert "\n" not in str(error.value)
    with pytest.raises(NotFoundError, match="as it was"), files.reading("the file"):
        raise NotFoundError("as it was")


@pytest.mark.parametrize("room", [1 << 14, 7])
def test_bytes_of_a_file_are_a_sequence(tmp_path, monkeypatch, room):
    monkeypatch.setattr(files, "BLOCK", room)
    monkeypatch.setattr(files, "NEAR", room)
    path, chance = tmp_path / "f", random.Random(3)
    whole = bytes(chance.choice(b"ab\0") for _ in range(3000)) + b"last"
    path.write_bytes(whole)
    found = files.FileBytes(str(path))
    assert len(found) == len(whole) and found[0] == whole[0] and found[3003] == whole[-1] and found[:] == whole
    for _ in range(500):
        low, high = chance.randrange(3100), chance.choice((None, chance.randrange(3100)))
        assert found[low:high] == whole[low:high]
        word = bytes(chance.choice(b"ab\0") for _ in range(chance.randrange(1, 12)))
        assert found.find(word, low, high) == whole.find(word, low, high)
        assert found.rfind(word, low, high) == whole.rfind(word, low, high)
    assert found.find(b"last") == 3000 and found.rfind(b"nowhere") == found.find(b"lastx") == -1
    with pytest.raises(IndexError):
        found[3004]


CUT = """
import os, struct, sys
from gdbext.access import elf, cfi, files
from gdbext.errors import GdbextError
from gdbext.torch import files as tensors
path, kind = sys.argv[1:]
if kind == "library":
    found = elf.Elf(path)
    read = lambda: (found.symbol("printf"), cfi.table_of(found), found.function_at(0x30000), found.symbols_named([b"alloc"]))
else:
    source = tensors.read(path)
    read = lambda: [source.read(box) for box in source.boxes()]
os.truncate(path, 4096)
try:
    read()
    print("read")
except GdbextError as e:
    print(e)
"""


@pytest.mark.parametrize("kind", ["library", "npy", "safetensors"])
def test_a_file_that_its_owner_cuts_short_while_it_is_read_ends_nobody(tmp_path, kind):
    """A mapping of it would: SIGBUS."""
    path = tmp_path / f"cut.{kind}"
    if kind == "library":
        libc = next(line.split()[-1] for line in open("/proc/self/maps") if "/libc.so" in line or "/libc-" in line)
        shutil.copy(libc, path)
    else:
        numpy = pytest.importorskip("numpy")
        if kind == "npy":
            numpy.save(str(path), numpy.zeros((512, 1024)))
        else:
            header = json.dumps({"t": {"dtype": "F64", "shape": [512, 1024], "data_offsets": [0, 1 << 22]}}).encode()
            path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(1 << 22))
    done = subprocess.run([sys.executable, "-c", CUT, str(path), kind], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{path}: it was cut short while it was read\n", "")


def test_a_folder_for_what_is_captured_is_nobody_elses(tmp_path):
    made = [written.folder_for(str(tmp_path / "a" / "b"), "-o") for _ in range(2)]
    assert made == [f"{tmp_path}/a/b"] * 2 and os.stat(made[0]).st_mode & 0o7777 == 0o700
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs").chmod(0o777)
    with pytest.raises(GdbextError, match="could be exchanged: .*theirs is writable by others"):
        written.folder_for(str(tmp_path / "theirs"), "-o")
    (tmp_path / "theirs").chmod(0o1777)
    assert written.folder_for(str(tmp_path / "theirs"), "-o")
    if os.geteuid() == 0:
        os.chown(tmp_path / "theirs", 4711, 4711)
        with pytest.raises(GdbextError, match="belongs to user 4711"):
            written.folder_for(str(tmp_path / "theirs"), "-o")


def test_a_label_leads_a_snapshot_nowhere():
    snap = snapshots.ProcessSnapshot(ProcessRef(7, "../../etc/x\n TP0"))
    assert (
        snapshots.file_name(snap) == ".._.._etc_x__TP0-7.core"
        and snapshots.file_name(snapshots.ProcessSnapshot(ProcessRef(8))) == "8.core"
    )
