"""Errors of the system that have nothing to do with what was asked, in one line each."""

from __future__ import annotations

import errno

from ..errors import NO_MORE, GdbextError, NotFoundError

SHORTAGES = {
    errno.EMFILE: "this process may have no more files open: ulimit -n raises that; or name fewer processes",
    errno.ENFILE: "this machine has no more open files to give (fs.file-max)",
    errno.EAGAIN: f"no process or thread can be started here: {NO_MORE}",
    errno.ENOMEM: "this machine, or its container, has no memory left for the answer",
}
REFUSED = (errno.EPERM, errno.ENOSYS)
GONE = "a process or thread ended while it was looked at: ask again"


def meaning(error: Exception) -> GdbextError | None:
    """What an error of the system means to who asked: something has run out or is gone, or a system call is forbidden. None for
    one that nobody expects."""
    if not isinstance(error, OSError):
        return GdbextError(SHORTAGES[errno.EAGAIN]) if "start new thread" in str(error) else None
    if error.errno == errno.ESRCH or error.errno == errno.ENOENT and str(error.filename).startswith("/proc/"):
        return NotFoundError(GONE)
    if error.errno in REFUSED and error.filename is None:
        why = f"a system call that this needs is refused here ({error.strerror})"
        return GdbextError(f"{why}: by a seccomp profile of this container, say")
    return GdbextError(SHORTAGES[error.errno]) if error.errno in SHORTAGES else None
