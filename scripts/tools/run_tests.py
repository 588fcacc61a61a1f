"""Runs the tests: all parts, or the ones named. What follows goes to pytest, for instance -k EXPR or -x.

  unit      no gdb and no process
  gdb       a real gdb on real processes and cores
  engines   real vLLM and SGLang
  gpu       what needs an NVIDIA GPU; skipped, with the reason, where there is none

Makes the environments that the parts need in the user's cache folder, gets gdb when it is missing, and runs one pytest for each part.
The exit status is pytest's: that of the first part that failed.
"""

import glob
import os
import re
import signal
import subprocess
import sys
import time

from . import get_gdbs, get_releases
from .engines import START
from .environments import cache_folder, environment
from .say import Failed, say
from .system import find_pythons, need_gdb

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PARTS = ["unit", "gdb", "engines", "gpu"]
NO_TESTS = 5  # pytest's exit status


def split(words):
    """["unit", "-k", "x"] -> (["unit"], ["-k", "x"]): leading part names, all parts when there are none, and pytest's arguments."""
    count = 0
    while count < len(words) and words[count] in PARTS:
        count += 1
    if count < len(words) and not words[count].startswith("-") and "/" not in words[count] and not os.path.exists(words[count]):
        raise Failed(f"test: there is no part {words[count]!r}; the parts are {', '.join(PARTS)}")
    return words[:count] or list(PARTS), words[count:]


def fetched_pythons():
    """Start scripts of the interpreters that scripts/get-pythons got."""
    return sorted(glob.glob(os.path.join(cache_folder(), "pythons", "*", "bin", "python3.*")))


def prepare(parts, environ):
    """-> the variables that tests go by (tests/conftest.py says what each holds), making what they name."""
    found = {
        "GDBEXT_TEST_PYTHON": environment("tests"),
        "GDBEXT_TEST_PYTHONS": environ.get("GDBEXT_TEST_PYTHONS")
        or ":".join(find_pythons((3, 9), more=fetched_pythons()).values()),
    }
    if set(parts) & {"gdb", "engines", "gpu"}:
        gdbs = need_gdb() + ([] if environ.get("GDBEXT_TEST_GDB") else newer_gdbs())
        found["GDBEXT_TEST_GDB"] = ":".join(gdbs)
        found["GDBEXT_TEST_TORCH_PYTHON"] = environment("vllm")
        # what `python -m gdbext install` puts beside gdb's own Python, in a folder that is not the user's
        found["GDBEXT_DATA"] = os.path.join(cache_folder(), "test-data")
        wheels = [found["GDBEXT_TEST_PYTHON"], "-m", "gdbext", "install", "--wheels-only"]
        for gdb in gdbs:
            if subprocess.run([*wheels, "--gdb", gdb], cwd=ROOT, env={**environ, **found}, stdin=subprocess.DEVNULL).returncode:
                say(f"test: {gdb} goes without numpy; tests that need it will say so")
        for name in ("debugpy", "ray"):
            try:
                environment(name)
            except Failed as e:
                say(f"test: tests with {name} will say that it is not here: {e}")
        missing = [name for name in ("cuda-gdb", "nvcc") if not os.path.exists(os.path.join(cache_folder(), "cuda", name))]
        if missing and subprocess.run([os.path.join(ROOT, "scripts", "get-cuda"), *missing], stdin=subprocess.DEVNULL).returncode:
            say("test: tests that need cuda-gdb or nvcc will say so")
        for release, why in get_releases.fetch_all().items():
            say(f"test: tests of {release} will say that it is not here: {why}")
    if "engines" in parts:
        for name in START:
            environment(name)
    return found


def newer_gdbs():
    """Paths of newer gdbs than the system's, fetched if need be; none where they cannot be had."""
    try:
        for version in [] if get_gdbs.fetched() else get_gdbs.VERSIONS:
            get_gdbs.fetch(version)
    except Failed as e:
        say(f"test: without newer gdbs: {e}")
    return get_gdbs.fetched()


def run(part, arguments, environ):
    """One pytest. -> (exit status, its closing line)."""
    argv = [environ["GDBEXT_TEST_PYTHON"], "-m", "pytest", os.path.join("tests", part), "-ra", "--color=no", *arguments]
    say(f"\n==== {part}: pytest {' '.join(argv[3:])}")
    child = subprocess.Popen(
        argv, cwd=ROOT, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, errors="replace"
    )
    closing = ""
    try:
        for line in child.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            closing = (
                line.strip()
                if re.match(r"(=+ )?.*\d (passed|failed|skipped|errors?|deselected)\b.* in [\d.]+s|=+ no tests ran", line)
                else closing
            )
        return child.wait(), closing
    except BaseException:
        child.send_signal(signal.SIGINT)  # pytest then tears its fixtures down
        try:
            child.wait(timeout=60)
        except subprocess.TimeoutExpired:
            child.kill()
        raise


def main(words):
    if words[:1] in (["-h"], ["--help"]):
        print("Usage: scripts/test [unit|gdb|engines|gpu]... [PYTEST ARGUMENT]...\n\n" + __doc__.strip())
        return 0
    parts, arguments = split(words)

    def ended(number, frame):
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, ended)
    start = time.monotonic()
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    environ.update(prepare(parts, environ), PYTHONPATH=ROOT)
    for name in sorted(k for k in environ if k.startswith("GDBEXT_")):
        say(f"  {name}={environ[name]}")
    results = {part: run(part, arguments, environ) for part in parts}
    say("")
    for part, (status, closing) in results.items():
        say(f"{part:<8} {'no tests' if status == NO_TESTS else closing.strip('= ') or f'pytest ended with status {status}'}")
    say(f"{time.monotonic() - start:.0f} s in all")
    failed = [status for status, _ in results.values() if status not in (0, NO_TESTS)]
    if failed:
        return failed[0] if failed[0] > 0 else 1
    # a part without tests is no failure beside others that ran; a run without any is
    return NO_TESTS if all(status == NO_TESTS for status, _ in results.values()) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as e:
        sys.exit(f"test: {e}")
    except KeyboardInterrupt:
        sys.exit(130)
