"""Leaves the rest of the machine its share of the processors while an engine spins on them: run by supervise.py before it starts
one.

Ranks of an engine spin while they wait for each other, and on a machine whose processors they all take gdb waits for its turn. A
lower priority helps at once; where Linux groups sessions by themselves (autogroup, sched(7)) a process's own counts within its
session alone, so the session's is lowered too. Where this user may make a control group, a quota leaves a part of the machine
free whatever the priorities are.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
import tempfile
import time

PREFIX = "gdbext-engine-"  # of the names of control groups
NICE = 10
LEFT = 0.25  # of all processors together, for the others
PERIOD = 100_000  # microseconds
WEIGHT = 110 / 1024  # of a priority NICE lower (kernel/sched/core.c, sched_prio_to_weight)


def lower_priority() -> str:
    """Of this process and what it starts. -> what was done, in words."""
    os.nice(max(0, NICE - os.nice(0)))
    with contextlib.suppress(OSError), open("/proc/self/autogroup", "w") as f:
        f.write(str(NICE))
        return f"priority {NICE} lower, its session's too"
    return f"priority {NICE} lower"


def quota(part: float = 0.0) -> tuple[str, str]:
    """Puts this process into a control group with a quota and the weight of that priority: among groups one counts as a process
    of priority 0, whatever the priorities in it. `part`: of one processor; all but `LEFT` of them where it is not given.
    -> (its folder, what was done); ("", "") where that is not allowed."""
    processors = len(os.sched_getaffinity(0))
    limit = int(PERIOD * (part or processors * (1 - LEFT)))
    said = f"at most {limit / PERIOD:.1f} of {processors} processors"
    ways = (
        ("/sys/fs/cgroup/cpu", (("cpu.cfs_period_us", PERIOD), ("cpu.cfs_quota_us", limit), ("cpu.shares", int(1024 * WEIGHT)))),
        ("/sys/fs/cgroup", (("cpu.max", f"{limit} {PERIOD}"), ("cpu.weight", int(100 * WEIGHT)))),
    )
    for root, settings in ways:
        if not os.path.exists(os.path.join(root, "cgroup.procs")):
            continue
        _remove_left(root)
        try:  # a name of its own: the pid is another process's too, in another pid namespace
            folder = tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-", dir=root)
        except OSError:
            continue
        try:
            for name, value in settings:
                with open(os.path.join(folder, name), "r+") as f:
                    f.write(str(value))
            with open(os.path.join(folder, "cgroup.procs"), "w") as f:
                f.write(str(os.getpid()))
            return folder, said
        except OSError:
            remove(folder)
    return "", ""


def weigh(pid: int, part: float) -> bool:
    """Gives the control group that `quota` has put a process into this part of what a group weighs by default: all of it while
    somebody waits for an engine that starts, `WEIGHT` once it is at work. Whether that was done."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cgroup") as f:
        for name in re.findall(rf"/({PREFIX}[^/\n]+)$", f.read(), re.M):
            for folder, file, whole in (("/sys/fs/cgroup/cpu", "cpu.shares", 1024), ("/sys/fs/cgroup", "cpu.weight", 100)):
                with contextlib.suppress(OSError), open(os.path.join(folder, name, file), "r+") as weight:
                    weight.write(str(int(whole * part)))
                    return True
    return False


def _remove_left(root: str) -> None:
    """Takes away the groups of those that were killed: nobody is in them, and none was made just now."""
    for folder in glob.glob(os.path.join(root, PREFIX + "*")):
        with contextlib.suppress(OSError):
            if time.time() - os.stat(folder).st_mtime > 60:
                os.rmdir(folder)


def remove(folder: str) -> None:
    """Takes the control group away, once nobody is in it but this process, which goes back to the group above."""
    if not folder:
        return
    with contextlib.suppress(OSError):
        with open(os.path.join(os.path.dirname(folder), "cgroup.procs"), "w") as f:
            f.write(str(os.getpid()))
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def take(wanted: str) -> tuple[str, str]:
    """What the words "nice" and "quota" in `wanted` name. -> (folder of the control group or "", what was done, in words)"""
    folder, said = quota() if "quota" in wanted else ("", "")
    done = [lower_priority()] if "nice" in wanted else []
    return folder, ", ".join(done + [said] * bool(said))
