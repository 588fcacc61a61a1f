"""Pids across pid namespaces: which process is it that another one calls N?

A pid that stands in a process's memory or registers is a number of that process's own pid namespace. Ours, those under /proc, are
those of the namespace for which our /proc was mounted. In a container the same number may be any program's of the host. Sources:
pid_namespaces(7), proc(5) (NSpid of `status`), ioctl_ns(2) (NS_GET_PARENT).
"""

from __future__ import annotations

import fcntl
import os

from .. import log
from ..errors import GdbextError, NotFoundError
from . import procfs

NS_GET_PARENT = 0xB702  # linux/nsfs.h
PROC = "/proc"


def numbers(folder: str) -> list[int]:
    """The numbers of the process or thread of a folder of /proc: ours, then those of the pid namespaces below ours that it is in.
    `GdbextError` where it is gone, or is in another namespace and the kernel (before 4.1) does not tell."""
    try:
        with open(f"{folder}/status", "rb") as f:
            found = [int(n) for n in procfs.status_field(f.read(), b"NSpid").split()]
    except (OSError, ValueError) as e:
        raise NotFoundError(f"{folder}/status: {e}") from None
    if not found and _space(folder, 0) != _space(f"{PROC}/self", 0):
        raise GdbextError(f"{folder}/status has no NSpid, and the process is in another pid namespace")
    return found or [int(os.path.basename(folder))]


def own_pid(pid: int) -> int | None:
    """A process's pid in its own pid namespace; None when it is gone, or the kernel does not tell."""
    with log.passing_over(GdbextError):
        return numbers(f"{PROC}/{pid}")[-1]
    return None


def pid_here(pid: int, number: int, proc: str = PROC) -> int | None:
    """Our pid of the process that process `pid` calls `number`. 0 where no process has that number there, None where that cannot
    be told: never the number itself, unless both count alike."""
    try:
        level = len(numbers(f"{proc}/{pid}"))
    except GdbextError as e:
        log.passed_over(e)
        return None
    if number <= 0:
        return 0
    if level == 1:
        return number  # its namespace is the one of our /proc
    return _found(pid, level, number, proc, [f"{proc}/{name}" for name in filter(str.isdigit, os.listdir(proc))])


def thread_here(pid: int, number: int, proc: str = PROC) -> int | None:
    """Our tid of the thread that process `pid` calls `number`, as `pid_here`."""
    whole = pid_here(pid, number, proc)
    if whole or whole is None:
        return whole
    level = len(numbers(f"{proc}/{pid}"))
    folders = []
    for name in filter(str.isdigit, os.listdir(proc)):
        with log.passing_over(GdbextError, OSError):
            if len(numbers(f"{proc}/{name}")) >= level:
                folders += [f"{proc}/{name}/task/{tid}" for tid in os.listdir(f"{proc}/{name}/task")]
    return _found(pid, level, number, proc, folders)


def pids_of(pid: int, proc: str = PROC) -> dict[int, int] | None:
    """{number in the pid namespace of process `pid`: our pid} of all processes in it that may be looked at; None where its
    namespace is the one of our /proc, which counts alike. It goes with a copy of the process."""
    try:
        level = len(numbers(f"{proc}/{pid}"))
    except GdbextError as e:
        log.passed_over(e)
        return {}
    if level == 1:
        return None
    found, space = {}, _space(f"{proc}/{pid}", 0)
    for name in filter(str.isdigit, os.listdir(proc)) if space is not None else ():
        with log.passing_over(GdbextError):
            own = numbers(f"{proc}/{name}")
            if len(own) >= level and _space(f"{proc}/{name}", len(own) - level) == space:
                found[own[level - 1]] = own[0]
    return found


def _found(pid: int, level: int, number: int, proc: str, folders: list[str]) -> int | None:
    """Ours of the one of `folders` that has `number` at this level, in the namespace of process `pid`."""
    space, doubt = _space(f"{proc}/{pid}", 0), False
    for folder in folders:
        with log.passing_over(GdbextError):
            own = numbers(folder)
            if len(own) < level or own[level - 1] != number:
                continue
            there = _space(folder, len(own) - level)
            if there is not None and there == space:
                return own[0]
            doubt = doubt or there is None
    return None if doubt or space is None else 0


def _space(folder: str, up: int) -> tuple[int, int] | None:
    """What tells the pid namespace of a process from others, or that of its `up`-th ancestor; None where it may not be read."""
    try:
        at = os.open(f"{folder}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    except OSError as e:
        log.passed_over(e)
        return None
    try:
        for _ in range(up):
            above = fcntl.ioctl(at, NS_GET_PARENT)
            os.close(at)
            at = above
        status = os.fstat(at)
    except OSError as e:
        log.passed_over(e)
        return None
    finally:
        os.close(at)
    return status.st_dev, status.st_ino


def need_own_numbers() -> None:
    """`GdbextError` where /proc numbers processes otherwise than this process does: what is found there by one number would be
    stopped by another's."""
    try:
        same = int(os.readlink(f"{PROC}/self")) == os.getpid()
    except (OSError, ValueError):
        same = not os.path.isdir(PROC)
    if not same:
        raise GdbextError(
            "/proc is of another pid namespace than this process: its numbers mean other processes here; "
            "mount one of its own (unshare --mount-proc, nsenter -p -m), or ask from where /proc was mounted"
        )
