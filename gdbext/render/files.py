"""Files that commands write: whole or not there."""

import contextlib
import os
import tempfile

from ..errors import GdbextError


def refuse_existing(path, option, force):
    """`GdbextError` where `path` is there and `force` is not; asked before any work is done."""
    if not force and os.path.lexists(path):
        raise GdbextError(f"{option} {path}: the file is there already; -force replaces it")


@contextlib.contextmanager
def writing(path, option, force=False):
    """A binary file to write, which appears as `path` when the block is left well, and not at all otherwise. `option` names it in errors."""
    refuse_existing(path, option, force)
    try:
        handle, partly = tempfile.mkstemp(prefix=".gdbext-", dir=os.path.dirname(os.path.abspath(path)))
        try:
            with os.fdopen(handle, "w+b") as f:
                yield f
            mask = os.umask(0)
            os.umask(mask)
            os.chmod(partly, 0o666 & ~mask)
            if force:
                os.replace(partly, path)
            else:
                os.link(partly, path)  # fails where a file has come meanwhile
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(partly)
    except OSError as e:
        raise GdbextError(f"{option} {path}: {e.strerror or e}: name another file") from None


def write(path, option, text):
    """A text file in UTF-8, in the place of one that is there."""
    with writing(os.path.expanduser(path), option, force=True) as f:
        f.write(text.encode("utf-8", "backslashreplace"))
