"""Files that commands write: whole or not there."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

from ..errors import GdbextError

MAX_TAKEN = 1000


def refuse_existing(path: str, option: str, force: bool) -> None:
    """`GdbextError` where `path` is there and `force` is not; asked before any work is done."""
    if not force and os.path.lexists(path):
        raise GdbextError(f"{option} {path}: the file is there already; -force replaces it")


def refuse_folder(path: str, option: str) -> None:
    """`GdbextError` where nothing can be written beside `path`; asked before work that takes long is done."""
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder) or not os.access(folder, os.W_OK | os.X_OK):
        raise GdbextError(f"{option} {path}: {folder} is no folder that can be written to: name another file")


def new_folder(parent: str, name: str, option: str) -> str:
    """Makes a folder `name` (`name`-2, ... where that is taken) that only we can enter, in `parent`, which is made where it is
    missing; -> its path. One that is there already is never used: somebody else may have made it.

    `GdbextError` where it cannot be made, or where others could exchange it: `parent` is another user's, or all may rename in
    it. `option` names it in errors."""
    parent = os.path.realpath(os.path.expanduser(parent))
    try:
        os.makedirs(parent, mode=0o700, exist_ok=True)
        found = os.stat(parent)
        if found.st_uid not in (0, os.geteuid()):
            raise GdbextError(
                f"{option} {parent}: it belongs to user {found.st_uid}, who could exchange what is written: name another"
            )
        if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
            raise GdbextError(
                f"{option} {parent}: others may rename what lies in it (mode {found.st_mode & 0o7777:o}): name another"
            )
        for number in range(1, MAX_TAKEN):
            path = os.path.join(parent, name if number == 1 else f"{name}-{number}")
            with contextlib.suppress(FileExistsError):
                os.mkdir(path, 0o700)
                return path
    except OSError as e:
        raise GdbextError(f"{option} {parent}: {e.strerror}: name another folder") from None
    raise GdbextError(f"{option} {parent}: {name} and {MAX_TAKEN} names like it are taken: name another folder")


@contextlib.contextmanager
def writing(path: str, option: str, force: bool = False) -> Iterator[IO[bytes]]:
    """A binary file to write, which appears as `path` when the block is left well, and not at all otherwise. `option` names it
    in errors."""
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


@contextlib.contextmanager
def drawing(path: str, option: str, size: tuple[float, float], force: bool = False) -> Iterator[Any]:
    """A matplotlib Figure of `size` inches to draw on, written to `path` when the block is left well; the ending chooses the
    format.

    Callers make sure that matplotlib is there. `GdbextError` for an ending that is no picture, and as `writing` says.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, constrained_layout=True)
    known = FigureCanvasAgg(figure).get_supported_filetypes()
    kind = os.path.splitext(path)[1].lower().lstrip(".")
    if kind not in known:
        raise GdbextError(f"{option} {path}: the file's name must end in one of {', '.join(sorted(known))}")
    refuse_existing(path, option, force)
    yield figure
    with writing(path, option, force) as f:
        figure.savefig(f, format=kind, dpi=110)


def write(path: str, option: str, text: str) -> None:
    """Writes `text` in UTF-8 in the place of whatever file is there."""
    with writing(os.path.expanduser(path), option, force=True) as f:
        f.write(text.encode("utf-8", "backslashreplace"))
