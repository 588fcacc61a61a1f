"""Source lines of Python frames as this machine has them now, and whether they are those of the running code."""

from __future__ import annotations

import os
import re
import time

from .. import log
from ..access import files, procfs, ptrace
from ..access.base import Target
from ..cpython.frames import Code, PyFrame
from ..errors import GdbextError, NotFoundError
from ..render.text import escape

MAX_LINES, MAX_LINE = 20_000, 4096  # of a source that a process holds; characters
_CELL = re.compile(r"/ipykernel_\d+/\d+\.py$|^<ipython-input-")
_DECORATED = 40  # lines that decorators may take before a `def`


def lines_of(frame: PyFrame) -> list[str]:
    """The lines of a frame's source file, also of one inside a zip archive, else as the process's `linecache` has them: a cell
    of Jupyter, what torch.fx or attrs made. `NotFoundError` with the reason where they are not here, or not for the process's
    user to read."""
    try:
        return frame.rt.target.source_lines(frame.file)
    except NotFoundError as e:
        found = _kept_lines(frame)
        if found:
            return found
        raise NotFoundError(f"no source to show: {escape(str(e))}") from None


def _kept_lines(frame: PyFrame) -> list[str]:
    """The lines of a frame's source that `linecache.cache` holds, {file: (size, mtime, lines, name)}; [] where it has none."""
    with log.passing_over(GdbextError, UnicodeError):
        module = frame.rt.module("linecache")
        entry = module.item("cache").item(frame.file).elements(3) if module is not None else []
        if len(entry) == 3:  # one that is not read yet has a function alone
            return [line.string(MAX_LINE).rstrip("\r\n") for line in entry[2].elements(MAX_LINES)]
    return []


def cell_of(frame: PyFrame) -> str:
    """`In[3]`: the cell of Jupyter or IPython that a frame is in, by the name that its compiler gave the cell's file; ''."""
    if not _CELL.search(frame.file):
        return ""
    with log.passing_over(GdbextError):
        module = frame.rt.module("IPython.core.interactiveshell")
        shell = module.item("InteractiveShell").attr("_instance") if module is not None else None
        if shell is not None:
            return f"In[{shell.attr('compile').attr('_filename_map').item(frame.file).integer()}]"
    return ""


def doubt(frame: PyFrame) -> str:
    """Why the source file may not be that of the running code, or ''.

    It certainly is not where the first line of the code is no longer its beginning. It may not be where the file was changed
    after the process began, or after the core was written: Python reads a file once, when it imports it."""
    try:
        lines = lines_of(frame)
    except GdbextError as e:
        log.passed_over(e)
        return ""
    name = escape(os.path.basename(frame.file))
    if not begins_at(frame.code, lines):
        return (
            f"{name} has been changed since it was loaded: line {frame.code.first} does not begin {escape(frame.code.name)} "
            "any more, so the lines shown are not those that run"
        )
    changed, since = _changed(frame.rt.target, frame.file)
    if changed:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(changed))
        return f"{name} was changed at {at}, after {since}: the lines shown may not be those that run"
    return ""


def begins_at(code: Code, lines: list[str]) -> bool:
    """Whether the source lines have a code object's function or class at its first line; True for code without a name."""
    name = code.name
    if not re.match(r"\w+$", name):
        return True  # a lambda, a comprehension, a module
    wanted = re.compile(rf"\b(def|class)\s+{re.escape(name)}\b")
    first = code.first - 1
    for number in range(max(first, 0), min(first + _DECORATED, len(lines))):
        if wanted.search(lines[number]):
            return number == first or lines[first].lstrip().startswith("@")
    # made by exec() of a text, by Cython or the like: a file that never had the name is no evidence
    return not any(wanted.search(line) for line in lines) and first < len(lines)


def _changed(target: Target, path: str) -> tuple[float, str]:
    """-> (time of the last change of the file, or of the archive that it is in; the event that it came after); (0, '') where it
    came before."""
    try:
        here = target.local_file(path)
        status = os.stat(files.archive_of(here) or here)
        if target.is_live or not getattr(target, "has_name", True):  # or is a copy of one that lives
            began, since = _began(target.pid), "the process began"
        else:
            began, since = os.stat(getattr(target, "path", "")).st_mtime, f"the {target.kind} was written"
    except (GdbextError, OSError, ValueError) as e:
        log.passed_over(e)
        return 0.0, ""
    changed = max(status.st_mtime, status.st_ctime)  # installers keep the time of the content: it is the inode that is new
    return (changed, since) if began and changed > began + 0.02 else (0.0, "")


def _began(pid: int | None) -> float:
    """When a process began, in seconds since the epoch; 0 where that is not known."""
    ticks = ptrace.start_time(pid) if pid else None
    if ticks is None:
        return 0.0
    return time.time() - procfs.uptime() + (ticks + 1) / procfs.TICKS
