"""What tests may ask for. scripts/test sets these variables; a pytest started by hand goes by what it finds.

GDBEXT_TEST_PYTHON        the interpreter of the tests' environment
GDBEXT_TEST_TORCH_PYTHON  one that has torch and vLLM
GDBEXT_TEST_GPU_PYTHON    one that has vLLM or SGLang for the GPU that is here; without it tests/gpu takes their kit
GDBEXT_TEST_GPU_KIT       the folder of that kit (scripts/get-gpu-kit), default .gpu-kit
GDBEXT_TEST_GPU_LOGS      a folder for the output of engines on a GPU
GDBEXT_TEST_RESULTS       a file that gets a line of JSON for each test of tests/gpu as soon as it ended
GDBEXT_TEST_GDB           gdbs with Python, ':' between them, the default first
GDBEXT_TEST_PYTHONS       interpreters 3.9 to the newest here, one of each minor, ':' between them
GDBEXT_TEST_FREE_THREADED_PYTHONS  free-threaded interpreters, ':' between them
GDBEXT_TEST_GREENLET_PYTHONS  interpreters that have greenlet and gevent, ':' between them
GDBEXT_DATA               where gdbext keeps the wheels for gdb's Python
GDBEXT_TEST_SSHD          an sshd
GDBEXT_TEST_SAMPLE        by which a whole run draws some of the tests that are alike (harness/samples.py); without it all run
GDBEXT_TEST_AGAIN         another interpreter had all tests: those that are marked `sources` are left out, and of each function
                          some rows are drawn
GDBEXT_TEST_COUNTS        a file for what came of the run: {"passed": N, "failures": {test: why}, "skipped":
                          {reason: N}, "cpu": {file: seconds}}
"""

import collections
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import sys
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
for folder in (ROOT, os.path.join(ROOT, "scripts")):  # gdbext, `tools` of the scripts
    if folder not in sys.path:
        sys.path.insert(0, folder)


def _load_harness():
    """Makes `harness` importable without its folder on the path: tests/gdb would be taken for gdb's own module there."""
    pytest.register_assert_rewrite("harness")  # a failed assertion in it shows its values too
    folder = os.path.join(ROOT, "tests", "harness")
    init = os.path.join(folder, "__init__.py")
    spec = importlib.util.spec_from_file_location("harness", init, submodule_search_locations=[folder])
    sys.modules["harness"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules["harness"])


def _hear_signals():
    """A run in the background ignores SIGINT and SIGQUIT, one below nohup SIGHUP, and every process that a test starts would
    inherit that. What has a handler here is at its default there."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else lambda *_: None)


_hear_signals()
_load_harness()
from harness import costs, failures  # noqa: E402
from harness.samples import few_of_each, of_a_sample  # noqa: E402
from tools import own_pids  # noqa: E402  (from `scripts`, which is on the path now)


@pytest.fixture(scope="module", autouse=True)
def no_orphans():
    """Where tests see their own processes alone (scripts/tools/own_pids.py), orphans of a file end with it: no other file meets
    them."""
    before = own_pids.orphans()
    yield
    end = time.monotonic() + 30
    while (left := own_pids.orphans() - before) and time.monotonic() < end:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)  # they end when they are given a processor


def _paths(name):
    return [p for p in os.environ.get(name, "").split(":") if p]


@pytest.fixture(scope="session")
def root():
    """The repository's folder."""
    return ROOT


@pytest.hookimpl(tryfirst=True)  # before pytest chooses by -m
def pytest_collection_modifyitems(config, items):
    kept, seed = items, os.environ.get("GDBEXT_TEST_SAMPLE")
    if os.environ.get("GDBEXT_TEST_AGAIN"):
        kept = [item for item in kept if item.get_closest_marker("sources") is None]
        kept = few_of_each(kept, seed) if seed else kept
    elif seed:
        kept = of_a_sample(kept, seed, _paths("GDBEXT_TEST_GDB"))
    if len(kept) < len(items):
        config.hook.pytest_deselected(items=list(set(items) - set(kept)))
        items[:] = kept


def pytest_generate_tests(metafunc):
    """Modules with EVERY_GDB = True, and tests marked every_gdb, run once for each gdb that there is; the others with the default
    one."""
    every = getattr(metafunc.module, "EVERY_GDB", False) or metafunc.definition.get_closest_marker("every_gdb")
    if "gdb_path" in metafunc.fixturenames and every:
        paths = _paths("GDBEXT_TEST_GDB") or [None]
        metafunc.parametrize("gdb_path", paths, indirect=True, scope="module", ids=lambda p: p and "-".join(p.split(os.sep)[-2:]))


@pytest.fixture(scope="module")
def gdb_path(request):
    """A gdb with Python."""
    found = getattr(request, "param", None) or (_paths("GDBEXT_TEST_GDB") or [shutil.which("gdb")])[0]
    if not found:
        pytest.skip("no gdb: run scripts/test gdb, which gets one")
    return found


@pytest.fixture(scope="session")
def torch_python():
    """An interpreter that has torch."""
    found = os.environ.get("GDBEXT_TEST_TORCH_PYTHON")
    if not found:
        pytest.skip("no environment with torch: run scripts/test gdb, which makes one")
    return found


@pytest.fixture(scope="session")
def pythons():
    """Interpreters of several minor versions; at least the one that runs the tests."""
    return _paths("GDBEXT_TEST_PYTHONS") or [sys.executable]


COSTLY = 25  # tests whose processor time is told
AGAIN = 2  # so many failures of a module's setup may be bad luck


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    failures.note(item, report)
    costs.note(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item, nextitem):
    """A failure fails one test: what its module has set up ends with it, and the next test gets a process of its own. A setup
    that fails again and again is not tried for every test."""
    try:
        return (yield)
    finally:
        if failures.has_failed(item) and failures.setups(item) < AGAIN:
            item.session._setupstate.teardown_exact(item.getparent(pytest.Module).parent)


def pytest_terminal_summary(terminalreporter):
    """The tests that used most CPU, and counts for scripts/test, which adds its parts up."""
    stats = terminalreporter.stats
    cpu = costs.of(report for reports in stats.values() for report in reports)
    for test, seconds in [row for row in cpu.most_common(COSTLY) if row[1] >= 2]:
        terminalreporter.write_line(f"{seconds:7.1f} s of CPU  {test}")
    path = os.environ.get("GDBEXT_TEST_COUNTS")
    if not path:
        return
    reasons = collections.Counter(r.longrepr[2].partition("Skipped: ")[2] or r.longrepr[2] for r in stats.get("skipped", ()))
    failures = {r.nodeid: _why(r) for r in (*stats.get("failed", ()), *stats.get("error", ()))}
    with open(path, "w") as f:
        counts = {"passed": len(stats.get("passed", ())), "failures": failures, "skipped": reasons}
        json.dump({**counts, "cpu": costs.by_file(cpu)}, f)


def _why(report):
    """Where a test failed and with what, in at most ten lines."""
    where = getattr(report.longrepr, "reprcrash", None)
    lines = (where.message if where else str(report.longrepr)).splitlines()[:10]
    return "\n".join([f"{where.path}:{where.lineno}" if where else "", *(line[:300] for line in lines)]).strip()
