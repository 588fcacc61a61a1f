"""The folder in which llm-inject puts its script: the process's own, inside its own root, closed to everybody else."""

import contextlib
import errno
import json
import os
import resource
import stat
import sys

import pytest
from harness.subjects import spawned

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
