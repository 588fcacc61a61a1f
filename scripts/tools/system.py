"""What the system gives: Python interpreters, gdb, packages by its own package manager."""

import ctypes
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

from .say import Failed, run_logged, say

# manager -> (how it installs, how it renews its lists first or None, other names than the usual ones)
MANAGERS = {
    "apt-get": (["apt-get", "install", "-y", "--no-install-recommends"], ["apt-get", "update"], {}),
    "dnf": (["dnf", "install", "-y"], None, {"python3-venv": "python3", "libnuma1": "numactl-libs"}),
    "yum": (["yum", "install", "-y"], None, {"python3-venv": "python3", "libnuma1": "numactl-libs"}),
    "zypper": (["zypper", "--non-interactive", "install"], None, {"python3-venv": "python3"}),
    "pacman": (["pacman", "-S", "--noconfirm"], None, {"python3-venv": "python", "libnuma1": "numactl"}),
    "apk": (["apk", "add"], None, {"python3-venv": "python3", "libnuma1": "numactl"}),
}


def manager():
    """The package manager's name, or None."""
    return next((m for m in MANAGERS if shutil.which(m)), None)


def package_plan(package, which, uid, sudo):
    """-> (commands that install `package` with manager `which` or None when they would need a password, the line to type)."""
    if which is None:
        return None, f"install the package {package} with this system's package manager"
    install, update, names = MANAGERS[which]
    name = names.get(package, package)
    line = (
        ("" if uid == 0 else "sudo ") + " ".join(install[:-1] if install[-1].startswith("--no-install") else install) + " " + name
    )
    if uid != 0 and not sudo:
        return None, line
    prefix = [] if uid == 0 else ["sudo", "-n"]
    return [prefix + c for c in ([update] if update else []) + [install + [name]]], line


def passwordless_sudo():
    if not shutil.which("sudo"):
        return False
    return subprocess.run(["sudo", "-n", "true"], stdin=subprocess.DEVNULL, capture_output=True).returncode == 0


def install_package(package, why):
    """The system's package, if this user may install it; else `Failed` with the one line to type."""
    sudo = os.geteuid() != 0 and passwordless_sudo()
    commands, line = package_plan(package, manager(), os.geteuid(), sudo)
    if commands is None:
        raise Failed(f"{why}. Install it, then start again:\n    {line}")
    log = os.path.join(tempfile.mkdtemp(prefix="gdbext-package-"), "log")
    say(f"{why}: getting the system's package {package} (output in {log})")
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    for i, command in enumerate(commands):
        last = i == len(commands) - 1
        try:  # renewing the lists may half fail on a machine with one dead source; installing may still work then
            run_logged(" ".join(command), command, log, env=env, quiet_failure=not last)
        except Failed as e:
            raise Failed(f"{e}\nInstall {package} yourself, then start again:\n    {line}") from None


def need_library(soname, package, who):
    """Gets the system's package of a shared library that `who` loads, when it is not here."""
    try:
        ctypes.CDLL(soname)
    except OSError:
        install_package(package, f"{who} loads {soname}, which is not here")


def gdb_python(gdb):
    """(major, minor) of the Python inside `gdb`; None for a gdb without Python; OSError text as `Failed` when it cannot run."""
    try:
        out = subprocess.run(
            [gdb, "-nx", "-q", "-batch", "-ex", "python import sys; print('PY', *sys.version_info[:2])"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise Failed(f"{gdb} does not run: {e}") from None
    found = re.search(r"^PY (\d+) (\d+)$", out.stdout, re.M)
    return (int(found[1]), int(found[2])) if found else None


def find_gdbs(environ=os.environ):
    """Every gdb to use, best first: those named in GDBEXT_TEST_GDB (':' between them), else gdb on the PATH."""
    named = [p for p in environ.get("GDBEXT_TEST_GDB", "").split(":") if p]
    if named:
        return [shutil.which(p) or p for p in named]
    found = shutil.which("gdb")
    return [found] if found else []


def need_gdb():
    """Paths of gdbs that have Python, getting the system's gdb when there is none."""
    gdbs = find_gdbs()
    if not gdbs:
        install_package("gdb", "there is no gdb here")
        gdbs = find_gdbs()
        if not gdbs:
            raise Failed("the package gdb was installed, but no gdb is on the PATH")
    with_python = [g for g in gdbs if gdb_python(g)]
    if not with_python:
        raise Failed(
            f"{gdbs[0]} was built without Python, which gdbext is written in; install the system's full gdb package "
            "(Debian, Ubuntu: gdb, not gdb-minimal) or name another: GDBEXT_TEST_GDB=/path/to/gdb"
        )
    return with_python


def python_version(python):
    """(major, minor) and the interpreter's own path behind shims and links, or None when it does not run."""
    try:
        out = subprocess.run(
            [python, "-c", "import sys; print(*sys.version_info[:2], sys.executable)"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.match(r"(\d+) (\d+) (.+)", out.stdout)
    return ((int(found[1]), int(found[2])), found[3].strip()) if out.returncode == 0 and found else None


def find_pythons(lowest=(3, 8), highest=(3, 99), more=()):
    """{(major, minor): path} of the interpreters here: on the PATH, in /usr/bin, pyenv's and uv's, then the paths `more`. The
    first found of a minor stands."""
    names = [f"python3.{n}" for n in range(lowest[1], 20)] + ["python3"]
    places = [shutil.which(n) for n in names] + [sys.executable]
    home = os.path.expanduser("~")
    pyenv = os.environ.get("PYENV_ROOT") or os.path.join(home, ".pyenv")
    uv = os.environ.get("UV_PYTHON_INSTALL_DIR") or os.path.join(home, ".local", "share", "uv", "python")
    for pattern in (
        f"{pyenv}/versions/3.*/bin/python3",
        f"{uv}/cpython-3.*/bin/python3",
        "/usr/bin/python3.[0-9]*",
        "/usr/local/bin/python3.[0-9]*",
        "/opt/python*/bin/python3",
    ):
        places += sorted(p for p in glob.glob(pattern) if re.search(r"python3(\.\d+)?$", p))
    found, seen = {}, set()
    for place in places + list(more):
        if not place or place in seen:
            continue
        seen.add(place)
        known = python_version(place)
        if known and lowest <= known[0] <= highest:
            found.setdefault(known[0], place if place in more else known[1])  # get-pythons' do not know their own start script
    return dict(sorted(found.items()))
