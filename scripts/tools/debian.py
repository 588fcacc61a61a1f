"""Programs of Debian's packages, which come through apt from the sources that this machine is set up with; they are unpacked into
the cache folder, and nothing is installed."""

import getpass
import glob
import os
import shutil
import subprocess

from .environments import cache_folder
from .say import Failed, say


def program(name, *packages, folder="debian"):
    """The path of a program: the machine's own, or one of Debian's packages; `Failed` where it cannot be had."""
    found = shutil.which(name, path=os.environ.get("PATH", os.defpath) + ":/usr/sbin")
    if found:
        return found
    home = os.path.join(cache_folder(), folder, packages[0])
    start = os.path.join(home, "bin", name)
    if not os.path.exists(start):
        unpack(packages, home)
        os.mkdir(os.path.join(home, "bin"))
        (there,) = glob.glob(os.path.join(home, "usr", "*bin", name))
        folders = [os.path.join(home, *place, "lib", "*-linux-gnu") for place in (["usr"], [])]
        libraries = ":".join(found for folder in folders for found in glob.glob(folder))
        with open(start, "w") as f:
            f.write(f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {there} "$@"\n')
        os.chmod(start, 0o755)
        say(f"  {name} is here")
    return start


def unpack(packages, home, suite=""):
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
    run([*apt, "update"], new)
    planned = run([*apt, "install", "--simulate", "--no-install-recommends", *packages], new)
    wanted = [line.split()[1] for line in planned.splitlines() if line.startswith("Inst ")]
    if suite:
        wanted = [name for name in wanted if name.startswith(tuple(package.rpartition("-")[0] for package in packages))]
    run([*apt, "download", *wanted], new)
    for file in glob.glob(os.path.join(new, "*.deb")):
        run(["dpkg-deb", "-x", file, new], new)
        os.unlink(file)
    shutil.rmtree(home, ignore_errors=True)
    os.rename(new, home)


def _foreign(state, suite):
    """apt's options for packages of arm64 of one suite of the Debian mirror that this machine is set up with."""
    said = run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"], state)
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


def run(words, folder):
    """The output of a program that is run in a folder; `Failed` with the last line of its complaints."""
    done = subprocess.run(words, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise Failed(f"{' '.join(words[:1] + words[-1:])}: {(done.stderr.strip() or 'failed').splitlines()[-1]}")
    return done.stdout
