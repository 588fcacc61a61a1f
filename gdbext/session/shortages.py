"""Errors of the system that have nothing to do with what was asked, in one line each."""

from __future__ import annotations

import errno

from ..errors import NO_MORE

SHORTAGES = {
    errno.EMFILE: "this process may have no more files open: ulimit -n raises that; or name fewer processes",
    errno.ENFILE: "this machine has no more open files to give (fs.file-max)",
    errno.EAGAIN: f"no process or thread can be started here: {NO_MORE}",
    errno.ENOMEM: "this machine, or its container, has no memory left for the answer",
}
REFUSED = (errno.EPERM, errno.ENOSYS)
GONE = "a process or thread ended while it was looked at: ask again"


def has_ended(error: Exception) -> bool:
    """Whether an error of the system means that the process or thread is no longer there."""
    if not isinstance(error, OSError):
        return False
    return error.errno == errno.ESRCH or error.errno == errno.ENOENT and str(error.filename).startswith("/proc/")


def shortage(error: Exception) -> str:
    """The line about an error of the system that has nothing to do with what was asked: something has run out, or a system call
    is forbidden. '' for another error."""
    if not isinstance(error, OSError):
        return SHORTAGES[errno.EAGAIN] if "start new thread" in str(error) else ""
    if error.errno in REFUSED and error.filename is None:
        return f"a system call that this needs is refused here ({error.strerror}): by a seccomp profile of this container, say"
    return SHORTAGES.get(error.errno or 0, "")
