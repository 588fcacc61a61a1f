"""A script runs inside a process that was running already: by remote execution on 3.14 and later, by a guarded call before."""

import json
import os
import platform
import subprocess
import time

import pytest

from gdbrun import run_gdb
from pysubjects import PYTHONS
from test_pybreak import OFF, started

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="debug registers of x86-64")


def calls_work():
    with open("/proc/cpuinfo") as f:
        return "amx_tile" not in f.read()


def is_new(python):
    said = subprocess.run([python, "-c", "import sys; print(sys.version_info[:2] >= (3, 14))"], stdout=subprocess.PIPE, text=True, check=True)
    return said.stdout.strip() == "True"


@pytest.mark.parametrize("python", PYTHONS, ids=os.path.basename)
def test_a_file_runs_in_the_process_which_goes_on(python, gdb_path, tmp_path):
    new = is_new(python)
    out = tmp_path / "told"
    body = tmp_path / "body.py"
    body.write_text(f"import json, os, sys\nwith open({str(out)!r}, 'w') as f:\n    json.dump([os.getpid(), 'breakpoints.py' in sys.argv[0]], f)\n")
    with started(python, tmp_path) as subject:
        pid = subject.pid
        attach = [] if new else [f"attach {pid}"]
        said = run_gdb(gdb_path, [*attach, f"llm-inject {body} {pid}", f"llm-inject -unsafe -json {body} {pid}"], timeout=40, before=OFF)
        at = len(attach)
        assert "add -unsafe" in said.outputs[at]
        if not new and not calls_work():
            assert "cannot call functions on a CPU with AMX" in said.outputs[at + 1]
        else:
            assert said.json(at + 1)["started"][0]["ok"] is True, said.outputs[at + 1]
            assert json.loads(out.read_text()) == [pid, True]
        with open(subject.go + ".new", "w") as f:
            f.write("run")
        os.rename(subject.go + ".new", subject.go)
        assert subject.tally()["run"] == 300


def test_faulthandler_and_an_error_in_the_script(gdb_path, tmp_path):
    bad = tmp_path / "bad.py"
    bad.write_text("raise RuntimeError('from inside')\n")
    with started(PYTHONS[-1], tmp_path) as subject:
        attach = [] if is_new(PYTHONS[-1]) else [f"attach {subject.pid}"]
        said = run_gdb(gdb_path, [*attach, f"llm-inject -unsafe -json faulthandler {subject.pid}", f"llm-inject -unsafe {bad} {subject.pid}", f"llm-inject -unsafe nosuch {subject.pid}"], timeout=40, before=OFF)
        found = said.json(len(attach))["started"][0]
        with open(found["file"]) as f:
            assert "most recent call first" in f.read()
        assert "RuntimeError: from inside" in said.outputs[len(attach) + 1] and "none of debugpy, pdb, faulthandler and no file" in said.outputs[len(attach) + 2]


def test_a_main_thread_that_is_stuck_in_c_is_said(gdb_path, tmp_path):
    with started(PYTHONS[-1], tmp_path) as subject:
        with open(subject.go + ".new", "w") as f:
            f.write("stuck")
        os.rename(subject.go + ".new", subject.go)
        time.sleep(0.5)
        attach = [] if is_new(PYTHONS[-1]) else [f"attach {subject.pid}"]
        said = run_gdb(gdb_path, [*attach, f"llm-inject -unsafe -timeout 1 faulthandler {subject.pid}"], timeout=40, before=OFF)
    assert "main thread" in said.outputs[-1] and "\n" not in said.outputs[-1].strip()
