"""After llm-attach gdb has read few libraries: `break f` says which one f is in, llm-symbols reads it, and the breakpoint stops
there. llm-bt says what keeps a frame unknown."""

import contextlib
import platform
import re
import shutil
import subprocess
import sys

import pytest
from harness.subjects import spawned

SOURCE = """
namespace deep { __attribute__((noinline)) int in_the_library(int n) { asm volatile(""); return n + 1; } }
extern "C" int plain_function(int n) { return deep::in_the_library(n); }
"""
PROGRAM = """
import ctypes, sys, time
library = ctypes.CDLL(sys.argv[1])
print("ready", flush=True)
while True:
    library.plain_function(3)
    time.sleep(0.02)
"""
# a function without name or call-frame information, in memory of no file, that calls back
MADE_AT_RUN_TIME = """
import ctypes, mmap, sys, time
code = bytes.fromhex("554889e5ffd7c9c3")  # push rbp; mov rbp, rsp; call rdi; leave; ret: no plain pops
memory = mmap.mmap(-1, 4096, prot=7)
memory.write(code)
there = ctypes.addressof(ctypes.c_char.from_buffer(memory))
back = ctypes.CFUNCTYPE(None)(lambda: (print("ready", flush=True), time.sleep(600)))
ctypes.CFUNCTYPE(None, ctypes.c_void_p)(there)(ctypes.cast(back, ctypes.c_void_p))
"""


@pytest.fixture
def started(tmp_path):
    """-> function: (program, *arguments) -> pid of a process that has said that it is ready."""
    with contextlib.ExitStack() as ends:

        def start(program, *arguments):
            path = tmp_path / "program.py"
            path.write_text(program)
            return ends.enter_context(spawned([sys.executable, path, *arguments], ready="ready")).pid

        yield start


def test_break_names_the_library_and_llm_symbols_sets_it(gdb, started, tmp_path):
    compiler = shutil.which("g++")
    if not compiler:
        pytest.skip("no g++")
    (tmp_path / "deep.cpp").write_text(SOURCE)
    library = str(tmp_path / "libdeep_down.so")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, tmp_path / "deep.cpp"], check=True)
    pid = started(PROGRAM, library)
    said = gdb(
        [
            f"llm-attach {pid}",
            "break in_the_library",
            "break deep::in_the_library",
            "break plain_functoin",
            "llm-symbols deep_down",
            "continue",
            "bt 1",
            "delete",
            "llm-detach",
            "show breakpoint pending",
        ]
    )
    for text, name in zip(said.outputs[1:], ("in_the_library", "deep::in_the_library")):
        assert f"({name} is in {library}, which gdb has not read: llm-symbols libdeep_down.so does it)" in text, said.text
    assert "no library of the process has a function plain_functoin" in said.outputs[3]
    assert "libdeep_down.so  read" in said.outputs[4]
    assert re.search(r"Breakpoint [12](\.\d)?, ", said.outputs[5]), said.text
    assert "in_the_library" in said.outputs[6]
    assert "auto" in said.outputs[9]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="machine code of x86-64")
def test_llm_bt_says_what_keeps_a_frame_unknown(gdb, started):
    pid = started(MADE_AT_RUN_TIME)
    said = gdb([f"llm-attach {pid}", "llm-bt -raw", "llm-bt -raw -json"])
    frames = said.json(2)["threads"][0]["frames"]
    made = next(i for i, f in enumerate(frames) if "made at run time" in f.get("doubt", ""))
    assert not frames[made]["function"] and frames[made]["reliable"]
    older = frames[made + 1]
    assert not older["reliable"] and f"the code at {frames[made]['pc']} has no call-frame information" in older["doubt"], older
    assert "??" in said.outputs[1] and "made at run time" in said.outputs[1]
    assert "(not vouched for: guessed, for the code at 0x" in said.outputs[1]
