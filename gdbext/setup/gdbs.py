"""The gdbs on this machine and their features, as they report them."""

from __future__ import annotations

import errno
import glob
import os
import re
import shutil
import subprocess

from ..errors import NO_MORE, GdbextError, NotFoundError

GET_GDB = "install one: apt-get install gdb   (dnf install gdb, apk add gdb, pacman -S gdb)"
ASK = (
    "python import gdb, sys; print('GDBEXT', sys.version_info[0], sys.version_info[1], gdb.parameter('auto-load safe-path') "
    "or '')"
)


class Gdb:
    """`path`; `version`: the first line of its --version; `base`: (major, minor) or None; `python`: (major, minor) or None for a
    gdb without Python; `safe_path`: its auto-load safe-path; `cuda`: whether it is cuda-gdb."""

    def __init__(
        self, path: str, version: str, base: tuple[int, int] | None, python: tuple[int, int] | None, safe_path: str
    ) -> None:
        self.path, self.version, self.base, self.python, self.safe_path = path, version, base, python, safe_path
        self.cuda = "cuda" in os.path.basename(path) or "NVIDIA" in version

    @property
    def speaks_dap(self) -> bool:
        """Whether it has the Debug Adapter Protocol, which is written in Python (gdb 14's NEWS)."""
        return self.python is not None and self.base is not None and self.base >= (14, 0)


def environment(**more: str) -> dict[str, str]:
    """The environment for a gdb: ours without PYTHONHOME, which names the library of an interpreter that was unpacked somewhere.
    gdb's own Python is another one."""
    return {**{name: value for name, value in os.environ.items() if name != "PYTHONHOME"}, **more}


def run_gdb(path: str, *commands: str, timeout: float = 60, nx: bool = True) -> subprocess.CompletedProcess[str]:
    """`subprocess.CompletedProcess` of gdb -batch with these commands; `GdbextError` when it does not run."""
    argv = [path] + (["-nx"] if nx else []) + ["-q", "-batch"]
    for command in commands:
        argv += ["-ex", command]
    try:
        return subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", timeout=timeout, env=environment()
        )
    except subprocess.TimeoutExpired:
        raise GdbextError(f"{path}: no answer in {timeout} s") from None
    except OSError as e:
        raise GdbextError(f"{path}: {e.strerror}") from None


def ask(path: str) -> Gdb:
    """`Gdb` of the program at `path`; `GdbextError` when it does not run."""
    try:
        said = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
            env=environment(),
        )
    except subprocess.TimeoutExpired:
        raise GdbextError(f"{path}: no answer in 60 s") from None
    except OSError as e:
        raise GdbextError(f"{path}: {e.strerror}" + (f": {NO_MORE}" if e.errno == errno.EAGAIN else "")) from None
    if said.returncode:
        words = (said.stderr or said.stdout).strip().splitlines()
        raise GdbextError(f"{path} does not start: {words[0] if words else f'exit status {said.returncode}'}")
    version = said.stdout.splitlines()[0].strip() if said.stdout else ""
    base = re.search(r"Based on GNU gdb[^\d]*(\d+)\.(\d+)", said.stdout) or re.search(r"(\d+)\.(\d+)(?:[^)]*)$", version)
    found = re.search(r"^GDBEXT (\d+) (\d+) ?(.*)$", run_gdb(path, ASK).stdout, re.M)
    return Gdb(
        path, version, base and (int(base[1]), int(base[2])), found and (int(found[1]), int(found[2])), found[3] if found else ""
    )


def find(named: str | None = None) -> list[str]:
    """Paths of the gdbs here: `named` alone when given, else gdb and cuda-gdb on the PATH and CUDA's own folder."""
    if named:
        path = shutil.which(named)
        if path is None:
            raise NotFoundError(f"{named}: no such program; name a gdb with --gdb")
        return [path]
    found = [shutil.which("gdb"), shutil.which("cuda-gdb")]
    if not found[1]:
        found += sorted(glob.glob("/usr/local/cuda*/bin/cuda-gdb"))[-1:]
    return [p for p in found if p]


def need(named: str | None = None) -> Gdb:
    """The `Gdb` to run commands in: the first here that has Python. The `GdbextError` says how to get one."""
    paths = find(named)
    for path in paths:
        gdb = ask(path)
        if gdb.python:
            return gdb
    if paths:
        raise GdbextError(f"{paths[0]} was built without Python; {GET_GDB}")
    raise NotFoundError(f"no gdb here; {GET_GDB}")
