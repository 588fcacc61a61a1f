"""Control groups by what /proc says of them, and the room that is left there: made-up files of versions 1 and 2."""

import os

import pytest

from gdbext.access import cgroups, room
from gdbext.errors import GdbextError

V1 = "35 31 0:32 / {root}/memory rw - cgroup cgroup rw,memory\n"
V2 = "41 31 0:38 /pod {root}/unified rw - cgroup2 cgroup2 rw\n"


def made(folder, mounts, groups, files):
    """-> (proc, root) of a machine made of files."""
    for path, text in {"proc/self/mountinfo": mounts.replace("{root}", ""), "proc/self/cgroup": groups, **files}.items():
        os.makedirs(os.path.dirname(folder / path), exist_ok=True)
        (folder / path).write_text(text)
    return str(folder / "proc"), str(folder)


def test_the_least_of_the_group_those_above_it_and_the_machine(tmp_path):
    files = {
        "proc/meminfo": "MemAvailable: 900 kB\n",
        "memory/a/b/memory.limit_in_bytes": "9223372036854771712\n",
        "memory/a/b/memory.usage_in_bytes": "5000\n",
        "memory/a/memory.limit_in_bytes": "100000\n",
        "memory/a/memory.usage_in_bytes": "60000\n",
        "memory/a/memory.stat": "cache 1\ntotal_inactive_file 1000\n",
    }
    proc, root = made(tmp_path, V1, "4:memory:/a/b\n0::/\n", files)
    assert room.spare(proc, root) == (41000, f"the memory cgroup {root}/memory/a")


def test_version_2_below_a_mount_that_shows_a_part(tmp_path):
    files = {
        "proc/meminfo": "MemAvailable: 900000 kB\n",
        "unified/x/memory.max": "max\n",
        "unified/x/memory.high": "70000\n",
        "unified/x/memory.current": "60000\n",
    }
    proc, root = made(tmp_path, V2, "0::/pod/x\n", files)
    assert room.spare(proc, root) == (10000, f"the memory cgroup {root}/unified/x")
    assert cgroups.folders("self", "memory", proc, root) == [f"{root}/unified/x", f"{root}/unified"]
    (tmp_path / "proc/self/cgroup").write_text("0::/../other\n")
    assert cgroups.folders("self", "memory", proc, root) == []


def test_what_does_not_fit_is_one_line(monkeypatch):
    monkeypatch.setattr(room, "spare", lambda: (30 << 20, "the memory cgroup /x"))
    room.need(10 << 20, "a copy")
    with pytest.raises(GdbextError, match=r"a copy needs 42.0 MiB of memory and the memory cgroup /x has 30.0 MiB to spare") as e:
        room.need(30 << 20, "a copy")
    assert "\n" not in str(e.value)
