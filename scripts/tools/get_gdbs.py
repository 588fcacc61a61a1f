"""Fetches newer gdbs than this machine has, for the tests: PyPI's package gdb-for-pwndbg, another project's build of plain gdb.

  scripts/get-gdbs [VERSION ...]      default: 16.3 17.2 18.1

Each lands in the cache folder under gdbs/VERSION; gdbs/VERSION/gdb-run runs it. They use the system's Python 3 and need its
shared library (Debian: libpython3). scripts/test gdb gets them by itself and runs the tests that say EVERY_GDB on each;
GDBEXT_TEST_GDB=FILE scripts/test gdb runs every test with one of them."""

import glob
import os
import shutil

from .environments import cache_folder, unpack_wheels
from .say import Failed, ends_with, say
from .system import gdb_python, python_version

VERSIONS = ["16.3", "17.2", "18.1"]
WRAPPER = """#!/bin/sh
home=$(dirname "$(readlink -f "$0")")
PYTHONPATH=$home exec "$home/gdb_for_pwndbg/_vendor/bin/gdb" "$@"
"""


def fetch(version):
    """Installs one into the cache folder. -> the path of its gdb."""
    system = python_version("/usr/bin/python3")
    if system is None:
        raise Failed("get-gdbs: these gdbs use the system's Python: there is no /usr/bin/python3")
    home = os.path.join(cache_folder(), "gdbs", version)
    new = unpack_wheels(home, "%d.%d" % system[0], [f"gdb-for-pwndbg=={version}.*"])
    path = os.path.join(new, "gdb-run")
    with open(path, "w") as f:
        f.write(WRAPPER)
    os.chmod(path, 0o755)
    if gdb_python(path) is None:
        raise Failed(
            f"get-gdbs: gdb {version} does not find the system's Python library; Debian, Ubuntu: apt-get install libpython3-dev"
        )
    shutil.rmtree(home, ignore_errors=True)
    os.rename(new, home)
    return os.path.join(home, "gdb-run")


def fetch_for_arm64(minor):
    """Installs the newest one for arm64 and a CPython into the cache folder, where it is not there. -> its folder."""
    home = os.path.join(cache_folder(), "gdbs-arm64", minor)
    if not os.path.isdir(home):
        os.rename(unpack_wheels(home, minor, [f"gdb-for-pwndbg=={VERSIONS[-1]}.*"], "aarch64"), home)
    return home


def fetched():
    """Paths of the gdbs that are here already, oldest first."""
    return sorted(glob.glob(os.path.join(cache_folder(), "gdbs", "*", "gdb-run")))


def main(words):
    if words[:1] in (["-h"], ["--help"]):
        print(__doc__.strip())
        return 0
    for version in words or VERSIONS:
        say(f"gdb {version}: {fetch(version)}")
    return 0


if __name__ == "__main__":
    ends_with(main)
