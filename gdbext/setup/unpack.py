"""`gdbext.pyz` for gdb, which sources files and no archives: the pack unpacked into a folder that no other user can write to."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
import zipfile
from typing import Any

from .. import log, package
from ..errors import GdbextError
from ..render import files


def init_script(folder: str = "") -> str:
    """The path of init.py for gdb's `source`. From an archive it is unpacked first, into `folder` or into one of our own below
    the temporary folder. Existing files that are equal stay."""
    if package.in_archive():
        return os.path.join(_unpacked(folder or _default()), "gdbext", "init.py")
    return os.path.join(package.FOLDER, "init.py")


def _default() -> str:
    return os.path.join(tempfile.gettempdir(), f"gdbext-{os.geteuid()}")


def private_folder(path: str) -> str:
    """Makes a folder that only this user can enter, or takes an existing one that is so. `GdbextError` for a link, another user's
    folder, or one that others can enter."""
    path, elsewhere = os.path.abspath(path), "; name a folder: python3 gdbext.pyz gdb DIR"
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        why = package.owned_by_us(os.path.dirname(path), sticky=True)
        if why:
            raise GdbextError(f"{path}: others may rename what lies in a folder above it: {why}{elsewhere}")
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
    except OSError as e:
        raise GdbextError(f"{path}: {e.strerror}{elsewhere}") from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise GdbextError(f"{path}: not a folder of ours that nobody else can enter (0700){elsewhere}")
    return path


def _unpacked(folder: Any) -> Any:
    """Writes those files of the archive that `folder` lacks. -> the folder of this very archive in it. Each file is there whole
    or not at all, so two processes that unpack at once do no harm."""
    with open(package.ROOT, "rb") as f:
        name = hashlib.sha256(f.read()).hexdigest()[:16]
    inside = private_folder(os.path.join(private_folder(folder), name))
    try:
        with zipfile.ZipFile(package.ROOT) as archive:
            for entry in archive.namelist():
                if entry.startswith("gdbext/") and ".." not in entry.split("/"):
                    _write(os.path.join(inside, entry), archive.read(entry))
    except OSError as e:
        raise GdbextError(f"{inside}: {e.strerror}; name another folder: python3 gdbext.pyz gdb DIR") from None
    return inside


def _write(path: str, content: bytes) -> None:
    there = _content(path)
    if there == content:
        return
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    try:
        with files.writing(path, package.ROOT, force=there is not None) as f:
            f.write(content)
    except GdbextError as e:
        if _content(path) != content:
            raise
        log.passed_over(e)  # another one has unpacked it meanwhile


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as f:
            return f.read()
    except FileNotFoundError:
        return None
