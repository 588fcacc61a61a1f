"""Runs the tests: all parts, or the ones named. What follows goes to pytest, for instance -k EXPR or -x.

  lint      formatting, ruff's rules, types: seconds; `lint -fix` formats, and mends what it can, first
  unit      no other process; on all processors at once; by the oldest Python that is promised and the newest here, too:
            some rows of each test, and without what reads sources alone
  gdb       real processes, cores, files of all kinds and gdbs; on all processors at once, then what needs the machine for itself
  engines   real vLLM and SGLang
  gpu       what needs an NVIDIA GPU; skipped, with the reason, where there is none
  arm       only when it is named: arm64 by qemu, cores of its interpreters and a whole machine with gdb

-changed [REVISION] runs lint, and of unit and gdb the files that need what differs from REVISION (HEAD) or is new; each with
why; all of both parts where that cannot be told (scripts/tools/changed.py says how).

Makes the environments that the parts need in the user's cache folder, gets gdb when it is missing, and runs one pytest for each
part. A few tests of gdb or engines that failed beside others run again, alone, twice at most: one that passes then counts as
passed and is listed with its first failure, for it is a defect all the same. At the end it says why tests were skipped, what this
machine could not get, and what failed. The last line alone counts: N passed, N failed, N skipped. The exit status is that of the
first part that failed."""

from __future__ import annotations

import collections
import contextlib
import functools
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

from . import changed, lint, own_pids
from .beside import beside
from .prepare_tests import ROOT, Prepared
from .say import Failed, say

PARTS = ["lint", "unit", "gdb", "engines", "gpu"]
CHANGED = "-changed"
BY_NAME = ["arm"]  # not run where no part is named
OWN_PIDS = ["gdb", "engines"]  # their tests look for processes: each pytest and each worker sees its own alone, where it may
# Beside tests/arm: files of tests/gdb whose subjects come from harness.subjects.running, which hands over their cores then.
ON_CORES = """
    layout_truth python_expressions python_frames python_gc python_loops python_objects python_subinterpreters python_trashed
""".split()
NO_TESTS = 5  # pytest's exit status
COSTLY = 8.0  # seconds of CPU from which on a file is named
FEW = 3  # files of gdb that are named run one after the other, more at once
FEW_FAILURES = 10  # so many failures of a part at most are tried again, alone: more are no accident
LONGEST = 600  # seconds: a test of tests/gdb that takes longer waits for a gdb that has lost an event, and runs again alone
MORE_TRIES = 2


SAMPLED = "Of tests that are alike, GDBEXT_TEST_SAMPLE draws some (tests/harness/samples.py); GDBEXT_TEST_LONG=1 runs all"


class Part:
    """What came of one part: how many tests (checks in lint) passed and failed, {test: why it failed}, {reason: how many were
    skipped for it}, seconds, exit status."""

    def __init__(self, name: str, status: int, seconds: float, counts: dict) -> None:
        self.name, self.status, self.seconds = name, status, seconds
        self.failures = counts.get("failures", {})
        self.passed, self.failed = counts.get("passed", 0), counts.get("failed", len(self.failures))
        self.reasons = collections.Counter(counts.get("skipped", {}))
        self.unsteady: dict[str, str] = counts.get("unsteady", {})  # {test: why it failed, before it passed alone}
        self.cpu = collections.Counter(counts.get("cpu", {}))  # {file: seconds of CPU, of its workers and what they started}
        if status not in (0, 1, NO_TESTS) and not self.failed:
            self.failed = 1  # it ended before it could count

    def line(self) -> str:
        if self.status == NO_TESTS:
            return f"{self.name:<8} no tests"
        ended = "" if self.status in (0, 1) else f", pytest ended with status {self.status}"
        return f"{self.name:<8} {closing([self])} in {self.seconds:.0f} s{ended}"


def closing(parts: list[Part]) -> str:
    """ "N passed, N failed, N skipped" of all parts together."""
    skipped = sum(sum(part.reasons.values()) for part in parts)
    return f"{sum(p.passed for p in parts)} passed, {sum(p.failed for p in parts)} failed, {skipped} skipped"


