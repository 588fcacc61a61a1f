"""Runs tests/gpu on a machine that has a GPU, torch, pytest and little else, within a time, and packs what came of it into one
file, also where it is cut off.

  scripts/run-on-gpu OUT [--tar OUT.tgz] [--seconds 550] [--each 300] [--workers 8] [PYTEST ARGUMENT]...

OUT gets results.jsonl (one line per test: its name, outcome, seconds, why), pytest.log, a log per engine, what the machine is
(machine.txt), and the archive all of them. Engines come from GDBEXT_TEST_GPU_PYTHON, else from the kit of scripts/get-gpu-kit in
.gpu-kit, which is unpacked first. --each seconds are what one test may take, with the start of its engine."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time

from .environments import cache_folder
from .gpu_kit import needs, site
from .say import ends_with, say
from .system import gdb_python

TAIL = 20  # seconds that are kept for packing
ASKED = (("nvidia-smi",), ("nvidia-smi", "-L"), ("uname", "-a"))


def describe(folder: str) -> None:
    """Writes machine.txt: GPU, driver, tools, packages that count."""
    with open(os.path.join(folder, "machine.txt"), "w") as f:
        lines = [list(words) for words in ASKED] + [[path, "--version"] for path in map(needs.tool, ("cuda-gdb", "nvcc")) if path]
        lines.append([sys.executable, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"])
        for words in lines:
            try:
                done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=30)
                f.write(f"$ {' '.join(words)}\n{done.stdout}{done.stderr}\n")
            except (OSError, subprocess.TimeoutExpired) as e:
                f.write(f"$ {' '.join(words)}\n{e}\n")


def prepare() -> None:
    """Unpacks the kit's engines; what cannot be had is said, and the tests that need it are skipped."""
    for what, why in needs.missing().items():  # asks for each engine, which unpacks it
        say(f"not here: {what}: {why}")


def lend_numpy(data: str) -> None:
    """The numpy of this interpreter for cuda-gdb's own Python, where they are of one minor: such a machine reaches no index."""
    path = needs.tool("cuda-gdb")
    version = gdb_python(path) if path else None
    found = importlib.util.find_spec("numpy")
    if version is None or found is None or tuple(version[:2]) != sys.version_info[:2]:
        return
    sys.path.insert(0, site.ROOT)
    from gdbext.wheels import wheels_folder

    folder = wheels_folder(version, {"GDBEXT_DATA": data})
    os.makedirs(folder, exist_ok=True)
    packages = os.path.dirname(os.path.dirname(found.origin))
    for name in ("numpy", "numpy.libs"):
        if os.path.isdir(os.path.join(packages, name)) and not os.path.lexists(os.path.join(folder, name)):
            os.symlink(os.path.join(packages, name), os.path.join(folder, name))


def environment(folder: str) -> dict[str, str]:
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONDONTWRITEBYTECODE")}
    found = {"GDBEXT_TEST_TORCH_PYTHON": sys.executable, "GDBEXT_TEST_GPU_LOGS": os.path.join(folder, "engines")}
    found["GDBEXT_DATA"] = os.path.join(cache_folder(), "run-on-gpu")
    found["GDBEXT_TEST_GDB"] = shutil.which("gdb") or needs.tool("cuda-gdb") or ""  # for tests that want any gdb
    return {**found, **environ, "PYTHONPATH": site.ROOT, "GDBEXT_TEST_RESULTS": os.path.join(folder, "results.jsonl")}


def run_tests(folder: str, words: list[str], workers: int, each: int, seconds: float) -> int:
    """One pytest; it and all that it started end after `seconds`. -> its exit status, 124 where it was cut off"""
    environ = environment(folder)
    lend_numpy(environ["GDBEXT_DATA"])
    line = [sys.executable, "-m", "pytest", "-rA", "-v", "--color=no", "-p", "no:cacheprovider", f"--timeout={each}"]
    line += ["-n", str(workers)] if workers else []
    line += words or [os.path.join("tests", "gpu")]
    with open(os.path.join(folder, "pytest.log"), "wb") as log:
        child = subprocess.Popen(
            line,
            cwd=site.ROOT,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return child.wait(seconds)
        except subprocess.TimeoutExpired:
            return 124
        finally:
            for number in (
                signal.SIGINT,
                signal.SIGKILL,
            ):  # at the first pytest says what it has, and its tests end their engines
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(TAIL / 2)


def pack(folder: str, path: str) -> str:
    """Writes the archive of a folder. -> its path"""
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, arcname=os.path.basename(folder))
    return path


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/run-on-gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", metavar="OUT")
    parser.add_argument("--tar", metavar="FILE")
    parser.add_argument("--seconds", type=float, default=550)
    parser.add_argument("--each", type=int, default=300, metavar="SECONDS")
    parser.add_argument("--workers", type=int, default=8, help="tests at a time; 0: one after the other, in this process's order")
    options, words = parser.parse_known_args(words)
    start = time.monotonic()
    out = os.path.abspath(options.out)
    os.makedirs(os.path.join(out, "engines"), exist_ok=True)
    open(os.path.join(out, "pytest.log"), "w").close()

    def stop(number, frame):
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    status = 124
    try:
        describe(out)
        prepare()
        left = options.seconds - TAIL - (time.monotonic() - start)
        if left > 0:
            status = run_tests(out, words, options.workers, options.each, left)
    finally:
        say(f"{pack(out, options.tar or out + '.tgz')} after {time.monotonic() - start:.0f} s")
    with open(os.path.join(out, "pytest.log"), errors="replace") as f:
        say("".join(f.readlines()[-60:]))
    return status


if __name__ == "__main__":
    ends_with(main, "run-on-gpu")
