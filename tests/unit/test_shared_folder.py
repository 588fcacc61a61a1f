"""The folder in which llm-inject puts its script: the process's own, inside its own root, closed to everybody else."""

import contextlib
import errno
import json
import os
import resource
import shutil
import signal
import stat
import sys

import pytest
from harness import cgroups
from harness.gdb_run import ROOT
from harness.heartbeats import eventually
from harness.subjects import spawned

from gdbext.access import sweeper
from gdbext.access.proc import ProcTarget
from gdbext.control.shared_folder import SharedTempDir
from gdbext.errors import GdbextError

STRANGER = 65534
root_only = pytest.mark.skipif(os.getuid() != 0, reason="only root runs processes of another user and root folder")


@contextlib.contextmanager
def process(*steps):
    """A process that has done `steps` (Python) and waits."""
    code = "import os, sys\n" + "\n".join(steps) + "\nprint('ready', flush=True)\nsys.stdin.read()"
    with spawned([sys.executable, "-c", code], ready="ready") as one:
        yield ProcTarget(one.pid)


@contextlib.contextmanager
def folder_of(target):
    folder = SharedTempDir(target)
    try:
        yield folder
    finally:
        folder.remove()
        folder.close()


def test_what_is_written_is_read_and_nothing_is_left():
    with process() as target, folder_of(target) as folder:
        folder.write("run.py", "pass\n")
        assert stat.S_IMODE(os.stat(os.path.dirname(folder.here("run.py"))).st_mode) == 0o700
        assert stat.S_IMODE(os.stat(folder.here("run.py")).st_mode) == 0o600
        with open(folder.path("result"), "w") as f:
            json.dump({"ok": True}, f)
        assert folder.read_json("result") == {"ok": True} and folder.read_json("none") is None
        with pytest.raises(GdbextError, match="run.py cannot be written: File exists"):
            folder.write("run.py", "another")
        path = os.path.dirname(folder.path("run.py"))
    assert not os.path.exists(path)


def test_what_cannot_be_written_is_one_line_and_leaves_nothing(tmp_path):
    """A full disk, as a limit on the size of files makes it; a folder that cannot be opened once it is made."""
    (tmp_path / "tmp").mkdir()
    with process() as target, pytest.MonkeyPatch.context() as patch:
        patch.setattr("gdbext.control.shared_folder.open_in_root", lambda pid, path, flags: os.open(tmp_path / "tmp", flags))
        kept = resource.getrlimit(resource.RLIMIT_FSIZE)
        with folder_of(target) as folder:
            resource.setrlimit(resource.RLIMIT_FSIZE, (0, kept[1]))
            try:
                with pytest.raises(GdbextError, match="run.py cannot be written: File too large"):
                    folder.write("run.py", "pass\n")
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, kept)
        assert os.listdir(tmp_path / "tmp") == []
        opened = os.open

        def fails(name, *flags, **more):
            if str(name).startswith("gdbext-inject-"):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return opened(name, *flags, **more)

        patch.setattr(os, "open", fails)
        with pytest.raises(GdbextError, match="no folder can be made in its /tmp: Too many open files"):
            SharedTempDir(target)
    assert os.listdir(tmp_path / "tmp") == []


