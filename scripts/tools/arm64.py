"""What `scripts/test arm` runs on a machine that is no Arm: qemu for programs and for a whole system, CPythons, a C compiler and
a kernel for arm64.

All are Debian's packages, which come through apt from the sources that this machine is set up with; they are unpacked into the
cache folder, and nothing is installed."""

import getpass
import glob
import os
import shutil
import subprocess

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
    return _program(*QEMU)


def compiler():
    """The path of a C compiler for arm64; `Failed` where it cannot be had."""
    return _program(*COMPILER)


def system():
    """The path of a qemu that runs a whole arm64 machine; `Failed` where it cannot be had."""
    return _program(*SYSTEM)


def kernel():
    """The path of an arm64 kernel; `Failed` where it cannot be had."""
    package, suite = KERNEL
    home = os.path.join(cache_folder(), "arm64", package)
    if not os.path.isdir(home):
        _unpack([package], home, suite)
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
        library = _run([compiler(), "-print-file-name=libstdc++.so.6"], new).strip()
        shutil.copy(library, os.path.join(new, "torch", "lib"))  # where torch's own look first
        start = os.path.join(new, "python")
        with open(start, "w") as f:
            f.write(f'#!/bin/sh\nPYTHONPATH={home} exec {python[0]} "$@"\n')
        os.chmod(start, 0o755)
        os.rename(new, home)
        say(f"  {packages[0]} for arm64 is here")
    return os.path.join(home, "python")


def _program(name, *packages):
    found = shutil.which(name)
    if found:
        return found
    home = os.path.join(cache_folder(), "arm64", packages[0])
    start = os.path.join(home, "bin", name)
    if not os.path.exists(start):
        _unpack(packages, home)
        os.mkdir(os.path.join(home, "bin"))
        folders = [os.path.join(home, *place, "lib", "*-linux-gnu") for place in (["usr"], [])]
        libraries = ":".join(found for folder in folders for found in glob.glob(folder))
        with open(start, "w") as f:
            f.write(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {home}/usr/bin/{name} "$@"\n')
        os.chmod(start, 0o755)
        say(f"  {name} is here")
    return start


def _unpack(packages, home, suite=""):
    """Packages, and those that they need and the machine lacks, into the folder `home`; with a `suite` arm64's of that, and only
    what they need of the same name: a kernel's package names the one of its version."""
    if not shutil.which("apt-get"):
        raise Failed("no apt-get: it is fetched on Debian and Ubuntu")
    state, new = os.path.join(cache_folder(), "arm64", f"apt-{suite or 'own'}"), home + ".new"
    shutil.rmtree(new, ignore_errors=True)
    for folder in (new, os.path.join(state, "lists", "partial"), os.path.join(state, "archives", "partial")):
        os.makedirs(folder, exist_ok=True)
    apt = ["apt-get", "-qq", "-o", f"Dir::State::Lists={state}/lists", "-o", f"Dir::Cache={state}"]
    apt += ["-o", f"APT::Sandbox::User={getpass.getuser()}"]
    if suite:
        apt += _foreign(state, suite)
    _run([*apt, "update"], new)
    planned = _run([*apt, "install", "--simulate", "--no-install-recommends", *packages], new)
    wanted = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    if suite:
        wanted = [name for name in wanted if name.startswith(tuple(package.rpartition("-")[0] for package in packages))]
    _run([*apt, "download", *wanted], new)
    for file in glob.glob(os.path.join(new, "*.deb")):
        _run(["dpkg-deb", "-x", file, new], new)
        os.unlink(file)
    shutil.rmtree(home, ignore_errors=True)
    os.rename(new, home)


def _foreign(state, suite):
    """apt's options for packages of arm64 of one suite of the Debian mirror that this machine is set up with."""
    said = _run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"], state)
    mirrors = [uri for uri in said.split() if uri.rstrip("/").endswith("/debian")]
    if not mirrors:
        raise Failed("no Debian mirror among this machine's apt sources")
    with open(os.path.join(state, "sources.list"), "w") as f:
        f.write(f"deb {mirrors[0]} {suite} main\n")
    with open(os.path.join(state, "status"), "w"):
        pass
    options = [
        f"Dir::Etc::SourceList={state}/sources.list",
        "Dir::Etc::SourceParts=/dev/null",
        f"Dir::State::Status={state}/status",
    ]
    options += ["APT::Architecture=arm64", "APT::Architectures=arm64"]
    return [word for option in options for word in ("-o", option)]


def _run(words, folder):
    done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(words[:1] + words[-1:])}: {(done.stderr.strip() or 'failed').splitlines()[-1]}")
    return done.stdout
