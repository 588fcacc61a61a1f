"""Opening files of a process's own file system: symbolic links, absolute ones too, end in its root and never in ours.

A path below /proc/PID/root is resolved by the kernel in *our* root as soon as a component is an absolute link; whoever owns a
container could so choose which file of the host a debugger opens. openat2(2) with RESOLVE_IN_ROOT (Linux 5.6) resolves as the
process would; where it is missing or forbidden the same is done by hand, component by component.
"""

from __future__ import annotations

import ctypes
import errno
import os
import stat

_OPENAT2 = 437  # the same number on every architecture
_RESOLVE_IN_ROOT, _RESOLVE_NO_MAGICLINKS = 0x10, 0x02
_MAX_LINKS = 40


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def open_in_root(pid: int, path: str, flags: int = os.O_RDONLY) -> int:
    """A descriptor of what `path` is to process `pid`. Raises `OSError`. A FIFO or device is opened like any file: pass
    O_NONBLOCK and look at fstat."""
    root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_beneath(root, path, flags)
    finally:
        os.close(root)


def open_beneath(root: int, path: str, flags: int = os.O_RDONLY) -> int:
    """As `open_in_root`, for the root that a descriptor stands for."""
    try:
        return _openat2(root, path, flags | os.O_CLOEXEC)
    except OSError as e:
        if e.errno not in (errno.ENOSYS, errno.EPERM):
            raise
    return _walk(root, path, flags | os.O_CLOEXEC)


def _openat2(root: int, path: str, flags: int) -> int:
    how = _OpenHow(flags, 0, _RESOLVE_IN_ROOT | _RESOLVE_NO_MAGICLINKS)
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(
        ctypes.c_long(_OPENAT2), ctypes.c_int(root), os.fsencode(path), ctypes.byref(how), ctypes.c_size_t(ctypes.sizeof(how))
    )
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), path)
    return int(found)


def _walk(root: int, path: str, flags: int) -> int:
    folders, left, links = [os.dup(root)], path.split("/")[::-1], 0
    try:
        while left:
            name = left.pop()
            if name in ("", "."):
                continue
            if name == "..":
                if len(folders) > 1:
                    os.close(folders.pop())
                continue
            one = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folders[-1])
            if not stat.S_ISLNK(os.fstat(one).st_mode):
                folders.append(one)
                continue
            os.close(one)
            links += 1
            if links > _MAX_LINKS or not any(left) and flags & os.O_NOFOLLOW:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            to = os.readlink(name, dir_fd=folders[-1])
            if to.startswith("/"):
                while len(folders) > 1:
                    os.close(folders.pop())
            left += to.split("/")[::-1]
        # what was reached is opened by its descriptor: its name may stand for another file by now
        return os.open(f"/proc/self/fd/{folders[-1]}", flags & ~os.O_NOFOLLOW)
    finally:
        for one in folders:
            os.close(one)