def part_of(word: str) -> str:
    """ "tests/gdb/test_x.py::test_y" -> "gdb"; '' for a word that names no tests."""
    path = os.path.relpath(os.path.realpath(word.split("::")[0]), ROOT)
    names = path.split(os.sep)
    return (
        names[1]
        if len(names) > 1 and names[0] == "tests" and names[1] in PARTS + BY_NAME and os.path.exists(os.path.join(ROOT, path))
        else ""
    )


def split(words: list[str]) -> tuple[list[str], list[str]]:
    """["unit", "-k", "x"] -> (["unit"], ["-k", "x"]): leading part names and pytest's arguments. Without a part's name: the parts
    of the files that are named, all parts where there is none."""
    count = 0
    while count < len(words) and words[count] in PARTS + BY_NAME:
        count += 1
    named = [part for part in PARTS + BY_NAME if part in map(part_of, words[count:])]
    if count < len(words) and not words[count].startswith("-") and not named:
        raise Failed(f"there is no part or file {words[count]!r}; the parts are {', '.join(PARTS + BY_NAME)}")
    return words[:count] or named or list(PARTS), words[count:]


def words_for(part: str, arguments: list[str]) -> list[str]:
    """pytest's arguments for one part: its own files where some are named (for arm any: it runs them on cores), else its whole
    folder."""
    files = [a for a in arguments if part_of(a) and part in (part_of(a), "arm")] or [os.path.join("tests", part)]
    if part == "arm" and files == [os.path.join("tests", part)]:
        files += [os.path.join("tests", "gdb", f"test_{name}.py") for name in ON_CORES]
        files.append(os.path.join("tests", "unit", "test_kernel_stripped.py"))  # which asks the compiler for arm64 too
    return files + [a for a in arguments if not part_of(a)]


def seed() -> str:
    """By which the sample of a whole run is drawn: another one for each commit, the same one when it runs again."""
    found = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "0"


def in_own_pids(python: str) -> list[str]:
    """The words that run a program with `python`, which sees no process but those it starts."""
    return [python, own_pids.__file__]


def runs(part: str, arguments: list[str], workers: int, python: str) -> list[list[str]]:
    """The pytests of a part, by the arguments that each gets besides: on all processors where tests share no machine-wide state,
    that is all of unit, and of gdb those not marked alone, which come after them, one at a time. Tests of gdb wait
    for processes and clocks more than half of their time: there are five workers more than processors, each with processes of its
    own."""
    own = any(a in ("-s", "--pdb", "--capture=no") or a.startswith(("-n", "-p")) for a in arguments)
    many = not arguments or len(arguments) > FEW and all(part_of(a) and "::" not in a for a in arguments)
    if part == "unit" and workers > 1 and not own:
        return [["-n", str(workers), "--dist", "loadfile"]]
    if part == "arm" and workers > 1 and not own:
        return [["-n", str(workers), "--dist", "loadfile"]]
    if part == "gdb" and workers > 1 and many:
        worker = f"popen//python={shlex.join([*in_own_pids(python), python])}"
        shared = ["--tx", f"{workers + 5}*{worker}", "--dist", "loadfile", "--no-loadscope-reorder"]  # conftest.py orders them
        return [["-m", "not alone", *shared], ["-m", "alone"]]
    return [[]]


def joined(parts: list[Part]) -> Part:
    """The runs of one part as one."""
    statuses = [part.status for part in parts if part.status != NO_TESTS] or [NO_TESTS]
    counts = {
        "passed": sum(part.passed for part in parts),
        "failed": sum(part.failed for part in parts),
        "failures": {test: why for part in parts for test, why in part.failures.items()},
        "skipped": sum((part.reasons for part in parts), collections.Counter()),
        "unsteady": {test: why for part in parts for test, why in part.unsteady.items()},
        "cpu": sum((part.cpu for part in parts), collections.Counter()),
    }
    return Part(parts[0].name, next(filter(None, statuses), 0), sum(part.seconds for part in parts), counts)


