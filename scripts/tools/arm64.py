"""What `scripts/test arm` runs on a machine that is no Arm: qemu for programs and for a whole system, CPythons, a C compiler and
a kernel for arm64.

All are Debian's packages, which come through apt from the sources that this machine is set up with; they are unpacked into the
cache folder, and nothing is installed."""

import glob
import os
import shutil

from .debian import program, run, unpack
from .environments import cache_folder, unpack_wheels
from .say import Failed, say

MINORS = ["3.11", "3.13", "3.14"]  # bookworm, trixie, unstable
QEMU = ("qemu-aarch64-static", "qemu-user-static")
SYSTEM = ("qemu-system-aarch64", "qemu-system-arm")
KERNEL = ("linux-image-arm64", "stable")  # a package and the suite that it is of
TORCH = (  # the last build for arm64 without CUDA that needs nothing else to be imported, and a CPython for it
    "3.13",
    "torch==2.10.0 typing-extensions sympy mpmath filelock networkx jinja2 markupsafe fsspec".split(),
)
COMPILER = ("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross")


def emulator():
    """The path of a qemu that runs a program for arm64; `Failed` where it cannot be had."""
    return program(*QEMU, folder="arm64")


def compiler():
    """The path of a C compiler for arm64; `Failed` where it cannot be had."""
    return program(*COMPILER, folder="arm64")


def system():
    """The path of a qemu that runs a whole arm64 machine; `Failed` where it cannot be had."""
    return program(*SYSTEM, folder="arm64")


def kernel():
    """The path of an arm64 kernel; `Failed` where it cannot be had."""
    package, suite = KERNEL
    home = os.path.join(cache_folder(), "arm64", package)
    if not os.path.isdir(home):
        unpack([package], home, suite)
    return glob.glob(os.path.join(home, "boot", "vmlinuz-*"))[0]


def pythons():
    """The arm64 interpreters that are here, oldest first."""
    return sorted(glob.glob(os.path.join(cache_folder(), "pythons-arm64", "*", "bin", "python3.*")))


def torch():
    """The path of an arm64 interpreter that has torch; `Failed` where it cannot be had."""
    minor, packages = TORCH
    home = os.path.join(cache_folder(), "arm64", packages[0].replace("==", "-"))
    if not os.path.isdir(home):
        python = [path for path in pythons() if path.endswith("python" + minor)]
        if not python:
            raise Failed(f"{packages[0]}: no CPython {minor} for arm64")
        new = unpack_wheels(home, minor, packages, "aarch64")
        library = run([compiler(), "-print-file-name=libstdc++.so.6"], new).strip()
        shutil.copy(library, os.path.join(new, "torch", "lib"))  # where torch's own look first
        start = os.path.join(new, "python")
        with open(start, "w") as f:
            f.write(f'#!/bin/sh\nPYTHONPATH={home} exec {python[0]} "$@"\n')
        os.chmod(start, 0o755)
        os.rename(new, home)
        say(f"  {packages[0]} for arm64 is here")
    return os.path.join(home, "python")
