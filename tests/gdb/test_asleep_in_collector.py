"""llm-hang on a thread that keeps the GIL inside the garbage collector: one that sleeps is no excuse, one that works is."""

import os
import subprocess
import sys

import pytest
from harness.answers import answer

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("GDBEXT_TEST_PYTHON") or sys.executable


@pytest.mark.parametrize("how", ["callback", "finalizer", "thread", "works", "waits"])
def test_a_collection_that_sleeps_with_the_gil_is_accused_working_is_not(how):
    argv = [PYTHON, os.path.join(HERE, "subjects", "asleep_in_collector.py"), how]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as subject:
        try:
            assert subject.stdout.readline() == "READY\n"
            said = answer(f"llm-hang {subject.pid} -json")
        finally:
            subject.kill()
    if how in ("works", "waits"):
        assert said["verdict"] != "gil", said
    else:
        assert said["verdict"] == "gil" and [c["name"] for c in said["culprits"]] == [
            "collects" if how == "thread" else "MainThread"
        ], said
