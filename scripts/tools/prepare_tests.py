"""Gets what the tests need (tests/conftest.py says what each variable holds): environments, gdbs, interpreters, compilers, older
releases.

What cannot be had is no reason to stop: the tests that need it are skipped, and `missing` says what it was and why.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess

from . import arm64, debian, get_gdbs, get_releases
from .engines import START
from .environments import cache_folder, environment, locked
from .gpu_kit import needs
from .say import Failed, run_logged, say
from .system import find_pythons, need_gdb

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MINORS = [(3, minor) for minor in range(9, 16)]  # every CPython that README claims to read


class Prepared:
    """`variables`: the environment variables that tests go by; `missing`: {what could not be had: why}. Each part adds what it
    needs."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.environ, self.missing = environ, {}
        self.variables = {"GDBEXT_TEST_PYTHON": environment("tests")}
        self.has_debuggers = False
        self.others: list[str] = []  # interpreters that run the unit part too

    def need(self, part: str) -> None:
        """Gets what a part of the tests needs, once."""
        with locked(os.path.join(cache_folder(), "tests.lock"), "prepares tests"):
            self._get(part)

    def _get(self, part: str) -> None:
        if part in ("gdb", "engines", "gpu") and not self.has_debuggers:
            self.has_debuggers = True
            self._pythons()
            self._gdbs()
            self.variables["GDBEXT_TEST_TORCH_PYTHON"] = environment("vllm")
            for name in ("debugpy", "ray", "viewers"):
                self._optional(name, lambda name=name: environment(name))
            self._optional("greenlet and gevent", self._greenlets)
            self._optional("sshd", self._sshd)
            self._cuda()
            self.missing.update(get_releases.fetch_all())
        if part == "lint":
            self.variables["GDBEXT_TEST_LINT_PYTHON"] = environment("lint")
        if part == "gpu":
            self.missing.update(needs.missing())
        if part == "unit":
            for name in ("oldest", "newest"):
                self._optional(f"the {name} Python", lambda name=name: self.others.append(environment(name)))
        if part == "engines":
            for name in START:
                environment(name)
        if part == "arm":
            self._arm()

    def _optional(self, what: str, get) -> None:
        try:
            get()
        except Failed as e:
            self.missing[what] = str(e).splitlines()[0]

    def _greenlets(self) -> None:
        own = self.environ.get("GDBEXT_TEST_GREENLET_PYTHONS")
        self.variables["GDBEXT_TEST_GREENLET_PYTHONS"] = own or environment("greenlets")

    def _sshd(self) -> None:
        self.variables["GDBEXT_TEST_SSHD"] = debian.program("sshd", "openssh-server")

    def _pythons(self) -> None:
        if self.environ.get("GDBEXT_TEST_PYTHONS"):
            self.variables["GDBEXT_TEST_PYTHONS"] = self.environ["GDBEXT_TEST_PYTHONS"]
            return
        here = find_pythons(MINORS[0], more=fetched_pythons())
        for version in [v for v in MINORS if v not in here]:
            minor = "%d.%d" % version
            self._optional(f"CPython {minor}", lambda minor=minor: get_python(minor))
        self.variables["GDBEXT_TEST_PYTHONS"] = ":".join(find_pythons(MINORS[0], more=fetched_pythons()).values())
        free = self.environ.get("GDBEXT_TEST_FREE_THREADED_PYTHONS")
        self.variables["GDBEXT_TEST_FREE_THREADED_PYTHONS"] = free or ":".join(free_threaded_pythons())

    def _gdbs(self) -> None:
        gdbs = need_gdb()
        if not self.environ.get("GDBEXT_TEST_GDB"):
            for version in [] if get_gdbs.fetched() else get_gdbs.VERSIONS:
                self._optional(f"gdb {version}", lambda version=version: get_gdbs.fetch(version))
            gdbs += get_gdbs.fetched()
        self.variables["GDBEXT_TEST_GDB"] = ":".join(gdbs)
        # what `python -m gdbext install` puts beside gdb's own Python, in a folder that is not the user's
        self.variables["GDBEXT_DATA"] = os.path.join(cache_folder(), "test-data")
        wheels = [self.variables["GDBEXT_TEST_PYTHON"], "-m", "gdbext", "install", "--wheels-only"]
        for gdb in gdbs:
            line = [*wheels, "--gdb", gdb]
            if subprocess.run(line, cwd=ROOT, env={**self.environ, **self.variables}, stdin=subprocess.DEVNULL).returncode:
                self.missing[f"numpy for the Python of {gdb}"] = "gdbext install could not get it"

    def _arm(self) -> None:
        if not get_gdbs.fetched():
            self._optional(f"gdb {get_gdbs.VERSIONS[-1]}", lambda: get_gdbs.fetch(get_gdbs.VERSIONS[-1]))
        self.variables["GDBEXT_TEST_GDB"] = ":".join(get_gdbs.fetched()[-1:])  # Debian's gdb reads no cores of arm64
        try:
            emulator = arm64.emulator()
            self.variables["GDBEXT_TEST_ARM_QEMU"], self.variables["GDBEXT_TEST_ARM_CC"] = emulator, arm64.compiler()
        except Failed as e:
            self.missing["qemu and a compiler for arm64"] = str(e)
            return
        try:
            self.variables["GDBEXT_TEST_ARM_SYSTEM"], self.variables["GDBEXT_TEST_ARM_KERNEL"] = arm64.system(), arm64.kernel()
        except Failed as e:
            self.missing["an arm64 machine"] = str(e)
        here = [os.path.basename(path) for path in arm64.pythons()]
        for minor in [m for m in arm64.MINORS if f"python{m}" not in here]:
            self._optional(
                f"CPython {minor} for arm64", lambda minor=minor: get_python(minor, "--arch", "arm64", "--emulator", emulator)
            )
        self.variables["GDBEXT_TEST_PYTHONS"] = ":".join(arm64.pythons())
        for minor in arm64.MINORS:
            self._optional(f"gdb for arm64's CPython {minor}", lambda minor=minor: self._arm_gdb(minor))
        self._optional("torch for arm64", self._arm_torch)
        self.variables["GDBEXT_TEST_CORES"] = "1"
        self.variables["QEMU_CPU"] = "max,pauth-impdef=on"  # signs return addresses by a cheaper code

    def _arm_gdb(self, minor: str) -> None:
        self.variables[f"GDBEXT_TEST_ARM_GDB_{minor}"] = get_gdbs.fetch_for_arm64(minor)

    def _arm_torch(self) -> None:
        self.variables["GDBEXT_TEST_TORCH_PYTHON"] = arm64.torch()

    def _cuda(self) -> None:
        for name in ("cuda-gdb", "cuda-gdb-12", "nvcc"):
            if not os.path.exists(os.path.join(cache_folder(), "cuda", name)):
                get = [os.path.join(ROOT, "scripts", "get-cuda"), name]
                if subprocess.run(get, stdin=subprocess.DEVNULL).returncode:
                    self.missing[name] = "scripts/get-cuda could not get it"