def test_an_answer_that_is_no_plain_file_is_not_read(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text('{"ok": true}')
    with process() as target, folder_of(target) as folder:
        os.symlink(secret, folder.here("result"))
        assert folder.read_json("result") is None
        os.unlink(folder.here("result"))
        os.mkfifo(folder.here("result"))
        assert folder.read_json("result") is None
        os.unlink(folder.here("result"))
        for text in ("[" * 100_000, "[1]", "\xff"):
            with open(folder.here("result"), "w") as f:
                f.write(text)
            assert folder.read_json("result") is None


EXCHANGE = """
import os, sys
sys.path.insert(0, sys.argv[1])
from gdbext.access.proc import ProcTarget
from gdbext.control.shared_folder import SharedTempDir
folder = SharedTempDir(ProcTarget(int(sys.argv[2])))
for name in sys.argv[4:]:
    folder.write(name, "pass")
if int(sys.argv[3]):
    folder.sweeper.will_run(int(sys.argv[3]), int(sys.argv[3]) + 8, folder.path("run.py"))
print(folder.path(""), folder.sweeper._process.pid, flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def exchanging(pid, *names, pending=0):
    """-> (a process that shares a folder with another one, the folder's path, the pid of who removes it)"""
    with spawned([sys.executable, "-c", EXCHANGE, ROOT, str(pid), str(pending), *names], ready="/tmp/") as owner:
        path, remover = owner.said.split()
        yield owner, path.rstrip("/"), int(remover)


def gone(path):
    eventually(lambda: not os.path.lexists(path), f"{path} to be gone")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
@pytest.mark.parametrize("names", [[], ["run.py"], ["run.py", "result.new"], list(sweeper.FILES)])
def test_a_folder_goes_with_the_one_that_made_it_however_it_ends(names, number):
    with process() as target, exchanging(target.pid, *names) as (owner, path, _):
        assert sorted(os.listdir(path)) == sorted(names)
        owner.send_signal(number)
        gone(path)


def test_what_others_put_into_it_stays_and_what_lies_in_its_place(tmp_path):
    with process() as target:
        with exchanging(target.pid, "run.py") as (owner, path, remover):
            with open(f"{path}/kept", "w"):
                owner.kill()
            gone(f"/proc/{remover}")
            assert os.listdir(path) == ["kept"]
            shutil.rmtree(path)
        with exchanging(target.pid, "run.py") as (owner, path, remover):
            shutil.move(path, tmp_path / "away")
            os.symlink(tmp_path / "away", path)
            owner.kill()
            gone(f"/proc/{remover}")
            assert os.listdir(tmp_path / "away") == ["run.py"]
            os.unlink(path)


WRITES = """
import os, sys
result = sys.argv[1] + "/result"
print("ready", flush=True)
while os.path.exists(sys.argv[1]):
    try:
        open(result + ".new", "w").close()
        os.replace(result + ".new", result)
    except FileNotFoundError:
        pass
"""


def test_a_folder_into_which_a_script_still_writes_is_removed():
    with process() as target, exchanging(target.pid, "run.py") as (owner, path, _):
        with spawned([sys.executable, "-c", WRITES, path], ready="ready") as script:
            eventually(lambda: os.path.exists(f"{path}/result"), "the script to write")
            owner.kill()
            assert script.wait(120) == 0
        gone(path)


@pytest.mark.parametrize("flag, lies, kept", [(1, "run.py", 0), (1, "another.py", 1), (0, "run.py", 0)])
def test_a_request_to_run_what_is_removed_is_taken_back(flag, lies, kept):
    """A flag and a path in the process's memory, as CPython 3.14 and later have them: what names another script stays."""
    memory = "import ctypes; memory = ctypes.create_string_buffer(512); print(ctypes.addressof(memory), flush=True)"
    with spawned([sys.executable, "-c", f"{memory}; import sys; sys.stdin.read()"], ready="") as one:
        place = int(one.said)
        with exchanging(one.pid, "run.py", pending=place) as (owner, path, _):
            with open(f"/proc/{one.pid}/mem", "r+b", buffering=0) as mem:
                os.pwrite(mem.fileno(), f"{path}/{lies}".encode(), place + 8)
                os.pwrite(mem.fileno(), bytes([flag]), place)
                owner.kill()
                gone(path)
                assert os.pread(mem.fileno(), 1, place) == bytes([kept])


@root_only
def test_who_removes_it_lives_where_the_process_does():
    """gdb's container is removed as a whole, its control group killed: the folder goes all the same."""
    with process() as target, cgroups.made(cgroups.unified()) as group:
        command = [sys.executable, "-c", EXCHANGE, ROOT, str(target.pid), "0", "run.py"]
        with spawned(command, ready="/tmp/", preexec_fn=cgroups.joining(group)) as owner:
            path, remover = owner.said.split()
            assert os.path.isdir(path) and int(remover) not in cgroups.pids(group) and owner.pid in cgroups.pids(group)
            cgroups.end(group)
            gone(path)


@root_only
def test_it_belongs_to_the_processs_user_alone():
    with process(f"os.setgid({STRANGER}); os.setuid({STRANGER})") as target, folder_of(target) as folder:
        folder.write("run.py", "pass\n")
        for path, mode in ((os.path.dirname(folder.here("run.py")), 0o700), (folder.here("run.py"), 0o600)):
            found = os.stat(path)
            assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (STRANGER, STRANGER, mode)


@root_only
def test_an_absolute_link_in_a_container_does_not_lead_out_of_it(tmp_path):
    inside, outside = tmp_path / "container", tmp_path / "outside"
    inside.mkdir()
    outside.mkdir(mode=0o777)
    os.symlink(outside, inside / "tmp")
    with process(f"os.chroot({str(inside)!r})") as target:
        with pytest.raises(GdbextError) as e:
            SharedTempDir(target)
    assert "/tmp cannot be opened" in str(e.value) and not os.listdir(outside)


@root_only
def test_a_tmp_in_which_anybody_renames_is_refused(tmp_path):
    (tmp_path / "tmp").mkdir()
    os.chmod(tmp_path / "tmp", 0o777)
    with process(f"os.chroot({str(tmp_path)!r})") as target:
        with pytest.raises(GdbextError) as e:
            SharedTempDir(target)
        assert "chmod +t" in str(e.value)
        os.chmod(tmp_path / "tmp", 0o1777)
        with folder_of(target) as folder:
            folder.write("run.py", "pass\n")
            assert os.listdir(tmp_path / "tmp") == [folder.name]