def run_part(part: str, arguments: list[str], environ: dict[str, str]) -> Part:
    """All pytests of one part."""
    workers = min(8, len(os.sched_getaffinity(0)))
    each = runs(part, arguments, workers, environ["GDBEXT_TEST_PYTHON"])
    ran = joined([run_pytest(part, more, arguments, environ) for more in each])
    for _ in range(MORE_TRIES if part in OWN_PIDS and not arguments else 0):
        if ran.status != 1 or not 0 < len(ran.failures) <= FEW_FAILURES:
            break
        ran = settled(ran, run_pytest(part, [], list(ran.failures), environ))
    return ran


def settled(ran: Part, again: Part) -> Part:
    """`ran`, of which the failed tests ran `again`, alone. Whatever did not pass then has failed."""
    if again.status not in (0, 1) or len(again.failures) + again.passed != len(ran.failures):
        return ran
    counts = {
        "passed": ran.passed + again.passed,
        "failures": again.failures,
        "skipped": ran.reasons,
        "unsteady": {**ran.unsteady, **{test: why for test, why in ran.failures.items() if test not in again.failures}},
        "cpu": ran.cpu + again.cpu,
    }
    return Part(ran.name, again.status, ran.seconds + again.seconds, counts)


def run_pytest(part: str, more: list[str], arguments: list[str], environ: dict[str, str]) -> Part:
    """One pytest, whose output goes through. Its tests/conftest.py writes the counts into the file GDBEXT_TEST_COUNTS."""
    words = ["-ra", "--color=no", "--durations=20", "--durations-min=10", *more, *words_for(part, arguments)]
    if part == "gdb":
        words.insert(0, f"--timeout={LONGEST}")
    say(f"\n==== {part}: pytest {' '.join(words)}")
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gdbext-test-") as folder:
        counts = os.path.join(folder, "counts")
        python = environ["GDBEXT_TEST_PYTHON"]
        argv = [*(in_own_pids(python) if part in OWN_PIDS else []), python, "-m", "pytest", *words]
        child = subprocess.Popen(argv, cwd=ROOT, env={**environ, "GDBEXT_TEST_COUNTS": counts}, stdin=subprocess.DEVNULL)
        try:
            status = child.wait()
        except BaseException:
            child.send_signal(signal.SIGINT)  # pytest then tears its fixtures down
            try:
                child.wait(timeout=60)
            except subprocess.TimeoutExpired:
                child.kill()
            raise
        try:
            with open(counts) as f:
                found = json.load(f)
        except FileNotFoundError:
            found = {}
    return Part(part, status, time.monotonic() - start, found)


def run_lint(environ: dict[str, str], parts: list[str]) -> Part:
    """The checks. Beside them, for they use one processor, pytest compiles the tests that come after them: in a fresh copy each
    worker would, all at the same time."""
    start = time.monotonic()
    python = environ["GDBEXT_TEST_PYTHON"]
    folders = [os.path.join("tests", part) for part in parts if part in ("unit", "gdb")]
    words = [python, "-m", "pytest", "-q", "--collect-only", *folders]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(words, cwd=ROOT, env=environ, **quiet) if folders else contextlib.nullcontext():
        statuses = list(lint.run(environ["GDBEXT_TEST_LINT_PYTHON"]).values())
    counts = {"passed": statuses.count(0), "failed": len(statuses) - statuses.count(0)}
    return Part("lint", 1 if counts["failed"] else 0, time.monotonic() - start, counts)


