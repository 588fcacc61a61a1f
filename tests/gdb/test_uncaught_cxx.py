"""A core of a program that threw a C++ exception which nothing caught: its class and text, as the C++ library said on stderr."""

import re
import shutil
import subprocess

import pytest
from harness.answers import answer
from harness.subjects import SUBJECTS, unlimited_core

COMPUTED = (2, 3)  # what() is a function of the program's own
NOT_THROWN = (9, 10)
PLAIN = {5: "42", 6: "CUDA error: an illegal memory access"}  # the library says no text of these


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    with open("/proc/sys/kernel/core_pattern") as f:
        if f.read().strip() != "core":
            pytest.skip("the kernel writes no cores into the folder here")
    path = str(tmp_path_factory.mktemp("uncaught") / "throws")
    subprocess.run(["g++", "-std=c++17", "-O1", "-s", "-o", path, f"{SUBJECTS}/uncaught_cxx.cpp"], check=True)
    return path


@pytest.mark.parametrize("kind", range(11))
def test_the_exception_that_ended_a_program(kind, program, tmp_path):
    done = subprocess.run([program, str(kind)], cwd=tmp_path, preexec_fn=unlimited_core, capture_output=True, text=True)
    (core,) = tmp_path.glob("core*")
    (end,) = answer(f"llm-stacks {core}")["ends"]
    assert end["signal"] == "SIGABRT"
    if kind in NOT_THROWN:
        assert end["exception"] is None, end
        return
    kinds, what = re.search(
        r"instance of '(.*)'\n(?:  what\(\):  (.*)\n)?", done.stderr.replace("\n" + "CUDA", "\\nCUDA")
    ).groups()
    assert end["exception"] == {"type": kinds, "message": None if kind in COMPUTED else PLAIN.get(kind, what)}
    assert kinds in end["text"]
