"""The pack as files, in a folder or in one archive (gdbext.pyz): where it lies, its data, how another interpreter loads it."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Any

FOLDER = os.path.dirname(os.path.abspath(__file__))  # ROOT/gdbext
ROOT = os.path.dirname(FOLDER)  # what stands on sys.path for it: a folder, or the archive
# What says how many threads a BLAS starts when it is loaded.
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
# As `first_to_go`, before anything is loaded.
FIRST_TO_GO = """try:
    with open("/proc/self/oom_score_adj", "w") as f: f.write("1000")
except OSError: pass
"""


def owned_by_us(path: str, sticky: bool = False) -> str:
    """'' where nobody but root and this process's user can have put what lies at `path`, or can exchange it; else why not, in one
    clause. All folders above it count, as its links lead. A folder that all may write to is as good as another where its sticky
    bit keeps names from being exchanged: those above `path`, and with `sticky` `path` too."""
    at = os.path.realpath(path)
    why = written_by_others(path, sticky) or written_by_others(at, sticky)
    while not why and at != os.path.dirname(at):
        at = os.path.dirname(at)
        why = written_by_others(at, True)
    return why


def written_by_others(path: str, sticky: bool = False) -> str:
    """As `owned_by_us`, of `path` alone. A group may write where it is the user's own (its number is the user's): where every
    user has one, the umask lets it."""
    try:
        found = os.lstat(path)
    except OSError as e:
        return f"{path}: {e.strerror}"
    if found.st_uid not in (0, os.geteuid()):
        return f"{path} belongs to user {found.st_uid}"
    others = stat.S_IWOTH if found.st_gid == os.geteuid() else stat.S_IWOTH | stat.S_IWGRP
    kept = stat.S_ISLNK(found.st_mode) or sticky and stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    return f"{path} is writable by others" if found.st_mode & others and not kept else ""


def in_archive() -> bool:
    """Whether the pack runs from gdbext.pyz: its files then have no paths that gdb or another program could open."""
    return not os.path.isdir(FOLDER)


def how() -> str:
    """How this pack is started without gdb, for help and errors: words that a shell in the current folder takes."""
    if in_archive():
        path = os.path.relpath(ROOT) if os.path.dirname(ROOT) == os.getcwd() else ROOT
        return f"python3 {path}" if re.fullmatch(r"[\w./+-]+", path) else f"python3 '{path}'"
    return "gdbext" if os.path.basename(sys.argv[0] if sys.argv else "") == "gdbext" else "python3 -m gdbext"


def data(name: str) -> bytes:
    """The bytes of a data file, `name` as in "layouts/torch.json"; `OSError` where there is none."""
    base = os.path.dirname(__file__)  # as the loader names it: CPython 3.8 leaves an archive's path relative
    return bytes(__loader__.get_data(os.path.join(base, *name.split("/"))))  # type: ignore[name-defined]


@functools.lru_cache(maxsize=None)
def table(name: str) -> Any:
    """What a data file of JSON holds, read once: nobody changes it. `OSError` where there is none."""
    import json

    return json.loads(data(name))


def names(folder: str) -> list[str]:
    """The names of the files in a folder of the pack, "layouts/cpython", sorted."""
    if not in_archive():
        return sorted(os.listdir(os.path.join(FOLDER, *folder.split("/"))))
    import zipfile

    inside = f"gdbext/{folder}/"
    with zipfile.ZipFile(ROOT) as archive:
        found = [name[len(inside) :] for name in archive.namelist() if name.startswith(inside)]
    return sorted(name for name in found if name and "/" not in name)


def import_package(name: str) -> ModuleType:
    """Imports a package that is not the pack's with one BLAS thread where the user says nothing else; the environment is then as
    before. By itself a BLAS starts a thread per processor when numpy is loaded, inside gdb."""
    import importlib

    ours = {variable: "1" for variable in BLAS_THREADS if variable not in os.environ}
    os.environ.update(ours)
    try:
        return importlib.import_module(name)
    finally:
        for variable in ours:
            os.environ.pop(variable, None)


def program(python: str, module: str) -> list[str]:
    """The start of a command line that runs `module.main()` of the pack in another interpreter, from whatever folder."""
    run = f"import sys; sys.path[0] = sys.argv.pop(1); from {module} import main; sys.exit(main())"
    return [python, "-c", FIRST_TO_GO + run, ROOT]


def first_to_go() -> None:
    """Makes this process, and what it starts, the memory killer's first choice: an engine beside it is to live. A process may
    always raise its own number (proc_pid_oom_score_adj(5))."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:
        f.write("1000")
