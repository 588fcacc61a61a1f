"""Ending all that came of one command: children, orphans with sessions and groups of their own, those that ignore SIGTERM."""

import glob
import os
import signal
import subprocess
import sys
import time

import pytest
from tools import engines, share, supervise

# writes the pids of: itself, a child, and an orphan that has left session, group and parent, ignores SIGTERM and is stopped
TREE = """
import os, signal, sys, time
def note():
    with open(sys.argv[1], "a") as f:
        f.write("%d\\n" % os.getpid())
note()
if not os.fork():
    note()
    time.sleep(1000)
if not os.fork():
    os.setsid()
    if not os.fork():
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        note()
        if sys.argv[2] == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        while True:
            time.sleep(1000)
    os._exit(0)
os.wait()
if sys.argv[2] == "ends":
    while len(open(sys.argv[1]).readlines()) < 3:  # who has noted nothing yet would be ended with it
        time.sleep(0.01)
    sys.exit(7)
time.sleep(1000)
"""


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(condition, what, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def start(tmp_path, how, pids=3):
    noted = tmp_path / "pids"
    supervisor = subprocess.Popen(
        [sys.executable, supervise.__file__, sys.executable, "-c", TREE, str(noted), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    until(lambda: noted.exists() and len(noted.read_text().split()) == pids, "the tree did not come up")
    return supervisor, [int(p) for p in noted.read_text().split()]


@pytest.fixture(autouse=True)
def short_patience(monkeypatch):
    monkeypatch.setattr(supervise, "PATIENCE", 0.3)
    monkeypatch.setenv("GDBEXT_SUPERVISE_PATIENCE", "0.3")  # of those that are started


@pytest.mark.parametrize("how", ["plain", "stopped"])
@pytest.mark.parametrize("end", ["stdin", signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_everything_ends_when_told(tmp_path, how, end):
    supervisor, pids = start(tmp_path, how)
    assert int(supervisor.stdout.readline()) == pids[0] and all(map(alive, pids))
    assert set(pids) <= set(supervise.descendants(supervisor.pid))
    if end == "stdin":
        supervisor.stdin.close()
    else:
        supervisor.send_signal(end)
    assert supervisor.wait(60) == 0
    assert not any(map(alive, pids))


def test_everything_ends_with_the_one_who_started_it(tmp_path):
    noted = tmp_path / "pids"
    starter = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess, sys, time\nsubprocess.Popen(sys.argv[1:], "
            "stdin=subprocess.PIPE, start_new_session=True)\ntime.sleep(1000)",
            sys.executable,
            supervise.__file__,
            sys.executable,
            "-c",
            TREE,
            str(noted),
            "plain",
        ],
        stdout=subprocess.DEVNULL,
    )
    until(lambda: noted.exists() and len(noted.read_text().split()) == 3, "the tree did not come up")
    pids = [int(p) for p in noted.read_text().split()]
    starter.kill()
    starter.wait()
    until(lambda: not any(map(alive, pids)), "killing the starter left processes behind")


def test_a_command_that_ends_takes_its_orphans_along(tmp_path):
    supervisor, pids = start(tmp_path, "ends")
    assert supervisor.wait(60) == 7
    assert not any(map(alive, pids))


def test_an_engine_that_fails_to_start_is_one_error_and_leaves_nothing(tmp_path):
    folder = tmp_path / "engine"
    folder.mkdir()
    code = "import os, sys, time\nos.fork()\ntime.sleep(0.2)\nsys.exit('no such model')"
    with pytest.raises(engines.Failed, match="(?s)status 1.*no such model"):
        with engines.Engine("Test", [sys.executable, "-c", code], dict(os.environ), str(folder)) as engine:
            engine.wait_ready(timeout=60)
    assert not engine.pids() and not folder.exists()


def test_an_engine_is_ended_by_an_exception(tmp_path):
    folder = tmp_path / "engine"
    folder.mkdir()
    with pytest.raises(KeyboardInterrupt):
        with engines.Engine(
            "Test", [sys.executable, "-c", TREE, str(tmp_path / "pids"), "plain"], dict(os.environ), str(folder)
        ) as engine:
            until(lambda: len(engine.pids()) >= 3, "the tree did not come up")
            pids = engine.pids()
            raise KeyboardInterrupt
    assert not any(map(alive, pids)) and not engine.alive()


def test_an_engine_leaves_the_machine_its_share_and_ends_with_its_group(tmp_path):
    code = (
        "import os, time; print(os.nice(0), open('/proc/self/cgroup').read(), flush=True, file=open('said', 'w')); "
        "time.sleep(1000)"
    )
    folder = tmp_path / "engine"
    folder.mkdir()
    before = os.nice(0)
    with engines.Engine(
        "Test", [sys.executable, "-c", code], dict(os.environ, GDBEXT_ENGINE_SHARE="nice quota"), str(folder)
    ) as engine:
        until(lambda: (folder / "said").exists() and (folder / "said").read_text().strip(), "it did not start")
        said = (folder / "said").read_text()
        supervisor = engine._supervisor.pid
        assert int(said.split()[0]) == max(before, share.NICE) and "priority 10 lower" in engine.share
        assert ("processors" in engine.share) == (f"gdbext-engine-{supervisor}-" in said)
    assert os.nice(0) == before
    assert not [root for root in ("/sys/fs/cgroup/cpu", "/sys/fs/cgroup") if glob.glob(f"{root}/gdbext-engine-{supervisor}-*")]


def test_control_groups_of_those_that_were_killed_go(tmp_path):
    old, used, new = (tmp_path / f"{share.PREFIX}{name}" for name in ("old", "used", "new"))
    for folder in (old, used, new):
        folder.mkdir()
    (used / "inside").mkdir()
    for folder in (old, used):
        os.utime(folder, (1, 1))
    share._remove_left(str(tmp_path))
    assert not old.exists() and used.exists() and new.exists()


def test_each_rank_gets_a_core_it_may_run_on(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 9})
    assert engines.cores_for(2) == "3|5" and engines.cores_for(4) == "3|5|9|3"


def test_shared_memory_that_the_processes_made_and_left_is_removed(tmp_path):
    name, other = f"gdbext-test-{os.getpid()}", f"gdbext-test-{os.getpid()}-other"
    made = f"/dev/shm/{name}"
    with open(f"/dev/shm/{other}", "wb") as f:  # older than the supervisor, mapped by its child: somebody else's
        f.truncate(4096)
    os.utime(f"/dev/shm/{other}")
    time.sleep(1.5)
    code = (
        "import mmap, sys, time\nkept = []\nfor path, mode in zip(sys.argv[1:], ('w+b', 'r+b')):\n    f = open(path, mode)\n"
        "    f.truncate(4096) if 'w' in mode else 0\n    kept.append(mmap.mmap(f.fileno(), "
        "4096))\nprint('up', file=sys.stderr, flush=True)"
        "\ntime.sleep(1000)"
    )
    try:
        supervisor = subprocess.Popen(
            [sys.executable, supervise.__file__, sys.executable, "-c", code, made, f"/dev/shm/{other}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert supervisor.stderr.readline() == b"up\n" and os.path.exists(made)
        supervisor.stdin.close()
        assert supervisor.wait(60) == 0
        assert not os.path.exists(made) and os.path.exists(f"/dev/shm/{other}")
    finally:
        for path in (made, f"/dev/shm/{other}"):
            if os.path.exists(path):
                os.unlink(path)
