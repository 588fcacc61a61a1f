"""Links inside another root end in that root: by openat2, and by hand where the kernel has none."""

import errno
import gc
import os
import subprocess
import sys

import pytest

from gdbext.access import in_root
from gdbext.errors import NotFoundError

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture(params=["openat2", "by hand"])
def way(request, monkeypatch):
    if request.param == "by hand":

        def missing(*_):
            raise OSError(errno.ENOSYS, "no openat2")

        monkeypatch.setattr(in_root, "_openat2", missing)


@pytest.fixture
def root(tmp_path):
    inside = tmp_path / "container"
    (inside / "etc/deep").mkdir(parents=True)
    (inside / "etc/name").write_text("inside")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/name").write_text("outside")
    os.symlink(str(tmp_path / "etc"), inside / "escape")  # absolute: to us it leads out
    os.symlink("/etc", inside / "absolute")
    os.symlink("../../../../etc/name", inside / "etc/deep/up")
    os.symlink("/etc", inside / "etc/deep/from_root")
    os.symlink("loop", inside / "loop")
    os.symlink("name", inside / "etc/link")
    os.mkfifo(inside / "etc/fifo")
    fd = os.open(inside, os.O_PATH)
    yield fd
    os.close(fd)


def read(root, path, flags=os.O_RDONLY):
    with os.fdopen(in_root.open_beneath(root, path, flags), "rb") as f:
        return f.read()


@pytest.mark.usefixtures("way")
def test_links_end_in_the_root(root):
    for path in (
        "etc/name",
        "/etc/name",
        "absolute/name",
        "etc/deep/up",
        "../../etc/name",
        "./etc//deep/../name",
        "etc/link",
        "etc/deep/from_root/name",
    ):
        assert read(root, path) == b"inside", path


@pytest.mark.usefixtures("way")
def test_no_way_leads_out(root):
    with pytest.raises(FileNotFoundError):
        in_root.open_beneath(root, "escape/name")
    for path, flags in (("loop", 0), ("etc/link", os.O_NOFOLLOW)):
        with pytest.raises(OSError) as e:
            in_root.open_beneath(root, path, flags)
        assert e.value.errno == errno.ELOOP
    with pytest.raises(OSError, match="not a regular file"):
        in_root.open_beneath(root, "etc/fifo", os.O_RDONLY | os.O_NONBLOCK)


def test_descriptors_are_closed(root, way):
    gc.collect()  # files that earlier tests left behind
    before = set(os.listdir("/proc/self/fd"))
    for path in ("etc/name", "escape/name", "loop", "absolute/name"):
        try:
            os.close(in_root.open_beneath(root, path))
        except OSError:
            pass
    assert set(os.listdir("/proc/self/fd")) == before


def test_the_process_that_is_named():
    with os.fdopen(in_root.open_in_root(os.getpid(), "/proc/self/comm"), "rb") as f:
        assert f.read()


def test_a_name_is_followed_inside_the_root(tmp_path):
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "usr" / "lib").mkdir(parents=True)
    outside.mkdir()
    (outside / "lib.so").write_text("the host's")
    (root / "usr" / "lib" / "lib.so").write_text("the container's")
    (root / "lib").symlink_to("usr/lib")
    (root / "absolute").symlink_to("/usr/lib")
    (root / "srv").symlink_to(str(outside))  # absolute: on the host it leads out of the root
    (root / "up").symlink_to("../../../../outside/lib.so")
    (root / "round").symlink_to("round")

    def text(path):
        return open(in_root.resolve(str(root), path)).read()

    assert (
        text("/usr/lib/lib.so")
        == text("/lib/lib.so")
        == text("/absolute/lib.so")
        == text("/lib/../lib/./lib.so")
        == "the container's"
    )
    for path in ("/srv/lib.so", "/up", "/../outside/lib.so"):
        with pytest.raises(FileNotFoundError):
            text(path)
    with pytest.raises(NotFoundError, match="too many symbolic links"):
        in_root.resolve(str(root), "/round")
    assert in_root.resolve("", "/any/../thing") == "/any/../thing"


TWO_ROOTS = """
import ctypes, os, sys, time
from gdbext.access.proc import process_root
libc = ctypes.CDLL(None, use_errno=True)
def mounted(kind, what, over, flags):
    if libc.mount(what, over.encode(), kind, flags, None):
        sys.exit(f"skip: mount {over}: {os.strerror(ctypes.get_errno())}")
if libc.unshare(0x20000):
    sys.exit("skip: unshare: " + os.strerror(ctypes.get_errno()))
mounted(None, b"none", "/", 0x44000)
ours, theirs = sys.argv[1:]
for folder in (ours, theirs):
    mounted(b"tmpfs", b"none", folder, 0)
os.mkdir(ours + "/proc")
mounted(None, b"/proc", ours + "/proc", 0x5000)
numbers = [os.stat(folder).st_ino for folder in (ours, theirs)]
reads, writes = os.pipe()
child = os.fork()
if not child:
    os.chroot(theirs)
    os.write(writes, b"x")
    time.sleep(600)
os.read(reads, 1)
os.chroot(ours)
print(numbers[0] == numbers[1], process_root(child) == f"/proc/{child}/root", process_root(os.getpid()) == "")
os.kill(child, 9)
os.waitpid(child, 0)
"""


def test_roots_of_the_same_number_on_two_devices_are_two(tmp_path):
    """Every new file system numbers its root alike."""
    folders = [tmp_path / "ours", tmp_path / "theirs"]
    for folder in folders:
        folder.mkdir()
    done = subprocess.run([sys.executable, "-c", TWO_ROOTS, *folders], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.stderr.startswith("skip: "):
        pytest.skip("no permission to mount")
    assert done.stdout == "True True True\n", done.stderr
