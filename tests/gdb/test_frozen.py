"""Processes whose control group is frozen (docker pause): said to be so, read all the same, and no gdb waits for them."""

import functools
import os
import signal
import subprocess
import sys
import time

import pytest
from harness import cgroups
from harness.answers import answer
from harness.gdb_run import INIT, run_gdb
from harness.heartbeats import eventually, heartbeats
from harness.subjects import spawned

from gdbext.access import ptrace
from gdbext.access.cgroups import frozen_by

KINDS = {"v1": "/sys/fs/cgroup/freezer", "v2": cgroups.unified()}
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


@pytest.fixture(params=[(kind, above) for kind in KINDS for above in (False, True)], ids=lambda p: f"{p[0]}{'-above' * p[1]}")
def frozen(request, tmp_path):
    """-> (a process, the folder of the frozen group: its own, or the one above it)"""
    kind, above = request.param
    top = KINDS[kind] if KINDS[kind] and os.path.isdir(KINDS[kind]) else None
    with cgroups.made(top) as outer, cgroups.made(top, outer) as inner, heartbeats(tmp_path, 1) as (one,):
        assert one.runs() and not frozen_by(one.pid)
        cgroups.join(inner, one.pid)
        cgroups.freeze(outer if above else inner)
        eventually(lambda: frozen_by(one.pid), "the freeze")
        yield one, outer if above else inner
        cgroups.thaw(outer if above else inner)
        assert one.runs(), "it runs on when it is thawed"


def test_a_frozen_process_is_called_so_and_its_stacks_are_read(frozen):
    one, folder = frozen
    found = answer(f"llm-hang -wait 0.3 {one.pid} -json")
    assert (found["verdict"], [place["pid"] for place in found["culprits"]]) == ("frozen", [one.pid])
    assert any(folder in line for line in found["evidence"]), found["evidence"]
    groups = answer(f"llm-stacks {one.pid} -json")["groups"]
    functions = {f["function"] for g in groups for f in g["frames"]}
    assert "beat" in " ".join(functions) or "<module>" in functions, functions
    assert not ptrace.tracers(one.pid)


def test_gdb_does_not_wait_for_it(frozen, gdb_path):
    one, folder = frozen
    for command in (f"llm-attach {one.pid}", f"llm-attach -force {one.pid}"):
        said = run_gdb(gdb_path, [command], timeout=60).outputs[0]
        assert "frozen" in said and folder in said and len(said.splitlines()) == 1, said
    assert not ptrace.tracers(one.pid)


def test_a_gdb_that_waits_for_a_thaw_is_ended_by_sigterm(tmp_path, gdb_path):
    """A process that is frozen between the look and the attach: made so by taking the look out."""
    with cgroups.made(cgroups.unified()) as group, heartbeats(tmp_path, 1) as (one,):
        cgroups.join(group, one.pid)
        cgroups.freeze(group)
        eventually(lambda: frozen_by(one.pid), "the freeze")
        blind = "python import gdbext.control.attach_checks as c; c._refuse_frozen = lambda pid: None"
        words = [gdb_path, "-nx", "-q", "-batch", "-ex", f"source {INIT}", "-ex", blind, "-ex", f"llm-attach -force {one.pid}"]
        null = subprocess.DEVNULL
        with spawned(words, stdin=null, stdout=null, stderr=null, start_new_session=True) as gdb:
            eventually(lambda: ptrace.tracers(one.pid), "the attach")
            time.sleep(0.5)
            gdb.send_signal(signal.SIGTERM)
            gdb.wait(30)
        cgroups.thaw(group)
        assert one.runs()


def test_the_command_that_looks_at_it_ends_by_sigterm_and_ctrl_c(frozen):
    one, _ = frozen
    for number in (signal.SIGTERM, signal.SIGINT):
        words = [sys.executable, "-m", "gdbext", "llm-hang", "-wait", "30", str(one.pid)]
        wakes = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background job ignores it
        with spawned(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=wakes) as command:
            time.sleep(1.0)
            command.send_signal(number)
            command.wait(120)
    assert not ptrace.tracers(one.pid)
