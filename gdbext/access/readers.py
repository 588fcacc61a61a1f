"""Whether a user may read a file. root's debugger shows nothing of a file merely because another user's process names it.

Owner, group and mode of the file and of the folders that lead to it decide, as in fs/namei.c's generic_permission but without
access lists. A file that only such a list allows is refused."""

from __future__ import annotations

import os
import stat
from typing import BinaryIO, NamedTuple

from .. import log
from ..errors import GdbextError, NotFoundError
from .files import open_regular
from .procfs import read_proc, status_field


class User(NamedTuple):
    """The user and the groups for whom a file is read."""

    uid: int
    groups: frozenset[int]

    def may(self, found: os.stat_result, bit: int) -> bool:
        """Whether the user has a permission (4: to read, 1: to enter) on a file or folder with this status."""
        if self.uid == 0:
            return True
        shift = 6 if found.st_uid == self.uid else 3 if found.st_gid in self.groups else 0
        return bool(found.st_mode >> shift & bit)


def of_process(pid: int) -> User | None:
    """The user and groups of a process for the file system; None where it is gone."""
    try:
        data = read_proc(pid, "status")
        user, group, others = (status_field(data, name).split() for name in (b"Uid", b"Gid", b"Groups"))
        return User(int(user[3]), frozenset(map(int, (group[3], *others))))
    except (GdbextError, OSError, IndexError, ValueError) as e:
        log.passed_over(e)
        return None


def ourselves() -> User:
    """Our own user and groups: for files that no other user's process names."""
    return User(os.geteuid(), frozenset((os.getegid(), *os.getgroups())))


def of_owner(descriptor: int) -> User:
    """The owner of an open core or snapshot: the file's names come from its owner. (Its path may lead to another file by now, or
    to none.)"""
    found = os.fstat(descriptor)
    return User(found.st_uid, frozenset((found.st_gid,) if found.st_gid else ()))


def open_for(user: User | None, path: str) -> BinaryIO:
    """Opens a regular file that a process, a core or a snapshot names, as `open_regular`. `NotFoundError` where its `user` (None:
    unknown) may not read the file."""
    file = open_regular(path)
    if os.geteuid() and user is not None and user.uid == os.geteuid():
        return file  # the kernel has been asked
    try:
        folders, at = [], path if path.startswith("/proc/") else os.path.realpath(path)
        while os.path.dirname(at) != at:
            at = os.path.dirname(at)
            folders.append(os.stat(at))
        allowed = (
            user is not None
            and user.may(os.fstat(file.fileno()), stat.S_IROTH)
            and all(user.may(one, stat.S_IXOTH) for one in folders)
        )
    except OSError:
        allowed = False
    if not allowed:
        file.close()
        raise NotFoundError(
            f"{path}: not shown: user {user.uid if user is not None else '?'}, whose process names it, may not read it"
        )
    return file
