"""Who a lock file names, and children that fail one after the other: by real files, links and processes."""

import os
import subprocess
import time
from types import SimpleNamespace

import pytest

from gdbext.observe.families import Births
from gdbext.stacks import tries
from gdbext.stacks.waits import Edge

HOST = os.uname().nodename


def view(name, pid):
    return SimpleNamespace(
        name=name, pid=pid, threads=[], main=SimpleNamespace(tid=pid), target=SimpleNamespace(pid_here=lambda number: number)
    )


def made(path, pid, age=100.0, breaks=False, opened=()):
    """The edge of a thread that finds a file in its way; beside it the process `pid` is read."""
    then = time.time() - age
    os.utime(path, (then, then), follow_symlinks=False)
    edge = Edge(("a", 1), f"the lock file {path}", "Lock", shared=("made", str(path)), polls=True, breaks=breaks)
    tries.set_maker(edge, opened, {"a": view("a", 1), "b": view("b", pid)})
    return edge


def ended():
    done = subprocess.Popen(["true"])
    done.wait()
    return done.pid


@pytest.mark.parametrize(
    "text", ["{pid}\n", "{pid}\n{host}\n", '{{"pid": {pid}, "host": "{host}"}}', "{host}:{pid}", "pid {pid}"]
)
def test_a_file_names_a_process_that_has_ended(tmp_path, text):
    path = tmp_path / "lock"
    path.write_text(text.format(pid=ended(), host=HOST))
    edge = made(path, 2)
    assert edge.orphan and not edge.doubted and edge.owner is None and "has ended" in edge.note
    assert made(path, 2, breaks=True).doubted  # code that looks how old it is frees it itself


def test_a_link_and_a_folder_name_it_too(tmp_path):
    link, folder = tmp_path / "lock", tmp_path / "dir.lock"
    link.symlink_to(f"{HOST}:{ended()}")
    folder.mkdir()
    (folder / "pid").write_text(str(ended()))
    assert made(link, 2).orphan and made(folder, 2).orphan


def test_a_process_of_another_machine_is_nothing_known_here(tmp_path):
    path = tmp_path / "lock"
    path.write_text(f"{ended()}\nother-pod\n")
    edge = made(path, 2)
    assert not edge.orphan and edge.owner is None and "of another machine" in edge.note and "other-pod" not in edge.note


def test_a_maker_that_lives_has_it_unless_the_file_is_new_or_older(tmp_path):
    path, mine = tmp_path / "lock", os.getpid()
    path.write_text(str(mine))
    uptime = time.clock_gettime(time.CLOCK_BOOTTIME)
    with open("/proc/self/stat", encoding="ascii") as f:
        lived = uptime - int(f.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
    young = made(path, mine, age=0.5)
    assert young.owner is None and young.candidates == [("b", mine)] and young.doubted  # it may be taken in turn
    old = made(path, mine, age=lived + 60)
    assert old.orphan and old.owner is None  # its number was another's when the file was made
    if lived > 4:
        assert made(path, mine, age=lived - 1).owner == ("b", mine)


def test_a_file_that_says_nothing_is_whose_it_is_that_has_it_open(tmp_path):
    path = tmp_path / "lock"
    path.write_text("")
    assert made(path, 7, opened=[7]).owner == ("b", 7)
    assert "out of sight" in made(path, 7).note


@pytest.mark.parametrize("code, said", [(3, "exit status 3"), (0, "")])
def test_children_that_fail_one_after_the_other_are_counted(code, said):
    births = Births(os.getpid())
    births.look(first=True)
    for _ in range(3):
        pid = os.fork()
        if not pid:
            os._exit(code)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        births.look()
        os.waitpid(pid, 0)
    found = births.failed(lambda: ())
    assert said in found and (found == "" or "3 came and went" in found) and bool(found) == bool(said)