def fetched_pythons() -> list[str]:
    """Start scripts of the interpreters that scripts/get-pythons got."""
    return sorted(glob.glob(os.path.join(cache_folder(), "pythons", "*", "bin", "python3.*[0-9]")))


def free_threaded_pythons() -> list[str]:
    """The free-threaded CPythons here, one of each minor: on the PATH, pyenv's, uv's. Debian has none."""
    home, found = os.path.expanduser("~"), []
    for name in (f"python3.{minor}t" for minor in range(13, MINORS[-1][1] + 1)):
        places = [path for path in [shutil.which(name)] if path and "shims" not in path]
        places += glob.glob(f"{home}/.pyenv/versions/*/bin/{name}") + glob.glob(f"{home}/.local/share/uv/python/*/bin/{name}")
        found += places[:1]
    return found


def get_python(minor: str, *options: str) -> None:
    """scripts/get-pythons for one minor; `Failed` with its last line."""
    folder = os.path.join(cache_folder(), "pythons")
    os.makedirs(folder, exist_ok=True)
    log = os.path.join(folder, minor + ".log")
    line = [os.path.join(ROOT, "scripts", "get-pythons"), *options, minor]
    if run_logged(f"getting CPython {minor}", line, log, quiet_failure=True):
        with open(log, errors="replace") as f:
            said = [text for text in f.read().splitlines() if re.match(r"get-pythons: |E: ", text)]
        raise Failed(said[-1] if said else f"scripts/get-pythons failed: {log}")
    say(f"  CPython {minor} is here")
