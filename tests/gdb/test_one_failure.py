"""What tests/conftest.py promises of every file: a failure fails one test, and no file meets what another left behind."""

import os
import subprocess
import sys

import pytest
from harness.gdb_run import ROOT
from tools import own_pids

BROKEN = """
import pytest

@pytest.fixture(scope="module")
def shared():
    yield {}

def test_a(shared):
    shared["broken"] = True
    assert False

def test_b(shared):
    assert not shared
    shared["kept"] = True

def test_c(shared):
    assert shared == {"kept": True}
"""
ONCE = """
import pytest
calls = []

@pytest.fixture(scope="module")
def shared():
    calls.append(1)
    assert len(calls) > 1
    yield

def test_a(shared): pass
def test_b(shared): pass
"""
NEVER = """
import pytest
calls = []

@pytest.fixture(scope="module")
def shared():
    calls.append(1)
    assert False
    yield

def test_a(shared): pass
def test_b(shared): pass
def test_c(shared): pass
def test_d(shared): pass

def test_count():
    assert len(calls) == 2
"""
LEAVES = """
import os, subprocess, sys

def test_leaves():
    code = "import os, sys; os.fork() or os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(900)', 'left'])"
    subprocess.run([sys.executable, "-c", code], check=True)
"""
SEES = """
import os

def test_sees():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            assert not f.read().endswith(b"left\\0")
"""


def run(folder, *texts):
    """The last line of a pytest with files of these texts, which has our conftest.py."""
    for number, text in enumerate(texts):
        (folder / f"test_{number}.py").write_text(text)
    words = [sys.executable, "-m", "pytest", "-q", "-p", "tests.conftest", "-p", "no:cacheprovider", "--rootdir", str(folder)]
    python = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "GDBEXT_TEST_COUNTS"))}
    line = [sys.executable, own_pids.__file__, *words, str(folder)]
    done = subprocess.run(line, cwd=folder, env={**python, "PYTHONPATH": ROOT}, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.splitlines()[-1].rpartition(" in ")[0]


def test_after_a_failure_the_next_test_gets_what_its_module_shares_anew(tmp_path):
    assert run(tmp_path, BROKEN) == "1 failed, 2 passed"


def test_a_setup_that_fails_once_fails_one_test(tmp_path):
    assert run(tmp_path, ONCE) == "1 passed, 1 error"


def test_a_setup_that_always_fails_is_tried_twice(tmp_path):
    assert run(tmp_path, NEVER) == "1 passed, 4 errors"


@pytest.mark.skipif(own_pids.way() is None, reason="no pid namespace can be made here")
def test_what_a_file_leaves_behind_has_ended_before_the_next_one(tmp_path):
    assert run(tmp_path, LEAVES, SEES) == "2 passed"
