"""Third-party packages for gdb's own Python, which is often not the user's: where they lie and how they get there.

gdbext/init.py imports this at every start of gdb: nothing heavy at the top.
"""

from __future__ import annotations

import os
import sys

from . import package

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


PACKAGES = ("numpy", "pygments")


def data_folder(environ: Mapping[str, str] = os.environ) -> str:
    """$GDBEXT_DATA, else gdbext in the user's data folder (XDG base directories)."""
    if environ.get("GDBEXT_DATA"):
        return os.path.abspath(environ["GDBEXT_DATA"])
    return os.path.join(environ.get("XDG_DATA_HOME") or os.path.join(os.path.expanduser("~"), ".local", "share"), "gdbext")


def wheels_folder(version: Sequence[int], environ: Mapping[str, str] = os.environ) -> str:
    """The folder that `init.py` puts last on the path of a gdb whose Python is `version`, (major, minor); it need not exist."""
    return os.path.join(data_folder(environ), "gdb-python-%d.%d-%s" % (version[0], version[1], os.uname().machine))


def use(version: Sequence[int]) -> str:
    """Puts the folder last on this Python's path: what Python itself brings goes first. -> '' or why it is not used: somebody
    else could have put in it what would be run."""
    folder = wheels_folder(version)
    if folder in sys.path or not os.path.isdir(folder):
        return ""
    why = package.owned_by_us(folder) or next(
        filter(None, (package.owned_by_us(os.path.join(folder, n)) for n in sorted(os.listdir(folder)))), ""
    )
    if not why:
        sys.path.append(folder)
    return why and f"{folder} is not used: {why}"


def pip_command(version: Sequence[int], folder: str, packages: Sequence[str], pip: Sequence[str]) -> list[str]:
    """pip's or uv's arguments that put wheels for Python `version` into `folder`. pip: the command that starts it, as a list."""
    return [
        *pip,
        "install",
        "--target",
        folder,
        "--python-version",
        "%d.%d" % tuple(version[:2]),
        "--only-binary=:all:",
        "--no-compile",
        *packages,
    ]


def find_pip() -> list[str] | None:
    """A pip or uv that runs, as the start of a command line, or None."""
    import shutil
    import subprocess

    ways = [[sys.executable, "-m", "pip"]] + [
        [p, "-m", "pip"] for p in ("python3", "python3.11", "python3.12") if shutil.which(p)
    ]
    ways += [["pip3"]] * bool(shutil.which("pip3")) + [["uv", "pip"]] * bool(shutil.which("uv"))
    for way in ways:
        try:
            line = [*way, "--help"]  # -m imports from the folder that it is started in
            if subprocess.run(line, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=60).returncode == 0:
                return way
        except (OSError, subprocess.TimeoutExpired):
            continue
    return None


def missing_packages(folder: str) -> list[str]:
    """Those of `PACKAGES` that `folder` does not hold, by their *.dist-info."""
    try:
        names = os.listdir(folder)
    except OSError:
        return list(PACKAGES)
    held = {n.split("-")[0].lower() for n in names if n.endswith(".dist-info")}
    return [p for p in PACKAGES if p.lower() not in held]


def _locked(folder: str) -> int | None:
    """A descriptor that holds the lock of a folder into which wheels go; None where another process holds it."""
    import fcntl

    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(held)
        return None
    return held


def _remove_unfinished(folder: str) -> None:
    """Removes what an `install_wheels` left that was killed."""
    import glob
    import shutil

    for path in glob.glob(glob.escape(folder) + ".new-*"):
        held = _locked(path)
        if held is not None:
            shutil.rmtree(path, ignore_errors=True)
            os.close(held)


def install_wheels(
    version: Sequence[int], say: Callable[[str], Any] = print, environ: Mapping[str, str] = os.environ
) -> tuple[str, list[str]]:
    """Puts `PACKAGES` for Python `version` into its folder. -> (folder, [packages that could not be had]).

    A package that has no wheel for this Python is left out, the others still go in. The folder is replaced as a whole, so that a
    gdb that starts meanwhile sees the old or the new one. `GdbextError` when there is no pip or nothing could be had.
    """
    import shutil
    import subprocess

    from .errors import GdbextError

    folder = wheels_folder(version, environ)
    if not missing_packages(folder):
        return folder, []
    pip = find_pip()
    if pip is None:
        raise GdbextError(
            "wheels for gdb's Python: no pip here; install one (Debian, Ubuntu: apt-get install python3-pip), then: "
            f"{package.how()} install"
        )
    say("installing %s for gdb's Python %d.%d into %s" % (", ".join(PACKAGES), version[0], version[1], folder))
    new, before = "%s.new-%d" % (folder, os.getpid()), os.umask(0o022)  # what others may write is not used
    held = None
    try:
        _remove_unfinished(folder)
        os.makedirs(new)
        held = _locked(new)  # until this process ends
        tries = [list(PACKAGES)] + [[p] for p in PACKAGES]
        for packages in tries:
            done = subprocess.run(
                pip_command(version, new, packages, pip), cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True
            )
            if done.returncode == 0 and len(packages) > 1:
                break
        absent = missing_packages(new)
        if len(absent) == len(PACKAGES):
            words = (done.stderr or done.stdout).strip().splitlines()
            raise GdbextError(
                "wheels for gdb's Python %d.%d: %s says: %s"
                % (version[0], version[1], " ".join(pip), words[-1] if words else "exit status %d" % done.returncode)
            )
        if os.path.isdir(folder):
            os.rename(folder, new + ".old")
        os.rename(new, folder)
        return folder, absent
    except OSError as e:
        raise GdbextError("wheels for gdb's Python: %s: %s" % (e.filename or folder, e.strerror)) from None
    finally:
        os.umask(before)
        if held is not None:
            os.close(held)
        shutil.rmtree(new, ignore_errors=True)
        shutil.rmtree(new + ".old", ignore_errors=True)
