"""Files of a process's own file system: symbolic links, absolute ones too, end in its root and never in ours.

The kernel resolves a path below /proc/PID/root in *our* root as soon as a component is an absolute link. So the owner of a
container could choose which file of the host a debugger opens. openat2(2) with RESOLVE_IN_ROOT (Linux 5.6) resolves a path as the
process would. Where it is missing or forbidden, and where a name is wanted, this module does the same component by component.
"""

from __future__ import annotations

import errno
import os
import stat
import struct
from typing import Container, Protocol

from ..errors import NotFoundError


class Folder(Protocol):
    """Where a walk stands inside a root."""

    def enter(self, name: str) -> str | None:
        """Goes to `name`; where that is a symbolic link the walk stays where it is, and what the link says is returned."""

    def leave(self) -> None:
        """Goes to the folder above; the root's is the root."""

    def to_root(self) -> None:
        """Goes back to the root."""


_OPENAT2 = 437  # the same number on every architecture
_RESOLVE_IN_ROOT, _RESOLVE_NO_MAGICLINKS = 0x10, 0x02
MAX_LINKS = 40  # symbolic links that one name may lead through: as the kernel allows (MAXSYMLINKS)


def resolve(root: str, path: str) -> str:
    """The path on this machine of `path`, which a process with the root folder `root` names. Every symbolic link is followed
    inside `root`.

    For `root` '' (our own) the name is returned as it is. `NotFoundError` where the links form a loop."""
    if not root:
        return path
    names = _Names(root.rstrip("/"))
    try:
        _walk(path, names)
    except OSError:
        raise NotFoundError(f"{path}: too many symbolic links") from None
    return names.path()


def is_of_who_opens(path: str, root: str = "") -> bool:
    """Whether a path leads, by whatever links and spelling, through /proc/self or /proc/thread-self. Each process that opens such
    a path gets another file. `root`: the root folder that its links end in, as for `resolve`."""
    names = _OwnNames(root.rstrip("/"))
    try:
        _walk(path, names)
    except OSError:
        pass
    return names.met


def open_in_root(pid: int, path: str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of the file that `path` means to process `pid`. Raises `OSError`, also for what is no regular file: nothing
    that acts by being opened is. With O_PATH or O_DIRECTORY it may be anything."""
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_beneath(root, path, flags)
    finally:
        os.close(root)


def open_beneath(root: int, path: str, flags: int = os.O_RDONLY) -> int:
    """As `open_in_root`, with the root as a descriptor."""
    if not flags & (os.O_PATH | os.O_DIRECTORY):
        return opened(open_beneath(root, path, os.O_PATH | flags & os.O_NOFOLLOW), flags)
    try:
        return _openat2(root, path, flags | os.O_CLOEXEC)
    except OSError as e:
        if e.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    folders = _Descriptors(root)
    try:
        _walk(path, folders, not flags & os.O_NOFOLLOW)
        # the file that was reached is opened by its descriptor: its name may mean another file by now
        return os.open(f"/proc/self/fd/{folders.opened[-1]}", (flags | os.O_CLOEXEC) & ~os.O_NOFOLLOW)
    finally:
        for one in folders.opened:
            os.close(one)


def opened(found: int, flags: int, devices: Container[int] = ()) -> int:
    """Opens the regular file that the O_PATH descriptor `found` is of, and closes that. `OSError` for anything else: to open a
    device may act (a watchdog is armed), and lets the writer of a FIFO go on. `devices`: of file systems whose files are not
    opened."""
    try:
        there = os.fstat(found)
        mode = there.st_mode
        if stat.S_ISLNK(mode):  # it was not to be followed
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if not stat.S_ISREG(mode) or there.st_dev in devices:
            raise OSError(errno.EINVAL, "not a regular file")
        return os.open(f"/proc/self/fd/{found}", (flags | os.O_CLOEXEC) & ~os.O_NOFOLLOW)
    finally:
        os.close(found)


def _openat2(root: int, path: str, flags: int) -> int:
    import ctypes

    how = struct.pack("QQQ", flags, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)  # struct open_how
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(
        ctypes.c_long(_OPENAT2), ctypes.c_int(root), os.fsencode(path), ctypes.c_char_p(how), ctypes.c_size_t(len(how))
    )
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return int(found)


def _walk(path: str, folder: Folder, follow_last: bool = True) -> None:
    """Leads `folder` from its root along `path`. `OSError` (ELOOP) where the links form a loop, or the last component is a link
    that is not to be followed."""
    left, links = path.split("/")[::-1], 0
    while left:
        name = left.pop()
        if name in ("", "."):
            continue
        if name == "..":
            folder.leave()
            continue
        link = folder.enter(name)
        if link is None:
            continue
        links += 1
        if links > MAX_LINKS or not any(left) and not follow_last:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        if link.startswith("/"):
            folder.to_root()
        left += link.split("/")[::-1]


class _Names:
    """A walk by names: missing components keep the names that they would have."""

    def __init__(self, root: str) -> None:
        self.root, self.names = root, [""]

    def path(self) -> str:
        return self.root + ("/".join(self.names) or "/")

    def enter(self, name: str) -> str | None:
        try:
            return os.readlink(f"{self.root}{'/'.join(self.names)}/{name}")
        except (OSError, ValueError):  # no link, or nothing there
            self.names.append(name)
            return None

    def leave(self) -> None:
        if len(self.names) > 1:
            self.names.pop()

    def to_root(self) -> None:
        del self.names[1:]


class _OwnNames(_Names):
    """A walk by names that records whether it has `met` /proc/self or /proc/thread-self."""

    met = False

    def enter(self, name: str) -> str | None:
        self.met |= self.names == ["", "proc"] and name in ("self", "thread-self")
        return super().enter(name)


class _Descriptors:
    """A walk by descriptors: each component is opened in the folder that was reached, so that renames meanwhile do not matter."""

    def __init__(self, root: int) -> None:
        self.opened = [os.dup(root)]

    def enter(self, name: str) -> str | None:
        one = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self.opened[-1])
        if not stat.S_ISLNK(os.fstat(one).st_mode):
            self.opened.append(one)
            return None
        try:
            return os.readlink("", dir_fd=one)  # of the very link that was opened
        finally:
            os.close(one)

    def leave(self) -> None:
        if len(self.opened) > 1:
            os.close(self.opened.pop())

    def to_root(self) -> None:
        while len(self.opened) > 1:
            self.leave()
