"""A folder in a process's own /tmp, for files that this gdb and that process exchange."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from typing import TYPE_CHECKING, Any

from .. import log
from ..access.files import json_of
from ..access.in_root import open_in_root
from ..access.procfs import read_proc, status_field
from ..access.sweeper import Sweeper, sweep
from ..errors import GdbextError

if TYPE_CHECKING:
    from ..access.base import Target

MAX_RESULT = 1 << 16  # bytes
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class SharedTempDir:
    """A new folder that only the process's user can enter (0700, owned by that user), inside the process's own root.

    No link leads out of that root, and nothing is opened through one: the folder and its files are only used by descriptor. If
    this process is killed, `sweeper` removes the folder. `GdbextError` where the folder cannot be made, or where its place cannot
    be trusted."""

    def __init__(self, target: Target) -> None:
        pid = target.pid
        if pid is None:
            raise GdbextError(f"{target.describe()} is no process that runs: there is no folder to share with it")
        self.given_up = False  # nobody waits for the script's result any more: the folder goes once that is there
        self.root = target.root()
        user, self.group = _ids(pid)
        self.user = user
        self.name = "gdbext-inject-" + secrets.token_hex(8)
        with contextlib.ExitStack() as undone:
            try:
                self._tmp = open_in_root(pid, "/tmp", os.O_RDONLY | os.O_DIRECTORY)
            except OSError as e:
                raise GdbextError(f"process {pid}: its /tmp cannot be opened: {e.strerror}") from None
            undone.callback(os.close, self._tmp)
            try:
                _check_tmp(pid, self._tmp, user)
                self.sweeper = Sweeper(pid, self._tmp, self.name)
                undone.callback(self.sweeper.end)
                os.mkdir(self.name, 0o700, dir_fd=self._tmp)
                undone.callback(os.rmdir, self.name, dir_fd=self._tmp)
                self._folder = os.open(self.name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._tmp)
            except OSError as e:
                raise GdbextError(f"process {pid}: no folder can be made in its /tmp: {e.strerror}") from None
            undone.pop_all()

    def path(self, name: str) -> str:
        """A file's path as the process names it."""
        return f"/tmp/{self.name}/{name}"

    def here(self, name: str) -> str:
        """A file's path as it is named on this side."""
        return self.root + self.path(name)

    def write(self, name: str, text: str) -> None:
        """Makes a file, and gives it and the folder to the process's user. `GdbextError` where it cannot be written, or its owner
        may not be changed."""
        try:
            fd = os.open(name, _NEW, 0o600, dir_fd=self._folder)
            with os.fdopen(fd, "w", encoding="utf-8") as f:
                f.write(text)
                f.flush()
                if self.user != os.geteuid():
                    self._give_away(fd)
        except OSError as e:
            raise GdbextError(f"{self.here(name)} cannot be written: {e.strerror}") from None

    def _give_away(self, fd: int) -> None:
        try:
            os.fchown(fd, self.user, self.group)
            os.fchown(self._folder, self.user, self.group)
        except OSError as e:
            raise GdbextError(f"the script cannot be given to user {self.user}, as whom the process runs: {e.strerror}") from None

    def has(self, name: str) -> bool:
        """Whether there is something of that name."""
        try:
            os.stat(name, dir_fd=self._folder, follow_symlinks=False)
        except OSError:
            return False
        return True

    def read_json(self, name: str) -> dict[str, Any] | None:
        """The object in a file that the process wrote; None where there is no such file, or it holds anything else."""
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)
            with os.fdopen(fd, "rb") as f:
                if not stat.S_ISREG(os.fstat(fd).st_mode):
                    return None
                found = json_of(f.read(MAX_RESULT), name)
        except (OSError, ValueError, GdbextError) as e:
            log.passed_over(e)
            return None
        return found if isinstance(found, dict) else None

    def remove(self) -> None:
        """Removes the folder with the script's own files; a folder in which the process's user has put others stays."""
        sweep(self._tmp, self.name, self._folder)

    def close(self) -> None:
        """Closes the folder; its present content stays, for good or until the script has ended."""
        self.sweeper.leave() if self.given_up else self.sweeper.end()
        os.close(self._folder)
        os.close(self._tmp)


def _ids(pid: int) -> tuple[int, int]:
    """(user, group) with which a process opens files (proc(5): status, the last number of Uid and Gid)."""
    text = read_proc(pid, "status")
    user, group = (int(status_field(text, name).split()[-1]) for name in (b"Uid", b"Gid"))
    return user, group


def _check_tmp(pid: int, fd: int, user: int) -> None:
    """Raises `GdbextError` where another user could rename entries of a process's /tmp."""
    found, root = os.fstat(fd), os.stat(f"/proc/{pid}/root/")
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        raise GdbextError(f"process {pid}: anybody may rename files in its /tmp (mode {found.st_mode & 0o7777:o}): chmod +t it")
    if found.st_uid not in (0, user, os.geteuid(), root.st_uid):
        raise GdbextError(f"process {pid}: its /tmp belongs to user {found.st_uid}, who could exchange the script")