def run_parts(parts: list[str], arguments: list[str], environ: dict[str, str], prepared: Prepared) -> list[Part]:
    """What came of each part. Where both run whole, unit runs beside engines, which leave processors idle while one starts."""
    results, unit = [], None
    for part in parts:
        prepared.need(part)
        environ.update(prepared.variables, PYTHONPATH=ROOT)
        if part == "lint":
            if lint.FIX in arguments:
                lint.fix(environ["GDBEXT_TEST_LINT_PYTHON"])
            results.append(run_lint(environ, parts))
            continue
        if part == "arm" and not prepared.variables.get("GDBEXT_TEST_CORES"):
            results.append(Part(part, 0, 0.0, {"skipped": {"no qemu for arm64, or none of its interpreters": 1}}))
            continue
        if part == "unit":
            unit = functools.partial(run_unit, arguments, dict(environ), list(prepared.others))
            if arguments or "engines" not in parts:
                results += unit()
            continue
        if part in OWN_PIDS and not arguments and not environ.get("GDBEXT_TEST_LONG"):
            environ.setdefault("GDBEXT_TEST_SAMPLE", seed())
            say(SAMPLED)
        for name in sorted(k for k in environ if k.startswith("GDBEXT_")):
            say(f"  {name}={environ[name]}")
        if part == "engines" and unit and not arguments:
            with beside(unit, "unit") as came:
                results.append(run_part(part, arguments, environ))
                results += came()
        else:
            results.append(run_part(part, arguments, environ))
    return sorted(results, key=lambda ran: [*PARTS, *BY_NAME].index(ran.name))


def run_unit(arguments: list[str], environ: dict[str, str], others: list[str]) -> list[Part]:
    """unit, and where all of it runs, by `others` too: some rows of each test, and nightly all."""
    ran = [run_part("unit", arguments, environ)]
    again = {"GDBEXT_TEST_AGAIN": "1", **({} if environ.get("GDBEXT_TEST_LONG") else {"GDBEXT_TEST_SAMPLE": seed()})}
    for python in [] if arguments else others:
        ran.append(run_part("unit", arguments, {**environ, **again, "GDBEXT_TEST_PYTHON": python}))
    return ran


def report(results: list[Part], missing: dict[str, str], seconds: float) -> None:
    """The closing lines: why tests were skipped, what could not be had, what failed and why, each part, and last the counts of
    all."""
    say("")
    reasons = sum((part.reasons for part in results), collections.Counter())
    if reasons:
        say("skipped, by cause:")
        for reason, count in reasons.most_common():
            say(f"{count:6}  {reason}")
    if missing:
        say("not here, so not tested:")
        for what, why in missing.items():
            say(f"        {what}: {why}")
    for part in results:
        for test, why in part.unsteady.items():
            say(f"failed beside others, passed alone: {test}")
            say(textwrap.indent(why, "        "))
        for test, why in part.failures.items():
            say(f"failed: {test}")
            say(textwrap.indent(why, "        "))
    for part in results:
        say(part.line())
        if part.cpu:
            most = [f"{os.path.basename(name)} {cpu:.0f}" for name, cpu in part.cpu.most_common() if cpu >= COSTLY]
            say(f"         {sum(part.cpu.values()):.0f} s of CPU{'; most: ' if most else ''}{', '.join(most)}")
    say(f"{seconds:.0f} s in all")
    say(closing(results))


def main(words: list[str]) -> int:
    if words[:1] in (["-h"], ["--help"]):
        print(f"Usage: scripts/test [{'|'.join(PARTS)}]... [PYTEST ARGUMENT]...\n\n" + (__doc__ or "").strip())
        return 0
    if words[:1] == [CHANGED]:
        files, lines = changed.words(words[1] if len(words) > 1 else "HEAD")
        say("\n".join(lines))
        if lines[0].startswith(changed.NONE):
            return 0
        parts, arguments = ["lint", *(part for part in changed.PARTS if not files or part in map(part_of, files))], files
    else:
        parts, arguments = split(words)
    if arguments and parts == PARTS:
        parts = parts[1:]  # what is asked of pytest says nothing to the checks

    def ended(number, frame):
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, ended)
    start = time.monotonic()
    # compiled modules are kept: each pytest, gdb and worker would compile the pack anew
    environ = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME", "PYTHONDONTWRITEBYTECODE")}
    prepared = Prepared(environ)
    results = run_parts(parts, arguments, environ, prepared)
    report(results, prepared.missing, time.monotonic() - start)
    failed = [part.status for part in results if part.status not in (0, NO_TESTS)]
    if failed:
        return failed[0] if failed[0] > 0 else 1
    # a part without tests is no failure beside others that ran; a run without any is
    return NO_TESTS if all(part.status == NO_TESTS for part in results) else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as e:
        sys.exit(f"test: {e}")
    except KeyboardInterrupt:
        sys.exit(130)
