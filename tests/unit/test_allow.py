"""`gdbext allow`: what it puts into an image's site-packages, and what that does as a Python starts."""

import glob
import os
import re
import signal
import subprocess
import sys
import tempfile

import pytest

from gdbext.errors import GdbextError
from gdbext.setup import allow

# A FAKE of ctypes: it prints what the C library would be asked for, which a kernel without Yama refuses.
FAKE = """
class CDLL:
    def __init__(self, name): pass
    def prctl(self, *words): print("prctl", *words, flush=True)
def c_ulong(number): return number
"""
PYTHONS = sorted(
    {sys.executable}
    | set(glob.glob(os.path.expanduser("~/.pyenv/versions/3.[89]*/bin/python")))
    | set(glob.glob(os.path.expanduser("~/.pyenv/versions/3.1[0-9]*/bin/python")))
    | set(glob.glob(os.path.expanduser("~/.cache/gdbext/pythons/3.1[0-9]/**/bin/python3"), recursive=True))
)


@pytest.fixture
def folder(tmp_path):
    allow.change(str(tmp_path), False, lambda text: None)
    return tmp_path


def ran(folder, code, python=sys.executable, **environ):
    """What a Python prints that begins with the folder as one of its site-packages."""
    start = f"import site; site.addsitedir({str(folder)!r}); {code}"
    env = {**{k: v for k, v in os.environ.items() if not k.startswith("GDBEXT_")}, "PYTHONPATH": "", **environ}
    done = subprocess.run([python, "-c", start], capture_output=True, text=True, env=env, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("python", PYTHONS, ids=lambda path: re.sub(r"\W+", "-", path[-40:]))
def test_each_python_starts_with_it_in_silence(folder, python):
    assert ran(folder, "print('on')", python) == (0, "on\n", "")
    assert ran(folder, "print('on')", python, GDBEXT_DUMP="USR2") == (0, "on\n", "")


def test_it_asks_the_kernel_once_and_in_each_fork(folder):
    (folder / "ctypes.py").write_text(FAKE)
    forked = "import os; pid = os.fork(); pid and os.waitpid(pid, 0)"
    line = f"prctl {0x59616D61} -1 0 0 0\n"
    env = {"PYTHONPATH": str(folder)}
    assert ran(folder, forked, **env) == (0, 2 * line, "")
    assert ran(folder, forked, **env, GDBEXT_ALLOW="0") == (0, "", "")


def test_what_fails_in_it_ends_nothing(folder):
    (folder / "ctypes.py").write_text("raise RuntimeError")
    assert ran(folder, "print('on')", PYTHONPATH=str(folder)) == (0, "on\n", "")


def test_stacks_at_a_signal_if_it_is_asked_for(folder):
    kill = "import os; os.kill(os.getpid(), 12); print('on')"
    status, said, error = ran(folder, kill, GDBEXT_DUMP="USR2")
    assert (status, said) == (0, "on\n") and "most recent call first" in error
    assert ran(folder, kill)[0] == -signal.SIGUSR2
    assert ran(folder, kill, GDBEXT_DUMP="USR2", GDBEXT_ALLOW="0")[0] == -signal.SIGUSR2
    status, said, error = ran(folder, kill, GDBEXT_DUMP="KILL")
    assert status == -signal.SIGUSR2


def test_a_handler_that_is_there_is_left_alone(tmp_path):
    (tmp_path / "a.pth").write_text("import signal; signal.signal(12, signal.SIG_IGN)\n")
    allow.change(str(tmp_path), False, lambda text: None)
    kill = "import os; os.kill(os.getpid(), 12); print('on')"
    assert ran(tmp_path, kill, GDBEXT_DUMP="USR2") == (0, "on\n", "")


def test_twice_is_once_and_removed_is_gone(folder):
    assert not any(one["changed"] for one in allow.change(str(folder), False, lambda text: None)["files"])
    assert all(one["changed"] for one in allow.change(str(folder), True, lambda text: None)["files"])
    assert os.listdir(folder) == [] and not any(
        one["changed"] for one in allow.change(str(folder), True, lambda text: None)["files"]
    )


@pytest.fixture
def masked():
    before = os.umask(0)
    yield os.umask
    os.umask(before)


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o027, 0o777, 0o000])
@pytest.mark.parametrize("there", [None, 0o600, 0o640, 0o666, 0o444])
def test_each_users_python_can_read_it_whatever_the_umask(mask, there, tmp_path, masked):
    """Also where a run under another umask has left it unreadable, or writable by all."""
    if there is not None:
        allow.change(str(tmp_path), False, lambda text: None)
        for path in tmp_path.iterdir():
            path.chmod(there)
    masked(mask)
    changed = [one["changed"] for one in allow.change(str(tmp_path), False, lambda text: None)["files"]]
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    good = 0o444 if there == 0o444 else 0o644
    assert modes == {allow.MODULE: good, allow.PATH: good} and changed == [there != 0o444] * 2


@pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
def test_another_users_python_may_load_it(masked):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        masked(0o077)
        allow.change(folder, False, lambda text: None)
        modes = {name: oct(os.stat(os.path.join(folder, name)).st_mode & 0o777) for name in os.listdir(folder)}
    assert len(modes) == 2 and set(modes.values()) == {"0o644"}, modes


@pytest.mark.parametrize("remove", [False, True])
def test_what_is_no_file_is_one_line_and_keeps_nobody_waiting(remove, tmp_path):
    os.mkfifo(tmp_path / allow.MODULE)
    code = f"from gdbext.setup import allow; allow.change({str(tmp_path)!r}, {remove})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert re.match(rf"gdbext.errors.*{allow.MODULE}: not a regular", done.stderr.splitlines()[-1]), done.stderr
    assert (tmp_path / allow.MODULE).is_fifo()


def test_a_file_of_somebody_else_stays(tmp_path):
    (tmp_path / allow.MODULE).write_text("mine")
    for remove in (False, True):
        with pytest.raises(GdbextError):
            allow.change(str(tmp_path), remove, lambda text: None)
    assert (tmp_path / allow.MODULE).read_text() == "mine"


def test_a_reviewer_reads_it_in_a_minute():
    assert allow.text().count("\n") < 60 and "GDBEXT_ALLOW" in allow.text()
